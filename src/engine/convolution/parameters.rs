//! What the template of the direct engine reads.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::volume;
use crate::engine::convolution::direct::Settings;
use crate::engine::convolution::problem::Problem;
use crate::engine::dimensions::coordinates;
use crate::engine::instruction::multiply_add;
use crate::engine::items::{Axis, Context, Fusion, Item, Kernel, Operand, Point};
use crate::engine::program::Source;
use crate::engine::signature::names_with_positions;
use crate::expr::Identifiers;
use crate::graph::{ConvolutionMode, ConvolutionPass, ConvolutionShape};

/// The passes: their tensors in words, and their names in those of kernels.
pub(super) const ROLES: [(&str, &str); 3] = [
    ("y[n, g, k, o] = sum over c, t of x[n, g, c, i] w[g, k, c, t]", "forward"),
    ("dx[n, g, c, i] = sum over k, t of w[g, k, c, t] dy[n, g, k, o]", "backward_data"),
    ("dw[g, k, c, t] = sum over n, o of x[n, g, c, i] dy[n, g, k, o]", "backward_filter"),
];

/// Names of a kernel's own variables and functions.
const OWN_WORDS: [&str; 8] =
    ["filter", "image", "m", "meet", "meeting", "response", "sums", "value"];

/// Variables of `convolution/sm75_convolution_direct.cu`.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    formula: &'static str,
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    pass: &'static str,
    /// Type in which operands are multiplied, which is that of sums.
    element: &'static str,
    multiply_add: &'static str,
    reversed: bool,
    spatial: Vec<Spatial>,
    /// Channels of groups by which indices along both are counted.
    counted: Vec<Count>,
    summed: i64,
    meetings: i64,
    /// Whether a thread's items are groups, not the inner channels of one.
    items_are_groups: bool,
    operands: Vec<Factor>,
    #[serde(flatten)]
    point: Point,
    #[serde(flatten)]
    kernel: Kernel,
}

/// A spatial dimension.
#[derive(Debug, Serialize)]
struct Spatial {
    at: usize,
    image: i64,
    filter: i64,
    response: i64,
    stride: i64,
    dilation: i64,
    padding: i64,
    /// Expressions for the tap and the response at a meeting's index.
    tap_of: String,
    response_of: String,
}

/// An operand of a convolution.
#[derive(Debug, Serialize)]
pub(super) struct Factor {
    #[serde(flatten)]
    operand: Operand,
    /// Whether all items share it.
    shared: bool,
    /// Whether all columns of a row are loaded before the first value is waited for.
    pub(super) row_at_once: bool,
}

/// A number of channels.
#[derive(Debug, Serialize)]
pub(super) struct Count {
    name: &'static str,
    value: i64,
}

impl Parameters {
    pub(super) fn of(problem: &Problem<'_>, settings: Settings) -> Parameters {
        let Problem { op, shape, operands, epilogue, .. } = problem;
        let context = context(problem, epilogue, (problem.item(), settings.items), &OWN_WORDS);
        let mut functions = BTreeSet::new();
        let operands_read =
            operands.iter().map(|fusion| factor(&context, fusion, &mut functions)).collect();
        let (formula, pass) = ROLES[op.pass as usize];
        let ConvolutionShape { n, c, k, filter, response, .. } = shape;
        let (summed, meetings) = match op.pass {
            ConvolutionPass::Forward => (*c, filter),
            ConvolutionPass::BackwardData => (*k, filter),
            ConvolutionPass::BackwardFilter => (*n, response),
        };
        let wide = context.is_wide(problem.reach().max(problem.offset_max()));
        let kernel = context.kernel(&problem.passed(), &[], wide, settings.threads, &mut functions);
        Parameters {
            formula,
            listing: context.listing(operands, &op.to_string()),
            pass,
            element: op.math.dtype().register(),
            multiply_add: multiply_add(op.math),
            reversed: op.mode == ConvolutionMode::Convolution,
            spatial: spatial(problem),
            counted: counted(problem),
            summed,
            meetings: volume(meetings),
            items_are_groups: problem.item() == Item::Group,
            operands: operands_read,
            point: context.point(true),
            kernel,
            functions,
        }
    }
}

/// The names of a kernel with so many items, which has these words of its own.
pub(super) fn context<'a>(
    problem: &'a Problem<'a>,
    epilogue: &'a Fusion,
    (item, items): (Item, i64),
    own_words: &[&str],
) -> Context<'a> {
    let Problem { graph, op, .. } = problem;
    let mut identifiers = Identifiers::reserving(own_words);
    let names = names_with_positions(*graph, &mut identifiers);
    Context {
        graph: *graph,
        epilogue,
        item,
        items,
        count: "ITEMS",
        valid: "p.valid".to_owned(),
        math: op.math.dtype(),
        operation: "convolution",
        value: "sums[j]",
        identifiers,
        names,
    }
}

/// An operand as a kernel reads it.
pub(super) fn factor(
    context: &Context<'_>,
    fusion: &Fusion,
    functions: &mut BTreeSet<&'static str>,
) -> Factor {
    let shared = context.is_shared(fusion);
    Factor { operand: context.operand(fusion, &[], functions), shared, row_at_once: false }
}

/// The channels of groups, where an index counts along groups and channels.
pub(super) fn counted(problem: &Problem<'_>) -> Vec<Count> {
    let Problem { operands, epilogue, shape, .. } = problem;
    let counts = |fusion: &Fusion| {
        let along = |source: &Source| match source {
            Source::Coordinate(Some(axis)) => fusion.axes.of_tensor[*axis] == Axis::Channels,
            _ => false,
        };
        fusion.program.sources.iter().any(along)
    };
    let named = |(name, value): (&'static str, i64)| {
        let own = |fusion: &&Fusion| fusion.axes.channels == name;
        let mut all = operands.iter().chain([epilogue]).filter(own);
        all.any(counts).then_some(Count { name, value })
    };
    [("C", shape.c), ("K", shape.k)].into_iter().filter_map(named).collect()
}

fn spatial(problem: &Problem<'_>) -> Vec<Spatial> {
    let Problem { op, shape, .. } = problem;
    let count = shape.image.len();
    let [taps, responses] = ["FILTER", "RESPONSE"].map(|extent| coordinates(count, "at", extent));
    let spatial = |at: usize| Spatial {
        at,
        image: shape.image[at],
        filter: shape.filter[at],
        response: shape.response[at],
        stride: op.window.filter_strides[at],
        dilation: op.window.dilations[at],
        padding: op.window.pre_paddings[at],
        tap_of: taps[at].clone(),
        response_of: responses[at].clone(),
    };
    (0..count).map(spatial).collect()
}
