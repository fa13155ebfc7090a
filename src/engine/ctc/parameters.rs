//! What the template of CTC losses reads.

use serde::Serialize;

use crate::engine::ctc::problem::Problem;
use crate::engine::ctc::schedule::Schedule;
use crate::engine::signature::{Indent, Width, ctype, kernel_parameter, list};
use crate::expr::Identifiers;

/// Names of the kernel's own variables and functions.
const OWN_WORDS: [&str; 36] = [
    "at",
    "at_blank",
    "at_own",
    "backwards",
    "barrier",
    "before",
    "behind",
    "blank",
    "classes",
    "count",
    "direction",
    "ends",
    "equal",
    "first",
    "from",
    "has_label",
    "infinite",
    "infinity",
    "kept",
    "label",
    "lane",
    "last",
    "lattice",
    "logarithm",
    "memory",
    "most",
    "n",
    "next",
    "none",
    "own",
    "pair",
    "power",
    "steps",
    "to",
    "valid",
    "warp",
];

/// More of them.
const MORE_WORDS: [&str; 14] = [
    "j",
    "k",
    "i",
    "t",
    "skips",
    "states",
    "step",
    "sum",
    "through",
    "to_blank",
    "to_own",
    "total",
    "warps",
    "workspace",
];

/// Variables of `ctc/sm75_ctc_loss.cu`.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    listing: Vec<String>,
    real: &'static str,
    input: &'static str,
    infinite: &'static str,
    wide: bool,
    /// Whether the lattice is in shared memory.
    shared: bool,
    /// Whether a direction has several warps.
    chained: bool,
    /// Whether labels of all sequences lie one behind the other.
    concatenated: bool,
    threads: i64,
    steps: i64,
    classes: i64,
    blank: i64,
    labels_max: i64,
    /// Of all sequences; 0 where they are not concatenated, or nothing bounds them.
    all_labels: i64,
    x: Named,
    labels: Named,
    label_lengths: Named,
    input_lengths: Named,
    loss: Named,
    dx_before: Option<Named>,
    dx: Option<Named>,
    tensors: Vec<Layout>,
    kernel_parameters: String,
}

/// A tensor as the kernel names it.
#[derive(Debug, Clone, Serialize)]
struct Named {
    name: String,
    ctype: &'static str,
}

/// Where its elements are.
#[derive(Debug, Serialize)]
struct Layout {
    name: String,
    text: String,
    axes: Vec<Axis>,
}

#[derive(Debug, Serialize)]
struct Axis {
    /// Of the stride, and of the index.
    name: &'static str,
    index: &'static str,
    stride: i64,
}

/// What the axes of a slot's tensor count.
fn axes(slot: &str, rank: usize) -> &'static [(&'static str, &'static str)] {
    match (slot, rank) {
        ("labels", 1) => &[("LABEL", "j")],
        ("labels", _) => &[("SEQUENCE", "n"), ("LABEL", "j")],
        (_, 1) => &[("SEQUENCE", "n")],
        _ => &[("STEP", "t"), ("SEQUENCE", "n"), ("CLASS", "k")],
    }
}

impl Parameters {
    pub(super) fn of(problem: &Problem<'_>, schedule: &Schedule) -> Parameters {
        let Problem { graph, op, steps, classes, .. } = problem;
        let mut identifiers = Identifiers::reserving(&[&OWN_WORDS[..], &MORE_WORDS[..]].concat());
        let mut names = vec![String::new(); graph.tensors.len()];
        for slot in problem.slots() {
            let at = problem.at(slot).expect("the slot is the operation's");
            if names[at].is_empty() {
                names[at] = identifiers.fresh(&graph.tensors[at].name);
            }
        }
        let named = |slot: &str| {
            let at = problem.at(slot)?;
            Some(Named { name: names[at].clone(), ctype: ctype(graph.tensors[at].dtype) })
        };
        let every = |slot: &str| named(slot).expect("every loss has it");
        let layout = |slot: &str| {
            let tensor = &graph.tensors[problem.at(slot)?];
            let strides = axes(slot, tensor.dims.len()).iter().zip(&tensor.strides);
            let axis = |((name, index), stride): (&(&'static str, &'static str), &i64)| Axis {
                name,
                index,
                stride: *stride,
            };
            let axes = strides.map(axis).collect();
            Some(Layout { name: named(slot)?.name, text: tensor.to_string(), axes })
        };
        let mut tensors: Vec<Layout> = problem.slots().filter_map(layout).collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        tensors.dedup_by(|a, b| a.name == b.name);
        let parameter = |at: usize| kernel_parameter(*graph, at, &names[at]);
        let passed = schedule.passed(problem).into_iter().map(parameter);
        let real = ctype(op.math.dtype());
        let workspace = (!schedule.is_shared()).then(|| format!("{real}* workspace"));
        let kernel_parameters: Vec<String> = passed.chain(workspace).collect();
        let labels = problem.tensor("labels");
        let concatenated = labels.dims.len() == 1;
        Parameters {
            listing: vec![op.to_string()],
            real,
            input: op.input.name(),
            infinite: op.infinite.name(),
            wide: problem.is_wide(!schedule.is_shared()),
            shared: schedule.is_shared(),
            chained: schedule.chain > 32,
            concatenated,
            threads: schedule.settings.threads,
            steps: *steps,
            classes: *classes,
            blank: op.blank,
            labels_max: op.label_length_max,
            all_labels: if concatenated { labels.dims[0].min(i32::MAX.into()) } else { 0 },
            x: every("x"),
            labels: every("labels"),
            label_lengths: every("label_lengths"),
            input_lengths: every("input_lengths"),
            loss: every("loss"),
            dx_before: named("dx_before"),
            dx: named("dx"),
            tensors,
            kernel_parameters: list(&kernel_parameters, Indent(4), Width(0)),
        }
    }
}
