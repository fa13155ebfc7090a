//! How a thread walks through the operands of a convolution of groups of one channel.

use serde::Serialize;

use crate::engine::convolution::problem::Problem;
use crate::error::{Error, Result};
use crate::graph::{ConvolutionMode, ConvolutionPass};

/// How the taps of an element of the result lie in the operand that is read through the window:
/// tap `t` of result `o` at `o * stride - padding + t * dilation`, along rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Walk {
    /// Which of the operands is read through the window, and which is the filter.
    #[serde(skip)]
    pub(super) source: usize,
    #[serde(skip)]
    pub(super) filter: usize,
    /// Whether taps come in the reversed order of the filter's.
    pub(super) flipped: bool,
    pub(super) taps: [i64; 2],
    pub(super) strides: [i64; 2],
    pub(super) dilations: [i64; 2],
    paddings: [i64; 2],
    /// Extents of what is read and of the result, in whose place a filter's gradient has the
    /// response.
    read: [i64; 2],
    pub(super) result: [i64; 2],
}

impl Walk {
    /// # Errors
    /// `NotSupported` with the rule that a convolution breaks.
    pub(super) fn of(problem: &Problem<'_>) -> Result<Walk> {
        let refuse = |rule: String| Err(Error::not_supported(rule));
        let Problem { op, shape, .. } = problem;
        let multiplied = shape.k != 1 && op.pass != ConvolutionPass::BackwardFilter;
        if shape.c != 1 || multiplied || shape.groups == 1 {
            let (c, k) = (shape.c, shape.k);
            let groups = shape.groups;
            return refuse(format!("{groups} groups of {c} and {k} channels are not depthwise"));
        }
        if shape.image.len() != 2 {
            return refuse(format!("{} spatial dimensions are not two", shape.image.len()));
        }
        let two = |of: &[i64]| [of[0], of[1]];
        let window = &op.window;
        let [strides, dilations] = [&window.filter_strides, &window.dilations].map(|of| two(of));
        let (taps, padding) = (two(&shape.filter), two(&window.pre_paddings));
        let reversed = op.mode == ConvolutionMode::Convolution;
        let (image, response) = (two(&shape.image), two(&shape.response));
        match op.pass {
            ConvolutionPass::Forward | ConvolutionPass::BackwardFilter => Ok(Walk {
                source: 0,
                filter: 1,
                flipped: reversed,
                taps,
                strides,
                dilations,
                paddings: padding,
                read: image,
                result: response,
            }),
            ConvolutionPass::BackwardData if strides == [1, 1] => {
                let reach = |axis: usize| (taps[axis] - 1) * dilations[axis] - padding[axis];
                Ok(Walk {
                    source: 1,
                    filter: 0,
                    flipped: !reversed,
                    taps,
                    strides,
                    dilations,
                    paddings: [0, 1].map(reach),
                    read: response,
                    result: image,
                })
            }
            ConvolutionPass::BackwardData => {
                refuse(format!("the gradient of an image with strides {strides:?}"))
            }
        }
    }

    /// Rows of the result that a row that is read may belong to.
    pub(super) fn ages(&self) -> i64 {
        (self.taps[0] - 1) * self.dilations[0] / self.strides[0] + 1
    }

    /// Columns that the taps of so many neighbours reach.
    pub(super) fn span(&self, strip: i64) -> i64 {
        (strip - 1) * self.strides[1] + (self.taps[1] - 1) * self.dilations[1] + 1
    }

    /// Whether some of these columns belong to no tap.
    pub(super) fn has_gaps(&self, strip: i64) -> bool {
        let met = |column: i64| {
            (0..self.taps[1]).any(|tap| {
                let distance = column - tap * self.dilations[1];
                distance >= 0
                    && distance % self.strides[1] == 0
                    && distance / self.strides[1] < strip
            })
        };
        (0..self.span(strip)).any(|column| !met(column))
    }
}
