//! Convolution and its gradients: each element as the sum over the pairs that meet in it.

use crate::graph::{Convolution, ConvolutionMode, ConvolutionPass, ConvolutionShape};
use crate::reference::approx::Approx;
use crate::reference::expected::{Expected, Operand};
use crate::reference::index::{broadcast_position, count, unravel};
use crate::reference::matmul::dot;
use crate::reference::scaled::scaled;
use crate::tensor::TensorDesc;

/// The position of one element in each of image, filter and response, and where they meet.
struct Meeting<'a> {
    op: &'a Convolution,
    shape: ConvolutionShape,
    /// Whether groups are a dimension of their own.
    grouped: bool,
}

pub(super) fn evaluate(
    op: &Convolution,
    operands: &[Operand<'_>],
    result: &TensorDesc,
) -> Expected {
    let descs = op.pass.roles([operands[0].desc, operands[1].desc], result);
    let shape = op.shape(descs).expect("the graph is valid");
    let meeting = Meeting { op, grouped: op.has_group_axis(descs[0]), shape };
    let place = |element: &Element, operand: usize| {
        let index = meeting.joined(element, operand);
        broadcast_position(&index, &operands[operand].desc.dims)
    };
    let sums = (0..count(&result.dims) as i64).map(|at| {
        let pairs = meeting.pairs(&meeting.split(&unravel(at, &result.dims)));
        let (mut terms, mut spoils) = (Vec::new(), false);
        for pair in &pairs {
            match pair {
                [Some(first), Some(second)] => terms.push((place(first, 0), place(second, 1))),
                [None, Some(second)] => spoils |= is_none(&operands[1], place(second, 1)),
                [Some(first), None] => spoils |= is_none(&operands[0], place(first, 0)),
                [None, None] => {}
            }
        }
        let sum = dot(op.math, &operands[0], &operands[1], terms.into_iter());
        if spoils { Approx::anything(sum.value) } else { sum }
    });
    scaled(sums, result, op.math.dtype(), [op.alpha, op.beta], operands.get(2))
}

/// Whether an element may be no finite number: an implementation may multiply it with the zeros of
/// the padding, or leave that out.
fn is_none(operand: &Operand<'_>, at: usize) -> bool {
    let Approx { value, error } = operand.approx(at);
    !(value.is_finite() && error.is_finite())
}

/// An element's group, its two other outer indices, and its spatial ones. The outer indices are the
/// image and channel of `x` and `y`, and the channels of response and image of `w`.
#[derive(Clone)]
struct Element {
    group: i64,
    outer: [i64; 2],
    spatial: Vec<i64>,
}

impl Meeting<'_> {
    /// The pairs of elements of the operands whose products add up to an element of the result;
    /// none of one operand where the other meets its padding.
    fn pairs(&self, result: &Element) -> Vec<[Option<Element>; 2]> {
        let ConvolutionShape { n, c, k, image, filter, response, .. } = &self.shape;
        let element = |outer: [i64; 2], spatial: &[i64]| Element {
            group: result.group,
            outer,
            spatial: spatial.to_vec(),
        };
        let [first, second] = result.outer;
        let own = &result.spatial;
        let mut pairs = Vec::new();
        match self.op.pass {
            ConvolutionPass::Forward => {
                for (channel, taps) in each(*c, filter) {
                    let at = self.image_of(own, &taps);
                    let x = inside(&at, image).then(|| element([first, channel], &at));
                    pairs.push([x, Some(element([second, channel], &taps))]);
                }
            }
            ConvolutionPass::BackwardData => {
                for (channel, taps) in each(*k, filter) {
                    let at = self.response_of(own, &taps);
                    let dy = at.map(|at| element([first, channel], &at));
                    pairs.push([Some(element([channel, second], &taps)), dy]);
                }
            }
            ConvolutionPass::BackwardFilter => {
                for (number, at) in each(*n, response) {
                    let from = self.image_of(&at, own);
                    let x = inside(&from, image).then(|| element([number, second], &from));
                    pairs.push([x, Some(element([number, first], &at))]);
                }
            }
        }
        pairs
    }

    /// The element of the image that a tap meets for an element of the response; it may lie in the
    /// padding.
    fn image_of(&self, response: &[i64], taps: &[i64]) -> Vec<i64> {
        let window = &self.op.window;
        let along = |axis: usize| {
            let tap = match self.op.mode {
                ConvolutionMode::CrossCorrelation => taps[axis],
                ConvolutionMode::Convolution => self.shape.filter[axis] - 1 - taps[axis],
            };
            response[axis] * window.filter_strides[axis] - window.pre_paddings[axis]
                + tap * window.dilations[axis]
        };
        (0..response.len()).map(along).collect()
    }

    /// The element of the response for which a tap meets an element of the image.
    fn response_of(&self, image: &[i64], taps: &[i64]) -> Option<Vec<i64>> {
        let origin = self.image_of(&vec![0; image.len()], taps);
        let along = |axis: usize| {
            let (distance, stride) =
                (image[axis] - origin[axis], self.op.window.filter_strides[axis]);
            let at = distance / stride;
            let meets = distance >= 0 && distance % stride == 0 && at < self.shape.response[axis];
            meets.then_some(at)
        };
        (0..image.len()).map(along).collect()
    }

    /// Splits an index of the result.
    fn split(&self, index: &[i64]) -> Element {
        let ConvolutionShape { c, k, .. } = &self.shape;
        let is_filter = self.op.pass == ConvolutionPass::BackwardFilter;
        let (outer, spatial) = index.split_at(index.len() - self.op.window.spatial_dims());
        let (group, outer) = match (is_filter, outer) {
            (false, [n, g, channel]) => (*g, [*n, *channel]),
            (true, [g, k, c]) => (*g, [*k, *c]),
            (true, [of_k, c]) => (of_k / k, [of_k % k, *c]),
            (false, [n, channel]) => {
                let own = if self.op.pass == ConvolutionPass::Forward { k } else { c };
                (channel / own, [*n, channel % own])
            }
            _ => unreachable!("the rank was checked"),
        };
        Element { group, outer, spatial: spatial.to_vec() }
    }

    /// The index of an element in an operand.
    fn joined(&self, element: &Element, operand: usize) -> Vec<i64> {
        let ConvolutionShape { c, k, .. } = &self.shape;
        let Element { group, outer: [first, second], spatial } = element;
        let is_filter = self.op.pass.roles([0, 1], 2)[1] == operand;
        let is_image = self.op.pass.roles([0, 1], 2)[0] == operand;
        let outer = match (self.grouped, is_filter) {
            (true, true) => vec![*group, *first, *second],
            (true, false) => vec![*first, *group, *second],
            (false, true) => vec![group * k + first, *second],
            (false, false) => vec![*first, group * if is_image { c } else { k } + second],
        };
        [outer, spatial.clone()].concat()
    }
}

fn inside(at: &[i64], extents: &[i64]) -> bool {
    at.iter().zip(extents).all(|(at, extent)| (0..*extent).contains(at))
}

/// All indices.
fn all(extents: &[i64]) -> impl Iterator<Item = Vec<i64>> {
    (0..count(extents) as i64).map(|at| unravel(at, extents))
}

/// All indices, for each of a number of things.
fn each(count: i64, extents: &[i64]) -> impl Iterator<Item = (i64, Vec<i64>)> {
    (0..count).flat_map(move |at| all(extents).map(move |index| (at, index)))
}
