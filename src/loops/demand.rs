//! What the outputs of a network that has run needed, of its elements: whether something that did
//! not exist was among it.
//!
//! A run evaluates more than lazy sequences need: the next value of a recurrence in the last trip,
//! for instance. What went wrong there is no error. So a run notes how often each loop was gone
//! through and which branches were taken, and asks here once something was out of the ordinary.

use std::collections::{HashMap, HashSet};

use crate::loops::layer::{Layer, Loop, TripLimit};
use crate::loops::network::Network;
use crate::loops::trouble::Trouble;

/// Trips of the loops around something, the outermost first.
type Trips = Vec<i64>;

/// What a run noted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    /// Trips that were made of each loop, in each of the trips around it.
    pub(crate) trips: HashMap<(Loop, Trips), i64>,
    /// Loops that their count ended.
    pub(crate) counted: HashSet<(Loop, Trips)>,
    /// Loops whose condition was still true after the most trips.
    pub(crate) endless: HashSet<(Loop, Trips)>,
    /// The condition of each conditional, given by its first result.
    pub(crate) taken: HashMap<(i64, Trips), bool>,
}

impl Network {
    /// Something that the outputs need and that does not exist; of several the first.
    pub(crate) fn trouble(&self, trace: &Trace) -> Option<Trouble> {
        let mut demand = Demand { network: self, trace, seen: HashSet::new(), open: Vec::new() };
        for output in self.outputs() {
            demand.need(output.uid, &HashMap::new());
        }
        let mut first: Option<Trouble> = None;
        while let Some((uid, trips)) = demand.open.pop() {
            let trouble = demand.visit(uid, &trips);
            first = first.into_iter().chain(trouble).min();
        }
        first
    }
}

struct Demand<'a> {
    network: &'a Network,
    trace: &'a Trace,
    seen: HashSet<(i64, Trips)>,
    open: Vec<(i64, HashMap<Loop, i64>)>,
}

impl Demand<'_> {
    fn need(&mut self, uid: i64, trips: &HashMap<Loop, i64>) {
        let key = key(self.network.nest(uid), trips);
        if self.seen.insert((uid, key)) {
            self.open.push((uid, trips.clone()));
        }
    }

    /// Notes what an element needs in turn.
    fn visit(&mut self, uid: i64, trips: &HashMap<Loop, i64>) -> Option<Trouble> {
        let network = self.network;
        match network.writer(uid)? {
            Layer::Operation(operation) => {
                operation.inputs.iter().for_each(|uid| self.need(*uid, trips));
            }
            Layer::TripLimit { .. } => {}
            Layer::Iterator { of, x, axis, y, .. } => {
                let element = trips[of];
                if element >= network.tensor(*x).map_or(0, |x| x.dims[*axis]) {
                    return Some(Trouble::PastEnd { y: *y, element });
                }
                self.need(*x, trips);
            }
            Layer::Recurrence { of, initial, next, .. } => match trips[of] {
                0 => self.need(*initial, trips),
                trip => self.need(*next, &with(trips, *of, trip - 1)),
            },
            Layer::LoopOutput { of, output, x, y } => {
                let own = (*of, key(network.around(*of), trips));
                let n = *self.trace.trips.get(&own)?;
                self.limits(*of, trips, n);
                if self.trace.endless.contains(&own) {
                    return Some(Trouble::Endless { of: *of });
                }
                match output.concatenated() {
                    None => self.need(*x, &with(trips, *of, n)),
                    Some((_, length)) if n > length => {
                        return Some(Trouble::TooLong { y: *y, trips: n });
                    }
                    Some(_) => (0..n).for_each(|trip| self.need(*x, &with(trips, *of, trip))),
                }
            }
            Layer::Conditional { condition, results } => {
                self.need(*condition, trips);
                let path = key(network.nest(uid), trips);
                let is_true = *self.trace.taken.get(&(results[0].y, path))?;
                let own = results.iter().find(|of| of.y == uid)?;
                self.need(if is_true { own.then } else { own.otherwise }, trips);
            }
        }
        None
    }

    /// What the number of trips needs: the conditions up to the false one, unless the count ended
    /// the loop before.
    fn limits(&mut self, of: Loop, trips: &HashMap<Loop, i64>, n: i64) {
        let count = self.network.limit(of, TripLimit::Count);
        if let Some(count) = count {
            self.need(count, trips);
        }
        if let Some(condition) = self.network.limit(of, TripLimit::While) {
            (0..n).for_each(|trip| self.need(condition, &with(trips, of, trip)));
            if !self.trace.counted.contains(&(of, key(self.network.around(of), trips))) {
                self.need(condition, &with(trips, of, n));
            }
        }
    }
}

fn key(nest: &[Loop], trips: &HashMap<Loop, i64>) -> Trips {
    nest.iter().map(|of| trips[of]).collect()
}

fn with(trips: &HashMap<Loop, i64>, of: Loop, trip: i64) -> HashMap<Loop, i64> {
    let mut trips = trips.clone();
    trips.insert(of, trip);
    trips
}
