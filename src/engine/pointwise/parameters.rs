//! Template parameters and launch of `pointwise` kernels.

use serde_json::{Value as Json, json};

use crate::engine::access::access_bytes;
use crate::engine::dimensions::coordinates;
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::schedule::{Access, Schedule};
use crate::engine::program::{GraphProgram, Source};
use crate::engine::signature::{
    Indent, Width, arguments, ctype, kernel_parameter, list, names, untold,
};
use crate::expr::Identifiers;
use crate::graph::CanonicalGraph;
use crate::kernel::{KernelPlan, KernelSpec, LaunchPlan};
use crate::target::Arch;

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
    let names = names(graph, &mut identifiers);
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
    let parameters = context.parameters(program, &inputs, identifiers);
    let variant = if schedule.fixed_columns { "rows" } else { "flat" };
    let dtype = graph.tensors[program.outputs[0]].dtype;
    let mut spec = KernelSpec {
        stem: format!("sm75_pointwise_{dtype}_{variant}"),
        template: "pointwise/sm75_pointwise.cu",
        entry: "pointwise",
        arch,
        parameters,
    };
    spec.parameters["stem"] = json!(spec.stem);
    spec.parameters["entry"] = json!(spec.entry);
    spec.parameters["arch"] = json!(arch.to_string());
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
    fn parameters(
        &self,
        program: &GraphProgram,
        inputs: &[usize],
        mut identifiers: Identifiers,
    ) -> Json {
        let input_names: Vec<String> = program
            .sources
            .iter()
            .map(|source| match source {
                Source::Tensor(at) => self.names[*at].clone(),
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
        let tensors: Vec<Json> =
            inputs.iter().chain(&program.outputs).map(|at| self.tensor(*at)).collect();
        let outputs: Vec<Json> = std::iter::zip(&program.outputs, &emitted.outputs)
            .map(|(at, output)| self.output(*at, output.ctype))
            .collect();
        let kernel_parameters: Vec<String> = inputs
            .iter()
            .chain(&program.outputs)
            .map(|at| kernel_parameter(self.graph, *at, &self.names[*at]))
            .chain(["const long long COUNT".to_owned()])
            .collect();
        let Schedule { vector, items, threads, chunks, .. } = *self.schedule;
        let outer = &self.domain.extents[..self.domain.extents.len() - 1];
        json!({
            "listing": program.program.to_string().lines().collect::<Vec<_>>(),
            "functions": emitted.functions,
            "index_type": self.index_type(),
            "threads": threads,
            "vector": vector,
            "items": items,
            "columns": self.domain.columns(),
            "chunks": chunks,
            "extents": outer,
            "divisions": coordinates(outer.len(), "row", "EXTENT"),
            "has_tail": self.domain.columns() % vector != 0,
            "fixed_columns": self.schedule.fixed_columns,
            "persistent": self.schedule.persistent,
            "block_chunks": self.schedule.block_chunks,
            "column_blocks": self.schedule.column_blocks,
            "tensors": tensors,
            "outputs": outputs,
            "lines": emitted.lines,
            "chain_parameters": list(&chain_parameters, Indent(4), Width(60)),
            "chain_arguments": list(&chain_arguments, Indent(24), Width(70)),
            "kernel_parameters": list(&kernel_parameters, Indent(4), Width(25)),
        })
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

    fn tensor(&self, at: usize) -> Json {
        let tensor = &self.graph.tensors[at];
        let (name, stride) = (&self.names[at], self.domain.column_stride(at));
        let strides = self.domain.row_strides(at);
        let written = self.graph.is_written(at);
        let kind = match (written, self.access(at)) {
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
        json!({
            "name": name,
            "text": untold(tensor),
            "kind": kind,
            "ctype": ctype,
            "access_bytes": self.access_bytes(at),
            "stride": stride,
            "strides": strides,
            "offset": offset(strides, stride),
            "fragment": if stride == 0 { "1" } else { "VECTOR" },
            "load": load,
            "load_stride": load_stride,
            "load_valid": if stride == 0 { "1" } else { "valid" },
        })
    }

    fn output(&self, at: usize, value_type: &str) -> Json {
        let name = &self.names[at];
        let stride = self.domain.column_stride(at);
        let (store, store_stride) = match stride {
            0 | 1 => (format!("store<{name}_layout::ACCESS>"), String::new()),
            _ => ("store_strided".to_owned(), format!("{name}_layout::STRIDE, ")),
        };
        json!({
            "name": name,
            "ctype": ctype(self.graph.tensors[at].dtype),
            "value_type": value_type,
            "guard": self.guard(at),
            "store": store,
            "store_stride": store_stride,
        })
    }

    fn access_bytes(&self, at: usize) -> i64 {
        let tensor = &self.graph.tensors[at];
        let outer = &self.domain.extents[..self.domain.extents.len() - 1];
        match self.domain.column_stride(at) {
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
