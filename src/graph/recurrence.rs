//! Recurrent layers: a cell applied step by step.

use std::fmt;
use std::sync::Arc;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::escape::escaped;
use crate::expr::{Activations, Mode, Program, Real};
use crate::graph::cell::{Cell, CellValue};
use crate::graph::matmul::MatmulMath;
use crate::graph::norm::expect_dims;
use crate::graph::quantization::{Quantization, SUMMED_MAX};
use crate::graph::semantics::{Semantics, check_float_math};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// Order in which a layer processes the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// First to last.
    #[default]
    Forward,
    /// Last to first, starting at each sequence's own last step.
    Reverse,
    /// Both directions, forward first, each with its own weights and states.
    Both,
}

/// Row index of a step of a sequence (`mcdnnRNNDataLayout_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RowLayout {
    /// `step * batch + b`.
    #[default]
    SequenceMajor,
    /// `b * steps + step`.
    BatchMajor,
    /// Step by step, with only the sequences still active at that step; sorted by non-increasing
    /// length. Rows after the last step are filled.
    Packed,
}

/// Optional operands and results of a [`Recurrence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RecurrenceSlots {
    /// `x_bias` `[D, 1, gates * hidden_size]`, added to `x`.
    pub x_bias: bool,
    /// `r_bias` `[D, 1, recurrent gates * hidden_size]`, added to the recurrent GEMMs.
    pub r_bias: bool,
    /// `h_initial` `[D, batch, output_size]`: initial value of the output; 0 if absent.
    pub h_initial: bool,
    /// `states_initial` `[D, batch, others * hidden_size]`: initial values of the other states,
    /// concatenated; 0 if absent.
    pub states_initial: bool,
    /// `lengths` `[1, 1, batch]`, `i32`: steps of each sequence; all steps if absent.
    pub lengths: bool,
    /// `reset` `[1, rows, 1]`: a nonzero value resets the states to 0 before the step, or with
    /// [`backward`](Recurrence::backward) after it.
    pub reset: bool,
    /// `h_final` `[D, batch, output_size]`: the output after the last step of each sequence.
    pub h_final: bool,
    /// `states_final` `[D, batch, others * hidden_size]`: the other states after the last step.
    pub states_final: bool,
    /// `history` `[D, rows, others * hidden_size]`: the other states after every step.
    pub history: bool,
}

/// A recurrent layer without its input GEMM: the recurrent part of `mcdnnRNNForward` (section
/// 6.2.1.36).
///
/// Tensors, for `D` directions and `rows = steps * batch` (fewer if packed):
/// - `x` `[D or 1, rows, gates * hidden_size]`: input contributions, gate after gate; or with
///   `hidden_size` columns, the same for every gate (`MCDNN_SKIP_INPUT`);
/// - `r` `[D, recurrent gates * hidden_size, output_size]`: recurrent weights, if the cell has
///   GEMMs; `[D, operands * hidden_size, hidden_size]` if those are with transposed weights;
/// - `r_scales` `[D or 1, 1, recurrent gates * hidden_size or 1]`, if the layer is
///   [quantised](Recurrence::quantization): what 1 in a row of `r` stands for;
/// - `projection` `[D, output_size, hidden_size]`, if the cell is projected; otherwise
///   `output_size` is `hidden_size` times the [outputs](Cell::outputs) of the cell;
/// - `parameters` `[D, parameters, hidden_size]`, `row_inputs` `[D or 1, rows, row inputs]` and
///   `unit_inputs` `[D or 1, rows, unit inputs * hidden_size]`, if the cell has any;
/// - `y` `[1, rows, D * output_size]`, or `[D, rows, output_size]` if `apart`;
/// - `saved` `[D, rows, saved values * hidden_size]`, if any are named.
///
/// The output is rounded to the type of `y` at every step; if that has at most 16 bits, sigmoid and
/// tanh are [approximate](Recurrence::activations). Steps beyond a sequence's length leave states
/// unchanged, fill `y` and `history` with [`Recurrence::fill`] and `saved` with 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Recurrence {
    /// The computation of a step.
    pub cell: Arc<Cell>,
    /// Precision of the GEMMs. Programs compute in the accumulator type: with `f64`, every line
    /// does.
    pub math: MatmulMath,
    /// Order of the steps.
    pub direction: Direction,
    /// Order of the rows.
    pub layout: RowLayout,
    /// Batch size, at least 1.
    pub batch: i64,
    /// Hidden size, at least 1.
    pub hidden_size: i64,
    /// Whether the outputs of the directions are separate matrices instead of concatenated.
    pub apart: bool,
    /// Value of `y` beyond a sequence's length.
    pub fill: Real,
    /// Optional tensors that are present.
    pub with: RecurrenceSlots,
    /// Values of the cell that are written at every step, by the names that a further stage would
    /// read them by; a state is that before the step. This is the reserve space of training.
    pub saved: Vec<String>,
    /// Whether each direction processes its steps in the opposite order, as gradients do.
    pub backward: bool,
    /// What `y`, `h_initial` and `h_final` of 8-bit integers stand for; `r` is i8 then. Recurrent
    /// GEMMs are integers: those of `r` with the integers of h less the shift. A gate is that times
    /// `r_scales` over the scale; [`fill`](Recurrence::fill) is a number.
    pub quantization: Option<Quantization>,
    /// Whether sigmoid and tanh are one instruction with an error of 2^-11 ([`Activations::Fast`]);
    /// not in f64.
    pub fast_activations: bool,
}

