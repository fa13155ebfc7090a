//! What the template of dynamic slices reads.

use serde::Serialize;

use crate::engine::dynamic_slice::problem::{Moved, Problem};
use crate::engine::signature::{Indent, Width, ctype, kernel_parameter, list};
use crate::expr::Identifiers;
use crate::graph::SliceCopy;

/// Names of the kernel's own variables and functions.
const OWN_WORDS: [&str; 9] =
    ["at", "first", "from", "place", "position", "rest", "source", "step", "words"];

/// Variables of `dynamic_slice/sm75_dynamic_slice.cu`.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    listing: Vec<String>,
    wide: bool,
    threads: i64,
    copies: Vec<CopyParameters>,
    kernel_parameters: String,
}

/// One of the copies.
#[derive(Debug, Serialize)]
struct CopyParameters {
    /// Its tensors as they are listed.
    text: String,
    ctype: &'static str,
    /// C++ expressions of the position and the tensors.
    position: String,
    from: String,
    to: String,
    reverse: bool,
    /// Whether it writes the slice.
    writes: bool,
    /// Whether it depends on the position.
    moves: bool,
    last: i64,
    stride: i64,
    accesses: i64,
    /// Bytes of one access.
    access: i64,
    dimensions: Vec<Dimension>,
}

/// A dimension of the slice: its extent in accesses, and the distance of neighbours in elements.
#[derive(Debug, Serialize)]
struct Dimension {
    extent: i64,
    from: i64,
    to: i64,
}

impl Parameters {
    pub(super) fn of(problem: &Problem<'_>, threads: i64) -> Parameters {
        let graph = problem.graph;
        let own = (0..problem.copies.len()).map(|at| format!("copy{at}"));
        let mut identifiers = Identifiers::reserving(&OWN_WORDS);
        own.for_each(|name| drop(identifiers.fresh(&name)));
        let mut names = vec![String::new(); graph.tensors.len()];
        for at in problem.passed() {
            names[at] = identifiers.fresh(&graph.tensors[at].name);
        }
        let passed = problem.passed().into_iter();
        let kernel_parameters: Vec<String> =
            passed.map(|at| kernel_parameter(graph, at, &names[at])).collect();
        Parameters {
            listing: vec![problem.op.to_string()],
            wide: problem.is_wide(),
            threads,
            copies: problem.copied().map(|of| copy_parameters(problem, of, &names)).collect(),
            kernel_parameters: list(&kernel_parameters, Indent(4), Width(0)),
        }
    }
}

fn copy_parameters(problem: &Problem<'_>, of: &Moved, names: &[String]) -> CopyParameters {
    let [x, y] = [of.x, of.y].map(|at| problem.tensor(at));
    let position = match problem.tensor(of.position).by_value {
        true => format!("int({})", names[of.position]),
        false => format!("{}[0]", names[of.position]),
    };
    let inner = of.extents.len() - 1;
    let dimensions = of.extents.iter().enumerate().map(|(at, extent)| {
        let step = if at == inner { of.vector } else { 1 };
        let [from, to] = [0, 1].map(|tensor: usize| of.strides[tensor][at] * step);
        Dimension { extent: extent / step, from, to }
    });
    let writes = matches!(of.copy, SliceCopy::Write { .. });
    let axis = of.copy.axis();
    let text = match (writes, of.last) {
        (true, _) => format!("a slice along axis {axis} of {y} = {x}"),
        (false, 0) => format!("{y} = {x}"),
        (false, _) => format!("{y} = a slice along axis {axis} of {x}"),
    };
    CopyParameters {
        text,
        ctype: ctype(x.dtype),
        position,
        from: names[of.x].clone(),
        to: names[of.y].clone(),
        reverse: of.copy.is_reverse(),
        writes,
        moves: writes || of.last > 0,
        last: of.last,
        stride: of.stride,
        accesses: of.accesses(),
        access: of.vector * x.dtype.bytes() as i64,
        dimensions: dimensions.collect(),
    }
}
