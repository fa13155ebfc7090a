//! The ways of warps through a kernel: walks along the edges that a launch takes.

use crate::architecture::Architecture;
use crate::cubin::Code;
use crate::execution::Execution;
use crate::flow::{Flow, Loop};
use crate::instruction::Instruction;
use crate::role::Role;
use crate::walk::Walk;
use std::collections::{BTreeMap, BTreeSet};

/// Ways that warps of a role go.
const WAYS: usize = 4;
/// Instructions of a way.
const STEPS_MAX: f64 = 3e6;
/// Iterations of a loop until it repeats itself.
const WARM: usize = 8;

/// The ways of warps through a kernel.
#[derive(Debug)]
pub(crate) struct Path<'a> {
    pub code: &'a Code,
    pub flow: &'a Flow,
    roles: &'a [Role],
    pub architecture: &'a Architecture,
    /// Clocks of a load from global memory.
    pub global: f64,
    /// Clocks from a publication to when a loop that polls sees it, by the loop's header.
    flights: Vec<Option<f64>>,
}

/// The edges that a warp takes, one after another.
struct Turns<'a> {
    flow: &'a Flow,
    execution: &'a Execution,
    visits: Vec<f64>,
    taken: Vec<f64>,
    ended: Vec<f64>,
}

/// Whether a loop polls: it waits for other warps or blocks.
fn is_poll(code: &Code, flow: &Flow, each: &Loop) -> bool {
    let inner = flow
        .loops
        .iter()
        .any(|other| other.header != each.header && each.blocks.contains(&other.header));
    let indices = each.blocks.iter().flat_map(|&block| flow.blocks[block].instructions.clone());
    let mut asks = false;
    for instruction in indices.map(|at| &code.instructions[at]) {
        let ptx = code.ptx_of(instruction).unwrap_or_default();
        match instruction.name() {
            "SYNCS" => asks |= instruction.waits_for_barrier(),
            "LDG" | "LD" => {
                asks |= ["ld.relaxed", "ld.acquire", "ld.volatile"]
                    .iter()
                    .any(|strong| ptx.contains(strong));
            }
            "STG" | "ST" | "STS" | "STAS" | "BAR" | "ATOMG" | "REDG" | "UTMALDG" | "LDGSTS" => {
                return false;
            }
            "HMMA" | "IMMA" | "HGMMA" | "QGMMA" | "IGMMA" | "MUFU" => return false,
            _ => {}
        }
    }
    asks && !inner
}

/// Loops that poll.
pub(crate) fn polls(code: &Code, flow: &Flow) -> BTreeSet<usize> {
    (0..flow.loops.len()).filter(|&at| is_poll(code, flow, &flow.loops[at])).collect()
}

/// Lines of PTX that instructions of loops come from.
pub(crate) fn lines(code: &Code, flow: &Flow, loops: &BTreeSet<usize>) -> BTreeSet<u32> {
    let blocks = loops.iter().flat_map(|&at| &flow.loops[at].blocks);
    let indices = blocks.flat_map(|&block| flow.blocks[block].instructions.clone());
    indices.filter_map(|at| code.instructions[at].ptx_line).collect()
}

/// Clocks from a publication to when each loop that polls has seen what it waits for, by the loop's
/// header: what a block receives, and what all of them poll, takes its time too.
fn flights(
    code: &Code,
    flow: &Flow,
    execution: &Execution,
    (architecture, polls): (&Architecture, &BTreeSet<usize>),
    pushed: f64,
) -> Vec<Option<f64>> {
    let latencies = &architecture.latencies;
    let instructions = |each: &Loop| {
        let indices = each.blocks.iter().flat_map(|&block| flow.blocks[block].instructions.clone());
        indices.map(|at| &code.instructions[at]).collect::<Vec<_>>()
    };
    let is_pushed = |each: &Loop| instructions(each).iter().any(|of| of.name() == "SYNCS");
    let polls = || polls.iter().map(|&at| &flow.loops[at]);
    let waits = polls().filter(|each| is_pushed(each)).map(|each| execution.entries(flow, each));
    let waits = (waits.sum::<f64>() / execution.warps).max(1.0);
    let mut flights = vec![None; flow.blocks.len()];
    for each in polls() {
        flights[each.header] = Some(match is_pushed(each) {
            true => latencies.cluster + pushed / waits * architecture.cluster_sector,
            false => {
                let loads = instructions(each).into_iter().filter(|of| of.name() == "LDG");
                let bytes: u32 = loads.map(|of| 32 * of.bytes()).sum();
                let polled = f64::from(bytes) * execution.warps;
                latencies.hand_off + polled / architecture.polled_bytes
            }
        });
    }
    flights
}

