//! Construction of programs line by line with named values, as used for cells and score modifiers.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::pointwise::Pointwise;
use crate::expr::program::{Program, Value};

/// Builds a [`Program`]. A name that no earlier line defines is an input.
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
    /// Returns an empty builder whose values all have this type.
    pub fn new(dtype: DType) -> Lines {
        Lines { program: Program::new(), values: Vec::new(), dtype }
    }

    /// Appends an operation and names its result.
    ///
    /// # Errors
    /// `BadParam` when the name is already defined, and as [`Program::push`].
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

    /// Returns the program with these outputs.
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
