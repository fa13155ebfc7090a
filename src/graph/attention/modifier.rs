//! Inputs of programs over scores.

use crate::dtype::DType;
use crate::expr::{Identifiers, Input, InputKind, Instruction, Program, Value};

/// Maximum number of tensors that a program over scores may capture.
pub const CAPTURED_MAX: usize = 8;

/// Slots of captured tensors, by program name.
const CAPTURED: [(&str, [&str; CAPTURED_MAX]); 2] = [
    (
        "score",
        ["score_0", "score_1", "score_2", "score_3", "score_4", "score_5", "score_6", "score_7"],
    ),
    ("keep", ["keep_0", "keep_1", "keep_2", "keep_3", "keep_4", "keep_5", "keep_6", "keep_7"]),
];

/// Name of the score in programs.
pub(in crate::graph) const SCORE: &str = "score";

/// Names of the score's coordinates.
pub(in crate::graph) const COORDINATES: [&str; 4] = ["batch", "head", "query", "key"];

/// Source of an input of a program over scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScoreInput {
    /// The score.
    Score,
    /// A coordinate of the score: 0 batch, 1 head, 2 query, 3 key.
    Coordinate(usize),
    /// Element of this captured tensor, broadcast to the scores.
    Captured(usize),
}

/// Maps the inputs of a program over scores to their sources: the first is the score, [indices] are
/// its coordinates in [batch, head, query, key], and the remaining elements are the captured
/// tensors in order.
///
/// [indices]: crate::expr::InputKind::Index
pub fn score_inputs(program: &Program) -> Vec<ScoreInput> {
    let mut captured = 0;
    let input = |(at, input): (usize, &Input)| match input.kind {
        InputKind::Index { axis, .. } => ScoreInput::Coordinate(axis),
        InputKind::Element(_) if at == 0 => ScoreInput::Score,
        InputKind::Element(_) => {
            captured += 1;
            ScoreInput::Captured(captured - 1)
        }
        InputKind::Random(_) => unreachable!("only engines draw random numbers"),
    };
    program.inputs().iter().enumerate().map(input).collect()
}

/// Slots of the tensors that a program may capture, by program name.
pub(in crate::graph) fn captured_slots(name: &str) -> impl Iterator<Item = &'static str> {
    CAPTURED.iter().filter(move |(known, _)| *known == name).flat_map(|(_, slots)| *slots)
}

/// Whether a slot holds a captured tensor.
pub(in crate::graph) fn is_captured(slot: &str) -> bool {
    CAPTURED.iter().any(|(_, slots)| slots.contains(&slot))
}

/// Renames the inputs of a program to their sources, orders them (score, coordinates read, captured
/// tensors) and gives results unique names.
pub(in crate::graph) fn normalised(name: &str, program: &Program) -> Program {
    let slots: Vec<&str> = captured_slots(name).collect();
    let stand_for = score_inputs(program);
    let mut inputs: Vec<(ScoreInput, Input)> = Vec::new();
    for (at, (stands_for, input)) in stand_for.iter().zip(program.inputs()).enumerate() {
        let is_read = program.reads(Value::Input(at));
        if matches!(stands_for, ScoreInput::Coordinate(_)) && !is_read {
            continue;
        }
        let name = match *stands_for {
            ScoreInput::Score => SCORE,
            ScoreInput::Coordinate(axis) => COORDINATES[axis],
            ScoreInput::Captured(at) => slots[at],
        };
        inputs.push((*stands_for, Input { name: name.to_owned(), kind: input.kind }));
    }
    inputs.sort_by_key(|(stands_for, _)| *stands_for);
    inputs.dedup();
    let moved = |value: &Value| match value {
        Value::Result(_) => *value,
        Value::Input(at) => {
            let place = inputs.iter().position(|(stands_for, _)| *stands_for == stand_for[*at]);
            Value::Input(place.expect("every input is kept"))
        }
    };
    let mut names = Identifiers::new();
    for taken in [SCORE].iter().chain(&COORDINATES).chain(&slots) {
        names.fresh(taken);
    }
    let renamed = |line: &Instruction| Instruction {
        name: names.fresh(&line.name),
        operands: line.operands.iter().map(moved).collect(),
        ..line.clone()
    };
    let instructions = program.instructions().iter().map(renamed).collect();
    let outputs = program.outputs().iter().map(moved).collect();
    Program::from_parts(inputs.into_iter().map(|(_, input)| input).collect(), instructions, outputs)
}

/// Types of the tensors that a program captures.
pub(super) fn captured(program: &Program) -> impl Iterator<Item = DType> {
    program.inputs().iter().skip(1).filter_map(|input| match input.kind {
        InputKind::Element(dtype) => Some(dtype),
        InputKind::Index { .. } | InputKind::Random(_) => None,
    })
}
