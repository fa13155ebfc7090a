//! Loops whose bodies are pointwise: they become one operation, in which threads go through the
//! trips.

use std::collections::HashMap;
use std::sync::Arc;

use crate::dtype::DType;
use crate::expr::{ModeClass, Pointwise, Program, Value};
use crate::graph::{LOOP_TENSORS_MAX, Op, PointwiseLoop};
use crate::loops::body::{Recurrence, Refused, desc, operations, recurrences, room};
use crate::loops::layer::{Layer, Loop, LoopOutput, TripLimit};
use crate::loops::loop_operation::{LoopOperation, POINTWISE};
use crate::loops::network::Network;
use crate::loops::rewrite::Rewrite;
use crate::tensor::TensorDesc;

/// Rewrites a loop to a pointwise loop.
pub(super) fn pointwise(network: &Network, of: Loop) -> Refused<(Rewrite<'_>, LoopOperation)> {
    let (count, condition) =
        (network.limit(of, TripLimit::Count), network.limit(of, TripLimit::While));
    let (extent, length) = room(network, of);
    if extent == 0 || length == 0 {
        return Err("it has room for no trip".to_owned());
    }
    let mut body = Body::of(network, of)?;
    for operation in operations(network, of)? {
        let Op::Pointwise(op) = &operation.op else {
            return Err(format!("its body has {}", operation.op.name()));
        };
        if op.mode.class() == ModeClass::Index {
            return Err(format!("its body has {}", op.mode));
        }
        let operands =
            operation.inputs.iter().map(|uid| body.value(*uid)).collect::<Refused<Vec<_>>>()?;
        let y = operation.outputs[0];
        body.lines.push((y, *op, operands));
        body.values.insert(y, Source::Line(body.lines.len() - 1));
    }
    let mut stacked = Vec::new();
    for layer in network.boundaries(of) {
        if let Layer::LoopOutput { output, x, y, .. } = layer
            && output.concatenated().is_some()
        {
            let reverse = matches!(output, LoopOutput::Reverse { .. });
            if reverse && condition.is_some() {
                let name = network.reference(*y);
                return Err(format!("`{name}` begins with the last trip, which it finds last"));
            }
            stacked.push((*y, *output, reverse, body.value(*x)?));
        }
    }
    let next: Vec<i64> = body.states.iter().map(|state| state.next).collect();
    let next = next.into_iter().map(|uid| body.value(uid)).collect::<Refused<Vec<_>>>()?;
    let condition = condition.map(|uid| body.value(uid)).transpose()?;
    let counts = [body.states.len(), body.iterated.len(), body.captured.len(), stacked.len()];
    if let Some(most) = counts.into_iter().max().filter(|count| *count > LOOP_TENSORS_MAX) {
        return Err(format!("it has {most} tensors of a kind, at most {LOOP_TENSORS_MAX} are"));
    }
    let mut program = body.program()?;
    let results = next.into_iter().chain(stacked.iter().map(|of| of.3)).chain(condition);
    results.for_each(|value| program.output(body.in_program(value)));
    let last = |y: &i64| {
        network.boundaries(of).find_map(|layer| match layer {
            Layer::LoopOutput { output: LoopOutput::LastValue, x, y: own, .. } if x == y => {
                Some(*own)
            }
            _ => None,
        })
    };
    let finals: Vec<Option<i64>> = body.states.iter().map(|state| last(&state.y)).collect();
    let handed = network
        .boundaries(of)
        .filter(|layer| matches!(layer, Layer::LoopOutput { output: LoopOutput::LastValue, .. }));
    if handed.count() > finals.iter().flatten().count() {
        return Err("the last value of a recurrence is handed out twice".to_owned());
    }
    let op = PointwiseLoop {
        program: Arc::new(program),
        states: body.states.len(),
        iterated: body.iterated.iter().map(|of| of.reverse).collect(),
        captured: body.captured.len(),
        last: finals.iter().map(Option::is_some).collect(),
        stacked: stacked.iter().map(|of| of.2).collect(),
        count: count.is_some(),
        condition: condition.is_some(),
        trips_max: condition.map_or(0, |_| network.descriptor(of).trips_max),
    };
    if op.trips_max >= i64::from(i32::MAX) {
        return Err(format!("{} trips may be made", op.trips_max));
    }
    let mut rewrite = Rewrite::without(network, of);
    let rank = body.rank()?;
    let mut inputs: Vec<i64> = count.into_iter().collect();
    for state in &body.states {
        let dims = padded(&body.desc(state.y)?.dims, rank);
        inputs.push(rewrite.reshaped(state.initial, &dims));
    }
    for Iterated { x, axis, y, .. } in &body.iterated {
        let led = rewrite.led_by(*x, *axis);
        let trips = rewrite.desc(led).dims[0];
        let element = padded(&body.desc(*y)?.dims, rank);
        let dims: Vec<i64> = std::iter::once(trips).chain(element).collect();
        inputs.push(rewrite.reshaped(led, &dims));
    }
    for uid in &body.captured {
        let dims = padded(&body.desc(*uid)?.dims, rank);
        inputs.push(rewrite.reshaped(*uid, &dims));
    }
    let mut outputs = Vec::new();
    for y in finals.into_iter().flatten() {
        let dims = padded(&rewrite.desc(y).dims, rank);
        outputs.push(rewrite.reshaped_to(y, &dims));
    }
    for (y, output, ..) in stacked {
        let led = rewrite.stacked(y, output);
        let dims = &rewrite.desc(led).dims;
        let dims: Vec<i64> = std::iter::once(dims[0]).chain(padded(&dims[1..], rank)).collect();
        outputs.push(rewrite.reshaped_to(led, &dims));
    }
    let trips = condition.map(|_| rewrite.tensor(&[1], DType::I32));
    outputs.extend(trips);
    let y = outputs[0];
    rewrite.add(Op::PointwiseLoop(op), inputs, outputs);
    Ok((rewrite, LoopOperation { of, step: POINTWISE, count, trips, extent, length, y }))
}

