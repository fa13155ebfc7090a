//! Template parameters and launch of `pointwise` kernels.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::access::access_bytes;
use crate::engine::dimensions::coordinates;
use crate::engine::header::KernelNames;
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::interleave::{Interleave, interleave};
use crate::engine::pointwise::schedule::{Access, Schedule};
use crate::engine::position::Neighbours;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::signature::{
    Indent, Width, arguments, ctype, kernel_parameter, list, names_with_positions, untold,
};
use crate::escape::escaped;
use crate::expr::{Identifiers, Math, Value};
use crate::graph::CanonicalGraph;
use crate::kernel::{KernelPlan, LaunchPlan};
use crate::target::Arch;
use crate::tensor::TensorDesc;

/// Variables of `pointwise/sm75_pointwise.cu`.
#[derive(Serialize)]
struct Variables {
    /// The program, for the header comment.
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    threads: i64,
    group: Group,
    kernel_parameters: String,
}

/// What is computed in one shape: the blocks of the launch, or a group of them.
#[derive(Serialize)]
pub(super) struct Group {
    /// C++ expression of a block's number in the group.
    block: &'static str,
    index_type: &'static str,
    vector: i64,
    items: i64,
    /// Extent of the innermost dimension, and chunks that cover it.
    columns: i64,
    chunks: i64,
    /// The other extents, and the coordinate of a row along each.
    extents: Vec<i64>,
    divisions: Vec<String>,
    has_tail: bool,
    /// Where a thread stays in its columns: chunks of one row that a block covers, and blocks side
    /// by side in a row; else nothing.
    fixed_columns: Vec<i64>,
    persistent: bool,
    tensors: Vec<Tensor>,
    /// Whether there are tensors whose elements are loaded item by item, and whether fewer of them
    /// may be left than a vector has.
    streams: bool,
    loads_valid: bool,
    outputs: Vec<Output>,
    /// Statements of the program.
    lines: Vec<String>,
    chain_parameters: String,
    chain_arguments: String,
}

/// A program in one shape, as text.
pub(super) struct Text {
    pub(super) group: Group,
    pub(super) listing: Vec<String>,
    pub(super) functions: BTreeSet<&'static str>,
    /// Names and declarations of the tensors that are passed.
    pub(super) passed: Vec<(String, String)>,
}

/// A tensor that is passed.
#[derive(Serialize)]
struct Tensor {
    name: String,
    /// Its comment.
    text: String,
    kind: &'static str,
    ctype: &'static str,
    /// 0 of what is not stored.
    access_bytes: i64,
    /// Along the columns, and along the other dimensions.
    stride: i64,
    strides: Vec<i64>,
    /// C++ expression of an element's offset.
    offset: String,
    /// Tensors whose elements take turns with its own, itself among them.
    parts: usize,
    /// Elements of a fragment.
    fragment: String,
    /// The function that loads one, and two of its arguments.
    load: String,
    load_stride: String,
    load_valid: String,
}

/// A tensor that is written.
#[derive(Serialize)]
struct Output {
    name: String,
    ctype: &'static str,
    /// Type of the values before they are rounded.
    value_type: &'static str,
    /// The tensors whose elements take turns, itself first, if there are others; else none.
    parts: Vec<String>,
    /// Whether it is stored with another one.
    follows: bool,
    /// C++ condition, if there is one.
    guard: String,
    /// The function that stores a fragment, and one of its arguments.
    store: String,
    store_stride: String,
}

pub(super) struct Context<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) domain: &'a Domain,
    pub(super) schedule: &'a Schedule,
    /// Identifier of each tensor of the graph; empty for virtual ones.
    pub(super) names: Vec<String>,
    /// Tensors that are read, and those that are written.
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// The tensors that take turns with others, each with its place.
    turns: BTreeMap<usize, Interleave>,
}

/// What an output is computed in; one that is only copied in its type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Computed {
    In(Math),
    Copied(DType),
}

impl<'a> Context<'a> {
    pub(super) fn new(
        elements: (CanonicalGraph<'a>, &'a Domain, &'a Schedule),
        program: &GraphProgram,
        names: Vec<String>,
    ) -> Context<'a> {
        let (graph, domain, schedule) = elements;
        let (inputs, outputs) = (inputs_of(program), program.outputs.clone());
        let program = &program.program;
        let computed = |value: &Value| match value {
            Value::Result(at) => Computed::In(program.compute(&program.instructions()[*at])),
            value => Computed::Copied(program.dtype(*value)),
        };
        let computed: Vec<Computed> = program.outputs().iter().map(computed).collect();
        let turns = BTreeMap::new();
        let context = Context { graph, domain, schedule, names, inputs, outputs, turns };
        context.with_turns(&computed)
    }

