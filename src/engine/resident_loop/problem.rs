//! A graph of one resident loop: its values, and where they are.

use crate::dtype::DType;
use crate::engine::access::{PARAMETERS_MAX, span_elements, stored};
use crate::engine::alone::alone;
use crate::engine::loop_tensors::LoopTensors;
use crate::engine::resident_loop::layout::is_packed;
use crate::engine::resident_loop::levels::Levels;
use crate::engine::signature::{refuse_i64, refuse_older};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, LoopFold, LoopStage, LoopValue, Op, ResidentLoop};
use crate::tensor::TensorDesc;

/// Minimum compute capability of the template.
const CAPABILITY_MIN: u16 = 75;

/// Alignment of values in the workspace, in bytes.
const ALIGNMENT: i64 = 16;

/// The most elements of a value, terms of a fold and bytes of the workspace: kernels count in 32
/// bits, past the end by a step of all threads.
const POSITIONS_MAX: i64 = 1 << 30;

/// A value of a trip in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    /// Of its first place, in bytes.
    pub(super) offset: i64,
    /// Distance of the place of the next trip, in elements; `None` where all trips have one.
    pub(super) apart: Option<i64>,
}

/// The one loop of a graph.
#[derive(Debug, Clone)]
pub(super) struct Problem<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a ResidentLoop,
    pub(super) tensors: LoopTensors<'a>,
    /// All values of a trip.
    pub(super) values: Vec<LoopValue>,
    pub(super) levels: Levels,
    /// Where results of stages are that something reads, by value.
    pub(super) kept: Vec<Option<Kept>>,
    /// Bytes of the values in the workspace.
    pub(super) bytes: i64,
}

impl<'a> Problem<'a> {
    /// # Errors
    /// `NotSupported` if the graph is not exactly one loop, or a tensor is none that it takes.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        let refuse = |rule: String| Err(Error::not_supported(rule));
        refuse_older(capability, CAPABILITY_MIN)?;
        let own = |op: &'a Op| match op {
            Op::ResidentLoop(op) => Some(op),
            _ => None,
        };
        let (operation, op) = alone(graph, own, "resident loop")?;
        refuse_i64(graph)?;
        if let Some((_, tensor)) =
            stored(graph).find(|(_, of)| span_elements(of) > i64::from(i32::MAX))
        {
            let name = &tensor.name;
            return refuse(format!("`{name}` has elements that are 2^31 or more apart"));
        }
        let tensors = LoopTensors { frame: &op.frame, operation };
        let operands = tensors.operands();
        let tensor = |at: &usize| &graph.tensors[*at];
        if let Some(state) = operands[..op.frame.states].iter().find(|at| tensor(at).by_value) {
            return refuse(format!("the state `{}` is passed by value", tensor(state).name));
        }
        let is_apart = |at: &&usize| !is_packed(tensor(at), 0);
        if let Some(state) = operands[..op.frame.states].iter().find(is_apart) {
            return refuse(format!("the state `{}` is not packed", tensor(state).name));
        }
        let values = op.values(operands.iter().map(tensor));
        let (kept, bytes) = places(op, &values);
        let folds = op.stages.iter().flat_map(|stage| &stage.folds).map(LoopFold::terms);
        let elements = values.iter().map(|value| value.elements);
        let most = elements.chain(folds).chain([bytes]).max().unwrap_or(0);
        if most > POSITIONS_MAX {
            return refuse(format!("{most} elements, terms or bytes exceed {POSITIONS_MAX}"));
        }
        let levels = Levels::of(op);
        let problem = Problem { graph, op, tensors, values, levels, kept, bytes };
        match tensors.passed().len() {
            passed if passed > PARAMETERS_MAX - 2 => {
                refuse(format!("{passed} tensors exceed the {PARAMETERS_MAX} of a kernel"))
            }
            _ => Ok(problem),
        }
    }

    pub(super) fn tensor(&self, at: usize) -> &'a TensorDesc {
        &self.graph.tensors[at]
    }

    /// Terms of the largest stage.
    pub(super) fn widest_terms(&self) -> i64 {
        self.op.stages.iter().map(LoopStage::terms).max().unwrap_or(1)
    }

    pub(super) fn is_double(&self) -> bool {
        let outputs = self.op.stages.iter().flat_map(|stage| {
            stage.program.outputs().iter().map(|value| stage.program.dtype(*value))
        });
        outputs.into_iter().any(|dtype| dtype == DType::F64)
    }
}

/// Where the results of stages are that something reads, and the bytes of all.
fn places(op: &ResidentLoop, values: &[LoopValue]) -> (Vec<Option<Kept>>, i64) {
    let frame = &op.frame;
    let next = &op.yields[..frame.states];
    let condition = op.yields.last().filter(|_| frame.condition);
    let mut bytes = 0;
    let mut place = |at: usize| {
        let is_doubled = next.contains(&at) || condition == Some(&at);
        let is_read = op.stages.iter().flat_map(LoopStage::views).any(|view| view.value == at);
        if at < frame.given() || !(is_doubled || is_read) {
            return None;
        }
        let LoopValue { dtype, elements } = values[at];
        let size = dtype.bytes() as i64;
        // Places of two trips begin in different words of 16 bytes.
        let apart = (elements * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        let kept = Kept { offset: bytes, apart: is_doubled.then_some(apart / size) };
        bytes += apart * if is_doubled { 2 } else { 1 };
        Some(kept)
    };
    ((0..values.len()).map(&mut place).collect(), bytes)
}