/// Dimensions with as many of 1 in front.
fn padded(dims: &[i64], rank: usize) -> Vec<i64> {
    std::iter::repeat_n(1, rank - dims.len()).chain(dims.iter().copied()).collect()
}

/// An iterator.
struct Iterated {
    x: i64,
    axis: usize,
    reverse: bool,
    y: i64,
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
    states: Vec<Recurrence>,
    iterated: Vec<Iterated>,
    /// What is the same in all trips.
    captured: Vec<i64>,
    /// The result, the operation and its operands.
    lines: Vec<(i64, Pointwise, Vec<Source>)>,
    values: HashMap<i64, Source>,
}

impl<'a> Body<'a> {
    fn of(network: &'a Network, of: Loop) -> Refused<Body<'a>> {
        let states = recurrences(network, of);
        let values = states.iter().enumerate().map(|(at, state)| (state.y, Source::State(at)));
        let values = values.collect();
        let (iterated, captured, lines) = (Vec::new(), Vec::new(), Vec::new());
        let mut body = Body { network, states, iterated, captured, lines, values };
        for layer in network.boundaries(of) {
            if let Layer::Iterator { x, axis, reverse, y, .. } = layer {
                let (x, axis, reverse, y) = (*x, *axis, *reverse, *y);
                body.values.insert(y, Source::Iterated(body.iterated.len()));
                body.iterated.push(Iterated { x, axis, reverse, y });
            }
        }
        match body.states.first().map(|state| body.desc(state.y)).transpose()? {
            None => Err("it has no recurrence".to_owned()),
            Some(desc) if desc.is_empty() => Err("its recurrences have no elements".to_owned()),
            Some(_) => Ok(body),
        }
    }

    fn desc(&self, uid: i64) -> Refused<&'a TensorDesc> {
        desc(self.network, uid)
    }

    /// The most dimensions that a value has: others have as many.
    fn rank(&self) -> Refused<usize> {
        let states = self.states.iter().map(|state| state.y);
        let iterated = self.iterated.iter().map(|of| of.y);
        let all = states.chain(iterated).chain(self.captured.iter().copied());
        let ranks = all.map(|uid| Ok(self.desc(uid)?.dims.len())).collect::<Refused<Vec<_>>>()?;
        Ok(ranks.into_iter().max().unwrap_or(0))
    }

    fn value(&mut self, uid: i64) -> Refused<Source> {
        if let Some(value) = self.values.get(&uid) {
            return Ok(*value);
        }
        self.captured.push(uid);
        let value = Source::Captured(self.captured.len() - 1);
        self.values.insert(uid, value);
        Ok(value)
    }

    fn in_program(&self, source: Source) -> Value {
        let (states, iterated) = (self.states.len(), self.iterated.len());
        match source {
            Source::State(at) => Value::Input(at),
            Source::Iterated(at) => Value::Input(states + at),
            Source::Captured(at) => Value::Input(states + iterated + at),
            Source::Line(at) => Value::Result(at),
        }
    }

    /// The program without outputs. Names tell what a value is, whatever tensors are called: equal
    /// loops are equal kernels.
    fn program(&self) -> Refused<Program> {
        let mut program = Program::new();
        let states = self.states.iter().map(|state| ("state", state.y));
        let iterated = self.iterated.iter().map(|of| ("element", of.y));
        let captured = self.captured.iter().map(|uid| ("shared", *uid));
        for (at, (kind, uid)) in states.chain(iterated).chain(captured).enumerate() {
            program.input(format!("{kind}{at}"), self.desc(uid)?.dtype);
        }
        for (at, (y, op, operands)) in self.lines.iter().enumerate() {
            let operands: Vec<Value> = operands.iter().map(|of| self.in_program(*of)).collect();
            let pushed = program.push(format!("v{at}"), *op, &operands, self.desc(*y)?.dtype);
            pushed.map_err(|error| error.to_string())?;
        }
        Ok(program)
    }
}
