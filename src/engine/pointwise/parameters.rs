//! Template parameters and launch of `pointwise` kernels.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::access_bytes;
use crate::engine::dimensions::coordinates;
use crate::engine::header::KernelNames;
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::schedule::{Access, Schedule};
use crate::engine::position::Neighbours;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::signature::{
    Indent, Width, arguments, ctype, kernel_parameter, list, names_with_positions, untold,
};
use crate::expr::Identifiers;
use crate::graph::CanonicalGraph;
use crate::kernel::{KernelPlan, LaunchPlan};
use crate::target::Arch;

/// Variables of `pointwise/sm75_pointwise.cu`.
#[derive(Serialize)]
struct Variables {
    /// The program, for the header comment.
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    index_type: &'static str,
    threads: i64,
    vector: i64,
    items: i64,
    /// Extent of the innermost dimension, and chunks that cover it.
    columns: i64,
    chunks: i64,
    /// The other extents, and the coordinate of a row along each.
    extents: Vec<i64>,
    divisions: Vec<String>,
    has_tail: bool,
    fixed_columns: bool,
    persistent: bool,
    block_chunks: i64,
    column_blocks: i64,
    tensors: Vec<Tensor>,
    outputs: Vec<Output>,
    /// Statements of the program.
    lines: Vec<String>,
    chain_parameters: String,
    chain_arguments: String,
    kernel_parameters: String,
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
    /// Elements of a fragment.
    fragment: &'static str,
    /// The function that loads one, and two of its arguments.
    load: String,
    load_stride: String,
    load_valid: &'static str,
}

/// A tensor that is written.
#[derive(Serialize)]
struct Output {
    name: String,
    ctype: &'static str,
    /// Type of the values before they are rounded.
    value_type: &'static str,
    /// C++ condition, if there is one.
    guard: String,
    /// The function that stores a fragment, and one of its arguments.
    store: String,
    store_stride: String,
}

struct Context<'a> {
    graph: CanonicalGraph<'a>,
    domain: &'a Domain,
    schedule: &'a Schedule,
    /// Identifier of each tensor of the graph; empty for virtual ones.
    names: Vec<String>,
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
    let context = Context { graph, domain, schedule, names };
    let inputs: Vec<usize> = program
        .sources
        .iter()
        .enumerate()
        .filter_map(|(input, source)| match source {
            Source::Tensor(at) if program.reads(input) => Some(*at),
            _ => None,
        })
        .collect();
    let variables = context.variables(program, &inputs, identifiers);
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
        arguments: arguments(graph, inputs.iter().chain(&program.outputs)),
        maps: Vec::new(),
        numbers: vec![context.count()],
    };
    KernelPlan { spec, launch }
}

impl Context<'_> {
    fn variables(
        &self,
        program: &GraphProgram,
        inputs: &[usize],
        mut identifiers: Identifiers,
    ) -> Variables {
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
        let tensors = inputs.iter().chain(&positions).chain(&program.outputs);
        let tensors = tensors.map(|at| self.tensor(*at));
        let outputs = std::iter::zip(&program.outputs, &emitted.outputs)
            .map(|(at, output)| self.output(*at, output.ctype));
        let kernel_parameters: Vec<String> = inputs
            .iter()
            .chain(&program.outputs)
            .map(|at| kernel_parameter(self.graph, *at, &self.names[*at]))
            .chain(["const long long COUNT".to_owned()])
            .collect();
        let Schedule { vector, items, threads, chunks, .. } = *self.schedule;
        let outer = &self.domain.extents[..self.domain.extents.len() - 1];
        Variables {
            listing: program.program.to_string().lines().map(str::to_owned).collect(),
            functions: emitted.functions,
            index_type: self.index_type(),
            threads,
            vector,
            items,
            columns: self.domain.columns(),
            chunks,
            extents: outer.to_vec(),
            divisions: coordinates(outer.len(), "row", "EXTENT"),
            has_tail: self.domain.columns() % vector != 0,
            fixed_columns: self.schedule.fixed_columns,
            persistent: self.schedule.persistent,
            block_chunks: self.schedule.block_chunks,
            column_blocks: self.schedule.column_blocks,
            tensors: tensors.collect(),
            outputs: outputs.collect(),
            lines: emitted.lines,
            chain_parameters: list(&chain_parameters, Indent(4), Width(60)),
            chain_arguments: list(&chain_arguments, Indent(24), Width(70)),
            kernel_parameters: list(&kernel_parameters, Indent(4), Width(25)),
        }
    }

    /// What the kernel counts at run time: rows, or columns where there is but one row.
    fn count(&self) -> i64 {
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
                    Access::Stream => format!("{name}_in[item].get({element})"),
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
        let (load, load_stride) = match stride {
            0 => (format!("load<int(sizeof({ctype}))>"), String::new()),
            1 => (format!("load<{name}_layout::ACCESS>"), String::new()),
            _ => ("load_strided".to_owned(), format!("{name}_layout::STRIDE, ")),
        };
        Tensor {
            name,
            text: untold(tensor),
            kind,
            ctype,
            access_bytes: self.access_bytes(at),
            stride,
            offset: offset(&strides, stride),
            strides,
            fragment: if stride == 0 { "1" } else { "VECTOR" },
            load,
            load_stride,
            load_valid: if stride == 0 { "1" } else { "valid" },
        }
    }

    fn output(&self, at: usize, value_type: &'static str) -> Output {
        let name = self.names[at].clone();
        let stride = self.domain.column_stride(at);
        let (store, store_stride) = match stride {
            0 | 1 => (format!("store<{name}_layout::ACCESS>"), String::new()),
            _ => ("store_strided".to_owned(), format!("{name}_layout::STRIDE, ")),
        };
        Output {
            name,
            ctype: ctype(self.graph.tensors[at].dtype),
            value_type,
            guard: self.guard(at),
            store,
            store_stride,
        }
    }

    fn access_bytes(&self, at: usize) -> i64 {
        let tensor = &self.graph.tensors[at];
        let outer = &self.domain.extents[..self.domain.extents.len() - 1];
        match self.domain.column_stride(at) {
            _ if tensor.is_virtual => 0,
            1 => access_bytes(tensor, self.domain.row_strides(at), outer, self.schedule.vector),
            _ => tensor.dtype.bytes() as i64,
        }
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
