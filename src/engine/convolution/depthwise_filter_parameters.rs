//! What the templates of the depthwise engine for gradients of filters read.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::{ACCESS_BYTES_MAX, volume};
use crate::engine::convolution::depthwise_filter_schedule::{COMBINE_THREADS, Schedule};
use crate::engine::convolution::parameters::{Count, Factor, ROLES, context, counted, factor};
use crate::engine::convolution::problem::Problem;
use crate::engine::convolution::walk::{Meetings, Walk, blocks_sm};
use crate::engine::instruction::multiply_add;
use crate::engine::items::{Axes, Fusion, Item, Kernel, Point};
use crate::graph::MatmulMath;

/// Names of the kernels' own variables and functions.
const OWN_WORDS: [&str; 39] = [
    "age",
    "age_of",
    "all",
    "bottom",
    "chunk",
    "column",
    "column_of",
    "first",
    "first_chunk",
    "first_strip",
    "image",
    "is_live",
    "is_read",
    "left",
    "m",
    "meeting0",
    "meeting1",
    "next",
    "other",
    "own",
    "part",
    "partial",
    "partials",
    "phase",
    "rank",
    "read",
    "response",
    "ring",
    "shared",
    "slice",
    "strip",
    "strips",
    "sums",
    "tap",
    "tap0_of",
    "tap1_of",
    "taps",
    "top",
    "value",
];

/// Variables of `convolution/sm75_convolution_depthwise_filter.cu`.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    formula: &'static str,
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    /// Type in which operands are multiplied, which is that of sums.
    element: &'static str,
    multiply_add: &'static str,
    reductions: [&'static str; 1],
    reduces_across: bool,
    lanes: i64,
    blocks_sm: i64,
    rows: i64,
    split: i64,
    partial_access: i64,
    strip: i64,
    images: i64,
    #[serde(flatten)]
    walk: Walk,
    has_gaps: bool,
    meetings: Option<[Meetings; 2]>,
    counted: Vec<Count>,
    image: Factor,
    response: Factor,
    #[serde(flatten)]
    point: Point,
    #[serde(flatten)]
    kernel: Kernel,
}

impl Parameters {
    /// Of a kernel that takes these tensors.
    pub(super) fn of(problem: &Problem<'_>, schedule: &Schedule, passed: &[usize]) -> Parameters {
        let Problem { op, shape, operands, epilogue, .. } = problem;
        let settings = schedule.settings;
        let walk = Walk::of(problem).expect("the engine supports the graph");
        let chunks = chunks(epilogue);
        let context = context(problem, &chunks, (Item::Group, settings.items), &OWN_WORDS);
        let mut functions = BTreeSet::new();
        let [image, response] = [0, 1].map(|at| factor(&context, &operands[at], &mut functions));
        let wide = context.is_wide(most(problem, schedule));
        let kernel = context.kernel(passed, &[], wide, settings.threads, &mut functions);
        Parameters {
            formula: ROLES[op.pass as usize].0,
            listing: context.listing(operands, &op.to_string()),
            element: op.math.dtype().register(),
            multiply_add: multiply_add(op.math),
            reductions: [sum(op.math)],
            reduces_across: true,
            lanes: schedule.lanes,
            blocks_sm: blocks_sm(schedule.registers, settings.threads),
            rows: settings.rows,
            split: settings.split,
            partial_access: partial_access(problem, settings.items),
            strip: settings.strip,
            images: shape.n,
            walk,
            has_gaps: walk.has_gaps(settings.strip),
            meetings: walk.meetings(),
            counted: counted(problem),
            image,
            response,
            point: context.point(true),
            kernel,
            functions,
        }
    }
}

/// Variables of `convolution/sm75_convolution_depthwise_combine.cu`.
#[derive(Debug, Serialize)]
pub(super) struct Combine {
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    element: &'static str,
    reductions: [&'static str; 1],
    reduces_across: bool,
    split: i64,
    parts: i64,
    partial_access: i64,
    taps: [i64; 2],
    flipped: bool,
    counted: Vec<Count>,
    #[serde(flatten)]
    point: Point,
    #[serde(flatten)]
    kernel: Kernel,
}

impl Combine {
    /// Of a kernel that takes these tensors.
    pub(super) fn of(problem: &Problem<'_>, schedule: &Schedule, passed: &[usize]) -> Combine {
        let Problem { op, operands, epilogue, .. } = problem;
        let settings = schedule.settings;
        let walk = Walk::of(problem).expect("the engine supports the graph");
        let chunks = chunks(epilogue);
        let context = context(problem, &chunks, (Item::Group, settings.items), &OWN_WORDS);
        let mut functions = BTreeSet::new();
        let wide = context.is_wide(most(problem, schedule));
        let kernel = context.kernel(passed, &[], wide, COMBINE_THREADS, &mut functions);
        Combine {
            listing: context.listing(operands, &op.to_string()),
            element: op.math.dtype().register(),
            reductions: [sum(op.math)],
            reduces_across: false,
            split: settings.split,
            parts: schedule.parts(),
            partial_access: partial_access(problem, settings.items),
            taps: walk.taps,
            flipped: walk.flipped,
            counted: counted(problem),
            point: context.point(true),
            kernel,
            functions,
        }
    }
}

/// The result with all taps counted once.
fn chunks(epilogue: &Fusion) -> Fusion {
    let axes = Axes { spatial: vec![1; 2], ..epilogue.axes.clone() };
    Fusion { axes, ..epilogue.clone() }
}

/// The operator that adds up sums.
fn sum(math: MatmulMath) -> &'static str {
    if math == MatmulMath::I32 { "AddI32" } else { "Add" }
}

/// Bytes of a memory access of so many partials.
fn partial_access(problem: &Problem<'_>, items: i64) -> i64 {
    (problem.op.math.dtype().bytes() as i64 * items).min(ACCESS_BYTES_MAX)
}

/// The largest offset or coordinate of a kernel.
fn most(problem: &Problem<'_>, schedule: &Schedule) -> i64 {
    let settings = schedule.settings;
    let walk = Walk::of(problem).expect("the engine supports the graph");
    let rows = settings.rows.saturating_add(walk.ages()).saturating_mul(walk.strides[0]);
    let reach = problem.reach().saturating_add(rows.max(walk.span(settings.strip)));
    let strips = volume(&[problem.shape.n, walk.result[0], walk.result[1]]);
    let partials = volume(&[settings.split, volume(&walk.taps), schedule.chunks, settings.items]);
    reach.max(problem.offset_max()).max(strips).max(partials)
}
