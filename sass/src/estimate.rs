//! How long a launch takes: the longest warp's way, and what all warps keep busy.

use crate::architecture::{Architecture, SCHEDULERS};
use crate::cubin::Code;
use crate::execution::Execution;
use crate::finding::{self, Finding};
use crate::flow::{Flow, Loop};
use crate::instruction::Instruction;
use crate::l2::TileOrder;
use crate::opcode::Pipe;
use crate::path::{self, Path};
use crate::role::{self, Role};
use crate::sm;
use kiln_machine::{Machine, Occupancy, Resources};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A launch, with what a simulator or a profile counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Launch<'a> {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Blocks that were counted for all, evenly among them.
    pub counted: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Shared memory of a block, static and dynamic, in bytes.
    pub shared_bytes: u32,
    /// Executions of PTX lines by each warp of a block, in all blocks.
    pub lines: &'a BTreeMap<u32, Vec<u64>>,
    /// Passes over the banks of shared memory.
    pub wavefronts: u64,
    /// Passes that loads save because pairs of lanes load the same.
    pub paired: u64,
    /// Bytes that asynchronous copies write to shared memory.
    pub copied_bytes: u64,
    /// Sectors of 32 bytes of shared memory that other blocks of a cluster write.
    pub cluster_sectors: u64,
    /// Bytes that are asked of L1 and L2.
    pub l2_bytes: u64,
    /// Bytes of those that L2 is asked for whatever L1 holds: copies, stores, accesses that other
    /// blocks see.
    pub beyond_l1_bytes: u64,
    /// Bytes that device memory reads and writes if L2 keeps what was read.
    pub dram_bytes: u64,
    /// The order in which blocks read, if it is known: what L2 does not keep is read again.
    pub order: Option<&'a TileOrder>,
}

/// What a launch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bound {
    /// The way of its longest warp.
    Latency,
    /// The way of a thread block whose warps share pipes and wait for each other at barriers.
    Phases,
    /// Issue slots.
    Issue,
    /// A pipe.
    Pipe(Pipe),
    /// The banks of shared memory.
    Shared,
    /// L2.
    L2,
    /// Device memory.
    Dram,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Bound::Latency => "latency",
            Bound::Phases => "phases",
            Bound::Issue => "issue",
            Bound::Pipe(pipe) => pipe.name(),
            Bound::Shared => "shared memory",
            Bound::L2 => "L2",
            Bound::Dram => "device memory",
        })
    }
}

/// Clocks of one bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Clocks {
    /// What is waited for.
    pub bound: Bound,
    /// Clocks of the launch.
    pub clocks: f64,
}

/// What the instructions of a loop, or of a kernel, keep busy.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Mix {
    /// Instructions of one warp.
    pub instructions: f64,
    /// Instructions of one warp by pipe, and the clocks for which they keep it busy.
    pub pipes: BTreeMap<&'static str, (f64, f64)>,
}

/// A loop of the machine code.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoopEstimate {
    /// Address of its first instruction, and behind its last one.
    pub addresses: (u32, u32),
    /// First and last line of CUDA that its instructions come from.
    pub lines: Option<(u32, u32)>,
    /// Loops around it.
    pub depth: usize,
    /// Instructions of its blocks.
    pub instructions: usize,
    /// Iterations by all warps, and for each time that a warp enters it.
    pub iterations: f64,
    /// Iterations for each time that a warp enters it.
    pub trips: f64,
    /// Share of all instructions that are executed in it.
    pub share: f64,
    /// Clocks of an iteration of a warp that has the SM for itself.
    pub walk: f64,
    /// The clock of that walk at which the instruction at each address issues.
    #[serde(skip)]
    pub issues: BTreeMap<u32, f64>,
    /// What an iteration of a warp keeps busy.
    pub mix: Mix,
    /// Whether it waits for other warps or blocks: its iterations are not of the code's making.
    pub waits: bool,
}

/// How long a launch takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Estimate {
    /// Name of the GPU.
    pub machine: &'static str,
    /// Clocks.
    pub clocks: f64,
    /// The clock in Hz: below boost as far as tensor cores are busy.
    pub clock_hz: f64,
    /// Microseconds.
    pub us: f64,
    /// Clocks of every bound, the largest first.
    pub bounds: Vec<Clocks>,
    /// Blocks that an SM holds.
    pub resident_blocks: u32,
    /// Times that it is filled.
    pub rounds: u64,
    /// Clocks of the longest warp's way.
    pub path: f64,
    /// What all instructions keep busy, for one warp on average.
    pub mix: Mix,
    /// Loops, in order of address.
    pub loops: Vec<LoopEstimate>,
    /// What costs without need.
    pub findings: Vec<Finding>,
}

