//! Copies of images of few channels, as convolutions read them by whole vectors.
//!
//! A pixel of three channels of 16 bits is 6 bytes at any address, and read element by element
//! under every tap. In a copy, pixels have as many channels as let neighbouring windows begin at
//! multiples of 16 bytes, the others 0, and the padding along rows is part of the image: so the
//! taps of a row are channels (`decompose/patches.rs`, whose conditions a convolution on such
//! copies meets). The filter is copied with as many channels; a gradient of a filter is computed
//! with them, and with taps that fill vectors, and cut out.

use crate::engine::access::{VECTOR_BYTES, ceil_div};
use crate::engine::copies::fresh;
use crate::graph::{
    Convolution, ConvolutionMode, ConvolutionPass, Fraction, Op, Operation, OperationGraph,
    Resample, ResampleMode, ResamplePass, Reshape, Sampling, Slice,
};
use crate::tensor::{ALIGNMENT_MAX, TensorDesc};

/// Tensors that a product has at most beyond those of its graph.
const TENSORS_MAX: i64 = 6;

/// How many times as many channels a copy has, at most.
const ROOM_MAX: i64 = 4;

/// A convolution on such copies.
pub(super) struct Padded {
    /// The operands that are copied.
    pub(super) operands: Vec<i64>,
    /// The tensors that are not the graph's.
    pub(super) tensors: Vec<TensorDesc>,
    pub(super) product: Operation,
    /// What makes the copies, and what cuts out the result.
    pub(super) others: Vec<Operation>,
}

impl Padded {
    /// The convolution at a position of a graph on copies; `None` for one that gains nothing: of
    /// more channels, of groups, of taps apart along rows, or that needs no padding.
    /// Uids are numbered from this one on.
    pub(super) fn of(graph: &OperationGraph, position: usize, first: i64) -> Option<Padded> {
        let own = &graph.operations()[position];
        let Op::Convolution(op) = &own.op else { return None };
        let uids = op.pass.roles([own.inputs[0], own.inputs[1]], own.outputs[0]);
        let [image, filter, response] = uids.map(|uid| graph.laid(uid));
        let [image, filter, response] = [image?, filter?, response?];
        let room = Room::of(op, [&image, &filter, &response])?;
        let first = (position as i64).checked_mul(TENSORS_MAX)?.checked_add(first)?;
        let mut product = own.clone();
        product.op = Op::Convolution(room.convolution(op));
        let padded = Padded { operands: vec![], tensors: vec![], product, others: vec![] };
        let mut making = Making { graph, position, first, room, padded };
        // Of both passes the image is the first operand.
        making.padded.product.inputs[0] = making.copy(&image, room.image)?;
        if op.pass == ConvolutionPass::Forward {
            let along = Along { before: 0, extent: room.taps };
            making.padded.product.inputs[1] = making.copy(&filter, along)?;
        } else {
            making.padded.product.outputs = vec![making.cut(&filter)?];
        }
        Some(making.padded)
    }

    /// Whether the result is cut out of a larger one.
    pub(super) fn cuts(&self) -> bool {
        self.others.iter().any(|of| matches!(of.op, Op::Slice(_)))
    }
}

/// Elements along rows of a copy, and how many of them are in front of what is copied.
#[derive(Debug, Clone, Copy)]
struct Along {
    before: i64,
    extent: i64,
}

/// What a convolution's copies have room for.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// Elements of a vector.
    whole: i64,
    channels: i64,
    /// Along rows of the filter.
    taps: i64,
    image: Along,
}

impl Room {
    /// `None` where nothing is gained.
    fn of(op: &Convolution, [image, filter, response]: [&TensorDesc; 3]) -> Option<Room> {
        let window = &op.window;
        let last = window.spatial_dims() - 1;
        let axis = last + 2;
        let bytes = image.dtype.bytes() as i64;
        let whole = VECTOR_BYTES / bytes;
        let channels = image.dims[1];
        let read = match op.pass {
            ConvolutionPass::Forward => [image, filter],
            ConvolutionPass::BackwardFilter => [image, response],
            ConvolutionPass::BackwardData => return None,
        };
        let is_simple = op.mode == ConvolutionMode::CrossCorrelation
            && window.dilations[last] == 1
            && image.dims.len() == axis + 1
            && whole > VECTOR_BYTES / 8
            && (1..whole).contains(&channels)
            && filter.dims[1] == channels
            && image.uid != filter.uid
            && read.iter().all(|of| of.dtype.bytes() as i64 == bytes && !of.by_value)
            && [image, filter, response].iter().all(|of| !of.is_empty());
        // Its gradient is written once, and not added to what was there.
        let is_cut = op.pass == ConvolutionPass::BackwardFilter;
        if !is_simple || is_cut && (filter.is_virtual || !op.is_unscaled()) {
            return None;
        }
        let stride = window.filter_strides[last];
        let mut rooms = channels..=whole.min(ROOM_MAX * channels);
        let room =
            rooms.find(|of| stride.checked_mul(*of).is_some_and(|step| step % whole == 0))?;
        let fills =
            |of: &i64| !is_cut || of.checked_mul(room).is_some_and(|taps| taps % whole == 0);
        let own_taps = filter.dims[axis];
        let taps = (own_taps..=own_taps.checked_add(whole)?).find(fills)?;
        let before = window.pre_paddings[last];
        let extent = (response.dims[axis] - 1).checked_mul(stride)?.checked_add(taps)?;
        // Without padding, channels may be innermost in copies of the same elements.
        let is_padded = room > channels || before > 0 || extent > image.dims[axis];
        let image = Along { before, extent };
        is_padded.then_some(Room { whole, channels: room, taps, image })
    }

