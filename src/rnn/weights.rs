//! The weight space: the layout of a network's weights and biases in one buffer.
//!
//! For every pseudo-layer (`layer * directions + direction`) the buffer holds the input matrices of
//! all gates, the recurrent matrices of all gates, the projection and the cell's parameters. The
//! input and recurrent biases of every pseudo-layer follow all matrices. Matrices are row-major
//! with a row per hidden unit; the gates of one kind are contiguous, so they form one matrix.
//!
//! Matrices of a quantised network are 8-bit integers, in a buffer of their own; all else is f32 in
//! another one, with a scale for each row of the matrices.
//!
//! There is no padding: this is cuDNN's layout, whose size client programs compute themselves.
//! Kernels read in vectors what happens to be aligned, and the rest element by element.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Cell;
use crate::rnn::mode::InputMode;
use crate::rnn::network::Rnn;
use crate::rnn::role::Role;

/// Largest linLayerID (section 6.2.1.31).
const LIN_LAYER_MAX: i32 = 8;

/// The weights of one kind and pseudo-layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// Offset of the first element, in elements from the start of the space, in which those of
    /// matrices of integers precede numbers.
    pub offset: i64,
    /// Rows of all gates.
    pub rows: i64,
    /// Columns.
    pub columns: i64,
}

/// Kinds of weights of a pseudo-layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightKind {
    /// `[gates * hidden, input]`: input GEMM; absent with a skipped input.
    Input,
    /// `[recurrent gates * hidden, state]`: recurrent GEMMs.
    Recurrent,
    /// `[state, hidden]`: projection.
    Projection,
    /// `[parameters, hidden]`: parameters of the cell, such as peepholes.
    Parameters,
    /// `[gates * hidden, 1]`: bias of the input GEMM.
    InputBias,
    /// `[recurrent gates * hidden, 1]`: bias of the recurrent GEMMs.
    RecurrentBias,
    /// `[gates * hidden, 1]`, of a quantised network: what 1 in a row of the input GEMM stands for.
    InputScales,
    /// `[recurrent gates * hidden, 1]`: that of the recurrent GEMMs.
    RecurrentScales,
}

impl WeightKind {
    /// Kinds stored in the first part of the space.
    const MATRICES: [WeightKind; 4] =
        [WeightKind::Input, WeightKind::Recurrent, WeightKind::Projection, WeightKind::Parameters];
    const BIASES: [WeightKind; 2] = [WeightKind::InputBias, WeightKind::RecurrentBias];
    /// Kinds of a quantised network: integers, and numbers.
    const INTEGERS: [WeightKind; 2] = [WeightKind::Input, WeightKind::Recurrent];
    const NUMBERS: [WeightKind; 5] = [
        WeightKind::Parameters,
        WeightKind::InputBias,
        WeightKind::RecurrentBias,
        WeightKind::InputScales,
        WeightKind::RecurrentScales,
    ];
    /// All kinds.
    pub const ALL: [WeightKind; 8] = [
        WeightKind::Input,
        WeightKind::Recurrent,
        WeightKind::Projection,
        WeightKind::Parameters,
        WeightKind::InputBias,
        WeightKind::RecurrentBias,
        WeightKind::InputScales,
        WeightKind::RecurrentScales,
    ];

    /// Whether there is one element for each row.
    pub fn is_vector(self) -> bool {
        use WeightKind::{InputBias, InputScales, RecurrentBias, RecurrentScales};
        matches!(self, InputBias | RecurrentBias | InputScales | RecurrentScales)
    }

    /// Torch's name of the parameter; `parameters` and scales have none in torch.
    pub fn torch_name(self) -> &'static str {
        match self {
            WeightKind::Input => "weight_ih",
            WeightKind::Recurrent => "weight_hh",
            WeightKind::Projection => "weight_hr",
            WeightKind::Parameters => "parameters",
            WeightKind::InputBias => "bias_ih",
            WeightKind::RecurrentBias => "bias_hh",
            WeightKind::InputScales => "weight_ih_scales",
            WeightKind::RecurrentScales => "weight_hh_scales",
        }
    }
}