impl Estimate {
    /// Estimates a launch of a kernel.
    ///
    /// Bounds that are near each other add up to more than the largest: the estimate is their norm
    /// of order 3. There is no time to start and to end a launch. Waiting for other warps is seen
    /// where it is a loop that polls, as one flight of what is waited for.
    pub fn of(code: &Code, machine: &Machine, launch: &Launch<'_>) -> Estimate {
        let flow = Flow::of(code);
        let warps_block = u64::from(launch.threads.div_ceil(32).max(1));
        let warps = launch.blocks.max(1) * warps_block;
        let all = launch.lines.iter().map(|(&line, warps)| (line, warps.iter().sum()));
        let execution = Execution::of(code, &flow, &all.collect(), warps);
        let polls = path::polls(code, &flow);
        let polled = path::lines(code, &flow, &polls);
        let roles = role::roles(code, &flow, launch.lines, [launch.blocks, warps_block], &polled);
        Estimate::with(code, &flow, &polls, (execution, roles), machine, launch)
    }

    /// Looks at a kernel of which nothing was counted, as a block of one warp: of the estimate, the
    /// loops, their walks and findings say something.
    pub fn uncounted(code: &Code, machine: &Machine) -> Estimate {
        let flow = Flow::of(code);
        let execution = Execution::assumed(&flow);
        let roles = vec![Role { warps: vec![0], execution: execution.clone() }];
        let launch = Launch {
            blocks: 1,
            counted: 1,
            threads: 32,
            shared_bytes: code.shared_bytes,
            lines: &BTreeMap::new(),
            wavefronts: 0,
            paired: 0,
            copied_bytes: 0,
            cluster_sectors: 0,
            l2_bytes: 0,
            beyond_l1_bytes: 0,
            dram_bytes: 0,
            order: None,
        };
        let polls = path::polls(code, &flow);
        Estimate::with(code, &flow, &polls, (execution, roles), machine, &launch)
    }

    fn with(
        code: &Code,
        flow: &Flow,
        polls: &BTreeSet<usize>,
        (mut execution, mut roles): (Execution, Vec<Role>),
        machine: &Machine,
        launch: &Launch<'_>,
    ) -> Estimate {
        let architecture = Architecture::of(code.architecture).on(machine);
        let warps_block = u64::from(launch.threads.div_ceil(32).max(1));
        let warps = launch.blocks.max(1) * warps_block;
        for &poll in polls {
            execution.once(flow, &flow.loops[poll]);
            roles.iter_mut().for_each(|role| role.execution.once(flow, &flow.loops[poll]));
        }
        let resources = Resources { registers: code.registers, shared_bytes: launch.shared_bytes };
        let occupancy = Occupancy::of(machine, launch.threads, resources);
        let resident = occupancy.blocks.max(1);
        let per_sm = launch.blocks.div_ceil(machine.sm_count.into()).max(1);
        let rounds = per_sm.div_ceil(resident.into());
        let again = launch.order.map_or(0, |order| {
            let at_once = u64::from(resident * machine.sm_count);
            order.dram_bytes(machine.l2_bytes, at_once) - order.distinct_bytes()
        });
        let dram_bytes = (launch.dram_bytes + again) as f64;
        let [busiest, mean] = steps_of(launch);

        let pushed = launch.cluster_sectors as f64 / launch.blocks.max(1) as f64;
        let mut path = Path::new(code, flow, (&execution, &roles), &architecture, polls, pushed);
        path.global = global_latency(&architecture, dram_bytes, launch.l2_bytes as f64);
        let routes = path.routes(warps_block);
        let longest = path.longest(&routes);
        let phases = sm::phases(&path, &routes, warps_block);

        let mix = mix(code, flow, &execution, &architecture, 0..flow.blocks.len(), 1.0);
        let of_sm = busiest * per_sm as f64 / launch.blocks.max(1) as f64;
        let scheduler = |clocks: f64| clocks * of_sm / SCHEDULERS;
        let mut bounds = vec![
            (Bound::Latency, longest * busiest * rounds as f64),
            (Bound::Phases, phases * busiest * rounds as f64),
            (Bound::Issue, scheduler(mix.instructions)),
        ];
        let mut tensor = 0.0;
        let operands = operand_bytes(code, flow, &execution);
        for pipe in Pipe::ALL {
            let busy = mix.pipes.get(pipe.name()).map_or(0.0, |&(_, busy)| busy);
            let clocks = match pipe {
                Pipe::Memory => (busy - launch.paired as f64).max(0.0) * of_sm,
                _ if pipe.is_shared() => busy * of_sm,
                _ => scheduler(busy),
            };
            if pipe == Pipe::Tensor {
                tensor = clocks;
            }
            // Banks are the memory pipe's: with conflicts, copies and operands of asynchronous
            // MMAs, they bind more.
            let passes = (launch.copied_bytes as f64 + operands) / WAVEFRONT_BYTES;
            let banks = (launch.wavefronts as f64 + passes) * of_sm;
            bounds.push(match pipe {
                Pipe::Memory if banks > clocks => (Bound::Shared, banks),
                _ => (Bound::Pipe(pipe), clocks),
            });
        }
        let mut seconds =
            vec![(Bound::Dram, dram_bytes / machine.dram_bytes_second / DRAM_REACHED)];
        if let Some(rate) = machine.l2_bytes_second {
            seconds.push((Bound::L2, mean * launch.beyond_l1_bytes as f64 / rate));
        }
        let (clock_hz, mut bounds) = clocked(machine, bounds, &seconds, tensor);
        let clocks = together(&bounds);
        bounds.sort_by(|a, b| b.clocks.total_cmp(&a.clocks));
        let all = mix.instructions.max(1.0);
        let mut loops: Vec<LoopEstimate> = (0..flow.loops.len())
            .map(|at| {
                let waits = polls.contains(&at);
                loop_estimate(code, flow, &execution, (&path, at), (all, waits))
            })
            .collect();
        loops.sort_by_key(|each| each.addresses);
        let findings = finding::find(code, flow, &execution, polls);
        let mean = Mix {
            instructions: mix.instructions / warps as f64,
            pipes: mix
                .pipes
                .into_iter()
                .map(|(name, (count, busy))| (name, (count / warps as f64, busy / warps as f64)))
                .collect(),
        };
        Estimate {
            machine: machine.name,
            clocks,
            clock_hz,
            us: clocks / clock_hz * 1e6,
            bounds,
            resident_blocks: occupancy.blocks,
            rounds,
            path: longest,
            mix: mean,
            loops,
            findings,
        }
    }
}

