//! The body of a loop as stages: operations on elements of one shape that follow the same sums.

use std::collections::HashMap;
use std::sync::Arc;

use crate::dtype::DType;
use crate::expr::{Mode, Pointwise, Program, Value};
use crate::graph::{LoopFold, LoopStage, LoopView, ReductionOp};
use crate::loops::body::Refused;
use crate::tensor::packed_strides;

/// A tensor of the body: elements of a value.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    source: Source,
    pub(super) dims: Vec<i64>,
    first: i64,
    strides: Vec<i64>,
    dtype: DType,
}

/// A value that is given to a trip, or a result of a line of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Given(usize),
    Line { stage: usize, value: Value },
}

/// A fold of terms, whose operands are tensors with strides of the stage's and its own coordinates.
pub(super) struct Terms {
    pub(super) op: ReductionOp,
    pub(super) extents: Vec<i64>,
    pub(super) term: Program,
}

/// A stage that grows.
struct Growing {
    /// How many sums are behind each other in front of it.
    depth: usize,
    extents: Vec<i64>,
    folds: Vec<(Terms, Vec<(Source, LoopView)>)>,
    operands: Vec<(Source, LoopView)>,
    /// Lines whose inputs are folds and operands, by number.
    lines: Vec<(Pointwise, Vec<Value>, DType)>,
    /// Folds and operands in the order in which lines name them.
    inputs: Vec<(Input, DType)>,
    /// The lines that something outside reads.
    outputs: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Input {
    Fold(usize),
    Operand(usize),
}

/// Stages in the order in which they were begun.
#[derive(Default)]
pub(super) struct Stages {
    growing: Vec<Growing>,
    by_shape: HashMap<(usize, Vec<i64>), usize>,
}

impl Seen {
    /// All elements of a value that a trip is given.
    pub(super) fn given(value: usize, dims: &[i64], dtype: DType) -> Seen {
        Seen::of(Source::Given(value), dims, dtype)
    }

    fn of(source: Source, dims: &[i64], dtype: DType) -> Seen {
        let strides = packed_strides(dims);
        Seen { source, dims: dims.to_vec(), first: 0, strides, dtype }
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    fn is_whole(&self) -> bool {
        self.first == 0 && self.is_packed()
    }

    /// Whether the elements are behind each other.
    fn is_packed(&self) -> bool {
        let mut axes = self.strides.iter().zip(packed_strides(&self.dims)).zip(&self.dims);
        axes.all(|((own, packed), extent)| *extent == 1 || *own == packed)
    }

    /// The same elements under other dimensions.
    pub(super) fn reshaped(&self, dims: &[i64]) -> Refused<Seen> {
        if !self.is_packed() {
            return Err("its body reshapes a part of a tensor".to_owned());
        }
        let (dims, strides) = (dims.to_vec(), packed_strides(dims));
        Ok(Seen { dims, strides, ..self.clone() })
    }

    pub(super) fn transposed(&self, permutation: &[usize]) -> Seen {
        let dims = permutation.iter().map(|axis| self.dims[*axis]).collect();
        let strides = permutation.iter().map(|axis| self.strides[*axis]).collect();
        Seen { dims, strides, ..self.clone() }
    }

    /// Some elements along each dimension: the first one, the distance of neighbours, and how many.
    pub(super) fn sliced(&self, begin: &[i64], step: &[i64], dims: &[i64]) -> Seen {
        let own = self.strides.iter().zip(begin);
        let first = self.first + own.map(|(stride, begin)| stride * begin).sum::<i64>();
        let strides = self.strides.iter().zip(step).map(|(stride, step)| stride * step).collect();
        Seen { first, dims: dims.to_vec(), strides, ..self.clone() }
    }

    /// Strides along the dimensions of a result that this is broadcast to.
    pub(super) fn broadcast(&self) -> Vec<i64> {
        let axes = self.dims.iter().zip(&self.strides);
        axes.map(|(extent, stride)| if *extent == 1 { 0 } else { *stride }).collect()
    }

    fn viewed(&self, strides: Vec<i64>) -> (Source, LoopView) {
        (self.source, LoopView { value: 0, first: self.first, strides })
    }
}

impl Stages {
    /// The stage behind which what a tensor reads is there.
    fn behind(&self, seen: &Seen) -> usize {
        match seen.source {
            Source::Given(_) => 0,
            Source::Line { stage, .. } => self.growing[stage].depth + 1,
        }
    }

