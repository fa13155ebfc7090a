//! Description of a recurrent network, independent of batch size and number of steps.

use std::sync::Arc;

use crate::dropout::DropoutDescriptor;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Math, Real};
use crate::graph::{Cell, Direction, MatmulMath, Quantization, RowLayout, SUMMED_MAX};
use crate::rnn::cells::{CellClip, CellKind, CellOptions};
use crate::rnn::mode::{BiasMode, InputMode, Join, Stacking};
use crate::rnn::role::Role;

/// Maximum input and hidden size.
const SIZE_MAX: i64 = i32::MAX as i64;
/// Maximum number of layers, beyond any practical network.
const LAYERS_MAX: i64 = 1024;

/// The cell of a network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RnnCell {
    /// A predefined cell. The network determines the options `math` and `projected`.
    Kind(CellKind, CellOptions),
    /// A user-defined cell.
    Own(Arc<Cell>),
}

/// A stack of recurrent layers of one cell.
///
/// ```
/// use kiln::rnn::Rnn;
/// use kiln::DType;
///
/// let rnn = Rnn::lstm(512, 256).layers(2).bidirectional().dtype(DType::Bf16);
/// rnn.validate()?;
/// assert_eq!(rnn.output_size(), 512);
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rnn {
    /// The cell.
    pub cell: RnnCell,
    /// Elements of an input vector, at least 1.
    pub input_size: i64,
    /// Hidden size of each layer and direction, at least 1.
    pub hidden_size: i64,
    /// Elements of `h` if it is projected: 1 to `hidden_size`.
    pub projection_size: Option<i64>,
    /// Number of layers, at least 1.
    pub layers: i64,
    /// Order of the steps.
    pub direction: Direction,
    /// Combination of the two directions' outputs.
    pub join: Join,
    /// Input of the layers above the first in a bidirectional network.
    pub stacking: Stacking,
    /// Biases.
    pub bias: BiasMode,
    /// Input mode of the first layer.
    pub input_mode: InputMode,
    /// Type of inputs, weights, states and outputs: f64, f32, f16 or bf16. Accumulators and cells
    /// are f64 for f64, otherwise f32. With a quantization i8 or u8, the type of inputs, `h` and
    /// outputs alone: matrices are i8, all else f32.
    pub dtype: DType,
    /// What integers of inputs, `h` and outputs stand for.
    pub quantization: Option<Quantization>,
    /// Whether f32 GEMMs may use tf32.
    pub tf32: bool,
    /// Whether sigmoid and tanh are one instruction with an error of 2^-11; not in f64.
    pub fast_activations: bool,
    /// Order of the input and output vectors.
    pub layout: RowLayout,
    /// Value of outputs and histories beyond a sequence's length; not NaN, and 0 if directions are
    /// summed.
    pub fill: Real,
    /// Dropout between layers, in training: of the outputs of every layer but the last. An
    /// element's number does not depend on whether sequences or steps come first in memory; packed
    /// rows are numbered as they lie.
    pub dropout: DropoutDescriptor,
}

impl Rnn {
    /// One layer of a predefined cell: forward, linear input, both biases, f32.
    pub fn new(kind: CellKind, input_size: i64, hidden_size: i64) -> Rnn {
        Rnn::of(RnnCell::Kind(kind, CellOptions::default()), input_size, hidden_size)
    }

    /// One layer of a user-defined cell, with the defaults of [`Rnn::new`].
    pub fn of_cell(cell: impl Into<Arc<Cell>>, input_size: i64, hidden_size: i64) -> Rnn {
        Rnn::of(RnnCell::Own(cell.into()), input_size, hidden_size)
    }

    /// One LSTM layer, with the defaults of [`Rnn::new`].
    pub fn lstm(input_size: i64, hidden_size: i64) -> Rnn {
        Rnn::new(CellKind::Lstm, input_size, hidden_size)
    }