/// The order of the norm of bounds: with 1 none would overlap, without end the largest would hide
/// the others. Fitted to published times of GEMMs and attention on H100.
const OVERLAP: f64 = 3.0;

/// The share of a data sheet's bandwidth that memory reaches: 3.01 of 3.35 TB/s by a softmax that
/// nothing else binds on H100 (github.com/Dao-AILab/quack, media/2025-07-10-membound-sol.md).
const DRAM_REACHED: f64 = 0.9;

/// Rounds until the clock and what is bound by memory, whose clock is another, agree.
const CLOCK_ROUNDS: usize = 8;

/// All bounds together. Phases are a schedule of what the other bounds count, so not added to them.
/// What tensor cores multiply, what they read of it in shared memory and how it gets there are one
/// pipeline, whose slowest part counts.
fn together(bounds: &[Clocks]) -> f64 {
    let (mut phases, mut pipeline, mut others) = (0.0_f64, 0.0_f64, 0.0);
    for &Clocks { bound, clocks } in bounds {
        match bound {
            Bound::Phases => phases = phases.max(clocks),
            Bound::Pipe(Pipe::Tensor) | Bound::Shared | Bound::L2 => {
                pipeline = pipeline.max(clocks)
            }
            _ => others += clocks.powf(OVERLAP),
        }
    }
    (others + pipeline.powf(OVERLAP)).powf(1.0 / OVERLAP).max(phases)
}

/// The clock in Hz, and all bounds at it: those in clocks, and those in seconds. It falls from
/// boost with the share of time for which tensor cores are busy, in `tensor` clocks.
fn clocked(
    machine: &Machine,
    clocks: Vec<(Bound, f64)>,
    seconds: &[(Bound, f64)],
    tensor: f64,
) -> (f64, Vec<Clocks>) {
    let at = |hz: f64| {
        let of_clocks = clocks.iter().map(|&(bound, clocks)| Clocks { bound, clocks });
        let of_seconds =
            seconds.iter().map(|&(bound, seconds)| Clocks { bound, clocks: seconds * hz });
        of_clocks.chain(of_seconds).collect::<Vec<Clocks>>()
    };
    let mut hz = machine.clock_hz;
    for _ in 0..CLOCK_ROUNDS {
        let busy = tensor / together(&at(hz)).max(1.0);
        hz = machine.clock_hz - (machine.clock_hz - machine.loaded_hz) * busy.min(1.0);
    }
    (hz, at(hz))
}

