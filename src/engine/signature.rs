//! What a kernel takes: its tensors' identifiers, parameters and arguments.

use crate::dtype::DType;
use crate::engine::access::drawn;
use crate::error::{Error, Result};
use crate::expr::{Identifiers, MOVED};
use crate::graph::{CanonicalGraph, Op};
use crate::kernel::Argument;
use crate::tensor::TensorDesc;

/// An identifier per tensor of the graph; empty for virtual ones.
pub(super) fn names(graph: CanonicalGraph<'_>, identifiers: &mut Identifiers) -> Vec<String> {
    let name = |tensor: &TensorDesc| match tensor.is_virtual {
        true => String::new(),
        false => identifiers.fresh(&tensor.name),
    };
    graph.tensors.iter().map(name).collect()
}

/// An identifier per tensor of random numbers, for where its positions are; empty for the others.
pub(super) fn position_names(
    graph: CanonicalGraph<'_>,
    identifiers: &mut Identifiers,
) -> Vec<String> {
    let mut names = vec![String::new(); graph.tensors.len()];
    for at in drawn(graph) {
        let name = match graph.tensors[at].name.as_str() {
            "" => "random",
            name => name,
        };
        names[at] = identifiers.fresh(&format!("{name}_position"));
    }
    names
}

/// Both in one list: random numbers are not stored.
pub(super) fn names_with_positions(
    graph: CanonicalGraph<'_>,
    identifiers: &mut Identifiers,
) -> Vec<String> {
    let mut names = names(graph, identifiers);
    for (name, position) in names.iter_mut().zip(position_names(graph, identifiers)) {
        if name.is_empty() {
            *name = position;
        }
    }
    names
}

/// Each of some tensors once, in order.
pub(super) fn distinct(all: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut distinct = Vec::new();
    for at in all {
        if !distinct.contains(&at) {
            distinct.push(at);
        }
    }
    distinct
}

/// How the tensors a kernel takes are passed.
pub(super) fn arguments<'a>(
    graph: CanonicalGraph<'_>,
    passed: impl Iterator<Item = &'a usize>,
) -> Vec<Argument> {
    let argument = |at: &usize| match graph.tensors[*at].by_value {
        true => Argument::Value(*at as i64, graph.tensors[*at].dtype),
        false => Argument::Address(*at as i64),
    };
    passed.map(argument).collect()
}

/// The declaration of a tensor's parameter.
pub(super) fn kernel_parameter(graph: CanonicalGraph<'_>, at: usize, name: &str) -> String {
    let ctype = ctype(graph.tensors[at].dtype);
    match (graph.tensors[at].by_value, graph.is_written(at)) {
        (true, _) => format!("const double {name}"),
        (false, true) => format!("{ctype}* {name}"),
        (false, false) => format!("const {ctype}* {name}"),
    }
}

/// Refuses a device of a compute capability below the least one of a template.
///
/// # Errors
/// `NotSupported` with both.
pub(super) fn refuse_older(capability: u16, least: u16) -> Result<()> {
    match capability < least {
        true => Err(Error::not_supported(format!("sm_{capability} is older than sm_{least}"))),
        false => Ok(()),
    }
}

/// Refuses a graph that has integers of 64 bits, but for seeds and offsets of random numbers.
///
/// # Errors
/// `NotSupported` with the first tensor that has them.
pub(super) fn refuse_i64(graph: CanonicalGraph<'_>) -> Result<()> {
    refuse_i64_beside(graph, None)
}

/// Refuses a graph that has integers of 64 bits in another tensor than this one.
///
/// # Errors
/// As [`refuse_i64`].
pub(super) fn refuse_i64_beside(graph: CanonicalGraph<'_>, moved: Option<usize>) -> Result<()> {
    let is_drawn_from = |uid: i64| {
        let mut touching = graph
            .operations
            .iter()
            .filter(|of| of.inputs.contains(&uid) || of.outputs.contains(&uid));
        touching.all(|of| matches!(of.op, Op::Rng(_)) && of.inputs.contains(&uid))
    };
    let refused = |tensor: &&TensorDesc| {
        let is_moved = moved.is_some_and(|at| at as i64 == tensor.uid);
        tensor.dtype == DType::I64 && !is_moved && !is_drawn_from(tensor.uid)
    };
    match graph.tensors.iter().find(refused) {
        None => Ok(()),
        Some(TensorDesc { name, dtype, .. }) => {
            let text = format!("`{name}` is {dtype}, {MOVED}");
            Err(Error::not_supported(text))
        }
    }
}

/// A tensor in the words of a kernel that serves several extents of its first dimension.
pub(super) fn untold(tensor: &TensorDesc) -> String {
    format!("{}: {}", tensor.name, tensor.dtype)
}

pub(super) struct Indent(pub(super) usize);

pub(super) struct Width(pub(super) usize);

/// Parameters or arguments on one line if they fit in what is left of it, else one per line.
pub(super) fn list(entries: &[String], indent: Indent, left: Width) -> String {
    let line = entries.join(", ");
    match line.len() <= left.0 {
        true => line,
        false => {
            let margin = format!("\n{}", " ".repeat(indent.0));
            format!("{margin}{}", entries.join(&format!(",{margin}")))
        }
    }
}

/// The device type of a storage type.
pub(super) fn ctype(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "float",
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::F8E4M3 => "f8e4m3",
        DType::F8E5M2 => "f8e5m2",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I8 => "i8",
        DType::U8 => "u8",
        DType::Bool => "bool8",
    }
}
