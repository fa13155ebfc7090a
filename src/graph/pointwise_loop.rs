//! Loops whose trips are pointwise: scans, recurrences without GEMMs, iterations to convergence.

use std::fmt;
use std::sync::Arc;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Program, Value};
use crate::graph::loop_frame::{Broken, LoopFrame, Tensors, check_program};
use crate::graph::semantics::Semantics;
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// A loop in each of whose trips every element of its states is computed by itself
/// (TensorRT's `ILoop` with a pointwise body; a scan).
///
/// Tensors are those of its [frame](LoopFrame), for elements of dimensions `D` and all of the same
/// rank: states, captured and elements of iterated tensors have `D` or 1 along each dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PointwiseLoop {
    /// The computation of a trip: its inputs are the states, then what is iterated, then what is
    /// captured; its outputs the next states, then what is stacked, then the condition.
    pub program: Arc<Program>,
    /// Tensors and limits.
    pub frame: LoopFrame,
}

impl PointwiseLoop {
    /// The dimensions of the elements, of operands of the program in order.
    pub(crate) fn domain<'a>(&self, operands: impl Iterator<Item = &'a TensorDesc>) -> Vec<i64> {
        let mut domain: Vec<i64> = Vec::new();
        for (at, tensor) in operands.enumerate() {
            let extents = domain.iter().chain(std::iter::repeat(&1));
            let both = tensor.dims[self.frame.leading(at)..].iter().zip(extents);
            domain = both.map(|(own, all)| if *own == 1 { *all } else { *own }).collect();
        }
        domain
    }

    /// The dimensions of each output of the program for inputs of these dimensions.
    pub(crate) fn spread(&self, inputs: &[Vec<i64>]) -> Vec<Vec<i64>> {
        let rank = inputs.first().map_or(0, Vec::len);
        let mut lines: Vec<Vec<i64>> = Vec::new();
        let of = |value: &Value, lines: &[Vec<i64>]| match value {
            Value::Input(at) => inputs[*at].clone(),
            Value::Result(at) => lines[*at].clone(),
        };
        for line in self.program.instructions() {
            let mut dims = vec![1; rank];
            for value in &line.operands {
                for (own, other) in dims.iter_mut().zip(of(value, &lines)) {
                    *own = if *own == 1 { other } else { *own };
                }
            }
            lines.push(dims);
        }
        self.program.outputs().iter().map(|value| of(value, &lines)).collect()
    }
}

impl Semantics for PointwiseLoop {
    fn name(&self) -> &'static str {
        "pointwise_loop"
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
        let broken = self.frame.check(self.program.inputs().len(), self.program.outputs().len());
        let broken = broken.and_then(|()| check_program(&self.program)).and_then(|()| {
            let tensors = self.frame.tensors(inputs, outputs)?;
            self.check_tensors(&tensors)
        });
        broken.map_err(|rule| Error::bad_param(format!("{self}: {rule}")))
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {}
}

impl PointwiseLoop {
    fn check_tensors(&self, tensors: &Tensors<'_>) -> Broken {
        let PointwiseLoop { program, frame } = self;
        for (tensor, input) in tensors.operands.iter().zip(program.inputs()) {
            if tensor.dtype != input.dtype() {
                let [name, own] = [&tensor.name, &input.name];
                let [given, expected] = [tensor.dtype, input.dtype()];
                return Err(format!("`{name}` is {given}, `{own}` is {expected}"));
            }
        }
        let rank = tensors.operands[0].dims.len();
        let mut elements: Vec<Vec<i64>> = Vec::new();
        for (at, tensor) in tensors.operands.iter().enumerate() {
            let trips = frame.leading(at);
            let (name, dims) = (&tensor.name, &tensor.dims);
            if dims.len() != rank + trips {
                let expected = rank + trips;
                return Err(format!("`{name}` is {dims:?}, expected {expected} dimensions"));
            }
            frame.check_trips(at, tensor)?;
            elements.push(dims[trips..].to_vec());
        }
        for axis in 0..rank {
            let mut own = elements.iter().map(|dims| dims[axis]).filter(|extent| *extent != 1);
            let first = own.next().unwrap_or(1);
            if let Some(other) = own.find(|extent| *extent != first) {
                return Err(format!("extents {first} and {other} differ along axis {axis}"));
            }
        }
        let spread = self.spread(&elements);
        for (state, own) in spread.iter().take(frame.states).enumerate() {
            let fits =
                own.iter().zip(&elements[state]).all(|(next, own)| next == own || *next == 1);
            if !fits {
                let (given, name) = (&elements[state], &tensors.operands[state].name);
                return Err(format!("the next value of `{name}` is {own:?}, it is {given:?}"));
            }
        }
        for (state, tensor) in frame.handed().zip(tensors.last) {
            check_result(tensor, &elements[state], tensors.operands[state].dtype)?;
        }
        for (at, tensor) in tensors.stacked.iter().enumerate() {
            let value = program.outputs()[frame.states + at];
            let length = tensor.dims.first().copied().unwrap_or(0);
            let dims: Vec<i64> =
                std::iter::once(length).chain(spread[frame.states + at].clone()).collect();
            check_result(tensor, &dims, program.dtype(value))?;
        }
        match spread.last().filter(|_| frame.condition) {
            Some(dims) if dims.iter().any(|extent| *extent != 1) => {
                Err(format!("its condition is {dims:?}, expected one element"))
            }
            _ => Ok(()),
        }
    }
}

fn check_result(tensor: &TensorDesc, dims: &[i64], dtype: DType) -> Broken {
    let TensorDesc { name, dims: own, dtype: given, .. } = tensor;
    match own == dims && *given == dtype {
        true => Ok(()),
        false => Err(format!("`{name}` is {given}{own:?}, expected {dtype}{dims:?}")),
    }
}

impl fmt::Display for PointwiseLoop {
    /// Formats as `pointwise_loop{2 states, while}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pointwise_loop{{{}}}", self.frame)
    }
}
