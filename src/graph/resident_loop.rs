//! Loops whose trips are some stages of sums and pointwise operations, for one kernel that makes
//! all trips.

use std::fmt;
use std::sync::Arc;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Program;
use crate::graph::loop_frame::{Broken, LoopFrame, Tensors, check_program};
use crate::graph::reduction::ReductionOp;
use crate::graph::semantics::Semantics;
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// A loop whose trips are stages that follow each other (TensorRT's `ILoop` with products,
/// reductions and pointwise operations in its body).
///
/// Tensors are those of its [frame](LoopFrame), of any rank. What a trip computes with are values:
/// lists of elements in row-major order. The first ones are the states, then what is iterated, then
/// what is captured; then come the results of the stages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResidentLoop {
    /// Stages in the order of a trip.
    pub stages: Vec<LoopStage>,
    /// The values that a trip yields, which stages compute: the next states, then what is stacked,
    /// then the condition.
    pub yields: Vec<usize>,
    /// Tensors and limits.
    pub frame: LoopFrame,
}

/// Values that are computed element by element, each of sums and of elements of other values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoopStage {
    /// Extents of the results, all at least 1.
    pub extents: Vec<i64>,
    /// What is summed for each element.
    pub folds: Vec<LoopFold>,
    /// Elements of other values.
    pub operands: Vec<LoopView>,
    /// The results, whose inputs are the folds, then the operands.
    pub program: Arc<Program>,
}

/// A sum, product, minimum or maximum of terms.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoopFold {
    /// One of `Add`, `Mul`, `Min` and `Max`.
    pub op: ReductionOp,
    /// Extents of the terms, all at least 1.
    pub extents: Vec<i64>,
    /// Elements of values, by coordinates of the stage, then of the term.
    pub operands: Vec<LoopView>,
    /// A term of these operands, in f32, f64 or i32.
    pub term: Arc<Program>,
}

/// Elements of a value by coordinates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoopView {
    /// The value.
    pub value: usize,
    /// Position of the element at the origin.
    pub first: i64,
    /// Distance of neighbours along each coordinate.
    pub strides: Vec<i64>,
}

/// A value of a trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoopValue {
    pub(crate) dtype: DType,
    pub(crate) elements: i64,
}

impl LoopFold {
    /// Terms of an element.
    pub(crate) fn terms(&self) -> i64 {
        volume(&self.extents)
    }

    /// Type of the terms and their sum.
    pub(crate) fn dtype(&self) -> DType {
        self.term.dtype(self.term.outputs()[0])
    }
}

impl LoopStage {
    /// Elements of a result.
    pub(crate) fn elements(&self) -> i64 {
        volume(&self.extents)
    }

    /// Terms of folds, and each element once.
    pub(crate) fn terms(&self) -> i64 {
        let of_element: i64 = self.folds.iter().map(LoopFold::terms).sum();
        self.elements().saturating_mul(of_element + 1)
    }

    /// All views of values.
    pub(crate) fn views(&self) -> impl Iterator<Item = &LoopView> {
        self.folds.iter().flat_map(|fold| &fold.operands).chain(&self.operands)
    }

    fn results(&self) -> impl Iterator<Item = LoopValue> {
        let elements = self.elements();
        let outputs = self.program.outputs().iter();
        outputs.map(move |value| LoopValue { dtype: self.program.dtype(*value), elements })
    }
}

fn volume(extents: &[i64]) -> i64 {
    extents.iter().fold(1, |all: i64, extent| all.saturating_mul(*extent))
}

impl ResidentLoop {
    /// What a trip computes: terms of folds, and each element of a stage once.
    pub(crate) fn terms(&self) -> i64 {
        self.stages.iter().fold(0, |all: i64, stage| all.saturating_add(stage.terms()))
    }

