//! The cheapest set of nodes that separates a source from a sink.

use std::collections::VecDeque;

/// More than all costs together.
const UNBOUNDED: u64 = u64::MAX / 4;

/// A network whose nodes cost something to cut; node `n` is an edge from `2 n` to `2 n + 1`.
pub(super) struct Network {
    /// Target and what is left of the capacity; an edge's reverse is next to it (`^ 1`).
    edges: Vec<(usize, u64)>,
    /// The edges of each end of a node.
    from: Vec<Vec<usize>>,
}

impl Network {
    /// Nodes that cost so much each.
    pub(super) fn of(costs: &[u64]) -> Network {
        let ends = 2 * costs.len() + 2;
        let mut network = Network { edges: Vec::new(), from: vec![Vec::new(); ends] };
        for (node, cost) in costs.iter().enumerate() {
            network.edge(2 * node, 2 * node + 1, (*cost).min(UNBOUNDED / 2));
        }
        network
    }

    fn edge(&mut self, from: usize, to: usize, capacity: u64) {
        self.from[from].push(self.edges.len());
        self.edges.push((to, capacity));
        self.from[to].push(self.edges.len());
        self.edges.push((from, 0));
    }

    fn source(&self) -> usize {
        self.from.len() - 2
    }

    fn sink(&self) -> usize {
        self.from.len() - 1
    }

    /// What is behind the second node can be had from the first.
    pub(super) fn leads(&mut self, node: usize, to: usize) {
        self.edge(2 * node + 1, 2 * to, UNBOUNDED);
    }

    pub(super) fn leads_from_source(&mut self, node: usize) {
        self.edge(self.source(), 2 * node, UNBOUNDED);
    }

    pub(super) fn leads_to_sink(&mut self, node: usize) {
        self.edge(2 * node + 1, self.sink(), UNBOUNDED);
    }

    /// The nodes of the cheapest cut, those nearest to the source.
    pub(super) fn cut(mut self) -> Vec<usize> {
        while self.augment() {}
        let (reached, _) = self.reached();
        let nodes = 0..(self.from.len() - 2) / 2;
        nodes.filter(|node| reached[2 * node] && !reached[2 * node + 1]).collect()
    }

    /// What the source reaches, and the edge that each was reached by.
    fn reached(&self) -> (Vec<bool>, Vec<usize>) {
        let mut reached = vec![false; self.from.len()];
        let mut by = vec![usize::MAX; self.from.len()];
        let mut open = VecDeque::from([self.source()]);
        reached[self.source()] = true;
        while let Some(at) = open.pop_front() {
            for edge in &self.from[at] {
                let (to, left) = self.edges[*edge];
                if left > 0 && !reached[to] {
                    (reached[to], by[to]) = (true, *edge);
                    open.push_back(to);
                }
            }
        }
        (reached, by)
    }

    /// Sends what one shortest path holds; whether there was one.
    fn augment(&mut self) -> bool {
        let (reached, by) = self.reached();
        if !reached[self.sink()] {
            return false;
        }
        let mut path = Vec::new();
        let mut at = self.sink();
        while at != self.source() {
            path.push(by[at]);
            at = self.edges[by[at] ^ 1].0;
        }
        let least = path.iter().map(|edge| self.edges[*edge].1).min().unwrap_or(0);
        for edge in path {
            self.edges[edge].1 -= least;
            self.edges[edge ^ 1].1 += least;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cheapest set by trying all.
    fn least(costs: &[u64], edges: &[(usize, usize)], first: &[usize], last: &[usize]) -> u64 {
        let separates = |set: usize| {
            let mut open: Vec<usize> =
                first.iter().copied().filter(|at| set >> at & 1 == 0).collect();
            let mut seen = open.clone();
            while let Some(at) = open.pop() {
                for (from, to) in edges {
                    if *from == at && set >> to & 1 == 0 && !seen.contains(to) {
                        seen.push(*to);
                        open.push(*to);
                    }
                }
            }
            !last.iter().any(|at| seen.contains(at))
        };
        let cost = |set: usize| {
            let own = (0..costs.len()).filter(|at| set >> at & 1 == 1);
            own.map(|at| costs[at]).sum::<u64>()
        };
        let sets = 0..1usize << costs.len();
        sets.filter(|set| separates(*set)).map(cost).min().expect("all nodes separate")
    }

    #[test]
    fn cuts_are_the_cheapest() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let count = random.usize(2..9);
            let costs: Vec<u64> = (0..count).map(|_| random.u64(1..20)).collect();
            let mut edges = Vec::new();
            for from in 0..count {
                for to in from + 1..count {
                    if random.usize(0..3) == 0 {
                        edges.push((from, to));
                    }
                }
            }
            let first: Vec<usize> = (0..count).filter(|_| random.bool()).collect();
            let last: Vec<usize> = (0..count).filter(|_| random.usize(0..3) == 0).collect();
            let mut network = Network::of(&costs);
            edges.iter().for_each(|(from, to)| network.leads(*from, *to));
            first.iter().for_each(|at| network.leads_from_source(*at));
            last.iter().for_each(|at| network.leads_to_sink(*at));
            let found: u64 = network.cut().iter().map(|at| costs[*at]).sum();
            assert_eq!(found, least(&costs, &edges, &first, &last));
        }
    }
}
