//! The workspace between the kernels of `rnn_step`.

use crate::dtype::DType;
use crate::engine::rnn::layer::Layer;
use crate::graph::CellValue;

/// Buffers of the workspace, in order: vectors of every batch row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    /// h.
    Hidden,
    /// The states other than h.
    States,
    /// Results of the GEMMs with recurrent weights; with transposed weights, of the last one.
    Gates,
    /// Results of the projection.
    Projected,
    /// Results of a stage that are the operand of a GEMM.
    Operand,
    /// Results of stages that later stages read.
    Carried,
    /// What results of GEMMs with a quantised h are too large by, in each direction.
    Compensation,
}

impl Buffer {
    pub(super) const ALL: [Buffer; 7] = [
        Buffer::Hidden,
        Buffer::States,
        Buffer::Gates,
        Buffer::Projected,
        Buffer::Operand,
        Buffer::Carried,
        Buffer::Compensation,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Buffer::Hidden => "hidden",
            Buffer::States => "states",
            Buffer::Gates => "gates",
            Buffer::Projected => "projected",
            Buffer::Operand => "operand",
            Buffer::Carried => "carried",
            Buffer::Compensation => "compensation",
        }
    }
}

/// The buffers of a layer.
pub(super) struct Buffers<'a> {
    layer: &'a Layer<'a>,
    /// Values that later stages read.
    pub(super) carried: Vec<CellValue>,
}

impl<'a> Buffers<'a> {
    pub(super) fn of(layer: &'a Layer<'a>) -> Buffers<'a> {
        let cell = &layer.op.cell;
        let mut carried = Vec::new();
        for stage in 0..cell.stages.len() {
            let last = stage + 1 == cell.stages.len();
            let states = (0..cell.states.len()).filter(|_| last).filter_map(|at| cell.next(at));
            for value in cell.reads(stage).into_iter().chain(states) {
                let earlier = cell.made_in(value).is_some_and(|made| made < stage);
                if earlier && !carried.contains(&value) {
                    carried.push(value);
                }
            }
        }
        Buffers { layer, carried }
    }

    /// Type of a buffer, vectors of each batch row, and their length as value and constant.
    pub(super) fn shape(&self, buffer: Buffer) -> (DType, usize, i64, &'static str) {
        let (layer, cell) = (self.layer, &self.layer.op.cell);
        let (stored, math) = (layer.dtype(), layer.op.math.dtype());
        let hidden = (layer.hidden_size(), "HIDDEN_SIZE");
        let output = (layer.output_size(), "OUTPUT_SIZE");
        let (operand, gates) = match cell.is_transposed() {
            true => ((layer.hidden_size() * cell.blocks() as i64, "OPERAND_SIZE"), 1),
            false => (output, cell.recurrent_gates()),
        };
        let (dtype, vectors, (length, constant)) = match buffer {
            Buffer::Hidden => (stored, 1, operand),
            Buffer::States => (math, cell.states.len() - cell.outputs(), hidden),
            Buffer::Gates if layer.quantization().is_some() => (DType::I32, gates, hidden),
            Buffer::Gates => (math, gates, hidden),
            Buffer::Projected => (math, usize::from(cell.projected), output),
            Buffer::Operand if cell.is_transposed() => (stored, 1, operand),
            Buffer::Operand => (stored, 1, hidden),
            Buffer::Carried => (math, self.carried.len(), hidden),
            Buffer::Compensation => (DType::I32, gates, hidden),
        };
        (dtype, vectors, length, constant)
    }

    /// Those that the layer has.
    pub(super) fn all(&self) -> impl Iterator<Item = Buffer> {
        let compensated = self.layer.is_compensated();
        Buffer::ALL.into_iter().filter(move |of| *of != Buffer::Compensation || compensated)
    }

    /// Their sizes in bytes.
    pub(super) fn scratch(&self) -> Vec<u64> {
        let (directions, batch) = (self.layer.op.direction.count(), self.layer.op.batch);
        let bytes = |buffer: Buffer| {
            let (dtype, vectors, length, _) = self.shape(buffer);
            let rows = if buffer == Buffer::Compensation { directions } else { directions * batch };
            (rows * vectors as i64 * length * dtype.bytes() as i64).max(1) as u64
        };
        self.all().map(bytes).collect()
    }
}
