//! Reverse mode over the list of a program.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::mode::Mode;
use crate::expr::pointwise::{Math, Pointwise};
use crate::expr::program::{Program, Value};
use crate::expr::pullback::Writer;

impl Program {
    /// The vector-Jacobian product: a program that computes the gradients of the inputs `of`, by
    /// index, from those of the outputs.
    ///
    /// Its inputs are those of this program, followed by one named `d_<output>` for each output;
    /// its outputs are the gradients in the order of `of`, 0 for an input that nothing depends on.
    /// Gradients are computed in `f32`, in `f64` for what computes in `f64`, whatever type values
    /// are rounded to: a cast has the gradient 1. Non-smooth modes have the gradients of
    /// [`OperationGraph::vjp`](crate::OperationGraph::vjp). Values of this program that gradients
    /// need are computed again, and what is not needed is left out.
    ///
    /// # Errors
    /// `BadParam` when an index is not that of an input, or the program has no output.
    pub fn vjp(&self, of: &[usize]) -> Result<Program> {
        let Some(first) = self.outputs().first() else {
            return Err(Error::bad_param("vjp: the program has no output"));
        };
        if let Some(at) = of.iter().find(|at| **at >= self.inputs().len()) {
            let count = self.inputs().len();
            return Err(Error::bad_param(format!("vjp: input {at} of {count}")));
        }
        let wide = gradient_dtype(self, *first);
        let mut joint =
            Program::from_parts(self.inputs().to_vec(), self.instructions().to_vec(), Vec::new());
        let mut seeds = Vec::new();
        for output in self.outputs() {
            let name = format!("d_{}", self.name(*output));
            let given = joint.input(name, gradient_dtype(self, *output));
            seeds.push((*output, given));
        }
        let mut gradients = BTreeMap::new();
        for (value, gradient) in &seeds {
            joint.accumulate(&mut gradients, *value, *gradient)?;
        }
        joint.reverse_lines(0..self.instructions().len(), &mut gradients)?;
        // Nothing is less than itself, not even NaN.
        let none = Pointwise::new(Mode::CmpLt);
        for at in of {
            let own = match gradients.get(&Value::Input(*at)) {
                Some(own) => *own,
                None => joint.push("none", none, &[seeds[0].1; 2], wide)?,
            };
            joint.output(own);
        }
        Ok(joint.simplified())
    }

    /// Appends the reverse pass of a range of instructions: adds to the gradients of their operands
    /// what those of their results contribute.
    ///
    /// # Errors
    /// As [`Program::push`].
    pub(crate) fn reverse_lines(
        &mut self,
        lines: Range<usize>,
        gradients: &mut BTreeMap<Value, Value>,
    ) -> Result<()> {
        for at in lines.rev() {
            let line = self.instructions()[at].clone();
            let Some(own) = gradients.get(&Value::Result(at)).copied() else { continue };
            if line.op.math == Math::I32 {
                continue;
            }
            let mut failed = None;
            let name = format!("d_{}", line.name);
            let mut push = |op: Pointwise, operands: &[Value]| {
                let dtype = if op.math == Math::F64 { DType::F64 } else { DType::F32 };
                self.push(name.clone(), op, operands, dtype).unwrap_or_else(|error| {
                    failed = failed.take().or(Some(error));
                    operands[0]
                })
            };
            let of = line.operands.clone();
            let mut writer = Writer { push: &mut push, of: line.op };
            let pulled = writer.pullback_with(&of, Value::Result(at), own);
            if let Some(error) = failed {
                return Err(error);
            }
            for (operand, gradient) in of.iter().zip(pulled) {
                if let Some(gradient) = gradient.filter(|_| self.dtype(*operand).is_float()) {
                    self.accumulate(gradients, *operand, gradient)?;
                }
            }
        }
        Ok(())
    }

    /// Adds to the gradient of a value.
    fn accumulate(
        &mut self,
        gradients: &mut BTreeMap<Value, Value>,
        of: Value,
        gradient: Value,
    ) -> Result<()> {
        let sum = match gradients.get(&of).copied() {
            None => gradient,
            Some(before) => {
                let wide = [before, gradient].iter().any(|at| self.dtype(*at) == DType::F64);
                let (math, dtype) =
                    if wide { (Math::F64, DType::F64) } else { (Math::F32, DType::F32) };
                let name = format!("d_{}", self.name(of));
                self.push(name, Pointwise::new(Mode::Add).math(math), &[before, gradient], dtype)?
            }
        };
        gradients.insert(of, sum);
        Ok(())
    }
}

/// Type in which the gradient of a value is computed.
fn gradient_dtype(program: &Program, value: Value) -> DType {
    let wide = match value {
        Value::Input(_) => false,
        Value::Result(at) => program.instructions()[at].op.math == Math::F64,
    };
    if wide || program.dtype(value) == DType::F64 { DType::F64 } else { DType::F32 }
}
