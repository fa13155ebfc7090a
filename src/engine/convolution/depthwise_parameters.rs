//! What the template of the depthwise engine reads.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::{ceil_div, volume};
use crate::engine::convolution::depthwise::Settings;
use crate::engine::convolution::parameters::{Count, Factor, ROLES, context, counted, factor};
use crate::engine::convolution::problem::Problem;
use crate::engine::convolution::walk::{Meetings, Walk, blocks_sm};
use crate::engine::instruction::multiply_add;
use crate::engine::items::{Axes, Fusion, Kernel, Point};

/// Names of a kernel's own variables and functions.
const OWN_WORDS: [&str; 29] = [
    "age",
    "age_of",
    "all",
    "column",
    "column_of",
    "done",
    "filter",
    "first",
    "image",
    "inside",
    "is_read",
    "left",
    "m",
    "meeting0",
    "meeting1",
    "phase",
    "read",
    "response",
    "ring",
    "row",
    "step",
    "strip",
    "sums",
    "tap0_of",
    "tap1_of",
    "taps",
    "top",
    "value",
    "wide",
];

impl Settings {
    /// The result with strips in the place of rows and columns.
    pub(super) fn strips(&self, walk: &Walk, axes: &Axes) -> Axes {
        let [rows, columns] = walk.walked();
        let spatial = vec![ceil_div(rows, self.rows), ceil_div(columns, self.strip)];
        Axes { spatial, ..axes.clone() }
    }
}

/// Variables of `convolution/sm75_convolution_depthwise.cu`, and of the kernel of spread walks.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    formula: &'static str,
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    /// Type in which operands are multiplied, which is that of sums.
    element: &'static str,
    multiply_add: &'static str,
    /// In a walk that is not spread: the code of others becomes longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks_sm: Option<i64>,
    rows: i64,
    strip: i64,
    #[serde(flatten)]
    walk: Walk,
    summed: i64,
    /// Whether some columns that a strip covers belong to no tap, in a walk that is not spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_gaps: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meetings: Option<[Meetings; 2]>,
    counted: Vec<Count>,
    source: Factor,
    filter: Factor,
    #[serde(flatten)]
    point: Point,
    #[serde(flatten)]
    kernel: Kernel,
}

impl Parameters {
    /// Of a kernel whose threads are expected to take so many registers.
    pub(super) fn of(problem: &Problem<'_>, settings: Settings, registers: i64) -> Parameters {
        let Problem { op, operands, epilogue, .. } = problem;
        let walk = Walk::of(problem).expect("the engine supports the graph");
        let strips = Fusion { axes: settings.strips(&walk, &epilogue.axes), ..epilogue.clone() };
        let context = context(problem, &strips, (problem.item(), settings.items), &OWN_WORDS);
        let mut functions = BTreeSet::new();
        let mut source = factor(&context, &operands[walk.source], &mut functions);
        source.row_at_once = walk.summed == 1 && !walk.spread;
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
            blocks_sm: (!walk.spread).then(|| blocks_sm(registers, settings.threads)),
            rows: settings.rows,
            strip: settings.strip,
            walk,
            summed: walk.summed,
            has_gaps: (!walk.spread).then(|| walk.has_gaps(settings.strip)),
            meetings: walk.meetings(),
            counted: counted(problem),
            source,
            filter,
            point: context.point(true),
            kernel,
            functions,
        }
    }
}
