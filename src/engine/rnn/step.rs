//! The engine for recurrent layers of any size: at every step a GEMM kernel per GEMM of the cell,
//! and a kernel per stage.
//!
//! Nothing stays on chip between kernels, so nothing limits the layer: states, accumulators and
//! values carried between stages are in memory. A block processes a whole row, as layer norms need.
//!
//! The number of kernels of a launch is fixed, and with packed rows the longest length is known on
//! the device only. So the steps of sequences of average length have kernels of their own, and one
//! more kernel processes the rest, a block per sequence, including the GEMMs.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::OnceLock;

use crate::engine::access::ceil_div;
use crate::engine::gemm::{MmaEngine, SimtEngine, WgmmaEngine};
use crate::engine::rnn::layer::{GemmShape, Layer};
use crate::engine::rnn::step_buffers::Buffers;
use crate::engine::rnn::step_gemm::SupportedGemm;
use crate::engine::rnn::step_kernels::{self, StepKernels};
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{
    BehaviorNote, Engine, EngineConfig, KernelWork, Knob, Notes, NumericalNote, Supported,
};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "rnn_step";

/// Maximum launches of a plan's steps, which bounds its memory: 1.5 kB per launch. This covers 4096
/// steps of an LSTM, whose GEMM and cell are a launch each.
const LAUNCHES_MAX: i64 = 1 << 13;

/// The knob's values: those whose engine supports the GEMMs.
const TENSOR_CORES: [i64; 3] = [0, 1, 2];

/// Rows of a GEMM from which on `gemm_wgmma` streams weights faster: half of its tile.
const WGMMA_ROWS_MIN: i64 = 32;

settings! { struct Settings { tensor_cores } }

impl Settings {
    /// The engine that runs the GEMMs.
    fn gemm_engine(self) -> &'static dyn Engine {
        match self.tensor_cores {
            0 => &SimtEngine,
            1 => &MmaEngine,
            _ => &WgmmaEngine,
        }
    }
}

/// The engine `rnn_step`: GEMMs and a cell kernel at every step, for layers of any size.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct StepEngine;

impl Engine for StepEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let layer = Layer::of(graph)?;
        let supports = |tensor_cores: i64| {
            let engine = Settings { tensor_cores }.gemm_engine();
            let supported = |gemm| layer.with_gemm(gemm, (engine, target), |_| Ok(()));
            layer.gemms.iter().try_for_each(supported)
        };
        supports(TENSOR_CORES[0])?;
        let others = TENSOR_CORES.into_iter().skip(1).filter(|_| !layer.gemms.is_empty());
        let others = others.filter(|value| supports(*value).is_ok());
        let tensor_cores = TENSOR_CORES.into_iter().take(1).chain(others).collect();
        Ok(Box::new(Tuned(Steps { tensor_cores, layer, target, configs: Default::default() })))
    }
}

/// A layer, step by step. Its kernels are those of a GEMM engine, with the settings which that
/// engine chooses, and its own; the knob chooses the engine.
#[derive(Debug, Clone)]
struct Steps<'a> {
    layer: Layer<'a>,
    /// The knob's legal values.
    tensor_cores: Vec<i64>,
    target: &'a Target,
    /// The settings of the GEMMs by place of the knob's value, once they were asked for.
    configs: [OnceLock<Vec<EngineConfig>>; TENSOR_CORES.len()],
}