/// Steps of the clusters of a persistent launch, as factors of the mean of those that were counted:
/// of the cluster that has the most, and of all.
fn steps_of(launch: &Launch<'_>) -> [f64; 2] {
    let of_order = |order: &TileOrder| {
        let steps = order.steps_of(launch.blocks / order.blocks.max(1))?;
        // Those that are counted lie evenly among all.
        let (all, some) = (steps.len(), (launch.counted / order.blocks.max(1)) as usize);
        let counted: Vec<u64> =
            (0..some.min(all)).map(|at| steps[at * all / some.min(all)]).collect();
        let mean = |of: &[u64]| of.iter().sum::<u64>() as f64 / of.len() as f64;
        let (most, counted) = (*steps.iter().max()?, mean(&counted));
        (counted > 0.0).then(|| [most as f64, mean(&steps)].map(|of| of / counted))
    };
    launch.order.and_then(of_order).unwrap_or([1.0; 2])
}

/// Bytes of a pass over the banks of shared memory.
const WAVEFRONT_BYTES: f64 = 128.0;

/// Bytes that tensor cores read from shared memory as operands of asynchronous MMAs, by all warps.
fn operand_bytes(code: &Code, flow: &Flow, execution: &Execution) -> f64 {
    let of_block = |(block, times): (&crate::flow::Block, &f64)| {
        let instructions = &code.instructions[block.instructions.clone()];
        let bytes = instructions.iter().filter_map(Instruction::shape).map(|of| of.shared_bytes);
        // The four warps of a warpgroup read them together.
        f64::from(bytes.sum::<u32>()) / SCHEDULERS * times
    };
    flow.blocks.iter().zip(&execution.blocks).map(of_block).sum()
}

/// Entries of a loop for each warp that are those of rounding.
const RARE: f64 = 1e-4;

/// Clocks of a load: what L2 does not have comes from device memory.
fn global_latency(architecture: &Architecture, dram_bytes: f64, l2_bytes: f64) -> f64 {
    let latencies = &architecture.latencies;
    let missed = dram_bytes / l2_bytes.max(1.0);
    latencies.l2 + (latencies.dram - latencies.l2) * missed.min(1.0)
}

/// What blocks keep busy, by all executions divided by `by`.
fn mix(
    code: &Code,
    flow: &Flow,
    execution: &Execution,
    architecture: &Architecture,
    blocks: impl IntoIterator<Item = usize>,
    by: f64,
) -> Mix {
    let mut mix = Mix::default();
    for block in blocks {
        let times = execution.blocks[block] / by;
        for instruction in &code.instructions[flow.blocks[block].instructions.clone()] {
            let pipe = mix.pipes.entry(instruction.opcode.pipe.name()).or_default();
            pipe.0 += times;
            pipe.1 += times * architecture.busy(instruction);
            mix.instructions += times;
        }
    }
    mix
}

fn loop_estimate(
    code: &Code,
    flow: &Flow,
    execution: &Execution,
    (path, at): (&Path<'_>, usize),
    (all, waits): (f64, bool),
) -> LoopEstimate {
    let each: &Loop = &flow.loops[at];
    let iterations = execution.blocks[each.header];
    let entries = execution.entries(flow, each);
    let indices = each.blocks.iter().flat_map(|&block| flow.blocks[block].instructions.clone());
    let indices: Vec<usize> = indices.collect();
    let lines = indices.iter().filter_map(|&index| code.instructions[index].source_line);
    let lines = lines.fold(None, |range: Option<(u32, u32)>, line| {
        Some(range.map_or((line, line), |(low, high)| (low.min(line), high.max(line))))
    });
    let mut depth = 0;
    let mut outer = each.parent;
    while let Some(parent) = outer {
        depth += 1;
        outer = flow.loops[parent].parent;
    }
    let by = if iterations > 0.0 { iterations } else { 1.0 };
    let architecture = path.architecture;
    let mix = mix(code, flow, execution, architecture, each.blocks.iter().copied(), by);
    let address = |index: Option<&usize>| index.map_or(0, |&at| code.instructions[at].address);
    let (walk, issues) = path.iteration(each);
    let issues = issues.into_iter().map(|(at, clock)| (code.instructions[at].address, clock));
    LoopEstimate {
        addresses: (address(indices.first()), address(indices.last()) + 16),
        lines,
        depth,
        instructions: indices.len(),
        iterations,
        trips: if entries > execution.warps * RARE { iterations / entries } else { 0.0 },
        share: mix.instructions * iterations / all,
        walk,
        issues: issues.collect(),
        mix,
        waits,
    }
}
