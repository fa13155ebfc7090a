//! Programs written line by line, values referred to by name: how cells and modifiers are written.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::pointwise::Pointwise;
use crate::expr::program::{Program, Value};

/// A [`Program`] in the making. A name that no line before has defined is an input.
///
/// ```
/// use kiln::expr::{Lines, Mode, Pointwise};
/// use kiln::DType;
///
/// let mut lines = Lines::new(DType::F32);
/// lines.line("sum", Pointwise::new(Mode::Add), &["x", "r"])?;
/// lines.line("next_h", Pointwise::new(Mode::TanhFwd), &["sum"])?;
/// let program = lines.finish(&["next_h"])?;
/// assert_eq!(program.inputs()[0].name, "x");
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Lines {
    program: Program,
    values: Vec<(String, Value)>,
    dtype: DType,
}

impl Lines {
    /// No line yet; every value will have this type.
    pub fn new(dtype: DType) -> Lines {
        Lines { program: Program::new(), values: Vec::new(), dtype }
    }

    /// Appends an operation and names its result.
    ///
    /// # Errors
    /// `BadParam` when the name is taken, and as [`Program::push`].
    pub fn line(&mut self, name: &str, op: Pointwise, operands: &[&str]) -> Result<()> {
        let operands: Vec<Value> = operands.iter().map(|operand| self.value(operand)).collect();
        if self.values.iter().any(|(taken, _)| taken == name) {
            let text = format!("{}: a value `{name}` is there already", op.mode);
            return Err(Error::bad_param(text));
        }
        let value = self.program.push(name, op, &operands, self.dtype)?;
        self.values.push((name.to_owned(), value));
        Ok(())
    }

    /// The program that hands out these values.
    ///
    /// # Errors
    /// `BadParam` for a value that no line defines.
    pub fn finish(mut self, outputs: &[&str]) -> Result<Program> {
        for name in outputs {
            match self.values.iter().find(|(known, _)| known == name) {
                Some((_, value @ Value::Result(_))) => self.program.output(*value),
                _ => return Err(Error::bad_param(format!("no line defines the value `{name}`"))),
            }
        }
        Ok(self.program)
    }

    fn value(&mut self, name: &str) -> Value {
        if let Some((_, value)) = self.values.iter().find(|(known, _)| known == name) {
            return *value;
        }
        let value = self.program.input(name, self.dtype);
        self.values.push((name.to_owned(), value));
        value
    }
}