    /// The tensors that are passed: of those that take turns the first.
    pub(super) fn passed(&self) -> impl Iterator<Item = &usize> {
        self.passed_inputs().chain(self.passed_outputs())
    }

    fn passed_inputs(&self) -> impl Iterator<Item = &usize> {
        self.inputs.iter().filter(|at| self.leads(**at))
    }

    fn passed_outputs(&self) -> impl Iterator<Item = &usize> {
        self.outputs.iter().filter(|at| self.leads(**at))
    }

    fn leads(&self, at: usize) -> bool {
        self.interleave(at).is_none_or(|of| of.part == 0)
    }

    /// The place of a tensor among those that take turns with it.
    fn interleave(&self, at: usize) -> Option<&Interleave> {
        self.turns.get(&at)
    }

    /// Those that take turns, each with its place. What is stored as one is computed in one type.
    fn with_turns(mut self, computed: &[Computed]) -> Context<'a> {
        let is_streamed = |at: &&usize| self.access(**at) == Access::Stream;
        let streamed: Vec<usize> = self.inputs.iter().filter(is_streamed).copied().collect();
        let mut groups = vec![streamed];
        let mut kinds: Vec<Computed> = Vec::new();
        for (at, kind) in std::iter::zip(&self.outputs, computed) {
            if !self.guard(*at).is_empty() {
                continue;
            }
            let place = kinds.iter().position(|known| known == kind).unwrap_or_else(|| {
                kinds.push(*kind);
                groups.push(Vec::new());
                kinds.len() - 1
            });
            groups[place + 1].push(*at);
        }
        let of_group = |group: &Vec<usize>| {
            let place = |at: &usize| Some((*at, interleave(self.graph, self.domain, *at, group)?));
            group.iter().filter_map(place).collect::<Vec<_>>()
        };
        self.turns = groups.iter().flat_map(of_group).collect();
        self
    }
}

/// The tensors that a program reads.
pub(super) fn inputs_of(program: &GraphProgram) -> Vec<usize> {
    let read = |(input, source): (usize, &Source)| match source {
        Source::Tensor(at) if program.reads(input) => Some(*at),
        _ => None,
    };
    program.sources.iter().enumerate().filter_map(read).collect()
}

/// Assembles spec and launch.
pub(super) fn kernel_plan(
    graph: CanonicalGraph<'_>,
    domain: &Domain,
    program: &GraphProgram,
    schedule: &Schedule,
    arch: Arch,
) -> KernelPlan {
    let mut identifiers = Identifiers::new();
    let names = names_with_positions(graph, &mut identifiers);
    let context = Context::new((graph, domain, schedule), program, names);
    let Text { group, listing, functions, passed } =
        context.text(program, identifiers, "blockIdx.x");
    let kernel_parameters: Vec<String> = passed
        .into_iter()
        .map(|(_, parameter)| parameter)
        .chain(["const long long COUNT".to_owned()])
        .collect();
    let kernel_parameters = list(&kernel_parameters, Indent(4), Width(25));
    let threads = schedule.threads;
    let variables = Variables { listing, functions, threads, group, kernel_parameters };
    let variant = if schedule.fixed_columns { "rows" } else { "flat" };
    let dtype = graph.tensors[program.outputs[0]].dtype;
    let names = KernelNames {
        stem: format!("sm75_pointwise_{dtype}_{variant}"),
        template: "pointwise/sm75_pointwise.cu",
        entry: "pointwise",
    };
    let spec = names.spec(arch, &variables);
    let launch = LaunchPlan {
        grid: schedule.grid,
        threads: schedule.threads as u32,
        shared_bytes: 0,
        cooperative: false,
        arguments: arguments(graph, context.passed()),
        maps: Vec::new(),
        numbers: vec![context.count()],
    };
    KernelPlan { spec, launch }
}