impl Tunable<1> for Steps<'_> {
    const KNOBS: [&'static str; 1] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Settings;
    type Refusal = Infallible;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 1] {
        let about = "whether GEMMs use tensor cores: 1 as gemm_mma, 2 as gemm_wgmma";
        [Knob { name: "tensor_cores", about, values: self.tensor_cores.clone() }]
    }

    /// None: the kernels besides the GEMMs do not depend on the knob.
    fn listed_knobs(&self) -> Vec<Knob> {
        Vec::new()
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, Infallible> {
        Ok(settings)
    }

    fn best(&self) -> Settings {
        let few = self.layer.op.batch < WGMMA_ROWS_MIN;
        let fast = self.tensor_cores.iter().filter(|value| !(few && **value > 1));
        Settings { tensor_cores: fast.copied().max().unwrap_or_default() }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { tensor_cores } = self.best();
        let supported = match tensor_cores {
            0 => "they do not support the GEMMs",
            1 => "they support the GEMMs",
            _ => "wgmma supports the GEMMs, of half of its rows at least",
        };
        vec![format!("tensor_cores={tensor_cores}: {supported}")]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let fewer = self.tensor_cores.iter().rev().filter(|value| **value < settings.tensor_cores);
        fewer.map(|&tensor_cores| Settings { tensor_cores }).collect()
    }

    fn notes(&self, settings: Settings) -> Notes {
        let on = (settings.gemm_engine(), self.target);
        let of_gemm = |(gemm, config): (&GemmShape, &EngineConfig)| {
            let notes = |on: SupportedGemm<'_>| Ok(on.own.notes(config).numerical);
            self.layer.with_gemm(gemm, on, notes).unwrap_or_default()
        };
        let fast = self.layer.op.has_fast_activations();
        let own = fast.then_some(NumericalNote::FastActivations);
        let numerical: BTreeSet<NumericalNote> =
            self.gemms(settings).flat_map(of_gemm).chain(own).collect();
        Notes {
            numerical: numerical.into_iter().collect(),
            behavior: vec![BehaviorNote::RuntimeCompilation, BehaviorNote::Workspace],
        }
    }

    /// Never: it is for layers that no other engine supports.
    fn pays(&self) -> bool {
        false
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        self.work_of_steps(*settings)
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let on = (settings.gemm_engine(), self.target);
        let writer = StepKernels::of(&self.layer, self.target.arch);
        let mut scratch = Buffers::of(&self.layer).scratch();
        let mut gemm = |gemm| {
            let kernels = self.layer.gemm_kernels(gemm, on, &mut scratch);
            kernels.expect("the engine supports it, and its own settings lower")
        };
        let of = |stage| self.gemms(*settings).find(|(gemm, _)| gemm.stage == stage);
        let mut step = Vec::new();
        for stage in 0..self.layer.op.cell.stages.len() {
            step.extend(of(Some(stage)).into_iter().flat_map(&mut gemm));
            step.push(writer.stage(stage));
        }
        if let Some(projection) = of(None) {
            step.extend(gemm(projection));
            step.push(writer.projection());
        }
        let launched = self.launched(step.len() as i64);
        let mut kernels = vec![writer.initial()];
        for at in 0..launched {
            kernels.extend(step.iter().map(|kernel| writer.at_step(kernel, at)));
        }
        if launched < self.layer.steps_max() {
            kernels.push(writer.at_step(&writer.rest(), launched));
        }
        kernels.extend(writer.last());
        Lowering { kernels, scratch }
    }

    fn scratch(&self, settings: &Settings) -> Vec<u64> {
        let on = (settings.gemm_engine(), self.target);
        let mut scratch = Buffers::of(&self.layer).scratch();
        let stages = (0..self.layer.op.cell.stages.len()).map(Some).chain([None]);
        let of = |stage| self.gemms(*settings).find(|(gemm, _)| gemm.stage == stage);
        for (gemm, config) in stages.filter_map(of) {
            let own = |on: SupportedGemm<'_>| on.own.scratch(config);
            scratch.extend(self.layer.with_gemm(gemm, on, own).expect("its own settings lower"));
        }
        scratch
    }
}

impl Steps<'_> {
    /// Number of steps with kernels of their own, `kernels` each.
    fn launched(&self, kernels: i64) -> i64 {
        ceil_div(self.layer.rows(), self.layer.op.batch).min(LAUNCHES_MAX / kernels.max(1))
    }

    /// The GEMMs with their settings; none where the knob has no such value.
    fn gemms(&self, settings: Settings) -> impl Iterator<Item = (&GemmShape, &EngineConfig)> {
        let place = self.tensor_cores.iter().position(|value| *value == settings.tensor_cores);
        let configs = place.map(|place| {
            self.configs[place].get_or_init(|| {
                let on = (settings.gemm_engine(), self.target);
                let config = |of: SupportedGemm<'_>| Ok(of.config(self.target));
                let config = |gemm| self.layer.with_gemm(gemm, on, config).expect("supported");
                self.layer.gemms.iter().map(config).collect()
            })
        });
        self.layer.gemms.iter().zip(configs.into_iter().flatten())
    }

    /// Work of a forward pass, for the cost model.
    fn work_of_steps(&self, settings: Settings) -> Vec<KernelWork> {
        let (layer, op) = (&self.layer, self.layer.op);
        let rows = op.direction.count() * op.batch;
        let values = (rows * layer.hidden_size() * (op.cell.gates.len() as i64 + 4)) as f64;
        let cell = KernelWork {
            blocks: rows as u64,
            threads: step_kernels::THREADS,
            registers: 64,
            shared_bytes: 0,
            dram_bytes: values * 4.0,
            l2_bytes: values * 4.0,
            in_flight_bytes: f64::from(step_kernels::THREADS) * 32.0,
            round_trips: 2.0,
            lane_instructions: values * 32.0,
            f64_instructions: 0.0,
            tensor: None,
        };
        let on = (settings.gemm_engine(), self.target);
        let gemm = |(gemm, config): (&GemmShape, &EngineConfig)| {
            let work = |of: SupportedGemm<'_>| Ok(of.own.work_of()(config).unwrap_or_default());
            layer.with_gemm(gemm, on, work).expect("it is supported")
        };
        let step: Vec<KernelWork> = self.gemms(settings).flat_map(gemm).chain([cell]).collect();
        let launched = self.launched(step.len() as i64);
        let mut work = step.repeat(launched as usize);
        let rest = layer.steps() - launched;
        if rest > 0 {
            // Each sequence reads all weights at every step.
            let weights = layer.gemms.iter().map(|of| of.gates * of.rows * of.k);
            let read = (rest * rows) as f64 * weights.sum::<i64>() as f64;
            work.push(KernelWork {
                dram_bytes: cell.dram_bytes * rest as f64,
                l2_bytes: read * layer.dtype().bytes() as f64,
                lane_instructions: cell.lane_instructions * rest as f64 + 2.0 * read,
                round_trips: (rest * step.len() as i64) as f64,
                ..cell
            });
        }
        work
    }
}