    fn convolution(&self, op: &Convolution) -> Convolution {
        let mut own = op.clone();
        for of in [&mut own.window.pre_paddings, &mut own.window.post_paddings] {
            *of.last_mut().expect("there is a spatial dimension") = 0;
        }
        own
    }
}

/// A convolution on copies as it is put together.
struct Making<'a> {
    graph: &'a OperationGraph,
    /// The convolution's position.
    position: usize,
    /// The number of the first uid.
    first: i64,
    room: Room,
    padded: Padded,
}

impl Making<'_> {
    /// Copies an image or a filter; returns the copy as the convolution reads it.
    fn copy(&mut self, of: &TensorDesc, Along { before, extent }: Along) -> Option<i64> {
        // Channels are resampled, too: they are a spatial dimension.
        let planes = |of: &[i64]| [&of[..1], &[1], &of[1..]].concat();
        let dims = self.dims(of, extent);
        let seen = self.view((of, "planes"), of.uid, &planes(&of.dims))?;
        let strides = planes(&self.strides(&dims)?);
        let name = self.name(of, "padded");
        let copy = self.tensor(TensorDesc { name, dims: planes(&dims), strides, ..of.clone() })?;
        let rows = dims.len() - 2;
        let mut sampling = Sampling::of(&vec![1; rows + 1]);
        sampling.pre_paddings[rows] = Fraction::from(before);
        for (behind, axis) in sampling.post_paddings.iter_mut().zip(1..) {
            let before = if axis == rows + 1 { before } else { 0 };
            *behind = Fraction::from(dims[axis] - of.dims[axis] - before);
        }
        let op = Resample::new(ResamplePass::Forward, ResampleMode::Nearest, sampling);
        self.operation(Op::Resample(op), seen, copy);
        self.padded.operands.push(of.uid);
        self.view((of, "wide"), copy, &dims)
    }

    /// Cuts the gradient of a filter out of one with room for more; returns that one.
    fn cut(&mut self, of: &TensorDesc) -> Option<i64> {
        let dims = self.dims(of, self.room.taps);
        let (strides, name) = (self.strides(&dims)?, self.name(of, "whole"));
        let whole = self.tensor(TensorDesc { name, dims, strides, ..of.clone() })?;
        let (begin, stride) = (vec![0; of.dims.len()], vec![1; of.dims.len()]);
        let op = Slice { begin, end: of.dims.clone(), stride };
        self.operation(Op::Slice(op), whole, of.uid);
        Some(whole)
    }

    /// A tensor's elements, or those of its copy, under other dimensions.
    fn view(&mut self, (own, how): (&TensorDesc, &str), of: i64, dims: &[i64]) -> Option<i64> {
        let packed = TensorDesc::packed(0, self.name(own, how), dims, own.dtype);
        let view = self.add(TensorDesc { is_virtual: true, ..packed })?;
        self.operation(Op::Reshape(Reshape), of, view);
        Some(view)
    }

    /// A tensor in memory.
    fn tensor(&mut self, tensor: TensorDesc) -> Option<i64> {
        self.add(TensorDesc { alignment: ALIGNMENT_MAX, is_virtual: false, ..tensor })
    }

    fn add(&mut self, tensor: TensorDesc) -> Option<i64> {
        let count = self.padded.tensors.len() as i64;
        debug_assert!(count < TENSORS_MAX, "the next product has the number");
        let number = self.first.checked_add(count)?;
        let uid = fresh::uid(self.graph, number)?;
        self.padded.tensors.push(TensorDesc { uid, ..tensor });
        Some(uid)
    }

    fn operation(&mut self, op: Op, input: i64, output: i64) {
        self.padded.others.push(Operation { op, inputs: vec![input], outputs: vec![output] });
    }

    /// The dimensions of an image or a filter with room for more.
    fn dims(&self, of: &TensorDesc, extent: i64) -> Vec<i64> {
        let mut dims = of.dims.clone();
        dims[1] = self.room.channels;
        *dims.last_mut().expect("there is a row") = extent;
        dims
    }

    /// The strides of channels innermost, in rows that begin at multiples of vectors.
    fn strides(&self, dims: &[i64]) -> Option<Vec<i64>> {
        let last = dims.len() - 1;
        let mut strides = vec![1; dims.len()];
        strides[last] = dims[1];
        let vectors = ceil_div(dims[last].checked_mul(dims[1])?, self.room.whole);
        let mut stride = vectors.checked_mul(self.room.whole)?;
        for axis in (2..last).rev().chain([0]) {
            strides[axis] = stride;
            stride = stride.checked_mul(dims[axis])?;
        }
        Some(strides)
    }

    /// Names end with the convolution's position: each has copies of its own.
    fn name(&self, of: &TensorDesc, how: &str) -> String {
        let name = format!("{}_{how}_{}", fresh::called(self.graph, of), self.position);
        fresh::name(self.graph, name)
    }
}
