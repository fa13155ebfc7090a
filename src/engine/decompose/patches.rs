//! Convolutions whose taps along a row are read as channels: where channels are innermost, the taps
//! of a row and their channels lie behind each other. An image `[N, C, .., W]` under `S` taps is
//! seen as `[N, S * C, .., Q]`, a patch for each of `Q` responses, so that what is read at once
//! ends with a patch and not with a pixel. Patches may overlap where each begins at a whole
//! vector.

use crate::engine::access::VECTOR_BYTES;
use crate::engine::decompose::Decomposed;
use crate::graph::{Convolution, ConvolutionMode, ConvolutionPass, Op, Operation};
use crate::tensor::TensorDesc;

/// What is read at once: channels that fill whole lines are not in the way.
const LINE_BYTES: i64 = 128;

impl<'a> Decomposed<'a> {
    /// The graph with the taps along rows of such a convolution among its channels.
    pub(in crate::engine) fn patched(self) -> Decomposed<'a> {
        let found = self.operations.iter().enumerate().find_map(|(at, own)| match &own.op {
            Op::Convolution(op) => Some((at, op, own)),
            _ => None,
        });
        let Some((at, op, own)) = found else { return self };
        let operands = [0, 1].map(|slot| own.inputs[slot] as usize);
        let [x, w, y] = op.pass.roles(operands, own.outputs[0] as usize);
        let is_own = |of: usize| self.is_read_or_written_by(of, at);
        if x == w || op.pass == ConvolutionPass::BackwardData || !is_own(x) || !is_own(w) {
            return self;
        }
        let Some([image, filter]) = patches(op, [x, w, y].map(|of| &self.tensors[of])) else {
            return self;
        };
        let mut op = op.clone();
        *op.window.filter_strides.last_mut().expect("there is one") = 1;
        *op.window.post_paddings.last_mut().expect("there is one") = 0;
        let Decomposed { tensors, operations, uids, offsets } = self;
        let (mut tensors, mut operations) = (tensors.into_owned(), operations.into_owned());
        (tensors[x], tensors[w]) = (image, filter);
        operations[at] = Operation { op: Op::Convolution(op), ..operations[at].clone() };
        Decomposed { tensors: tensors.into(), operations: operations.into(), uids, offsets }
    }

    /// Whether a tensor in memory is that of one operation alone.
    fn is_read_or_written_by(&self, tensor: usize, operation: usize) -> bool {
        let TensorDesc { is_virtual, by_value, .. } = self.tensors[tensor];
        let mut others = self.operations.iter().enumerate().filter(|(at, _)| *at != operation);
        let is_met = |own: &Operation| {
            own.inputs.iter().chain(&own.outputs).any(|uid| *uid as usize == tensor)
        };
        !is_virtual && !by_value && !others.any(|(_, own)| is_met(own))
    }
}

/// The image and the filter with the taps along rows among their channels; `None` where these do
/// not lie behind each other in both.
fn patches(op: &Convolution, [x, w, y]: [&TensorDesc; 3]) -> Option<[TensorDesc; 2]> {
    let window = &op.window;
    let last = window.spatial_dims() - 1;
    let axis = last + 2;
    if x.dims.len() != axis + 1 || x.dims[1] != w.dims[1] {
        return None;
    }
    let (taps, channels, responses) = (w.dims[axis], w.dims[1], y.dims[axis]);
    let step = window.filter_strides[last].checked_mul(channels)?;
    let bytes = |elements: i64| elements.saturating_mul(x.dtype.bytes() as i64);
    let behind_last =
        (responses - 1).checked_mul(window.filter_strides[last])?.checked_add(taps)?;
    let is_cut = (window.filter_strides[last] == taps || bytes(step) % VECTOR_BYTES == 0)
        && window.dilations[last] == 1
        && window.pre_paddings[last] == 0
        && responses > 0
        && behind_last <= x.dims[axis]
        && op.mode == ConvolutionMode::CrossCorrelation;
    let is_behind = |of: &TensorDesc| of.strides[1] == 1 && of.strides[axis] == channels;
    let is_whole = bytes(channels) % LINE_BYTES == 0;
    if taps < 2 || channels == 0 || !is_cut || !is_behind(x) || !is_behind(w) || is_whole {
        return None;
    }
    let with = |of: &TensorDesc, extent: i64, stride: i64| {
        let mut own = of.clone();
        own.dims[1] = channels.checked_mul(taps)?;
        own.dims[axis] = extent;
        own.strides[axis] = stride;
        Some(own)
    };
    Some([with(x, responses, step)?, with(w, 1, channels.checked_mul(taps)?)?])
}
