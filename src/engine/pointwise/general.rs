//! The general pointwise engine: one kernel for every shape and all strides of a graph's
//! operations. Extents and strides are parameters of the launch, so the kernel reads and writes
//! one element at a time and divides to find it.

use serde_json::{Value as Json, json};

use crate::engine::access::{PARAMETERS_MAX, volume};
use crate::engine::header::described;
use crate::engine::pointwise::Elements;
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::work::Demand;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::signature::{Indent, Width, arguments, ctype, kernel_parameter, list, names};
use crate::engine::{Engine, EngineConfig, KernelWork, Knob, Setting, Supported, WorkOf};
use crate::error::{Error, Result};
use crate::expr::Identifiers;
use crate::graph::CanonicalGraph;
use crate::kernel::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::target::Target;

const NAME: &str = "pointwise_general";

const THREADS: u32 = 256;

/// The engine `pointwise_general`: one kernel for every shape and all strides.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct GeneralEngine;

impl Engine for GeneralEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let any_shape = AnyShape(Elements::of(graph, target)?);
        let general = General::new(&any_shape.0, &any_shape.heuristic())?;
        let needed = general.arguments().len() + general.numbers().len();
        match needed <= PARAMETERS_MAX {
            true => Ok(Box::new(any_shape)),
            false => Err(Error::not_supported(format!(
                "extents and strides take {needed} of the {PARAMETERS_MAX} parameters of a kernel"
            ))),
        }
    }

    fn serves_any_shape(&self) -> bool {
        true
    }

    fn elementwise(&self) -> bool {
        true
    }
}

/// Elements whose extents and strides fit the parameters of a kernel.
#[derive(Debug, Clone)]
struct AnyShape<'a>(Elements<'a>);

impl AnyShape<'_> {
    fn elements(&self) -> i64 {
        volume(&self.0.domain.extents)
    }

    fn work(&self) -> KernelWork {
        let demand = Demand::of(self.0.graph(), &self.0.domain);
        // A thread divides once for each dimension to find one element.
        let grid = grid(self.elements());
        demand.work(&grid, THREADS.into(), 40, 1, demand.streamed_bytes)
    }
}

impl Supported for AnyShape<'_> {
    fn knobs(&self) -> Vec<Knob> {
        let domain = &self.0.domain;
        // Past the last element by a whole grid, 32 bits still do not wrap.
        let narrow = self.elements().max(domain.offset_max()) < 1 << 31;
        let from = |values: [i64; 2], both: bool| values[usize::from(!both)..].to_vec();
        vec![
            Knob {
                name: "index",
                about: "bits of an element's offset",
                values: from([32, 64], narrow),
            },
            Knob {
                name: "rank",
                about: "dimensions that are distinguished",
                values: from([4, 8], domain.extents.len() <= 4),
            },
        ]
    }

    fn heuristic(&self) -> EngineConfig {
        let knobs = self.knobs();
        let settings: Vec<_> = knobs.iter().map(|knob| (knob.name, knob.values[0])).collect();
        EngineConfig::new(NAME, &settings)
    }

    fn reasons(&self) -> Vec<String> {
        let reason = |knob: &Knob| {
            let least = if knob.values.len() > 1 { "the least" } else { "all" };
            format!("{}={}: {least} that the shape needs", knob.name, knob.values[0])
        };
        self.knobs().iter().map(reason).collect()
    }

    fn smaller(&self, _config: &EngineConfig) -> Option<EngineConfig> {
        None
    }

    fn settings(&self) -> Vec<Setting> {
        let work = self.work();
        let setting = |config: EngineConfig| Setting { config, work: vec![work] };
        EngineConfig::all(NAME, &self.knobs()).into_iter().map(setting).collect()
    }

    fn work_of(&self) -> WorkOf<'_> {
        let work = self.work();
        Box::new(move |_| Some(vec![work]))
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        let knobs = self.knobs();
        config.validate(&knobs)?;
        let general = General::new(&self.0, config)?;
        let dtype = self.0.graph().tensors[general.program.outputs[0]].dtype;
        let arch = self.0.target.arch;
        let mut spec = KernelSpec {
            stem: format!("sm75_pointwise_{dtype}_general"),
            template: "pointwise/sm75_pointwise_general.cu",
            entry: "pointwise",
            arch,
            parameters: general.parameters(),
        };
        spec.parameters["stem"] = json!(spec.stem);
        spec.parameters["entry"] = json!(spec.entry);
        spec.parameters["arch"] = json!(arch.to_string());
        let launch = LaunchPlan {
            grid: grid(self.elements()),
            threads: THREADS,
            shared_bytes: 0,
            cooperative: false,
            arguments: general.arguments(),
            maps: Vec::new(),
            numbers: general.numbers(),
        };
        Ok(described(Lowering::from(KernelPlan { spec, launch }), config, &knobs))
    }
}

/// As many blocks as are resident, but none without elements.
fn grid(elements: i64) -> Grid {
    match u64::div_ceil(elements as u64, u64::from(THREADS)) {
        0 => Grid::Fixed(0),
        blocks => Grid::Resident { blocks_max: blocks.min(i32::MAX as u64) as u32, multiple_of: 1 },
    }
}