impl<'a> Path<'a> {
    /// The ways of all roles through a kernel of whose blocks each receives `pushed` sectors from
    /// others of its cluster.
    pub fn new(
        code: &'a Code,
        flow: &'a Flow,
        (execution, roles): (&Execution, &'a [Role]),
        architecture: &'a Architecture,
        polls: &BTreeSet<usize>,
        pushed: f64,
    ) -> Path<'a> {
        let flights = flights(code, flow, execution, (architecture, polls), pushed);
        Path { code, flow, roles, architecture, global: architecture.latencies.l2, flights }
    }

    /// The blocks that the warps of a thread block go through, one by one, and behind those the
    /// ways of further warps of each role: they differ where branches do.
    pub fn routes(&self, warps_block: u64) -> Vec<Vec<usize>> {
        let mut routes = vec![Vec::new(); warps_block as usize];
        for role in self.roles {
            let mut turns = Turns::new(self.flow, &role.execution);
            let own: Vec<Vec<usize>> = (0..WAYS).map(|_| self.route(&mut turns)).collect();
            for (&warp, route) in role.warps.iter().zip(own.iter().cycle()) {
                if let Some(of) = routes.get_mut(warp) {
                    of.clone_from(route);
                }
            }
            routes.extend(own.into_iter().skip(role.warps.len()));
        }
        routes
    }

    /// The way of a warp from the kernel's start to its end; where the launch says too little of
    /// how it leaves a loop, as much of it as a warp executes.
    fn route(&self, turns: &mut Turns<'a>) -> Vec<usize> {
        let execution = turns.execution;
        let blocks = self.flow.blocks.iter().zip(&execution.blocks);
        let steps: f64 = blocks.map(|(block, times)| block.instructions.len() as f64 * times).sum();
        let mean = steps / execution.warps;
        let steps_max = (4.0 * mean + 1000.0).min(STEPS_MAX);
        let (mut route, mut block, mut steps, mut of_mean) = (Vec::new(), 0, 0.0, 0);
        loop {
            route.push(block);
            if steps < mean {
                of_mean = route.len();
            }
            steps += self.flow.blocks[block].instructions.len() as f64;
            match turns.next(block, |_| true) {
                Some(next) if steps < steps_max => block = next,
                Some(_) => {
                    route.truncate(of_mean);
                    return route;
                }
                None => return route,
            }
        }
    }

    /// Clocks of the longest way of a warp that has the SM for itself.
    pub fn longest(&self, routes: &[Vec<usize>]) -> f64 {
        let walk = |route: &Vec<usize>| {
            let mut way = Way::new(self);
            for &block in route {
                way.pass(self, block, |_, _| ());
            }
            way.walk.clock()
        };
        let distinct: BTreeSet<&Vec<usize>> = routes.iter().collect();
        distinct.into_iter().map(walk).fold(0.0, f64::max)
    }

    /// Clocks of an iteration of a loop by a warp that does most in it, once it repeats itself, and
    /// those at which each of its instructions issues then, from the iteration's start on.
    pub fn iteration(&self, each: &Loop) -> (f64, BTreeMap<usize, f64>) {
        let executed = |role: &&Role| {
            let blocks = each.blocks.iter().map(|&block| {
                self.flow.blocks[block].instructions.len() as f64 * role.execution.blocks[block]
            });
            blocks.sum::<f64>() / role.execution.warps
        };
        let busiest = self.roles.iter().max_by(|a, b| executed(a).total_cmp(&executed(b)));
        let Some(busiest) = busiest else { return (0.0, BTreeMap::new()) };
        let mut turns = Turns::new(self.flow, &busiest.execution);
        let mut way = Way::new(self);
        let (mut starts, mut issues) = (Vec::new(), BTreeMap::new());
        let (mut block, mut steps) = (each.header, 0);
        while starts.len() <= 2 * WARM && steps < 1_000_000 {
            if block == each.header {
                starts.push(way.walk.clock());
            }
            let start = starts.last().copied().unwrap_or_default();
            steps += way.pass(self, block, |index, clock| {
                issues.insert(index, clock - start);
            });
            match turns.next(block, |to| each.blocks.contains(&to)) {
                Some(next) => block = next,
                None => break,
            }
        }
        match (starts.get(WARM), starts.get(2 * WARM)) {
            (Some(first), Some(last)) => ((last - first) / WARM as f64, issues),
            _ => (way.walk.clock(), issues),
        }
    }
}

