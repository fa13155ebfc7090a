//! What the template of the direct engine reads.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::access::volume;
use crate::engine::items::{Context, Fusion, Item, Kernel, Load, Operand, Output, Point, distinct};
use crate::engine::resample::direct::Settings;
use crate::engine::resample::line::Line;
use crate::engine::resample::problem::Problem;
use crate::engine::signature::{kernel_parameter, names_with_positions};
use crate::expr::{Identifiers, NanPropagation};
use crate::graph::{PaddingMode, ResampleMode, ResamplePass};

/// Taps of a window at most whose loads are all in flight together.
const UNROLLED_MAX: i64 = 16;

/// Variables of `resample/sm75_resample_direct.cu`.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    formula: &'static str,
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    mode: &'static str,
    backward: bool,
    /// Whether items are columns, each with windows of its own.
    columns: bool,
    /// Whether functions compute one of them at a time.
    single: bool,
    /// Columns that are read at once, of windows next to each other; 0 where none are.
    span: i64,
    /// Type in which values are compared, and added up.
    element: &'static str,
    /// Whether padding is the nearest element, and else whether it counts.
    edge: bool,
    padding_counts: bool,
    /// Padding that counts, and the least element.
    padding_value: &'static str,
    lowest: &'static str,
    propagates: bool,
    /// Whether the offset of the tap that won is found.
    finds: bool,
    /// The offset in its window of the tap of a loop, and of that which meets an element.
    tap: String,
    own_tap: String,
    /// Whether loops over taps are unrolled.
    unrolled: bool,
    axes: Vec<Line>,
    /// Those that a loop runs over.
    loops: Vec<Line>,
    /// In front of what is inside all their loops.
    margin: String,
    readers: Vec<Reader>,
    /// What functions that read `x`, `dy`, and all that is read take of the kernel's parameters:
    /// declared, and by name.
    image_declared: String,
    image_passed: String,
    response_passed: String,
    all_declared: String,
    all_passed: String,
    /// The spatial dimension of a thread's columns.
    item_axis: Option<usize>,
    index_name: String,
    index_output: Option<Output>,
    index_load: Option<Load>,
    #[serde(flatten)]
    point: Point,
    #[serde(flatten)]
    kernel: Kernel,
}

/// The function that reads an operand.
#[derive(Debug, Serialize)]
struct Reader {
    operand: Operand,
    /// What it takes of the kernel's parameters.
    declared: String,
}

/// Names of a kernel's own variables and functions.
fn own_words(axes: usize) -> Vec<String> {
    let words = [
        "best",
        "element",
        "gradient",
        "greatest",
        "met",
        "resampled",
        "share",
        "sum",
        "take",
        "tap",
        "values",
        "weight",
        "winner",
        "taps",
        "won",
        "load_image",
        "load_response",
        "value",
    ];
    let numbered = [
        "at", "begin", "end", "far", "first", "from", "image", "inside", "near", "own", "part",
        "response", "start", "tap", "to",
    ];
    let along = |at: usize| numbered.map(|word| format!("{word}{at}"));
    let words = words.map(str::to_owned).into_iter();
    words.chain((0..axes).flat_map(along)).collect()
}

/// What is computed, in words.
fn formula(mode: ResampleMode, backward: bool) -> &'static str {
    match (mode, backward) {
        (ResampleMode::Nearest, false) => "y[o] = x[i], i the element nearest to the position of o",
        (ResampleMode::Nearest, true) => "dx[i] = sum of dy[o] whose position i is nearest to",
        (ResampleMode::Bilinear, false) => {
            "y[o] = x between the two elements around the position of o"
        }
        (ResampleMode::Bilinear, true) => "dx[i] = sum of the weight of x[i] in y[o], times dy[o]",
        (ResampleMode::AveragePoolIncludePadding, false) => "y[o] = mean of the window of o",
        (ResampleMode::AveragePoolExcludePadding, false) => {
            "y[o] = mean of the elements of x in the window of o"
        }
        (ResampleMode::MaxPool, false) => "y[o] = greatest of the window of o",
        (ResampleMode::MaxPool, true) => "dx[i] = sum of dy[o] in whose window x[i] won",
        (_, true) => "dx[i] = sum of the shares of x[i] in y[o], times dy[o]",
    }
}