impl Direction {
    /// Number of directions.
    pub fn count(self) -> i64 {
        if self == Direction::Both { 2 } else { 1 }
    }

    /// Name in messages and problem files.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Forward => "forward",
            Direction::Reverse => "reverse",
            Direction::Both => "both",
        }
    }
}

impl RowLayout {
    /// Name in messages and problem files.
    pub fn name(self) -> &'static str {
        match self {
            RowLayout::SequenceMajor => "sequence_major",
            RowLayout::BatchMajor => "batch_major",
            RowLayout::Packed => "packed",
        }
    }
}

impl Recurrence {
    /// Returns a layer in f32 without optional tensors.
    pub fn new(cell: impl Into<Arc<Cell>>, batch: i64, hidden_size: i64) -> Recurrence {
        Recurrence {
            cell: cell.into(),
            math: MatmulMath::F32,
            direction: Direction::Forward,
            layout: RowLayout::SequenceMajor,
            batch,
            hidden_size,
            apart: false,
            fill: Real::new(0.0),
            with: RecurrenceSlots::default(),
            saved: Vec::new(),
            backward: false,
            quantization: None,
            fast_activations: false,
        }
    }

    /// Whether a direction, by index, processes the steps from last to first.
    pub fn is_reversed(&self, direction: i64) -> bool {
        let own = match self.direction {
            Direction::Forward => false,
            Direction::Reverse => true,
            Direction::Both => direction == 1,
        };
        own != self.backward
    }

    /// How programs compute sigmoid and tanh for this type of `y`. Approximations have an error of
    /// 2^-21, negligible beside the 2^-12 rounding of a 16-bit `y`, or the 2^-9 of one of 8 bits.
    pub fn activations(&self, y: DType) -> Activations {
        match self.math {
            MatmulMath::F64 => Activations::Precise,
            _ if self.fast_activations => Activations::Fast,
            _ if y.bytes() <= 2 => Activations::Approximate,
            _ => Activations::Precise,
        }
    }

    /// Whether some sigmoid or tanh of the cell is computed by the fast instruction.
    pub fn has_fast_activations(&self) -> bool {
        let programs = self.cell.stages.iter().map(|stage| &stage.program);
        let mut modes = programs.flat_map(Program::instructions).map(|line| line.op.mode);
        self.fast_activations && modes.any(|mode| matches!(mode, Mode::SigmoidFwd | Mode::TanhFwd))
    }

    /// Checks that weights and the operand they are multiplied with have the type of `y`, or that
    /// weights have the type of quantised ones.
    fn check_operands(&self, slots: &Slots, inputs: &[&TensorDesc], y: &TensorDesc) -> Result<()> {
        for (slot, tensor) in slots.inputs.iter().zip(inputs) {
            let quantised = *slot == "r" && self.quantization.is_some();
            if matches!(*slot, "r" | "projection" | "h_initial")
                && !quantised
                && tensor.dtype != y.dtype
            {
                return Err(Error::bad_param(format!(
                    "{self}: {slot} `{}` is {}, y `{}` is {}",
                    tensor.name, tensor.dtype, y.name, y.dtype
                )));
            }
        }
        match (y.dtype == DType::F64, self.math) {
            (true, MatmulMath::F64) | (false, MatmulMath::F32) => Ok(()),
            (false, MatmulMath::Tf32) if y.dtype == DType::F32 => Ok(()),
            (_, math) => Err(Error::not_supported(format!(
                "{self}: math {} with y `{}` of {}",
                math.name(),
                y.name,
                y.dtype
            ))),
        }
    }