impl<'a> Turns<'a> {
    fn new(flow: &'a Flow, execution: &'a Execution) -> Turns<'a> {
        Turns {
            flow,
            execution,
            visits: vec![0.0; flow.blocks.len()],
            taken: vec![0.0; flow.edges.len()],
            ended: vec![0.0; flow.blocks.len()],
        }
    }

    /// The block after this one. Of several, one that is taken less often comes as soon as it is
    /// due, by how often the launch takes it.
    fn next(&mut self, block: usize, inside: impl Fn(usize) -> bool) -> Option<usize> {
        let left = &self.flow.blocks[block].left_by;
        let open = || left.iter().copied().filter(|&edge| inside(self.flow.edges[edge].to));
        let taken: f64 = open().map(|edge| self.execution.edges[edge]).sum();
        let all = match self.flow.blocks[block].ends {
            true => self.execution.blocks[block].max(taken),
            false => taken,
        };
        self.visits[block] += 1.0;
        let visits = self.visits[block];
        let share = |times: f64| if all > 0.0 { times / all } else { 0.0 };
        let ends = if self.flow.blocks[block].ends { share(all - taken) } else { 0.0 };
        let mut options: Vec<(Option<usize>, f64, f64)> = open()
            .map(|edge| (Some(edge), share(self.execution.edges[edge]), self.taken[edge]))
            .collect();
        if self.flow.blocks[block].ends {
            options.push((None, ends, self.ended[block]));
        }
        let due = |&(_, share, taken): &(Option<usize>, f64, f64)| share * visits - taken;
        let most = options.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied()?;
        let late = options.iter().filter(|each| each.0 != most.0 && due(each) > 1.0 - 1e-3);
        let chosen = late.max_by(|a, b| due(a).total_cmp(&due(b))).copied().unwrap_or(most);
        match chosen.0 {
            Some(edge) => {
                self.taken[edge] += 1.0;
                Some(self.flow.edges[edge].to)
            }
            None => {
                self.ended[block] += 1.0;
                None
            }
        }
    }
}

/// A warp that does what the others do at the same time: what it publishes, they publish too.
pub(crate) struct Way<'a> {
    pub walk: Walk<'a>,
    published: f64,
}

impl<'a> Way<'a> {
    pub fn new(path: &Path<'a>) -> Way<'a> {
        Way { walk: Walk::new(path.architecture, path.global), published: f64::NEG_INFINITY }
    }

    /// Comes to a block.
    pub fn enter(&mut self, path: &Path<'_>, block: usize) {
        if let Some(flight) = path.flights[block] {
            let left = self.published + flight - self.walk.clock();
            self.walk.wait(left.max(0.0));
        }
    }

    /// Issues an instruction; returns the clock at which it did.
    pub fn step(&mut self, code: &Code, instruction: &Instruction) -> f64 {
        let at = self.walk.step(instruction);
        if publishes(code, instruction) {
            self.published = at;
        }
        at
    }

    /// Walks through a block, and says when each instruction issued; returns their number.
    fn pass(&mut self, path: &Path<'_>, block: usize, mut issued: impl FnMut(usize, f64)) -> usize {
        self.enter(path, block);
        let range = path.flow.blocks[block].instructions.clone();
        for at in range.clone() {
            issued(at, self.step(path.code, &path.code.instructions[at]));
        }
        range.len()
    }
}

/// Whether all warps of a thread block wait for each other here.
pub(crate) fn meets(code: &Code, instruction: &Instruction) -> bool {
    let ptx = || code.ptx_of(instruction).unwrap_or_default();
    let all = |ptx: &str| {
        // A second operand is the number of threads.
        ["bar.sync", "barrier.sync"].iter().any(|op| ptx.starts_with(op)) && !ptx.contains(',')
    };
    instruction.name() == "BAR" && all(ptx())
}

/// Whether other blocks may wait for what an instruction writes.
fn publishes(code: &Code, instruction: &Instruction) -> bool {
    let ptx = || code.ptx_of(instruction).unwrap_or_default();
    match instruction.name() {
        "STAS" => true,
        "STG" | "ST" => {
            ["st.relaxed", "st.release", "st.volatile"].iter().any(|op| ptx().contains(op))
        }
        "ATOMG" | "ATOM" | "REDG" => true,
        _ => false,
    }
}
