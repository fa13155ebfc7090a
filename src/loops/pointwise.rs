//! Loops whose bodies are pointwise: they become one operation, in which threads go through the
//! trips.

use std::collections::HashMap;
use std::sync::Arc;

use crate::expr::{ModeClass, Pointwise, Program, Value};
use crate::graph::{Op, PointwiseLoop};
use crate::loops::body::{Refused, desc, operations};
use crate::loops::framed::Framed;
use crate::loops::layer::Loop;
use crate::loops::loop_operation::{LoopOperation, POINTWISE};
use crate::loops::network::Network;
use crate::loops::rewrite::Rewrite;

/// Rewrites a loop to a pointwise loop.
pub(super) fn pointwise(network: &Network, of: Loop) -> Refused<(Rewrite<'_>, LoopOperation)> {
    let framed = Framed::of(network, of)?;
    let mut body = Body::of(network, &framed);
    for operation in operations(network, of)? {
        let Op::Pointwise(op) = &operation.op else {
            return Err(format!("its body has {}", operation.op.name()));
        };
        if op.mode.class() == ModeClass::Index {
            return Err(format!("its body has {}", op.mode));
        }
        let operands = operation.inputs.iter().map(|uid| body.value(*uid)).collect();
        let y = operation.outputs[0];
        body.lines.push((y, *op, operands));
        body.values.insert(y, Source::Line(body.lines.len() - 1));
    }
    let next = framed.states.iter().map(|state| state.next);
    let stacked = framed.stacked.iter().map(|of| of.x);
    let yields: Vec<Source> =
        next.chain(stacked).chain(framed.condition).map(|uid| body.value(uid)).collect();
    let frame = framed.frame(body.captured.len())?;
    let mut program = body.program(&framed)?;
    yields.into_iter().for_each(|value| program.output(body.in_program(value)));
    let rank = body.rank(&framed)?;
    let op = Op::PointwiseLoop(PointwiseLoop { program: Arc::new(program), frame });
    framed.rewritten(op, &body.captured, |dims| padded(dims, rank), POINTWISE)
}

/// Dimensions with as many of 1 in front.
fn padded(dims: &[i64], rank: usize) -> Vec<i64> {
    std::iter::repeat_n(1, rank - dims.len()).chain(dims.iter().copied()).collect()
}

/// A value of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    State(usize),
    Iterated(usize),
    Captured(usize),
    Line(usize),
}

/// The body of a loop as a program, whose captured inputs are found as they are read.
struct Body<'a> {
    network: &'a Network,
    /// States and iterated values.
    given: [usize; 2],
    /// What is the same in all trips.
    captured: Vec<i64>,
    /// The result, the operation and its operands.
    lines: Vec<(i64, Pointwise, Vec<Source>)>,
    values: HashMap<i64, Source>,
}

impl<'a> Body<'a> {
    fn of(network: &'a Network, framed: &Framed<'_>) -> Body<'a> {
        let states = framed.states.iter().enumerate();
        let states = states.map(|(at, state)| (state.y, Source::State(at)));
        let iterated = framed.iterated.iter().enumerate();
        let iterated = iterated.map(|(at, of)| (of.y, Source::Iterated(at)));
        Body {
            network,
            given: [framed.states.len(), framed.iterated.len()],
            captured: Vec::new(),
            lines: Vec::new(),
            values: states.chain(iterated).collect(),
        }
    }

    /// What the program is given: kinds of values, and their tensors.
    fn inputs(&self, framed: &Framed<'_>) -> Vec<(&'static str, i64)> {
        let states = framed.states.iter().map(|state| ("state", state.y));
        let iterated = framed.iterated.iter().map(|of| ("element", of.y));
        let captured = self.captured.iter().map(|uid| ("shared", *uid));
        states.chain(iterated).chain(captured).collect()
    }

    /// The most dimensions that a value has: others have as many.
    fn rank(&self, framed: &Framed<'_>) -> Refused<usize> {
        let rank = |(_, uid): (_, i64)| Ok(desc(self.network, uid)?.dims.len());
        let ranks = self.inputs(framed).into_iter().map(rank).collect::<Refused<Vec<_>>>()?;
        Ok(ranks.into_iter().max().unwrap_or(0))
    }

    fn value(&mut self, uid: i64) -> Source {
        let (values, captured) = (&mut self.values, &mut self.captured);
        *values.entry(uid).or_insert_with(|| {
            captured.push(uid);
            Source::Captured(captured.len() - 1)
        })
    }

    fn in_program(&self, source: Source) -> Value {
        let [states, iterated] = self.given;
        match source {
            Source::State(at) => Value::Input(at),
            Source::Iterated(at) => Value::Input(states + at),
            Source::Captured(at) => Value::Input(states + iterated + at),
            Source::Line(at) => Value::Result(at),
        }
    }

    /// The program without outputs. Names tell what a value is, whatever tensors are called: equal
    /// loops are equal kernels.
    fn program(&self, framed: &Framed<'_>) -> Refused<Program> {
        let mut program = Program::new();
        for (at, (kind, uid)) in self.inputs(framed).into_iter().enumerate() {
            program.input(format!("{kind}{at}"), desc(self.network, uid)?.dtype);
        }
        for (at, (y, op, operands)) in self.lines.iter().enumerate() {
            let operands: Vec<Value> = operands.iter().map(|of| self.in_program(*of)).collect();
            let dtype = desc(self.network, *y)?.dtype;
            let pushed = program.push(format!("v{at}"), *op, &operands, dtype);
            pushed.map_err(|error| error.to_string())?;
        }
        Ok(program)
    }
}