    /// One GRU layer, with the defaults of [`Rnn::new`].
    pub fn gru(input_size: i64, hidden_size: i64) -> Rnn {
        Rnn::new(CellKind::Gru, input_size, hidden_size)
    }

    fn of(cell: RnnCell, input_size: i64, hidden_size: i64) -> Rnn {
        Rnn {
            cell,
            input_size,
            hidden_size,
            projection_size: None,
            layers: 1,
            direction: Direction::Forward,
            join: Join::Concat,
            stacking: Stacking::Joined,
            bias: BiasMode::Double,
            input_mode: InputMode::Linear,
            dtype: DType::F32,
            quantization: None,
            tf32: false,
            fast_activations: false,
            layout: RowLayout::SequenceMajor,
            fill: Real::new(0.0),
            dropout: DropoutDescriptor::NONE,
        }
    }

    /// Sets the number of layers.
    pub fn layers(self, layers: i64) -> Rnn {
        Rnn { layers, ..self }
    }

    /// Sets the direction.
    pub fn direction(self, direction: Direction) -> Rnn {
        Rnn { direction, ..self }
    }

    /// Enables both directions.
    pub fn bidirectional(self) -> Rnn {
        self.direction(Direction::Both)
    }

    /// Sets the combination of the directions' outputs.
    pub fn join(self, join: Join) -> Rnn {
        Rnn { join, ..self }
    }

    /// Sets the input of the layers above the first.
    pub fn stacking(self, stacking: Stacking) -> Rnn {
        Rnn { stacking, ..self }
    }

    /// Sets the biases.
    pub fn bias(self, bias: BiasMode) -> Rnn {
        Rnn { bias, ..self }
    }

    /// Adds the input to every gate instead of multiplying it by weights.
    pub fn skip_input(self) -> Rnn {
        Rnn { input_mode: InputMode::Skip, ..self }
    }

    /// Projects `h` to `size` elements.
    pub fn projection(self, size: i64) -> Rnn {
        Rnn { projection_size: Some(size), ..self }
    }

    /// Makes inputs, states and outputs 8-bit integers of a type, i8 or u8, and the weights i8.
    pub fn quantised(self, dtype: DType, quantization: Quantization) -> Rnn {
        Rnn { dtype, quantization: Some(quantization), ..self }
    }

    /// Sets the type.
    pub fn dtype(self, dtype: DType) -> Rnn {
        Rnn { dtype, ..self }
    }

    /// Allows tf32 in GEMMs.
    pub fn tf32(self) -> Rnn {
        Rnn { tf32: true, ..self }
    }

    /// Makes sigmoid and tanh one instruction each, whose results are off by up to 2^-11
    /// (`tanh.approx`).
    pub fn fast_activations(self) -> Rnn {
        Rnn { fast_activations: true, ..self }
    }

    /// Sets the order of the vectors.
    pub fn layout(self, layout: RowLayout) -> Rnn {
        Rnn { layout, ..self }
    }

    /// Sets the value of outputs beyond a sequence's length.
    pub fn fill(self, fill: f64) -> Rnn {
        Rnn { fill: Real::new(fill), ..self }
    }

    /// Drops elements between layers, in training.
    pub fn dropout(self, dropout: DropoutDescriptor) -> Rnn {
        Rnn { dropout, ..self }
    }

    /// Enables peephole connections (LSTM).
    pub fn peephole(self) -> Rnn {
        self.option(|options| options.peephole = true)
    }

    /// Clips the cell state (LSTM).
    pub fn cell_clip(self, clip: CellClip) -> Rnn {
        self.option(|options| options.cell_clip = Some(clip))
    }

    /// Turns NaN into 0 (ReLU).
    pub fn drop_nan(self) -> Rnn {
        self.option(|options| options.drop_nan = true)
    }

    /// Clamps gates to `[-limit, limit]` before their activations.
    pub fn gate_clip(self, limit: f64) -> Rnn {
        self.option(|options| options.gate_clip = Some(Real::new(limit)))
    }