    /// The stage of a shape that has this many sums in front of it.
    fn at(&mut self, depth: usize, extents: &[i64]) -> usize {
        let next = self.growing.len();
        let stage = *self.by_shape.entry((depth, extents.to_vec())).or_insert(next);
        if stage == next {
            self.growing.push(Growing {
                depth,
                extents: extents.to_vec(),
                folds: Vec::new(),
                operands: Vec::new(),
                lines: Vec::new(),
                inputs: Vec::new(),
                outputs: Vec::new(),
            });
        }
        stage
    }

    /// A pointwise operation on tensors of a shape, or that are broadcast to it.
    pub(super) fn pointwise(
        &mut self,
        op: Pointwise,
        operands: &[Seen],
        dims: &[i64],
        dtype: DType,
    ) -> Seen {
        let own = |stages: &Stages, seen: &Seen| match seen.source {
            Source::Line { stage, .. } if seen.dims == dims && seen.is_whole() => {
                stages.growing[stage].extents == dims
            }
            _ => false,
        };
        let depth = operands.iter().map(|seen| match seen.source {
            Source::Line { stage, .. } if own(self, seen) => self.growing[stage].depth,
            _ => self.behind(seen),
        });
        let stage = self.at(depth.max().unwrap_or(0), dims);
        let mut values = Vec::new();
        for seen in operands {
            let value = match seen.source {
                Source::Line { stage: of, value } if of == stage && own(self, seen) => value,
                _ => {
                    let view = self.reading(seen, seen.broadcast());
                    self.growing[stage].operand(view, seen.dtype)
                }
            };
            values.push(value);
        }
        self.line(stage, op, values, dtype)
    }

    fn line(&mut self, stage: usize, op: Pointwise, values: Vec<Value>, dtype: DType) -> Seen {
        let growing = &mut self.growing[stage];
        growing.lines.push((op, values, dtype));
        let value = Value::Result(growing.lines.len() - 1);
        Seen::of(Source::Line { stage, value }, &growing.extents, dtype)
    }

    /// A fold of terms of tensors, each with strides along the dimensions of the result, then of
    /// the terms.
    pub(super) fn fold(
        &mut self,
        terms: Terms,
        operands: &[(&Seen, Vec<i64>)],
        dims: &[i64],
    ) -> Seen {
        let depth = operands.iter().map(|(seen, _)| self.behind(seen)).max().unwrap_or(0);
        let stage = self.at(depth, dims);
        let views =
            operands.iter().map(|(seen, strides)| self.reading(seen, strides.clone())).collect();
        let dtype = terms.term.dtype(terms.term.outputs()[0]);
        let growing = &mut self.growing[stage];
        growing.folds.push((terms, views));
        growing.inputs.push((Input::Fold(growing.folds.len() - 1), dtype));
        let value = Value::Input(growing.inputs.len() - 1);
        Seen::of(Source::Line { stage, value }, dims, dtype)
    }

    /// A tensor as another stage reads it.
    fn reading(&mut self, seen: &Seen, strides: Vec<i64>) -> (Source, LoopView) {
        self.keep(seen);
        seen.viewed(strides)
    }

    /// Makes a line one that is a result of its stage.
    fn keep(&mut self, seen: &Seen) -> usize {
        let Source::Line { stage, value } = seen.source else { return 0 };
        let Value::Result(line) = value else {
            unreachable!("folds are read by a line of their stage")
        };
        let outputs = &mut self.growing[stage].outputs;
        match outputs.iter().position(|own| *own == line) {
            Some(at) => at,
            None => {
                outputs.push(line);
                outputs.len() - 1
            }
        }
    }