/// A graph with everything that its kernel and its launch are made from.
struct General<'a> {
    graph: CanonicalGraph<'a>,
    domain: &'a Domain,
    program: GraphProgram,
    /// Tensors that are read.
    inputs: Vec<usize>,
    /// The dimension of each index that is read; `None` is always 0.
    axes: Vec<Option<usize>>,
    rank: usize,
    index_bits: i64,
}

impl<'a> General<'a> {
    fn new(elements: &'a Elements<'_>, config: &EngineConfig) -> Result<General<'a>> {
        let (graph, domain) = (elements.graph(), &elements.domain);
        let program = GraphProgram::whole(graph);
        let (mut inputs, mut axes) = (Vec::new(), Vec::new());
        for (input, source) in program.sources.iter().enumerate() {
            match source {
                _ if !program.reads(input) => {}
                Source::Tensor(at) => inputs.push(*at),
                Source::Coordinate(axis) => axes.push(axis.and_then(|axis| domain.axes[axis])),
            }
        }
        let (rank, index_bits) = (config.knob("rank")? as usize, config.knob("index")?);
        Ok(General { graph, domain, program, inputs, axes, rank, index_bits })
    }

    fn passed(&self) -> impl Iterator<Item = &usize> {
        self.inputs.iter().chain(&self.program.outputs)
    }

    fn in_memory(&self) -> impl Iterator<Item = &usize> {
        self.passed().filter(|at| !self.graph.tensors[**at].by_value)
    }

    fn arguments(&self) -> Vec<Argument> {
        arguments(self.graph, self.passed())
    }

    /// Extents, the strides of each tensor in memory, two numbers per index: as the kernel's
    /// parameters have them.
    fn numbers(&self) -> Vec<i64> {
        let extents = &self.domain.extents;
        let padded = |values: &[i64], padding: i64| {
            let mut all = vec![padding; self.rank.saturating_sub(values.len())];
            all.extend(values);
            all
        };
        let mut numbers = padded(extents, 1);
        numbers.extend(self.in_memory().flat_map(|at| padded(&self.domain.strides[*at], 0)));
        numbers.extend(self.axes.iter().flat_map(|dimension| match dimension {
            Some(at) => [volume(&extents[at + 1..]), extents[*at]],
            None => [1, 1],
        }));
        numbers
    }

    fn parameters(&self) -> Json {
        let mut identifiers = Identifiers::new();
        let names = names(self.graph, &mut identifiers);
        let input_names: Vec<String> = self
            .program
            .sources
            .iter()
            .map(|source| match source {
                Source::Tensor(at) => names[*at].clone(),
                Source::Coordinate(_) => identifiers.fresh("index"),
            })
            .collect();
        let outputs = &self.program.outputs;
        let output_names: Vec<String> = outputs.iter().map(|at| names[*at].clone()).collect();
        let emitted = self.program.program.emit(&input_names, &output_names, &mut identifiers);
        let (mut chain_parameters, mut chain_arguments) = (Vec::new(), Vec::new());
        let mut axes = Vec::new();
        for input in (0..input_names.len()).filter(|input| self.program.reads(*input)) {
            let (name, register) = (&input_names[input], emitted.input_types[input]);
            chain_parameters.push(format!("const {register} {name}"));
            chain_arguments.push(match self.program.sources[input] {
                Source::Tensor(at) if self.graph.tensors[at].by_value => {
                    format!("{register}({name})")
                }
                Source::Tensor(_) => format!("{name}_in.get(0)"),
                Source::Coordinate(_) => {
                    axes.push(format!("const Axis {name}"));
                    format!("{register}({name}.of(at))")
                }
            });
        }
        for (name, output) in output_names.iter().zip(&emitted.outputs) {
            chain_parameters.push(format!("{}& {name}", output.ctype));
            chain_arguments.push(format!("{name}_value"));
        }
        let tensor = |at: usize, value_type: &str| {
            let ctype = ctype(self.graph.tensors[at].dtype);
            json!({"name": names[at], "ctype": ctype, "value_type": value_type})
        };
        let loaded = self.inputs.iter().filter(|at| !self.graph.tensors[**at].by_value);
        let stored = std::iter::zip(outputs, &emitted.outputs);
        json!({
            "listing": self.program.program.to_string().lines().collect::<Vec<_>>(),
            "functions": emitted.functions,
            "index_type": if self.index_bits == 32 { "unsigned" } else { "long long" },
            "threads": THREADS,
            "rank": self.rank,
            "has_axis": !axes.is_empty(),
            "inputs": loaded.map(|at| tensor(*at, "")).collect::<Vec<_>>(),
            "outputs": stored.map(|(at, out)| tensor(*at, out.ctype)).collect::<Vec<_>>(),
            "lines": emitted.lines,
            "chain_parameters": list(&chain_parameters, Indent(4), Width(60)),
            "chain_arguments": list(&chain_arguments, Indent(12), Width(85)),
            "kernel_parameters": list(&self.kernel_parameters(&names, axes), Indent(4), Width(0)),
        })
    }

    fn kernel_parameters(&self, names: &[String], axes: Vec<String>) -> Vec<String> {
        let passed = self.passed().map(|at| kernel_parameter(self.graph, *at, &names[*at]));
        let strides = self.in_memory().map(|at| format!("const Numbers {}_strides", names[*at]));
        let extents = std::iter::once("const Numbers extents".to_owned());
        passed.chain(extents).chain(strides).chain(axes).collect()
    }
}
