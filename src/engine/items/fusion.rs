//! Pointwise operations on an operation's tensors.

use crate::engine::access::{PARAMETERS_MAX, span_elements};
use crate::engine::items::axes::{Axes, Axis, Strides};
use crate::engine::program::{GraphProgram, Source};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, Operation};

/// Pointwise operations on one of an operation's tensors, and how their tensors lie along its
/// dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct Fusion {
    /// The tensor of the operation.
    pub(in crate::engine) tensor: usize,
    /// Its name in comments and of variables.
    pub(in crate::engine) name: &'static str,
    /// The struct of its layouts in a kernel; none for the result.
    pub(in crate::engine) scope: Option<&'static str>,
    /// Computes the operand; or, from the result, what is stored.
    pub(in crate::engine) program: GraphProgram,
    pub(in crate::engine) axes: Axes,
    /// Names of an element's coordinates along outer, group, inner and spatial dimensions.
    pub(in crate::engine) coordinates: Vec<String>,
    /// Parameters of the function that gives the offset of an element, which declare them.
    pub(in crate::engine) element: String,
}

impl Fusion {
    /// The tensors that the program reads, from memory or by value; not the operation's result.
    pub(in crate::engine) fn inputs(&self) -> impl Iterator<Item = usize> {
        let read = |(input, source): (usize, &Source)| match source {
            Source::Tensor(at) if self.program.reads(input) => Some(*at),
            _ => None,
        };
        self.program.sources.iter().enumerate().filter_map(read)
    }

    /// The names of what the function takes that gives the offset of an element.
    pub(in crate::engine) fn arguments(&self) -> String {
        let name = |parameter: &str| parameter.rsplit([' ', '&']).next().map(str::to_owned);
        let names: Vec<String> = self.element.split(", ").filter_map(name).collect();
        names.join(", ")
    }

    /// What an epilogue reads besides the operation's result.
    pub(in crate::engine) fn followers(&self) -> impl Iterator<Item = usize> {
        self.inputs().filter(|at| *at != self.tensor)
    }

    /// Puts a spatial dimension of one element in front of the one that there is.
    pub(in crate::engine) fn add_row(&mut self) {
        self.axes.spatial.insert(0, 1);
        for axis in &mut self.axes.of_tensor {
            if *axis == Axis::Spatial(0) {
                *axis = Axis::Spatial(1);
            }
        }
        let own = self.coordinates.last_mut().expect("there are coordinates");
        let row = own.clone();
        debug_assert!(row.ends_with('0'), "the first spatial coordinate");
        own.truncate(row.len() - 1);
        own.push('1');
        self.coordinates.insert(3, row);
    }

    /// Whether the operand is a tensor in memory that nothing is computed from.
    pub(in crate::engine) fn is_plain(&self) -> bool {
        self.program.program.instructions().is_empty()
    }

    /// How a tensor lies along the dimensions of the operation's.
    ///
    /// # Errors
    /// `NotSupported` where it does not broadcast to it.
    pub(in crate::engine) fn strides(
        &self,
        graph: CanonicalGraph<'_>,
        at: usize,
    ) -> Result<Strides> {
        self.axes.strides(&graph.tensors[at])
    }

    /// Checks that all its tensors broadcast to the operation's.
    ///
    /// # Errors
    /// As [`Fusion::strides`].
    pub(in crate::engine) fn check(&self, graph: CanonicalGraph<'_>) -> Result<()> {
        let outputs = self.program.outputs.iter().copied();
        let mut tensors = self.inputs().chain(self.program.positions()).chain(outputs);
        tensors.try_for_each(|at| self.strides(graph, at).map(drop))
    }
}

/// The one operation of a kind in a graph, all else of which is elementwise.
///
/// # Errors
/// `NotSupported` where there is none or more than one, or an operation of another kind.
pub(in crate::engine) fn only<'a, T>(
    graph: CanonicalGraph<'a>,
    kind: &str,
    of_kind: impl Fn(&'a Op) -> Option<&'a T>,
) -> Result<(&'a Operation, &'a T)> {
    let refuse = |rule: String| Err(Error::not_supported(rule));
    let mut found = None;
    for operation in graph.operations.iter().filter(|operation| !operation.is_elementwise()) {
        match (of_kind(&operation.op), found) {
            (Some(op), None) => found = Some((operation, op)),
            (Some(_), Some(_)) => return refuse(format!("the graph has more than one {kind}")),
            (None, _) => {
                return refuse(format!("{} is neither a {kind} nor pointwise", operation.op));
            }
        }
    }
    found.ok_or_else(|| Error::not_supported(format!("the graph has no {kind}")))
}

/// The tensors that a kernel takes: each once, inputs first.
pub(in crate::engine) fn passed<'a>(
    operands: impl IntoIterator<Item = &'a Fusion>,
    epilogue: &'a Fusion,
) -> Vec<usize> {
    let inputs = operands.into_iter().flat_map(Fusion::inputs).chain(epilogue.followers());
    distinct(inputs.chain(epilogue.program.outputs.iter().copied()))
}

/// Tensors, each once, in the order in which they come first.
pub(in crate::engine) fn distinct(tensors: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut all = Vec::new();
    for at in tensors {
        if !all.contains(&at) {
            all.push(at);
        }
    }
    all
}

/// Checks the number of a kernel's parameters.
///
/// # Errors
/// `NotSupported` where a kernel has no room for them.
pub(in crate::engine) fn check_parameters(passed: &[usize]) -> Result<()> {
    match passed.len() {
        0..=PARAMETERS_MAX => Ok(()),
        needed => Err(Error::not_supported(format!(
            "{needed} parameters exceed the {PARAMETERS_MAX} of a kernel"
        ))),
    }
}

/// The largest element offset of any of these tensors.
pub(in crate::engine) fn offset_max(graph: CanonicalGraph<'_>, passed: &[usize]) -> i64 {
    let stored = |at: &&usize| !graph.tensors[**at].by_value;
    let span = |at: &usize| span_elements(&graph.tensors[*at]);
    passed.iter().filter(stored).map(span).max().unwrap_or(0)
}