    /// Sets an option of a predefined cell; a user-defined cell has none.
    fn option(mut self, set: impl FnOnce(&mut CellOptions)) -> Rnn {
        if let RnnCell::Kind(_, options) = &mut self.cell {
            set(options);
        }
        self
    }

    /// Number of directions of each layer.
    pub fn directions(&self) -> i64 {
        self.direction.count()
    }

    /// Number of dropouts of a pass in training.
    pub fn dropouts(&self) -> i64 {
        if self.dropout.is_none() { 0 } else { self.layers - 1 }
    }

    /// Elements of the first state of a direction.
    pub fn state_size(&self) -> i64 {
        self.projection_size.unwrap_or(self.hidden_size)
    }

    /// Elements of an output vector.
    pub fn output_size(&self) -> i64 {
        match self.join {
            Join::Concat => self.directions() * self.state_size(),
            Join::Sum => self.state_size(),
        }
    }

    /// Elements of the input vectors of a layer.
    pub fn layer_input_size(&self, layer: i64) -> i64 {
        match self.stacking {
            _ if layer == 0 => self.input_size,
            Stacking::Joined => self.directions() * self.state_size(),
            Stacking::Separate => self.state_size(),
        }
    }

    /// The type of cell states, row and unit inputs, parameters and biases.
    pub fn number_dtype(&self) -> DType {
        if self.quantization.is_some() { DType::F32 } else { self.dtype }
    }

    /// The type of the caller's tensor that has weights.
    pub(super) fn weights_dtype(&self, role: Role) -> DType {
        match (self.quantization, role) {
            (None, _) => self.dtype,
            (Some(_), Role::WeightNumbers) => DType::F32,
            (Some(_), _) => DType::I8,
        }
    }

    /// Precision of the GEMMs; those of a quantised network are integers.
    pub fn math(&self) -> MatmulMath {
        match self.dtype {
            DType::F64 => MatmulMath::F64,
            DType::F32 if self.tf32 => MatmulMath::Tf32,
            _ => MatmulMath::F32,
        }
    }

    /// Builds the cell with the network's options.
    pub fn build_cell(&self) -> Arc<Cell> {
        let math = Math::of(self.dtype);
        match &self.cell {
            RnnCell::Kind(kind, options) => {
                let projected = self.projection_size.is_some();
                Arc::new(kind.cell(&CellOptions { math, projected, ..*options }))
            }
            RnnCell::Own(cell) => cell.clone(),
        }
    }

    /// Checks the description for consistency.
    ///
    /// # Errors
    /// `BadParam` for a value out of range, `NotSupported` for unsupported combinations, sizes
    /// above 2^31 - 1 or more than 1024 layers; the message names the rule.
    pub fn validate(&self) -> Result<()> {
        let bad = |rule: String| Err(Error::bad_param(format!("rnn: {rule}")));
        let refuse = |rule: String| Err(Error::not_supported(format!("rnn: {rule}")));
        let sizes = [
            ("input size", self.input_size),
            ("hidden size", self.hidden_size),
            ("number of layers", self.layers),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size < 1) {
            return bad(format!("the {name} is {size}, expected at least 1"));
        }
        for ((name, size), most) in sizes.into_iter().zip([SIZE_MAX, SIZE_MAX, LAYERS_MAX]) {
            if size > most {
                return refuse(format!("the {name} is {size}, expected at most {most}"));
            }
        }
        let (input, hidden) = (self.input_size, self.hidden_size);
        if self.projection_size.is_some_and(|size| size < 1 || size > hidden) {
            let size = self.state_size();
            return bad(format!("the projection size is {size}, expected 1 to {hidden} (hidden)"));
        }
        if self.input_mode == InputMode::Skip && input != hidden {
            return bad(format!("skip input: the input size is {input}, the hidden size {hidden}"));
        }
        match self.quantization {
            Some(quantization) => self.check_quantization(quantization)?,
            None if !self.dtype.is_float() => {
                return refuse(format!("data of {}, expected f64, f32, f16 or bf16", self.dtype));
            }
            None => {}
        }
        if self.tf32 && self.dtype != DType::F32 {
            return refuse(format!("products in tf32 of data of {}", self.dtype));
        }
        if self.fast_activations && self.dtype == DType::F64 {
            return refuse("fast activations of data of f64".to_owned());
        }
        if self.fill.get().is_nan() {
            return bad("the padding fill is NaN".to_owned());
        }
        if self.join == Join::Sum && self.direction != Direction::Both {
            return bad("one direction has nothing to be summed with".to_owned());
        }
        if self.join == Join::Sum && self.stacking == Stacking::Joined && self.layers > 1 {
            return refuse("a sum of directions between layers: stack them separately".to_owned());
        }
        if self.join == Join::Sum && self.fill.get() != 0.0 {
            return refuse(format!("a sum of directions filled with {}, not 0", self.fill));
        }
        self.validate_cell()
    }

