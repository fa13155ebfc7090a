//! What the template of the depthwise engine reads.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::{ceil_div, volume};
use crate::engine::convolution::depthwise::Settings;
use crate::engine::convolution::parameters::{Count, Factor, ROLES, context, counted, factor};
use crate::engine::convolution::problem::Problem;
use crate::engine::instruction::multiply_add;
use crate::engine::items::{Axes, Fusion, Item, Kernel, Point};
use crate::error::{Error, Result};
use crate::graph::{ConvolutionMode, ConvolutionPass};

/// Names of a kernel's own variables and functions.
const OWN_WORDS: [&str; 11] =
    ["column", "filter", "first", "image", "m", "response", "ring", "row", "step", "sums", "value"];

/// How the taps of an element of the result lie in the operand that is read through the window:
/// tap `t` of result `o` at `o * stride - padding + t * dilation`, along rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Walk {
    /// Which of the operands is read through the window, and which is the filter.
    pub(super) source: usize,
    pub(super) filter: usize,
    /// Whether taps come in the reversed order of the filter's.
    pub(super) flipped: bool,
    pub(super) taps: [i64; 2],
    pub(super) strides: [i64; 2],
    pub(super) dilations: [i64; 2],
    paddings: [i64; 2],
    /// Extents of what is read and of the result.
    read: [i64; 2],
    result: [i64; 2],
}

impl Walk {
    /// # Errors
    /// `NotSupported` with the rule that a convolution breaks.
    pub(super) fn of(problem: &Problem<'_>) -> Result<Walk> {
        let refuse = |rule: String| Err(Error::not_supported(rule));
        let Problem { op, shape, .. } = problem;
        if (shape.c, shape.k) != (1, 1) || shape.groups == 1 {
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
            ConvolutionPass::Forward => Ok(Walk {
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
            ConvolutionPass::BackwardFilter => refuse("the gradient of a filter".to_owned()),
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
    fn has_gaps(&self, strip: i64) -> bool {
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

impl Settings {
    /// The result with strips in the place of rows and columns.
    pub(super) fn strips(&self, axes: &Axes) -> Axes {
        let spatial = [(axes.spatial[0], self.rows), (axes.spatial[1], self.strip)];
        let spatial = spatial.map(|(extent, size)| ceil_div(extent, size)).to_vec();
        Axes { spatial, ..axes.clone() }
    }
}

/// Variables of `convolution/sm75_convolution_depthwise.cu`.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    formula: &'static str,
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    /// Type in which operands are multiplied, which is that of sums.
    element: &'static str,
    multiply_add: &'static str,
    rows: i64,
    strip: i64,
    taps: [i64; 2],
    strides: [i64; 2],
    dilations: [i64; 2],
    paddings: [i64; 2],
    read: [i64; 2],
    result: [i64; 2],
    flipped: bool,
    has_gaps: bool,
    counted: Vec<Count>,
    source: Factor,
    filter: Factor,
    #[serde(flatten)]
    point: Point,
    #[serde(flatten)]
    kernel: Kernel,
}

impl Parameters {
    pub(super) fn of(problem: &Problem<'_>, settings: Settings) -> Parameters {
        let Problem { op, operands, epilogue, .. } = problem;
        let walk = Walk::of(problem).expect("the engine supports the graph");
        let strips = Fusion { axes: settings.strips(&epilogue.axes), ..epilogue.clone() };
        let context = context(problem, &strips, (Item::Group, settings.items), &OWN_WORDS);
        let mut functions = BTreeSet::new();
        let source = factor(&context, &operands[walk.source], &mut functions);
        let filter = factor(&context, &operands[walk.filter], &mut functions);
        let span = volume(&[settings.rows, walk.strides[0]]).max(walk.span(settings.strip));
        let reach = problem.reach().saturating_add(span);
        let wide = context.is_wide(reach.max(problem.offset_max()));
        let kernel = context.kernel(&problem.passed(), &[], wide, settings.threads, &mut functions);
        Parameters {
            formula: ROLES[op.pass as usize].0,
            listing: context.listing(operands, &op.to_string()),
            element: op.math.dtype().register(),
            multiply_add: multiply_add(op.math),
            rows: settings.rows,
            strip: settings.strip,
            taps: walk.taps,
            strides: walk.strides,
            dilations: walk.dilations,
            paddings: walk.paddings,
            read: walk.read,
            result: walk.result,
            flipped: walk.flipped,
            has_gaps: walk.has_gaps(settings.strip),
            counted: counted(problem),
            source,
            filter,
            point: context.point(true),
            kernel,
            functions,
        }
    }
}
