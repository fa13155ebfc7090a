//! The function of a stage: what it reads, its terms and results.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::reduce::op_name;
use crate::engine::resident_loop::layout::{Constant, Constants, located};
use crate::engine::resident_loop::problem::Problem;
use crate::engine::signature::{Indent, Width, ctype, distinct, list};
use crate::expr::{EmittedProgram, Identifiers, Math, Mode, Pointwise, Program, Value};
use crate::graph::{LoopFold, LoopStage, LoopView, Reduction};

/// Lanes that share the terms of an element, if they do.
const LANES: i64 = 32;

/// Names of all values, and what the functions of stages use.
pub(super) struct Values {
    /// Of the tensors that the kernel takes, by position.
    pub(super) tensors: Vec<String>,
    /// Pointers to the values of a trip.
    pub(super) names: Vec<String>,
    /// Pointers to where values of a trip are stacked; null where there is no room.
    pub(super) stacked: Vec<String>,
    pub(super) functions: BTreeSet<&'static str>,
    pub(super) reductions: BTreeSet<&'static str>,
}

impl Values {
    pub(super) fn of(
        problem: &Problem<'_>,
        tensors: &[String],
        identifiers: &mut Identifiers,
    ) -> Values {
        let (op, frame) = (problem.op, &problem.op.frame);
        let mut names: Vec<String> = Vec::new();
        names.extend((0..frame.states).map(|_| identifiers.fresh("state")));
        names.extend(frame.iterated.iter().map(|_| identifiers.fresh("iterated")));
        let captured = &problem.tensors.operands()[names.len()..];
        names.extend(captured.iter().map(|at| tensors[*at].clone()));
        for program in op.stages.iter().map(|stage| &stage.program) {
            let results = program.outputs().iter().map(|value| program.name(*value));
            names.extend(results.map(|name| identifiers.fresh(&format!("{name}_values"))));
        }
        let stacked = problem.tensors.stacked();
        let stacked = stacked.iter().map(|at| identifiers.fresh(&format!("{}_row", tensors[*at])));
        Values {
            tensors: tensors.to_vec(),
            names,
            stacked: stacked.collect(),
            functions: BTreeSet::new(),
            reductions: BTreeSet::new(),
        }
    }
}

/// A stage in the template.
#[derive(Debug, Serialize)]
pub(super) struct Stage {
    elements: i64,
    lanes: i64,
    /// Numbers in the expressions of coordinates and reads.
    constants: Vec<Constant>,
    /// Coordinates of an element that something depends on, with their expressions.
    coordinates: Vec<[String; 2]>,
    folds: Vec<Fold>,
    reads: Vec<Read>,
    lines: Vec<String>,
    results: Vec<StageResult>,
    parameters: String,
    arguments: String,
}

#[derive(Debug, Serialize)]
struct Fold {
    name: String,
    ctype: &'static str,
    op: &'static str,
    terms: i64,
    constants: Vec<Constant>,
    coordinates: Vec<[String; 2]>,
    reads: Vec<Read>,
    /// The factors of a term that is a product, which is added without being rounded.
    factors: Option<[String; 2]>,
    term: String,
    term_type: &'static str,
    lines: Vec<String>,
}

/// An element of a value.
#[derive(Debug, Serialize)]
struct Read {
    name: String,
    register: &'static str,
    from: String,
}

#[derive(Debug, Serialize)]
struct StageResult {
    name: String,
    register: &'static str,
    /// Where the result is stored: pointers and offsets of the element.
    kept: Option<String>,
    stacked: Vec<[String; 2]>,
}

impl Stage {
    pub(super) fn of(
        problem: &Problem<'_>,
        at: usize,
        values: &mut Values,
        identifiers: &Identifiers,
    ) -> Stage {
        // Each function has names of its own.
        let identifiers = &mut identifiers.clone();
        let stage = &problem.op.stages[at];
        let first = problem.op.first_results()[at];
        let writer = Writer { problem, stage };
        let lanes = if shares_terms(stage) { LANES } else { 1 };
        let mut folded = Vec::new();
        for fold in &stage.folds {
            folded.push(writer.fold(fold, values, identifiers));
        }
        let program = stage.program.simplified();
        let inputs = program.inputs().iter().map(|input| identifiers.fresh(&input.name));
        let inputs: Vec<String> = inputs.collect();
        let outputs = program.outputs().iter().map(|value| program.name(*value));
        let outputs: Vec<String> =
            outputs.map(|name| identifiers.fresh(&format!("{name}_out"))).collect();
        let mut own: Vec<String> = folded.iter().map(|fold| fold.name.clone()).collect();
        own.extend(inputs[folded.len()..].iter().cloned());
        let emitted = program.emit(&own, &outputs, identifiers);
        values.functions.extend(emitted.functions.iter().copied());
        let operands = stage.operands.iter().zip(&own[folded.len()..]).enumerate();
        let mut constants = Constants::default();
        let reads = operands
            .map(|(at, (view, name))| {
                let register = emitted.input_types[folded.len() + at];
                let numbers = Numbers { of: at, terms: &[], constants: &mut constants };
                writer.read(view, name, register, values, numbers)
            })
            .collect();
        let results = writer.results(first, &outputs, &emitted, values);
        let used = |axis: usize| stage.views().any(|view| view.strides[axis] != 0);
        let coordinates = coordinates("i", "at", &stage.extents, used, &mut constants);
        let (parameters, arguments) = writer.signature(first, values);
        Stage {
            elements: stage.elements(),
            lanes,
            constants: constants.finish(),
            coordinates,
            folds: folded,
            reads,
            lines: emitted.lines,
            results,
            parameters,
            arguments,
        }
    }
}