    /// Checks what a quantised layer must not be.
    fn check_quantization(&self, output_size: i64, y: &TensorDesc) -> Result<()> {
        let Some(quantization) = self.quantization else { return Ok(()) };
        let refuse = |rule: &str| Err(Error::not_supported(format!("{self}: {rule}")));
        if let Some(rule) = quantization.broken_rule(y.dtype) {
            return Err(Error::bad_param(format!("{self}: {rule}")));
        }
        if self.cell.projected {
            return refuse("a projection of a quantised state");
        }
        if self.backward || self.cell.is_transposed() {
            return refuse("gradients of a quantised layer");
        }
        if self.cell.blocks() == 0 {
            return refuse("a quantised layer without a recurrent GEMM");
        }
        match output_size <= SUMMED_MAX {
            true => Ok(()),
            false => refuse(&format!(
                "sums of {output_size} products of 8 bits, at most {SUMMED_MAX} have 32 bits"
            )),
        }
    }

    /// Derives the sizes of the layer from its operands.
    fn shape(&self, inputs: &[&TensorDesc]) -> Result<Shape> {
        let slots = self.slots();
        let find = |slot: &str| slots.inputs.iter().position(|at| *at == slot);
        let dims = |slot: &str| {
            let tensor = inputs[find(slot).unwrap_or(0)];
            match tensor.dims[..] {
                [a, b, c] => Ok([a, b, c]),
                _ => Err(Error::bad_param(format!(
                    "{self}: {slot} `{}` is {:?}, expected 3 dimensions",
                    tensor.name, tensor.dims
                ))),
            }
        };
        let rows = dims("x")?[1];
        let output_size = match self.cell.projected {
            true => dims("projection")?[1],
            false => self.hidden_size * self.cell.outputs() as i64,
        };
        if self.cell.projected && !(1..=self.hidden_size).contains(&output_size) {
            return Err(Error::bad_param(format!(
                "{self}: the projection has {output_size} rows, expected 1 to {} (hidden_size)",
                self.hidden_size
            )));
        }
        Ok(Shape { rows, output_size })
    }
}

impl Semantics for Recurrence {
    fn name(&self) -> &'static str {
        "recurrence"
    }

    fn slots(&self) -> Slots {
        let (cell, with) = (&*self.cell, self.with);
        let inputs = [
            ("x", true),
            ("x_bias", with.x_bias),
            ("r", cell.blocks() > 0),
            ("r_scales", self.quantization.is_some()),
            ("r_bias", with.r_bias),
            ("projection", cell.projected),
            ("parameters", !cell.parameters.is_empty()),
            ("row_inputs", !cell.row_inputs.is_empty()),
            ("unit_inputs", !cell.unit_inputs.is_empty()),
            ("h_initial", with.h_initial),
            ("states_initial", with.states_initial),
            ("lengths", with.lengths),
            ("reset", with.reset),
        ];
        let outputs = [
            ("y", true),
            ("h_final", with.h_final),
            ("states_final", with.states_final),
            ("history", with.history),
            ("saved", !self.saved.is_empty()),
        ];
        let given = |slots: &[(&'static str, bool)]| {
            slots.iter().filter(|(_, given)| *given).map(|(slot, _)| *slot).collect()
        };
        Slots { inputs: given(&inputs), outputs: given(&outputs) }
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        let shape = self.shape(inputs)?;
        Ok(Some(self.slots().outputs.into_iter().map(|slot| shape.of(self, slot)).collect()))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let fail = |rule: String| Err(Error::bad_param(format!("{self}: {rule}")));
        self.cell.validate()?;
        let shape = self.shape(inputs)?;
        if self.batch < 1 || self.hidden_size < 1 {
            return fail(format!(
                "batch {} or hidden_size {} below 1",
                self.batch, self.hidden_size
            ));
        }
        if self.fill.get().is_nan() {
            return fail("the fill is NaN".to_owned());
        }
        if self.layout == RowLayout::Packed && !self.with.lengths {
            return fail("packed rows require lengths".to_owned());
        }
        if self.layout != RowLayout::Packed && shape.rows % self.batch != 0 {
            let (rows, batch) = (shape.rows, self.batch);
            return fail(format!("{rows} rows are not a multiple of batch {batch}"));
        }
        let others = self.cell.states.len() - self.cell.outputs();
        if others == 0 && (self.with.states_initial || self.with.states_final || self.with.history)
        {
            return fail("the cell has no state besides its output".to_owned());
        }
        for name in &self.saved {
            match self.cell.final_value(name) {
                None => return fail(format!("saves `{}`, which is not defined", escaped(name))),
                Some(CellValue::State(0)) if self.cell.projected => {
                    return fail(format!("saves `{}`, which is projected", escaped(name)));
                }
                Some(_) => {}
            }
        }
        if self.with.r_bias && self.cell.recurrent_gates() == 0 {
            return fail("a recurrent bias requires a recurrent GEMM".to_owned());
        }
        self.check_quantization(shape.output_size, outputs[0])?;
        if self.fast_activations && self.math == MatmulMath::F64 {
            return Err(Error::not_supported(format!("{self}: fast activations in f64")));
        }
        let slots = self.slots();
        let named = slots.inputs.iter().zip(inputs).chain(slots.outputs.iter().zip(outputs));
        for (slot, tensor) in named {
            let mut dims = shape.of(self, slot);
            let shared = matches!(*slot, "x" | "r_scales" | "row_inputs" | "unit_inputs");
            if shared && tensor.dims.first() == Some(&1) {
                dims[0] = 1;
            }
            if *slot == "r_scales" && tensor.dims.last() == Some(&1) {
                dims[2] = 1;
            }
            if *slot == "x" && tensor.dims.last() == Some(&self.hidden_size) {
                dims[2] = self.hidden_size;
            }
            expect_dims(self, slot, tensor, &dims)?;
            let fits = match *slot {
                "lengths" => tensor.dtype == DType::I32,
                "reset" => true,
                "r" if self.quantization.is_some() => tensor.dtype == DType::I8,
                "y" | "h_initial" | "h_final" if self.quantization.is_some() => {
                    matches!(tensor.dtype, DType::I8 | DType::U8)
                        && tensor.dtype == outputs[0].dtype
                }
                _ => tensor.dtype.is_float(),
            };
            if !fits {
                let (name, dtype) = (&tensor.name, tensor.dtype);
                return fail(format!("{slot} `{name}` is {dtype}"));
            }
        }
        self.check_operands(&slots, inputs, outputs[0])
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        check_float_math(self.name(), self.math())
    }

    fn resolve(&mut self, _operands: &[DType]) {
        if self.math == MatmulMath::F64 {
            self.cell = Arc::new(self.cell.in_f64());
        }
    }
}