/// A matrix or bias in a weight space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightSlice {
    /// Offset in bytes from the start of the space.
    pub offset_bytes: u64,
    /// Rows.
    pub rows: i64,
    /// Columns; 1 for a bias.
    pub columns: i64,
}

/// The weights of a linLayerID (`mcdnnGetRNNWeightParams`, section 6.2.1.31); absent if the network
/// does not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct WeightParams {
    /// The matrix.
    pub matrix: Option<WeightSlice>,
    /// The bias.
    pub bias: Option<WeightSlice>,
}

/// Layout of a network's weights in one buffer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightSpace {
    /// Blocks of each pseudo-layer, in the order of [`WeightKind::ALL`].
    blocks: Vec<[Option<Block>; 8]>,
    elements: i64,
    /// Of a quantised network, how many elements are integers.
    integers: Option<i64>,
    element_bytes: i64,
    hidden: i64,
    /// Number of gates with an input matrix, and with a recurrent matrix.
    gates: [i32; 2],
}

impl WeightSpace {
    /// Computes the layout for a network.
    ///
    /// # Errors
    /// As [`Rnn::validate`]; `BadParam` if the space exceeds 2^62 bytes.
    pub fn new(rnn: &Rnn) -> Result<WeightSpace> {
        rnn.validate()?;
        let cell = rnn.build_cell();
        let count = (rnn.layers * rnn.directions()) as usize;
        let mut space = WeightSpace {
            blocks: vec![[None; 8]; count],
            elements: 0,
            integers: None,
            element_bytes: rnn.dtype.bytes() as i64,
            hidden: rnn.hidden_size,
            gates: [cell.gates.len() as i32, cell.recurrent_gates() as i32],
        };
        let quantised = rnn.quantization.is_some();
        let kinds: [&[WeightKind]; 2] = match quantised {
            true => [&WeightKind::INTEGERS, &WeightKind::NUMBERS],
            false => [&WeightKind::MATRICES, &WeightKind::BIASES],
        };
        for (part, kinds) in kinds.into_iter().enumerate() {
            if quantised && part == 1 {
                space.integers = Some(space.elements);
            }
            for pseudo_layer in 0..count {
                for kind in kinds {
                    let layer = pseudo_layer as i64 / rnn.directions();
                    if let Some(shape) = shape(rnn, &cell, layer, *kind) {
                        space.blocks[pseudo_layer][*kind as usize] = Some(space.place(shape)?);
                    }
                }
            }
        }
        Ok(space)
    }

    fn place(&mut self, [rows, columns]: [i64; 2]) -> Result<Block> {
        let offset = self.elements;
        let end = rows.checked_mul(columns).and_then(|count| count.checked_add(offset));
        let end = end.filter(|end| *end <= (1 << 62) / self.element_bytes);
        let text = "rnn: the weights exceed 2^62 bytes";
        self.elements = end.ok_or_else(|| Error::bad_param(text))?;
        Ok(Block { offset, rows, columns })
    }

    /// Size of the space in bytes (`mcdnnGetRNNWeightSpaceSize`, section 6.2.1.32).
    pub fn bytes(&self) -> u64 {
        let numbers = self.elements_of(Role::WeightNumbers) * DType::F32.bytes() as i64;
        (self.elements_of(Role::Weights) * self.element_bytes + numbers) as u64
    }

    /// Size of the space in elements.
    pub fn elements(&self) -> i64 {
        self.elements
    }

    /// Elements of the caller's tensor of a role: one of the two that have weights.
    pub fn elements_of(&self, role: Role) -> i64 {
        let integers = self.integers.unwrap_or(self.elements);
        if role == Role::WeightNumbers { self.elements - integers } else { integers }
    }

    /// The caller's tensor that has weights of a kind, and the first of its elements.
    pub(crate) fn tensor_of(&self, kind: WeightKind) -> (Role, i64) {
        match self.integers {
            Some(first) if !WeightKind::INTEGERS.contains(&kind) => (Role::WeightNumbers, first),
            _ => (Role::Weights, 0),
        }
    }

    /// Number of layers times directions.
    pub fn pseudo_layers(&self) -> usize {
        self.blocks.len()
    }

    /// The block of a kind; `None` if the network has none.
    ///
    /// # Panics
    /// When `pseudo_layer` is out of range.
    pub fn block(&self, pseudo_layer: usize, kind: WeightKind) -> Option<Block> {
        self.blocks[pseudo_layer][kind as usize]
    }