impl Parameters {
    pub(super) fn of(problem: &Problem<'_>, settings: Settings) -> Parameters {
        let Problem { graph, op, lines, operands, index, epilogue } = problem;
        let mut identifiers = Identifiers::reserving(&own_words(lines.len()));
        let names = names_with_positions(*graph, &mut identifiers);
        let item = problem.item();
        let context = Context {
            graph: *graph,
            epilogue,
            item,
            items: settings.items,
            count: "ITEMS",
            valid: "p.valid".to_owned(),
            math: op.math.dtype(),
            operation: "resampling",
            value: "values[j]",
            identifiers,
            names,
        };
        let span = problem.span(settings.items);
        let reading = match item {
            Item::Spatial(at) if span > 0 => Context {
                item: Item::Columns(at),
                items: span,
                count: "SPAN",
                valid: format!("int(p.valid * WINDOW{at})"),
                ..context.clone()
            },
            _ => context.clone(),
        };
        let looped = lines.len() - usize::from(span > 0);
        let mut functions = BTreeSet::new();
        let backward = op.pass == ResamplePass::Backward;
        let beside = |at: usize| index.filter(|_| backward && at == 0);
        let readers = operands.iter().enumerate().map(|(at, fusion)| {
            let beside: Vec<usize> = beside(at).into_iter().collect();
            reader(&reading, fusion, &beside, &mut functions)
        });
        let readers: Vec<Reader> = readers.collect();
        let passed_by = |fusions: &[Fusion], index: Option<usize>| {
            let once = distinct(fusions.iter().flat_map(Fusion::inputs).chain(index));
            let declared = once.iter().map(|at| kernel_parameter(*graph, *at, &context.names[*at]));
            let named = once.iter().map(|at| context.names[*at].clone());
            [declared.collect::<Vec<_>>(), named.collect()].map(|of| of.join(", "))
        };
        let image = operands.iter().position(|fusion| fusion.name == "image");
        let image = image.map_or(&[][..], |at| &operands[at..=at]);
        let response = if backward { &operands[..1] } else { &[] };
        let [image_declared, image_passed] = passed_by(image, None);
        let [_, response_passed] = passed_by(response, None);
        let read = index.filter(|_| backward);
        let [all_declared, all_passed] = passed_by(operands, read);
        let kernel = context.kernel(
            &problem.passed(),
            &index.filter(|_| !backward).into_iter().collect::<Vec<_>>(),
            context.is_wide(problem.reach()),
            settings.threads,
            &mut functions,
        );
        let integers = op.math.dtype() == DType::I32;
        let excluded = op.mode == ResampleMode::AveragePoolExcludePadding;
        let negative = op.padding == PaddingMode::NegativeInfinity;
        // What is added up does not change by zeros, nor the greatest by the least.
        let padding_counts = !backward_sum(op.mode, backward)
            && match op.mode {
                ResampleMode::MaxPool => !negative,
                ResampleMode::AveragePoolExcludePadding => false,
                _ => negative,
            };
        let windows: Vec<i64> = lines.iter().map(|line| line.window).collect();
        let lowest = if integers { "int(0x80000000)" } else { "-op::infinity<Element>()" };
        let winners = index.as_ref();
        Parameters {
            formula: formula(op.mode, backward),
            listing: context.listing(operands, &op.to_string()),
            mode: op.mode.name(),
            backward,
            columns: matches!(item, Item::Spatial(_)),
            single: matches!(item, Item::Spatial(_)) && span == 0,
            span,
            element: op.math.dtype().register(),
            edge: op.padding == PaddingMode::Edge && !excluded,
            padding_counts,
            padding_value: if negative { lowest } else { "0" },
            lowest,
            propagates: op.nan == NanPropagation::Propagate && !integers,
            finds: op.index || op.reads_image(),
            tap: offset(lines, |line| match span > 0 && line.at == looped {
                true => format!("j % WINDOW{}", line.at),
                false => format!("tap{}", line.at),
            }),
            own_tap: offset(lines, |line| format!("(at{0} - first{0})", line.at)),
            unrolled: volume(&windows) <= UNROLLED_MAX,
            axes: lines.clone(),
            loops: lines[..looped].to_vec(),
            margin: " ".repeat(4 * (looped + 1)),
            readers,
            image_declared,
            image_passed,
            response_passed,
            all_declared,
            all_passed,
            item_axis: match item {
                Item::Spatial(at) => Some(at),
                _ => None,
            },
            index_name: winners.map_or(String::new(), |at| context.names[*at].clone()),
            index_output: winners.filter(|_| !backward).map(|at| context.output(*at, "int")),
            index_load: winners.filter(|_| backward).map(|at| context.load(&operands[0], *at)),
            point: context.point(false),
            kernel,
            functions,
        }
    }
}

/// The offset of a tap in its window, row by row.
fn offset(lines: &[Line], tap: impl Fn(&Line) -> String) -> String {
    let mut offset = String::new();
    for (number, line) in lines.iter().enumerate() {
        offset = match number {
            0 => tap(line),
            1 => format!("{offset} * WINDOW{} + {}", line.at, tap(line)),
            _ => format!("({offset}) * WINDOW{} + {}", line.at, tap(line)),
        };
    }
    offset
}

/// Whether padding has no gradient, and nothing else is asked of it.
fn backward_sum(mode: ResampleMode, backward: bool) -> bool {
    backward && mode != ResampleMode::MaxPool
}

fn reader(
    context: &Context<'_>,
    fusion: &Fusion,
    beside: &[usize],
    functions: &mut BTreeSet<&'static str>,
) -> Reader {
    let inputs: Vec<usize> = fusion.inputs().collect();
    let declared = |at: &usize| kernel_parameter(context.graph, *at, &context.names[*at]);
    Reader {
        operand: context.operand(fusion, beside, functions),
        declared: inputs.iter().map(declared).collect::<Vec<_>>().join(", "),
    }
}