struct Writer<'a> {
    problem: &'a Problem<'a>,
    stage: &'a LoopStage,
}

impl Writer<'_> {
    fn fold(&self, fold: &LoopFold, values: &mut Values, identifiers: &mut Identifiers) -> Fold {
        let math = match fold.dtype() {
            DType::I32 => Math::I32,
            DType::F64 => Math::F64,
            _ => Math::F32,
        };
        let op = op_name(Reduction { op: fold.op, math });
        values.reductions.insert(op);
        let program: Program = fold.term.simplified();
        let inputs = program.inputs().iter().map(|input| identifiers.fresh(&input.name));
        let inputs: Vec<String> = inputs.collect();
        let name = identifiers.fresh(fold.op.name());
        let term = identifiers.fresh(&format!("{name}_term"));
        let emitted = program.emit(&inputs, std::slice::from_ref(&term), identifiers);
        values.functions.extend(emitted.functions.iter().copied());
        let factors = factors(&program, &inputs, op, math);
        let rank = self.stage.extents.len();
        let used = |axis: usize| fold.operands.iter().any(|of| of.strides[rank + axis] != 0);
        let mut constants = Constants::default();
        let reads = fold.operands.iter().zip(&inputs).zip(&emitted.input_types).enumerate();
        let reads = reads
            .map(|(of, ((view, name), register))| {
                let numbers = Numbers { of, terms: &fold.extents, constants: &mut constants };
                self.read(view, name, register, values, numbers)
            })
            .collect();
        let coordinates = coordinates("k", "term", &fold.extents, used, &mut constants);
        Fold {
            name,
            ctype: math.dtype().register(),
            op,
            terms: fold.terms(),
            constants: constants.finish(),
            coordinates,
            reads,
            factors,
            term,
            term_type: emitted.outputs[0].ctype,
            lines: emitted.lines,
        }
    }

    /// The element of a view, by coordinates of the stage and of a term.
    fn read(
        &self,
        view: &LoopView,
        name: &str,
        register: &'static str,
        values: &Values,
        numbers: Numbers<'_>,
    ) -> Read {
        let (problem, pointer) = (self.problem, &values.names[view.value]);
        let from = match self.tensor_of(view.value) {
            Some((at, _)) if problem.tensor(at).by_value => format!("{register}({pointer})"),
            tensor => {
                let position = position(view, &self.stage.extents, numbers);
                let offset = match tensor {
                    Some((at, leading)) => {
                        located(problem.tensor(at), leading, &values.tensors[at], &position)
                    }
                    None => position,
                };
                match offset.as_str() {
                    "0" => format!("element({pointer})"),
                    offset => format!("element({pointer} + {offset})"),
                }
            }
        };
        Read { name: name.to_owned(), register, from }
    }

    /// The tensor that a value is of, with its leading dimensions; none for states, which are
    /// packed, and results.
    fn tensor_of(&self, value: usize) -> Option<(usize, usize)> {
        let frame = &self.problem.op.frame;
        let given = frame.states..frame.given();
        given
            .contains(&value)
            .then(|| (self.problem.tensors.operands()[value], frame.leading(value)))
    }

    fn results(
        &self,
        first: usize,
        outputs: &[String],
        emitted: &EmittedProgram,
        values: &Values,
    ) -> Vec<StageResult> {
        let of = |(at, name): (usize, &String)| {
            let value = first + at;
            let stacked = self.stacked_of(value).into_iter().map(|of| {
                let tensor = self.problem.tensors.stacked()[of];
                let desc = self.problem.tensor(tensor);
                let offset = located(desc, 1, &values.tensors[tensor], "at");
                [values.stacked[of].clone(), offset]
            });
            StageResult {
                name: name.clone(),
                register: emitted.outputs[at].ctype,
                kept: self.problem.kept[value].map(|_| values.names[value].clone()),
                stacked: stacked.collect(),
            }
        };
        outputs.iter().enumerate().map(of).collect()
    }

    /// What stacks a value.
    fn stacked_of(&self, value: usize) -> Vec<usize> {
        let frame = &self.problem.op.frame;
        let yields = self.problem.op.yields[frame.states..].iter().take(frame.stacked.len());
        yields.enumerate().filter(|(_, of)| **of == value).map(|(at, _)| at).collect()
    }

    /// Parameters and arguments of the stage's function.
    fn signature(&self, first: usize, values: &Values) -> (String, String) {
        let problem = self.problem;
        let own = first..first + self.stage.program.outputs().len();
        let mut parameters = Vec::new();
        let mut arguments = Vec::new();
        for value in distinct(self.stage.views().map(|view| view.value)) {
            let (name, dtype) = (&values.names[value], problem.values[value].dtype);
            let tensor = self.tensor_of(value).map(|(at, _)| problem.tensor(at));
            parameters.push(match tensor.is_some_and(|of| of.by_value) {
                true => format!("const double {name}"),
                false => format!("const {}* {name}", ctype(dtype)),
            });
            arguments.push(name.clone());
        }
        for value in own {
            let ctype = ctype(problem.values[value].dtype);
            if problem.kept[value].is_some() {
                parameters.push(format!("{ctype}* {}", values.names[value]));
                arguments.push(values.names[value].clone());
            }
            for of in self.stacked_of(value) {
                parameters.push(format!("{ctype}* {}", values.stacked[of]));
                arguments.push(values.stacked[of].clone());
            }
        }
        (list(&parameters, Indent(8), Width(70)), list(&arguments, Indent(12), Width(75)))
    }
}