    /// A tensor that is a result of a stage by itself.
    pub(super) fn computed(&mut self, seen: &Seen) -> Seen {
        let is_line = matches!(seen.source, Source::Line { value: Value::Result(_), .. });
        let computed = match is_line && seen.is_whole() {
            true => seen.clone(),
            false => {
                let identity = Pointwise::new(Mode::Identity);
                let (dims, dtype) = (seen.dims.clone(), seen.dtype);
                self.pointwise(identity, std::slice::from_ref(seen), &dims, dtype)
            }
        };
        self.keep(&computed);
        computed
    }

    /// The stages, for this many given values, and the value of each of some tensors that stages
    /// compute.
    pub(super) fn finished(self, given: usize, yields: &[Seen]) -> Refused<Finished> {
        let mut order: Vec<usize> = (0..self.growing.len()).collect();
        order.retain(|stage| !self.growing[*stage].outputs.is_empty());
        order.sort_by_key(|stage| self.growing[*stage].depth);
        let mut first = HashMap::new();
        let mut next = given;
        for stage in &order {
            first.insert(*stage, next);
            next += self.growing[*stage].outputs.len();
        }
        let value = |source: Source| match source {
            Source::Given(value) => value,
            Source::Line { stage, value } => {
                let outputs = &self.growing[stage].outputs;
                let at = outputs.iter().position(|line| Value::Result(*line) == value);
                first[&stage] + at.expect("what is read is a result")
            }
        };
        let view = |(source, view): &(Source, LoopView)| LoopView {
            value: value(*source),
            ..view.clone()
        };
        let views = |all: &[(Source, LoopView)]| all.iter().map(view).collect::<Vec<LoopView>>();
        let mut stages = Vec::new();
        for (at, stage) in order.iter().enumerate() {
            let growing = &self.growing[*stage];
            let folds = growing.folds.iter().map(|(terms, operands)| LoopFold {
                op: terms.op,
                extents: terms.extents.clone(),
                operands: views(operands),
                term: Arc::new(terms.term.clone()),
            });
            stages.push(LoopStage {
                extents: growing.extents.clone(),
                folds: folds.collect(),
                operands: views(&growing.operands),
                program: Arc::new(growing.program(at)?),
            });
        }
        let yields = yields.iter().map(|seen| value(seen.source)).collect();
        Ok(Finished { stages, yields })
    }
}

/// Stages, and which of their results a trip yields.
pub(super) struct Finished {
    pub(super) stages: Vec<LoopStage>,
    pub(super) yields: Vec<usize>,
}

impl Growing {
    /// The input of a view.
    fn operand(&mut self, view: (Source, LoopView), dtype: DType) -> Value {
        let known = self.inputs.iter().position(|(input, _)| match input {
            Input::Operand(at) => self.operands[*at] == view,
            Input::Fold(_) => false,
        });
        let at = known.unwrap_or_else(|| {
            self.operands.push(view);
            self.inputs.push((Input::Operand(self.operands.len() - 1), dtype));
            self.inputs.len() - 1
        });
        Value::Input(at)
    }

    /// The program, whose inputs are the folds, then the operands. Names tell what a value is,
    /// whatever tensors are called: equal loops are equal kernels.
    fn program(&self, stage: usize) -> Refused<Program> {
        let mut program = Program::new();
        let folds = self.folds.len();
        let mut dtypes = vec![DType::F32; self.inputs.len()];
        let position = |input: &Input| match input {
            Input::Fold(at) => *at,
            Input::Operand(at) => folds + at,
        };
        for (input, dtype) in &self.inputs {
            dtypes[position(input)] = *dtype;
        }
        for (at, dtype) in dtypes.into_iter().enumerate() {
            let kind = if at < folds { "sum" } else { "element" };
            program.input(format!("{kind}{stage}_{at}"), dtype);
        }
        for (at, (op, operands, dtype)) in self.lines.iter().enumerate() {
            let operands: Vec<Value> = operands
                .iter()
                .map(|value| match value {
                    Value::Input(at) => Value::Input(position(&self.inputs[*at].0)),
                    result => *result,
                })
                .collect();
            let pushed = program.push(format!("v{stage}_{at}"), *op, &operands, *dtype);
            pushed.map_err(|error| error.to_string())?;
        }
        self.outputs.iter().for_each(|line| program.output(Value::Result(*line)));
        Ok(program)
    }
}
