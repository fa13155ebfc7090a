//! The general pointwise engine: one kernel for every shape and all strides of a graph's
//! operations. Extents and strides are parameters of the launch, so the kernel reads and writes
//! one element at a time and divides to find it.

use serde_json::{Value as Json, json};

use crate::engine::access::PARAMETERS_MAX;
use crate::engine::expand::Expanded;
use crate::engine::pointwise::PointwiseEngine;
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::work::Demand;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::signature::{Indent, Width, arguments, ctype, kernel_parameter, list, names};
use crate::engine::{
    Argument, Engine, EngineConfig, Grid, KernelPlan, KernelSpec, Knob, LaunchPlan, Lowering,
    Setting,
};
use crate::error::{Error, Result};
use crate::expr::Identifiers;
use crate::graph::CanonicalGraph;
use crate::target::Target;

const THREADS: u32 = 256;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct GeneralEngine;

impl Engine for GeneralEngine {
    fn name(&self) -> &'static str {
        "pointwise_general"
    }

    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
        PointwiseEngine.support(graph, target)?;
        let expanded = Expanded::of(graph)?;
        let general = General::new(expanded.graph(), &self.heuristic(graph, target))?;
        let needed = general.arguments().len() + general.numbers().len();
        match needed <= PARAMETERS_MAX {
            true => Ok(()),
            false => Err(Error::not_supported(format!(
                "extents and strides take {needed} of the {PARAMETERS_MAX} parameters of a kernel"
            ))),
        }
    }

    fn knobs(&self, graph: CanonicalGraph<'_>, _target: &Target) -> Vec<Knob> {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let domain = Domain::of(expanded.graph()).expect("the graph is supported");
        let elements: i64 = domain.extents.iter().product();
        // Past the last element by a whole grid, 32 bits still do not wrap.
        let narrow = elements.max(domain.offset_max()) < 1 << 31;
        let from = |values: [i64; 2], both: bool| values[usize::from(!both)..].to_vec();
        vec![
            Knob {
                name: "index",
                about: "bits of an element's offset",
                values: from([32, 64], narrow),
            },
            Knob {
                name: "rank",
                about: "dimensions that are told apart",
                values: from([4, 8], domain.extents.len() <= 4),
            },
        ]
    }

    fn heuristic(&self, graph: CanonicalGraph<'_>, target: &Target) -> EngineConfig {
        let knobs = self.knobs(graph, target);
        let settings: Vec<_> = knobs.iter().map(|knob| (knob.name, knob.values[0])).collect();
        EngineConfig::new(self.name(), &settings)
    }

    fn reasons(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<String> {
        let config = self.heuristic(graph, target);
        let reason = |knob: &Knob| {
            let (name, value) = (knob.name, config.knob(knob.name).ok()?);
            let least = if knob.values.len() > 1 { "the least" } else { "all" };
            Some(format!("{name}={value}: {least} that the shape needs"))
        };
        self.knobs(graph, target).iter().filter_map(reason).collect()
    }

    fn smaller(
        &self,
        _graph: CanonicalGraph<'_>,
        _target: &Target,
        _config: &EngineConfig,
    ) -> Option<EngineConfig> {
        None
    }

    fn serves_any_shape(&self) -> bool {
        true
    }

    fn settings(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Setting> {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let graph = expanded.graph();
        let domain = Domain::of(graph).expect("the graph is supported");
        let demand = Demand::of(graph, &domain);
        let work = |config: EngineConfig| {
            // A thread divides once for each dimension to find one element.
            let elements = domain.extents.iter().product();
            let work = demand.work(&grid(elements), THREADS.into(), 40, 1, demand.streamed_bytes);
            Setting { config, work: vec![work] }
        };
        let knobs = self.knobs(graph, target);
        EngineConfig::all(self.name(), &knobs).into_iter().map(work).collect()
    }

    fn elementwise(&self) -> bool {
        true
    }

    fn lower(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Lowering> {
        self.support(graph, target)?;
        config.validate(&self.knobs(graph, target))?;
        let expanded = Expanded::of(graph)?;
        let graph = expanded.graph();
        let general = General::new(graph, config)?;
        let dtype = graph.tensors[general.program.outputs[0]].dtype;
        let mut spec = KernelSpec {
            stem: format!("sm75_pointwise_{dtype}_general"),
            template: "pointwise/sm75_pointwise_general.cu",
            entry: "pointwise",
            arch: target.arch,
            parameters: general.parameters(),
        };
        spec.parameters["stem"] = json!(spec.stem);
        spec.parameters["entry"] = json!(spec.entry);
        spec.parameters["arch"] = json!(target.arch.to_string());
        let elements: i64 = general.domain.extents.iter().product();
        let launch = LaunchPlan {
            grid: grid(elements),
            threads: THREADS,
            shared_bytes: 0,
            cooperative: false,
            arguments: general.arguments(),
            maps: Vec::new(),
            numbers: general.numbers(),
        };
        Ok(Lowering::from(KernelPlan { spec, launch }))
    }
}

/// As many blocks as are resident, but none without an element.
fn grid(elements: i64) -> Grid {
    match u64::div_ceil(elements as u64, u64::from(THREADS)) {
        0 => Grid::Fixed(0),
        blocks => Grid::Resident { blocks_max: blocks.min(i32::MAX as u64) as u32, multiple_of: 1 },
    }
}

/// A graph with everything that its kernel and its launch are made from.
struct General<'a> {
    graph: CanonicalGraph<'a>,
    domain: Domain,
    program: GraphProgram,
    /// Tensors that are read.
    inputs: Vec<usize>,
    /// The dimension of each index that is read; `None` is always 0.
    axes: Vec<Option<usize>>,
    rank: usize,
    index_bits: i64,
}

impl<'a> General<'a> {
    fn new(graph: CanonicalGraph<'a>, config: &EngineConfig) -> Result<General<'a>> {
        let domain = Domain::of(graph)?;
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
            Some(at) => [extents[at + 1..].iter().product(), extents[*at]],
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