    /// The matrix and bias of a linLayerID: input gates in the cell's order (LSTM i f g o, GRU r z
    /// n), then recurrent gates, then the projection. `space_bytes` is the size of the caller's
    /// buffer.
    ///
    /// # Errors
    /// `NotSupported` for a quantised network; `BadParam` for a pseudo-layer out of range, a
    /// linLayerID below 0 or above both 8 and the cell's last, or weights that exceed the buffer.
    pub fn params(
        &self,
        pseudo_layer: i32,
        lin_layer_id: i32,
        space_bytes: u64,
    ) -> Result<WeightParams> {
        let bad = |rule: String| Err(Error::bad_param(format!("weight params: {rule}")));
        if self.integers.is_some() {
            return Err(Error::not_supported("weight params: a quantised network has two spaces"));
        }
        let count = self.blocks.len();
        if pseudo_layer < 0 || pseudo_layer as usize >= count {
            return bad(format!("pseudo-layer {pseudo_layer}, the network has {count}"));
        }
        let [input, recurrent] = self.gates;
        let projection = input + recurrent;
        let largest = projection.max(LIN_LAYER_MAX);
        if !(0..=largest).contains(&lin_layer_id) {
            return bad(format!("linLayerID {lin_layer_id}, expected 0 to {largest}"));
        }
        let (gate, matrix, bias) = match lin_layer_id {
            id if id < input => (id, WeightKind::Input, Some(WeightKind::InputBias)),
            id if id < projection => {
                (id - input, WeightKind::Recurrent, Some(WeightKind::RecurrentBias))
            }
            id if id == projection => (0, WeightKind::Projection, None),
            _ => return Ok(WeightParams::default()),
        };
        let slice = |kind| self.slice(pseudo_layer as usize, kind, gate);
        let params = WeightParams { matrix: slice(matrix), bias: bias.and_then(slice) };
        for WeightSlice { offset_bytes, rows, columns } in
            [params.matrix, params.bias].into_iter().flatten()
        {
            let end = offset_bytes + (rows * columns * self.element_bytes) as u64;
            if end > space_bytes {
                let needed = self.bytes();
                return bad(format!(
                    "the weight space has {space_bytes} bytes, the network needs {needed}"
                ));
            }
        }
        Ok(params)
    }

    /// The slice of a gate within a block; a projection is one slice.
    fn slice(&self, pseudo_layer: usize, kind: WeightKind, gate: i32) -> Option<WeightSlice> {
        let Block { offset, rows, columns } = self.block(pseudo_layer, kind)?;
        let rows = if kind == WeightKind::Projection { rows } else { self.hidden };
        let first = offset + i64::from(gate) * rows * columns;
        Some(WeightSlice { offset_bytes: (first * self.element_bytes) as u64, rows, columns })
    }
}

fn shape(rnn: &Rnn, cell: &Cell, layer: i64, kind: WeightKind) -> Option<[i64; 2]> {
    let (hidden, state) = (rnn.hidden_size, rnn.state_size());
    let (gates, recurrent) = (cell.gates.len() as i64, cell.recurrent_gates() as i64);
    let parameters = cell.parameters.len() as i64;
    let skipped = layer == 0 && rnn.input_mode == InputMode::Skip;
    let quantised = rnn.quantization.is_some();
    let (given, shape) = match kind {
        WeightKind::Input => (!skipped, [gates * hidden, rnn.layer_input_size(layer)]),
        WeightKind::Recurrent => (true, [recurrent * hidden, state]),
        WeightKind::Projection => (rnn.projection_size.is_some(), [state, hidden]),
        WeightKind::Parameters => (true, [parameters, hidden]),
        WeightKind::InputBias => (rnn.bias.has_input(), [gates * hidden, 1]),
        WeightKind::RecurrentBias => (rnn.bias.has_recurrent(), [recurrent * hidden, 1]),
        WeightKind::InputScales => (quantised, [gates * hidden, 1]),
        WeightKind::RecurrentScales => (quantised, [recurrent * hidden, 1]),
    };
    (given && shape[0] > 0).then_some(shape)
}
