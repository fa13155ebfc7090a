//! Views of a layer's part of an argument: what strides of a graph's tensor say, and what they do
//! not.

use crate::dtype::DType;
use crate::onednn::argument::Tensor;
use crate::onednn::memory::MemoryDesc;
use crate::rnn::WeightKind;
use crate::tensor::TensorDesc;

/// An extent and the distance of neighbours in elements.
type Axis = (i64, i64);

/// A layer's part of an argument, as the dimensions of a graph's tensor: each is one or two of the
/// argument's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    axes: [Vec<Axis>; 3],
    /// Elements in front of the first one.
    offset: i64,
    dtype: DType,
}

/// What of an argument a graph's tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All steps, as rows: sequence by sequence if `by_sequence`.
    Rows {
        /// Whether the steps of a sequence are neighbours.
        by_sequence: bool,
    },
    /// The states of a layer.
    States {
        /// The layer.
        layer: i64,
    },
    /// The weights of a layer.
    Weights {
        /// The layer.
        layer: i64,
        /// What they are in the graph.
        kind: WeightKind,
    },
}

impl View {
    /// A part of an argument of a resolved descriptor.
    pub(super) fn new(tensor: Tensor, desc: &MemoryDesc, part: Part) -> View {
        let strides = desc.strides().expect("the format is resolved");
        let axis = |at: usize| (desc.dims()[at], strides[at]);
        let mut offset = 0;
        let axes = match part {
            Part::Rows { by_sequence } => {
                let rows = if by_sequence { [1, 0] } else { [0, 1] };
                [vec![(1, 1)], rows.map(axis).to_vec(), vec![axis(2)]]
            }
            Part::States { layer } => {
                offset = layer * strides[0];
                [1, 2, 3].map(|at| vec![axis(at)])
            }
            Part::Weights { layer, kind } => {
                offset = layer * strides[0];
                match (tensor, kind) {
                    (Tensor::WeightsLayer, _) => {
                        [vec![axis(1)], vec![axis(2)], [3, 4].map(axis).to_vec()]
                    }
                    (Tensor::WeightsIter, _) => {
                        [vec![axis(1)], [3, 4].map(axis).to_vec(), vec![axis(2)]]
                    }
                    (Tensor::WeightsProjection, _) => [1, 3, 2].map(|at| vec![axis(at)]),
                    // The bias behind those of the gates, of linear-before-reset cells.
                    (Tensor::Bias, WeightKind::Parameters) => {
                        let (biases, stride) = axis(2);
                        offset += (biases - 1) * stride;
                        [vec![axis(1)], vec![(1, 1)], vec![axis(3)]]
                    }
                    (Tensor::Bias, _) => [vec![axis(1)], vec![(1, 1)], [2, 3].map(axis).to_vec()],
                    _ => [1, 2, 3].map(|at| vec![axis(at)]),
                }
            }
        };
        View { axes, offset, dtype: desc.dtype() }
    }

    /// Without the gates behind so many: those that a graph's tensor does not have.
    pub(super) fn with_gates(mut self, gates: i64) -> View {
        if let [(count, _), _] = &mut self.axes[2][..] {
            *count = gates;
        }
        self
    }

    /// Bytes in front of the first element.
    pub(super) fn offset_bytes(&self) -> u64 {
        (self.offset * self.dtype.bytes() as i64) as u64
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The strides of a graph's tensor that is the view itself, if there are such strides, and
    /// engines take them: neighbours along the last dimension are neighbours in memory, or for a
    /// matrix multiplication those along one of the last two.
    pub(super) fn direct(&self, is_multiplied: bool) -> Option<[i64; 3]> {
        let [outer, rows, columns] = &self.axes;
        let [outer, rows, columns] = [merged(outer)?, merged(rows)?, merged(columns)?];
        let near = |(extent, stride): Axis| extent == 1 || stride == 1;
        let fits = near(columns) || is_multiplied && near(rows);
        fits.then_some([outer.1, rows.1, columns.1])
    }

    /// The graph's tensor of these strides, with the dimensions of the view.
    pub(super) fn fine(&self, of: &TensorDesc) -> TensorDesc {
        let mut strides = Vec::new();
        for (axes, stride) in self.axes.iter().zip(&of.strides) {
            let inner = |at: usize| axes[at + 1..].iter().map(|axis| axis.0).product::<i64>();
            strides.extend((0..axes.len()).map(|at| stride * inner(at)));
        }
        TensorDesc { dims: self.dims(), strides, ..of.clone() }
    }

    /// The argument's memory, with the dimensions of the view.
    pub(super) fn memory(&self, uid: i64, name: &str) -> TensorDesc {
        let strides = self.axes.iter().flatten().map(|axis| axis.1).collect();
        let packed = TensorDesc::packed(uid, name, &self.dims(), self.dtype);
        TensorDesc { strides, alignment: self.alignment(), ..packed }
    }

    /// Alignment in bytes of the first element, if the argument's memory is aligned to 16 bytes.
    pub(super) fn alignment(&self) -> usize {
        1 << (self.offset_bytes() | 16).trailing_zeros()
    }

    fn dims(&self) -> Vec<i64> {
        self.axes.iter().flatten().map(|axis| axis.0).collect()
    }
}

/// Dimensions as one, if neighbours are as far from each other everywhere.
fn merged(axes: &[Axis]) -> Option<Axis> {
    let mut whole: Option<Axis> = None;
    for (extent, stride) in axes.iter().rev().filter(|axis| axis.0 > 1) {
        whole = match whole {
            None => Some((*extent, *stride)),
            Some((inner, near)) if *stride == inner * near => Some((extent * inner, near)),
            Some(_) => return None,
        };
    }
    Some(whole.unwrap_or((1, 1)))
}