    /// All values of a trip, for operands in order.
    pub(crate) fn values<'a>(
        &self,
        operands: impl Iterator<Item = &'a TensorDesc>,
    ) -> Vec<LoopValue> {
        let given = operands.enumerate().map(|(at, tensor)| LoopValue {
            dtype: tensor.dtype,
            elements: volume(&tensor.dims[self.frame.leading(at).min(tensor.dims.len())..]),
        });
        given.chain(self.stages.iter().flat_map(LoopStage::results)).collect()
    }

    /// The first value of each stage, in order, and behind the last one.
    pub(crate) fn first_results(&self) -> Vec<usize> {
        let mut first = vec![self.frame.given()];
        for stage in &self.stages {
            first.push(first[first.len() - 1] + stage.program.outputs().len());
        }
        first
    }

    fn check_stages(&self, values: &[LoopValue]) -> Broken {
        for ((at, stage), known) in self.stages.iter().enumerate().zip(self.first_results()) {
            let known = &values[..known];
            stage.check(known).map_err(|rule| format!("stage {at}: {rule}"))?;
        }
        Ok(())
    }

    fn check_tensors(&self, tensors: &Tensors<'_>, values: &[LoopValue]) -> Broken {
        let frame = &self.frame;
        for (at, tensor) in tensors.operands.iter().enumerate() {
            frame.check_trips(at, tensor)?;
        }
        let all = self.frame.given()..values.len();
        if let Some(value) = self.yields.iter().find(|value| !all.contains(value)) {
            return Err(format!("it yields value {value}, its stages compute {all:?}"));
        }
        let yielded: Vec<LoopValue> = self.yields.iter().map(|value| values[*value]).collect();
        for (state, next) in yielded.iter().take(frame.states).enumerate() {
            if *next != values[state] {
                let (name, own) = (&tensors.operands[state].name, values[state]);
                return Err(format!("the next value of `{name}` is {next}, it is {own}"));
            }
        }
        let last = frame.handed().map(|state| (values[state], 0)).zip(tensors.last);
        let stacked = yielded[frame.states..].iter().map(|value| (*value, 1)).zip(tensors.stacked);
        for ((expected, leading), tensor) in last.chain(stacked) {
            let TensorDesc { name, dims, dtype, .. } = tensor;
            let elements = volume(dims.get(leading..).unwrap_or(&[0]));
            if (LoopValue { dtype: *dtype, elements }) != expected {
                return Err(format!("`{name}` is {dtype}{dims:?}, expected {expected}"));
            }
        }
        match yielded.last().filter(|_| frame.condition) {
            Some(condition) if condition.elements != 1 => {
                Err(format!("its condition has {condition}, expected one element"))
            }
            _ => Ok(()),
        }
    }
}

impl LoopStage {
    fn check(&self, known: &[LoopValue]) -> Broken {
        check_extents(&self.extents)?;
        let mut inputs = Vec::new();
        for fold in &self.folds {
            fold.check(&self.extents, known)?;
            inputs.push(fold.dtype());
        }
        inputs.extend(check_views(&self.operands, &self.extents, known)?);
        check_inputs(&self.program, &inputs)
    }
}

impl LoopFold {
    fn check(&self, stage: &[i64], known: &[LoopValue]) -> Broken {
        use ReductionOp::{Add, Max, Min, Mul};
        check_extents(&self.extents)?;
        let coordinates = [stage, &self.extents].concat();
        check_inputs(&self.term, &check_views(&self.operands, &coordinates, known)?)?;
        let outputs = self.term.outputs().len();
        if outputs != 1 {
            return Err(format!("a term has {outputs} values, expected 1"));
        }
        if !matches!(self.op, Add | Mul | Min | Max) {
            return Err(format!("it folds by {}", self.op.name()));
        }
        match self.dtype() {
            DType::F32 | DType::F64 | DType::I32 => Ok(()),
            dtype => Err(format!("its terms are {dtype}")),
        }
    }
}

fn check_extents(extents: &[i64]) -> Broken {
    match extents.iter().any(|extent| *extent < 1) || volume(extents) > i64::from(i32::MAX) {
        true => Err(format!("its extents are {extents:?}")),
        false => Ok(()),
    }
}

/// The types of the elements.
fn check_views(
    views: &[LoopView],
    extents: &[i64],
    known: &[LoopValue],
) -> Result<Vec<DType>, String> {
    let dtype = |view: &LoopView| {
        let LoopView { value, first, strides } = view;
        let Some(of) = known.get(*value) else {
            return Err(format!("it reads value {value}, {} are known", known.len()));
        };
        if strides.len() != extents.len() {
            return Err(format!("strides {strides:?} are for extents {extents:?}"));
        }
        let (mut least, mut most) = (*first, *first);
        for (stride, extent) in strides.iter().zip(extents) {
            let reach = stride.saturating_mul(extent - 1);
            least = least.saturating_add(reach.min(0));
            most = most.saturating_add(reach.max(0));
        }
        match least >= 0 && most < of.elements {
            true => Ok(of.dtype),
            false => Err(format!("it reads elements {least} to {most} of value {value}: {of}")),
        }
    };
    views.iter().map(dtype).collect()
}

fn check_inputs(program: &Program, given: &[DType]) -> Broken {
    check_program(program)?;
    let own: Vec<DType> = program.inputs().iter().map(|input| input.dtype()).collect();
    match own == given {
        true => Ok(()),
        false => Err(format!("its program takes {own:?}, it is given {given:?}")),
    }
}

impl Semantics for ResidentLoop {
    fn name(&self) -> &'static str {
        "resident_loop"
    }

    fn slots(&self) -> Slots {
        self.frame.slots()
    }

    fn math(&self) -> DType {
        DType::F32
    }

    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(None)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let checked = self.frame.check(self.frame.given(), self.yields.len()).and_then(|()| {
            let tensors = self.frame.tensors(inputs, outputs)?;
            let values = self.values(tensors.operands.iter().copied());
            self.check_stages(&values)?;
            self.check_tensors(&tensors, &values)
        });
        checked.map_err(|rule| Error::bad_param(format!("{self}: {rule}")))
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {}
}

impl fmt::Display for LoopValue {
    /// Formats as `f32[6]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.dtype, self.elements)
    }
}

impl fmt::Display for ResidentLoop {
    /// Formats as `resident_loop{2 states, count, 3 stages}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resident_loop{{{}, {} stages}}", self.frame, self.stages.len())
    }
}
