//! Signals: a kernel of one thread that sets a flag or waits for it.
//!
//! What the signal comes after are the launches before it on the stream, so that all of their
//! writes are visible to the thread when it begins; those behind it begin when it has ended. So one
//! thread orders grids of any size. What is not passed on in place is copied by pointwise kernels,
//! before a flag is set and after it was waited for.

use std::fmt;

use serde::Serialize;

use crate::engine::alone::alone;
use crate::engine::cost::{KernelWork, Setting, WorkOf};
use crate::engine::header::KernelNames;
use crate::engine::pointwise::{GeneralEngine, PointwiseEngine};
use crate::engine::{Engine, EngineConfig, Knob, Supported};
use crate::error::Result;
use crate::expr::{Mode, Pointwise};
use crate::graph::{
    CanonicalGraph, Op, Operation, OperationGraph, PassThrough, Signal, SignalMode,
};
use crate::kernel::{Argument, Grid, KernelPlan, LaunchPlan, Lowering, Wait};
use crate::target::{Arch, Target};

const NAME: &str = "signal";

/// The engine `signal`: a signal by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct SignalEngine;

impl Engine for SignalEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let own = |op: &'a Op| match op {
            Op::Signal(op) => Some(op),
            _ => None,
        };
        let (Operation { inputs, outputs, .. }, op) = alone(graph, own, "signal")?;
        let copy = match op.pass {
            PassThrough::Copy => Some(Copied::of(graph, inputs, outputs)?),
            _ => None,
        };
        Ok(Box::new(Signalled { op: *op, inputs, outputs, copy, target }))
    }
}

/// A copy of what a signal passes on.
#[derive(Debug)]
struct Copied {
    /// A graph of this copy alone.
    graph: OperationGraph,
    /// The canonical uids of operand and result in the signal's graph, by those in this one.
    uids: [i64; 2],
}

impl Copied {
    fn of(graph: CanonicalGraph<'_>, inputs: &[i64], outputs: &[i64]) -> Result<Copied> {
        let uids = [inputs, outputs].map(|all| all[all.len() - 1]);
        let tensor = |uid: i64| graph.tensors[uid as usize].clone();
        let identity = Operation::pointwise(Pointwise::new(Mode::Identity), &uids[..1], uids[1]);
        let graph = OperationGraph::new(uids.map(tensor).to_vec(), vec![identity])?;
        let own = graph.canonical().uids;
        Ok(Copied { uids: [own[0], own[1]], graph })
    }

    /// The engine that copies.
    ///
    /// # Errors
    /// `NotSupported` where none does.
    fn supported<'a>(&'a self, target: &'a Target) -> Result<Box<dyn Supported + 'a>> {
        let graph = self.graph.canonical();
        PointwiseEngine.support(graph, target).or_else(|_| GeneralEngine.support(graph, target))
    }

    fn kernels(&self, target: &Target) -> Result<Vec<KernelPlan>> {
        let supported = self.supported(target)?;
        let mut kernels = supported.lower(&supported.heuristic())?.kernels;
        for argument in kernels.iter_mut().flat_map(|kernel| &mut kernel.launch.arguments) {
            if let Argument::Address(uid) = argument {
                *uid = self.uids[*uid as usize];
            }
        }
        Ok(kernels)
    }

    fn work(&self, target: &Target) -> Vec<KernelWork> {
        let work = self.supported(target).ok().and_then(|of| of.work_of()(&of.heuristic()));
        work.unwrap_or_default()
    }
}

/// A signal as this engine runs it.
struct Signalled<'a> {
    op: Signal,
    inputs: &'a [i64],
    outputs: &'a [i64],
    copy: Option<Copied>,
    target: &'a Target,
}

impl fmt::Debug for Signalled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)
    }
}

/// Parameters of the templates: what they do is in the launch.
#[derive(Serialize)]
struct Parameters {}

/// One thread that reads or writes a flag.
const SIGNAL_WORK: KernelWork = KernelWork {
    blocks: 1,
    threads: 1,
    registers: 16,
    shared_bytes: 0,
    dram_bytes: 4.0,
    l2_bytes: 4.0,
    in_flight_bytes: 4.0,
    round_trips: 1.0,
    lane_instructions: 16.0,
    f64_instructions: 0.0,
    tensor: None,
};

impl Signalled<'_> {
    fn work(&self) -> Vec<KernelWork> {
        let copied = self.copy.as_ref().map_or_else(Vec::new, |copy| copy.work(self.target));
        copied.into_iter().chain([SIGNAL_WORK]).collect()
    }

    fn kernel(&self, arch: Arch) -> KernelPlan {
        let Signal { mode, value, timeout_ms, .. } = self.op;
        let (name, template, entry, arguments, numbers) = match mode {
            SignalMode::Set => {
                let flag = Argument::Address(self.outputs[0]);
                let template = "signal/sm75_signal_set.cu";
                ("set", template, "signal_set", vec![flag], vec![value])
            }
            SignalMode::Wait => {
                let flag = self.inputs[0];
                let wait = Wait { flag, value: value as i32, timeout_ms: timeout_ms as u32 };
                let arguments = vec![Argument::Address(flag), Argument::Report(wait)];
                let template = "signal/sm75_signal_wait.cu";
                ("wait", template, "signal_wait", arguments, vec![value, timeout_ms * 1_000_000])
            }
        };
        let names = KernelNames { stem: format!("sm75_signal_i32_{name}"), template, entry };
        let launch = LaunchPlan {
            grid: Grid::fixed(1),
            threads: 1,
            shared_bytes: 0,
            cooperative: false,
            arguments,
            maps: Vec::new(),
            numbers,
        };
        KernelPlan { spec: names.spec(arch, &Parameters {}), launch }
    }
}

impl Supported for Signalled<'_> {
    fn knobs(&self) -> Vec<Knob> {
        Vec::new()
    }

    fn heuristic(&self) -> EngineConfig {
        EngineConfig::new(NAME, &[])
    }

    fn reasons(&self) -> Vec<String> {
        Vec::new()
    }

    fn smaller(&self, _config: &EngineConfig) -> Option<EngineConfig> {
        None
    }

    fn settings(&self) -> Vec<Setting> {
        vec![Setting { config: self.heuristic(), work: self.work() }]
    }

    fn work_of(&self) -> WorkOf<'_> {
        Box::new(|config| (*config == self.heuristic()).then(|| self.work()))
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        config.validate(&[])?;
        let mut kernels = vec![self.kernel(self.target.arch)];
        if let Some(copy) = &self.copy {
            let copies = copy.kernels(self.target)?;
            let at = if self.op.mode == SignalMode::Set { 0 } else { 1 };
            kernels.splice(at..at, copies);
        }
        Ok(Lowering { kernels, scratch: Vec::new() })
    }
}