/// Sizes of a layer that follow from its operands.
struct Shape {
    rows: i64,
    /// Size of the first state.
    output_size: i64,
}

impl Shape {
    fn of(&self, op: &Recurrence, slot: &str) -> Vec<i64> {
        let Shape { rows, output_size } = *self;
        let (cell, hidden_size, batch, directions) =
            (&op.cell, op.hidden_size, op.batch, op.direction.count());
        let count = |names: &[String]| names.len() as i64;
        let others = (count(&cell.states) - cell.outputs() as i64) * hidden_size;
        let [blocks, recurrent] =
            [cell.blocks(), cell.recurrent_gates()].map(|count| count as i64 * hidden_size);
        match slot {
            "x" => vec![directions, rows, count(&cell.gates) * hidden_size],
            "x_bias" => vec![directions, 1, count(&cell.gates) * hidden_size],
            "r" if cell.is_transposed() => vec![directions, blocks, hidden_size],
            "r" => vec![directions, blocks, output_size],
            "r_scales" | "r_bias" => vec![directions, 1, recurrent],
            "projection" => vec![directions, output_size, hidden_size],
            "parameters" => vec![directions, count(&cell.parameters), hidden_size],
            "row_inputs" => vec![directions, rows, count(&cell.row_inputs)],
            "unit_inputs" => vec![directions, rows, count(&cell.unit_inputs) * hidden_size],
            "h_initial" | "h_final" => vec![directions, batch, output_size],
            "states_initial" | "states_final" => vec![directions, batch, others],
            "history" => vec![directions, rows, others],
            "saved" => vec![directions, rows, count(&op.saved) * hidden_size],
            "lengths" => vec![1, 1, batch],
            "reset" => vec![1, rows, 1],
            _ if op.apart => vec![directions, rows, output_size],
            _ => vec![1, rows, directions * output_size],
        }
    }
}

impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recurrence[{}", escaped(&self.cell.name))?;
        if self.math == MatmulMath::Tf32 {
            f.write_str(", tf32")?;
        }
        if self.direction != Direction::Forward {
            write!(f, ", {}", self.direction.name())?;
        }
        if self.backward {
            f.write_str(", backward")?;
        }
        if self.layout != RowLayout::SequenceMajor {
            write!(f, ", {}", self.layout.name())?;
        }
        if let Some(quantization) = self.quantization {
            write!(f, ", {quantization}")?;
        }
        f.write_str("]")
    }
}