/// What the numbers of an operand's position are called, and the extents of terms that it has.
struct Numbers<'a> {
    of: usize,
    terms: &'a [i64],
    constants: &'a mut Constants,
}

/// Whether lanes of a warp share the terms of a fold: neighbours among them are neighbours in
/// memory, and those among elements are not.
fn shares_terms(stage: &LoopStage) -> bool {
    let rank = stage.extents.len();
    stage.folds.iter().any(|fold| {
        let neighbours = |view: &&LoopView| {
            let inner = |strides: &[i64]| strides.last().copied();
            inner(&view.strides[rank..]) == Some(1) && inner(&view.strides[..rank]) != Some(1)
        };
        fold.terms() >= LANES && fold.operands.iter().any(|view| neighbours(&view))
    })
}

/// The factors of a term of a sum that is a product in the sum's precision.
fn factors(program: &Program, inputs: &[String], op: &str, math: Math) -> Option<[String; 2]> {
    let [line] = program.instructions() else { return None };
    let is_product = line.op == Pointwise { math, ..Pointwise::new(Mode::Mul) };
    if op != "Add" || !is_product || line.dtype != math.dtype() {
        return None;
    }
    let own = math.dtype().register();
    let factor = |value: &Value| match value {
        Value::Input(at) if program.dtype(*value).register() == own => Some(inputs[*at].clone()),
        Value::Input(at) => Some(format!("{own}({})", inputs[*at])),
        Value::Result(_) => None,
    };
    Some([factor(&line.operands[0])?, factor(&line.operands[1])?])
}

/// The position of a view's element as an expression of coordinates.
fn position(view: &LoopView, extents: &[i64], numbers: Numbers<'_>) -> String {
    let Numbers { of, terms, constants } = numbers;
    let name = format!("OPERAND{of}");
    let stage = extents.iter().enumerate().map(|(axis, extent)| (format!("i{axis}"), extent));
    let terms = terms.iter().enumerate().map(|(axis, extent)| (format!("k{axis}"), extent));
    let mut sum = Vec::new();
    for ((coordinate, extent), stride) in stage.chain(terms).zip(&view.strides) {
        if *extent != 1 && *stride != 0 {
            sum.push(constants.times(&coordinate, &format!("{name}_{coordinate}"), *stride));
        }
    }
    if view.first != 0 {
        sum.push(constants.named(&format!("{name}_FIRST"), view.first));
    }
    if sum.is_empty() { "0".to_owned() } else { sum.join(" + ") }
}

/// Coordinates that are used, with their expressions of a position.
fn coordinates(
    prefix: &str,
    position: &str,
    extents: &[i64],
    used: impl Fn(usize) -> bool,
    constants: &mut Constants,
) -> Vec<[String; 2]> {
    let used = (0..extents.len()).filter(|axis| extents[*axis] != 1 && used(*axis));
    let coordinate = |axis: usize| {
        let name = format!("{prefix}{axis}");
        let text = constants.coordinate(position, extents, axis, &name);
        [name, text]
    };
    used.map(coordinate).collect()
}