impl Context<'_> {
    /// The text of a program, `block` being a block's number.
    pub(super) fn text(
        &self,
        program: &GraphProgram,
        mut identifiers: Identifiers,
        block: &'static str,
    ) -> Text {
        let input_names: Vec<String> = program
            .sources
            .iter()
            .map(|source| match source {
                Source::Tensor(at) | Source::Position(at) => self.names[*at].clone(),
                Source::Coordinate(_) => identifiers.fresh("index"),
            })
            .collect();
        let output_names: Vec<String> =
            program.outputs.iter().map(|at| self.names[*at].clone()).collect();
        let emitted = program.program.emit(&input_names, &output_names, &mut identifiers);
        let read: Vec<usize> =
            (0..program.sources.len()).filter(|input| program.reads(*input)).collect();
        let mut chain_parameters = Vec::new();
        let mut chain_arguments = Vec::new();
        for input in read {
            let register = emitted.input_types[input];
            chain_parameters.push(format!("const {register} {}", input_names[input]));
            chain_arguments.push(self.chain_argument(&program.sources[input], register));
        }
        for (name, output) in output_names.iter().zip(&emitted.outputs) {
            chain_parameters.push(format!("{}& {name}", output.ctype));
            chain_arguments.push(format!("{name}_value[j]"));
        }
        let positions: Vec<usize> = program.positions().collect();
        let described = self.passed_inputs().chain(&positions).chain(self.passed_outputs());
        let tensors: Vec<Tensor> = described.map(|at| self.tensor(*at)).collect();
        let mut streams = tensors.iter().filter(|tensor| tensor.kind == "stream").peekable();
        let outputs = std::iter::zip(&program.outputs, &emitted.outputs)
            .map(|(at, output)| self.output(*at, output.ctype));
        let passed = self.passed().map(|at| {
            let name = self.names[*at].clone();
            let parameter = kernel_parameter(self.graph, *at, &name);
            (name, parameter)
        });
        let Schedule { vector, items, chunks, .. } = *self.schedule;
        let outer = &self.domain.extents[..self.domain.extents.len() - 1];
        let group = Group {
            block,
            index_type: self.index_type(),
            vector,
            items,
            columns: self.domain.columns(),
            chunks,
            extents: outer.to_vec(),
            divisions: coordinates(outer.len(), "row", "EXTENT"),
            has_tail: self.domain.columns() % vector != 0,
            fixed_columns: match self.schedule.fixed_columns {
                true => vec![self.schedule.block_chunks, self.schedule.column_blocks],
                false => Vec::new(),
            },
            persistent: self.schedule.persistent,
            streams: streams.peek().is_some(),
            loads_valid: streams.any(|tensor| tensor.load_valid != "1"),
            tensors,
            outputs: outputs.collect(),
            lines: emitted.lines,
            chain_parameters: list(&chain_parameters, Indent(4), Width(60)),
            chain_arguments: list(&chain_arguments, Indent(24), Width(70)),
        };
        Text {
            group,
            listing: self.listing(program),
            functions: emitted.functions,
            passed: passed.collect(),
        }
    }

    /// What the kernel counts at run time: rows, or columns where there is but one row.
    pub(super) fn count(&self) -> i64 {
        match self.domain.extents.len() {
            1 => self.domain.columns(),
            _ => self.domain.rows(),
        }
    }

    /// 32-bit offsets where everything a kernel counts stays below 2^31: the last block may step
    /// one tile past the end without wrapping.
    fn index_type(&self) -> &'static str {
        let chunks = self.domain.rows().saturating_mul(self.schedule.chunks * self.schedule.vector);
        match chunks.max(self.domain.offset_max()) < 1 << 31 {
            true => "unsigned",
            false => "long long",
        }
    }

    fn access(&self, at: usize) -> Access {
        self.schedule.access(self.graph, self.domain, at)
    }

    fn chain_argument(&self, source: &Source, register: &str) -> String {
        let last = self.domain.extents.len() - 1;
        match source {
            Source::Coordinate(axis) => match axis.and_then(|axis| self.domain.axes[axis]) {
                None => format!("{register}(0)"),
                Some(dimension) if dimension == last => format!("{register}(p.column + j)"),
                Some(dimension) => format!("{register}(p.i{dimension})"),
            },
            Source::Position(at) => {
                let name = &self.names[*at];
                let neighbours = Neighbours {
                    first: &format!("{name}_layout::at(p)"),
                    count: self.schedule.vector,
                    step: self.domain.column_stride(*at),
                    step_name: &format!("{name}_layout::STRIDE"),
                    others: self.domain.row_strides(*at),
                };
                neighbours.position()
            }
            Source::Tensor(at) => {
                let name = &self.names[*at];
                let element = if self.domain.column_stride(*at) == 0 { "0" } else { "j" };
                match self.access(*at) {
                    Access::Value => format!("{register}({name})"),
                    Access::Scalar => format!("{name}_in.get(0)"),
                    Access::Row => format!("{name}_in.get(j)"),
                    Access::Stream => match self.interleave(*at) {
                        Some(Interleave { parts, part }) => {
                            let first = &self.names[parts[0]];
                            format!("{first}_in[item].get({first}_layout::PARTS * j + {part})")
                        }
                        None => format!("{name}_in[item].get({element})"),
                    },
                }
            }
        }
    }

    fn tensor(&self, at: usize) -> Tensor {
        let tensor = &self.graph.tensors[at];
        let (name, stride) = (self.names[at].clone(), self.domain.column_stride(at));
        let strides = self.domain.row_strides(at).to_vec();
        let written = self.graph.is_written(at);
        let kind = match (written, self.access(at)) {
            _ if tensor.is_virtual => "position",
            (true, _) => "output",
            (false, Access::Value) => "value",
            (false, Access::Scalar) => "scalar",
            (false, Access::Row) => "row",
            (false, Access::Stream) => "stream",
        };
        let ctype = ctype(tensor.dtype);
        let interleaved = self.interleave(at);
        let parts = interleaved.as_ref().map_or(1, |of| of.parts.len());
        let (load, load_stride) = match stride {
            _ if parts > 1 => (format!("load<{name}_layout::ACCESS>"), String::new()),
            0 => (format!("load<int(sizeof({ctype}))>"), String::new()),
            1 => (format!("load<{name}_layout::ACCESS>"), String::new()),
            _ => ("load_strided".to_owned(), format!("{name}_layout::STRIDE, ")),
        };
        let (fragment, load_valid) = match (stride, parts) {
            (0, _) => ("1".to_owned(), "1".to_owned()),
            (_, 1) => ("VECTOR".to_owned(), "valid".to_owned()),
            _ => {
                let parts = format!("{name}_layout::PARTS");
                (format!("{parts} * VECTOR"), format!("{parts} * valid"))
            }
        };
        Tensor {
            name,
            text: self.text_of(at),
            kind,
            ctype,
            access_bytes: self.access_bytes(at),
            stride,
            offset: offset(&strides, stride),
            strides,
            parts,
            fragment,
            load,
            load_stride,
            load_valid,
        }
    }

    fn output(&self, at: usize, value_type: &'static str) -> Output {
        let name = self.names[at].clone();
        let stride = self.domain.column_stride(at);
        let interleaved = self.interleave(at);
        let is_part = interleaved.is_some();
        let (store, store_stride) = match stride {
            _ if is_part => (format!("store<{name}_layout::ACCESS>"), String::new()),
            0 | 1 => (format!("store<{name}_layout::ACCESS>"), String::new()),
            _ => ("store_strided".to_owned(), format!("{name}_layout::STRIDE, ")),
        };
        Output {
            name,
            ctype: ctype(self.graph.tensors[at].dtype),
            value_type,
            follows: interleaved.as_ref().is_some_and(|of| of.part > 0),
            parts: interleaved
                .filter(|of| of.part == 0)
                .map(|of| of.parts.iter().map(|part| self.names[*part].clone()).collect())
                .unwrap_or_default(),
            guard: self.guard(at),
            store,
            store_stride,
        }
    }

    fn access_bytes(&self, at: usize) -> i64 {
        let tensor = &self.graph.tensors[at];
        let outer = &self.domain.extents[..self.domain.extents.len() - 1];
        let parts = self.interleave(at).map_or(1, |of| of.parts.len() as i64);
        match self.domain.column_stride(at) {
            _ if tensor.is_virtual => 0,
            stride if stride == parts => {
                let vector = parts * self.schedule.vector;
                access_bytes(tensor, self.domain.row_strides(at), outer, vector)
            }
            _ => tensor.dtype.bytes() as i64,
        }
    }

    /// A tensor in words, with those that it stands for.
    fn text_of(&self, at: usize) -> String {
        let own = untold(&self.graph.tensors[at]);
        match self.interleave(at) {
            None => own,
            Some(Interleave { parts, .. }) => {
                let rest = parts[1..].iter().map(|part| untold(&self.graph.tensors[*part]));
                format!("{own}, by turns with {}", rest.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The program line by line; what is only copied comes last.
    fn listing(&self, program: &GraphProgram) -> Vec<String> {
        let copied = std::iter::zip(&program.outputs, program.program.outputs())
            .filter(|(_, value)| matches!(value, Value::Input(_)))
            .map(|(at, value)| {
                let TensorDesc { name, dtype, .. } = &self.graph.tensors[*at];
                format!("{}: {dtype} = {}", escaped(name), escaped(program.program.name(*value)))
            });
        program.program.to_string().lines().map(str::to_owned).chain(copied).collect()
    }

    /// The condition under which an output smaller than the domain is written: once per element.
    fn guard(&self, at: usize) -> String {
        let last = self.domain.extents.len() - 1;
        let conditions: Vec<String> = self.domain.strides[at]
            .iter()
            .zip(&self.domain.extents)
            .enumerate()
            .filter(|(_, (stride, extent))| **stride == 0 && **extent > 1)
            .map(|(dimension, _)| match dimension == last {
                true => "p.column == 0".to_owned(),
                false => format!("p.i{dimension} == 0"),
            })
            .collect();
        conditions.join(" && ")
    }
}

fn offset(strides: &[i64], stride: i64) -> String {
    let mut terms: Vec<String> = strides
        .iter()
        .enumerate()
        .filter(|(_, stride)| **stride != 0)
        .map(|(dimension, _)| format!("p.i{dimension} * STRIDE{dimension}"))
        .collect();
    match stride {
        0 => {}
        1 => terms.push("p.column".to_owned()),
        _ => terms.push("p.column * STRIDE".to_owned()),
    }
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}