    fn check_quantization(&self, quantization: Quantization) -> Result<()> {
        if !matches!(self.dtype, DType::I8 | DType::U8) {
            let text = format!("rnn: quantised data of {}, expected i8 or u8", self.dtype);
            return Err(Error::not_supported(text));
        }
        if let Some(rule) = quantization.broken_rule(self.dtype) {
            return Err(Error::bad_param(format!("rnn: {rule}")));
        }
        let refused = [
            (self.projection_size.is_some(), "a projection"),
            (self.input_mode == InputMode::Skip, "a skipped input"),
            (self.join == Join::Sum, "a sum of directions"),
            (self.input_size > SUMMED_MAX, "sums beyond 32 bits"),
        ];
        match refused.into_iter().find(|(is_so, _)| *is_so) {
            Some((_, rule)) => {
                Err(Error::not_supported(format!("rnn: {rule} of a quantised network")))
            }
            None => Ok(()),
        }
    }

    fn validate_cell(&self) -> Result<()> {
        let bad = |rule: String| Err(Error::bad_param(format!("rnn: {rule}")));
        let refuse = |rule: &str, name: &str| {
            Err(Error::not_supported(format!("rnn: {rule} of cell {name}, expected lstm")))
        };
        match &self.cell {
            RnnCell::Kind(CellKind::Lstm, options) => {
                if let Some(clip) = &options.cell_clip {
                    clip.validate()?;
                }
            }
            RnnCell::Kind(kind, _) if self.projection_size.is_some() => {
                return refuse("a projection", kind.name());
            }
            RnnCell::Kind(kind, options) if options.peephole => {
                return refuse("peepholes", kind.name());
            }
            RnnCell::Kind(kind, options) if options.cell_clip.is_some() => {
                return refuse("a clipped state", kind.name());
            }
            RnnCell::Kind(..) => {}
            RnnCell::Own(cell) => {
                cell.validate()?;
                if cell.projected != self.projection_size.is_some() {
                    let is = if cell.projected { "projected" } else { "not projected" };
                    return bad(format!("cell {} is {is}, the network otherwise", cell.name));
                }
                if self.bias.has_recurrent() && cell.recurrent_gates() == 0 {
                    let name = &cell.name;
                    return bad(format!("a recurrent bias of cell {name}, which has no GEMM"));
                }
            }
        }
        match &self.cell {
            RnnCell::Kind(_, CellOptions { gate_clip: Some(limit), .. })
                if limit.get().is_nan() || limit.get() < 0.0 =>
            {
                bad(format!("the gate clip is {limit}, expected at least 0"))
            }
            RnnCell::Kind(kind, options) if options.drop_nan && *kind != CellKind::Relu => {
                let name = kind.name();
                let text = format!("rnn: a NaN dropped by cell {name}, expected relu");
                Err(Error::not_supported(text))
            }
            _ => Ok(()),
        }
    }
}
