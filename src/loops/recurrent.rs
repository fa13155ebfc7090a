//! Loops that are recurrent layers: their bodies become the cell of one operation, which runs all
//! trips in one kernel.

use crate::dtype::DType;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Op, Recurrence, RecurrenceSlots, Reshape, Semantics, Transpose};
use crate::loops::body::{Refused, room};
use crate::loops::cell::{Body, Lane, extents};
use crate::loops::cell_known::known;
use crate::loops::cell_stages::Staged;
use crate::loops::layer::{Layer, Loop, LoopOutput, TripLimit};
use crate::loops::loop_operation::{LoopOperation, RECURRENT};
use crate::loops::network::Network;
use crate::loops::rewrite::Rewrite;

/// Counts are compared in f32, which has all integers up to this one.
const STEPS_MAX: i64 = 1 << 24;

/// A loop output as results of the operation.
#[derive(Debug, Clone, Copy)]
struct Handed {
    y: i64,
    output: LoopOutput,
    from: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The output at every step.
    Y,
    /// Further values at every step: the first block and how many.
    Saved(usize, usize),
    /// A state at the end.
    Final(usize),
}

/// Rewrites a loop to a recurrent layer.
pub(super) fn recurrent(network: &Network, of: Loop) -> Refused<(Rewrite<'_>, LoopOperation)> {
    if network.limit(of, TripLimit::While).is_some() {
        return Err("its condition is known after each trip only".to_owned());
    }
    let Some(count) = network.limit(of, TripLimit::Count) else {
        return Err("it has no count".to_owned());
    };
    let mut body = Body::of(network, of)?;
    let steps = steps(network, of)?;
    let mut next = Vec::new();
    for state in body.states.clone() {
        next.push(single(&mut body, state.next)?);
    }
    let mut shown: Vec<Lane> = Vec::new();
    let mut handed = Vec::new();
    for layer in network.boundaries(of) {
        let Layer::LoopOutput { output, x, y, .. } = layer else { continue };
        let from = match output {
            LoopOutput::LastValue => {
                let state = body.states.iter().position(|state| state.y == *x);
                Source::Final(state.unwrap_or(0))
            }
            LoopOutput::Reverse { .. } => {
                let name = network.reference(*y);
                return Err(format!("`{name}` begins with the last trip"));
            }
            LoopOutput::Concatenate { .. } => {
                let lanes = body.lanes_of(*x)?;
                let taken = handed.iter().any(|of: &Handed| of.from == Source::Y);
                match lanes[..] == next[..1] && !taken {
                    true => Source::Y,
                    false => {
                        let first = shown.len();
                        shown.extend(&lanes);
                        Source::Saved(first, lanes.len())
                    }
                }
            }
        };
        if let Some(what) = not_shown(&shown) {
            return Err(format!("`{}` has {what}", network.reference(*y)));
        }
        handed.push(Handed { y: *y, output: *output, from });
    }
    let staged = body.staged(&next, &shown)?;
    let rewrite = Rewrite::without(network, of);
    let mut layer = Layering { network, rewrite, count, steps };
    let y = layer.recurrence(&body, staged, &handed)?;
    let (step, trips) = (RECURRENT, None);
    let operation =
        LoopOperation { of, step, count: Some(count), trips, extent: steps, length: steps, y };
    Ok((layer.rewrite, operation))
}

struct Layering<'a> {
    network: &'a Network,
    rewrite: Rewrite<'a>,
    count: i64,
    steps: i64,
}

impl Layering<'_> {
    /// Adds the layer; returns its first result.
    fn recurrence(&mut self, body: &Body<'_>, staged: Staged, handed: &[Handed]) -> Refused<i64> {
        let (batch, hidden_size) = (body.batch, body.hidden_size);
        let rows = self.steps * batch;
        let Staged { cell, gemms, names } = staged;
        let cell = if names.is_empty() { known(cell) } else { cell };
        let math = body.gemms[gemms[0]].math;
        if gemms.iter().any(|at| body.gemms[*at].math != math) {
            return Err("its GEMMs differ in precision".to_owned());
        }
        let others = body.states.len() > 1;
        let is_final = |at: usize| handed.iter().any(|of| of.from == Source::Final(at));
        let with = RecurrenceSlots {
            x_bias: body.x_bias.is_some(),
            r_bias: body.r_bias.is_some(),
            h_initial: true,
            states_initial: others,
            lengths: true,
            h_final: is_final(0),
            states_final: (1..body.states.len()).any(is_final),
            ..RecurrenceSlots::default()
        };
        let blocks = names.len() as i64;
        let op =
            Recurrence { math, with, saved: names, ..Recurrence::new(cell, batch, hidden_size) };
        let slots = op.slots();
        let mut inputs = Vec::new();
        for slot in &slots.inputs {
            inputs.push(self.operand(slot, body, &gemms, rows)?);
        }
        let mut outputs = Vec::new();
        for slot in &slots.outputs {
            let width = |count: i64| count * hidden_size;
            let first = body.states[0].y;
            let saved = handed.iter().find(|of| matches!(of.from, Source::Saved(..)));
            let (dims, like) = match *slot {
                "y" => ([1, rows, hidden_size], first),
                "h_final" => ([1, batch, hidden_size], first),
                "states_final" => {
                    ([1, batch, width(body.states.len() as i64 - 1)], body.states[1].y)
                }
                _ => ([1, rows, width(blocks)], saved.ok_or("nothing is written")?.y),
            };
            outputs.push(self.rewrite.tensor(&dims, self.rewrite.desc(like).dtype));
        }
        for of in handed {
            let (slot, first, count) = match of.from {
                Source::Y => ("y", 0, 1),
                Source::Saved(first, count) => ("saved", first, count),
                Source::Final(0) => ("h_final", 0, 1),
                Source::Final(at) => ("states_final", at - 1, 1),
            };
            let at = slots.outputs.iter().position(|own| *own == slot);
            let uid = outputs[at.ok_or("a result is missing")?];
            self.hand_out(uid, of, first as i64 * hidden_size, count as i64 * hidden_size)?;
        }
        let y = outputs[0];
        self.rewrite.add(Op::Recurrence(op), inputs, outputs);
        Ok(y)
    }

    fn operand(&mut self, slot: &str, body: &Body<'_>, gemms: &[usize], rows: i64) -> Refused<i64> {
        let (batch, hidden_size) = (body.batch, body.hidden_size);
        match slot {
            "x" => Ok(self.rows(body.iterators[0], rows)),
            "unit_inputs" | "row_inputs" => {
                let units = slot == "unit_inputs";
                let mut parts = Vec::new();
                for at in 1..body.iterators.len() {
                    let row = matches!(body.lanes_of_iterator(at)[..], [Lane::Row { .. }]);
                    if row != units {
                        parts.push(self.rows(body.iterators[at], rows));
                    }
                }
                self.rewrite.joined(&parts, 2)
            }
            "x_bias" | "r_bias" => {
                let bias = body.x_bias.filter(|_| slot == "x_bias").or(body.r_bias);
                let bias = bias.ok_or("a bias is missing")?;
                let columns = extents(self.rewrite.desc(bias)).1;
                Ok(self.rewrite.reshaped(bias, &[1, 1, columns]))
            }
            "r" => {
                let mut parts = Vec::new();
                for at in gemms {
                    let (weights, blocks) = (body.gemms[*at].weights, body.gemms[*at].blocks);
                    let [k, n] = [hidden_size, blocks as i64 * hidden_size];
                    let matrix = self.rewrite.reshaped(weights, &[1, k, n]);
                    let turned = Op::Transpose(Transpose { permutation: vec![0, 2, 1] });
                    parts.push(self.rewrite.made(turned, &[matrix], &[1, n, k]));
                }
                self.rewrite.joined(&parts, 1)
            }
            "parameters" => {
                let mut parts = Vec::new();
                for (uid, blocks) in &body.parameters {
                    let columns = extents(self.rewrite.desc(*uid)).1;
                    let dims = [1, *blocks as i64, hidden_size];
                    parts.push(match columns == hidden_size * *blocks as i64 {
                        true => self.rewrite.reshaped(*uid, &dims),
                        false => {
                            let all = self.spread(*uid, hidden_size, body);
                            self.rewrite.reshaped(all, &dims)
                        }
                    });
                }
                self.rewrite.joined(&parts, 1)
            }
            "h_initial" => {
                Ok(self.rewrite.reshaped(body.states[0].initial, &[1, batch, hidden_size]))
            }
            "states_initial" => {
                let mut parts = Vec::new();
                for state in &body.states[1..] {
                    let initial = self.narrow(state.initial);
                    parts.push(self.rewrite.reshaped(initial, &[1, batch, hidden_size]));
                }
                self.rewrite.joined(&parts, 2)
            }
            _ => {
                let most = self.steps as f64;
                let clamp = Pointwise::new(Mode::ReluFwd).math(Math::F32).relu(0.0, most, 0.0);
                let all = self.spread(self.count, batch, body);
                let dims = self.rewrite.desc(all).dims.clone();
                let lengths = self.rewrite.pointwise(clamp, &[all], &dims);
                Ok(self.rewrite.reshaped(lengths, &[1, 1, batch]))
            }
        }
    }

    /// The only element of a tensor as many times. A pointwise operation has the shape of its
    /// operands: here that of an index, of which nothing is subtracted, which keeps the sign of 0.
    fn spread(&mut self, uid: i64, width: i64, body: &Body<'_>) -> i64 {
        let mut dims = self.rewrite.desc(uid).dims.clone();
        let last = dims.len() - 1;
        dims[last] = body.batch * body.hidden_size;
        let all = self.rewrite.reshaped(body.states[0].initial, &dims);
        let some = self.rewrite.part(all, last, 0, width);
        dims[last] = width;
        let index = Pointwise::new(Mode::GenIndex).math(Math::F32).axis(last as i64);
        let index = self.rewrite.pointwise(index, &[some], &dims);
        let is_double = self.rewrite.desc(uid).dtype == DType::F64;
        let math = if is_double { Math::F64 } else { Math::F32 };
        let nothing = Pointwise::new(Mode::Sub).math(math).alphas(1.0, 0.0);
        self.rewrite.pointwise(nothing, &[uid, index], &dims)
    }

    /// All elements of an iterator as rows.
    fn rows(&mut self, element: i64, rows: i64) -> i64 {
        let Some(Layer::Iterator { x, axis, .. }) = self.network.writer(element) else {
            unreachable!("the body's iterators are the loop's")
        };
        let whole = self.rewrite.led_by(*x, *axis);
        let some = self.rewrite.part(whole, 0, 0, self.steps);
        let columns = self.rewrite.desc(some).dims.iter().product::<i64>() / rows;
        self.rewrite.reshaped(some, &[1, rows, columns])
    }

    /// Makes a loop output of some columns of a result.
    fn hand_out(&mut self, from: i64, of: &Handed, first: i64, columns: i64) -> Refused<()> {
        let part = self.rewrite.part(from, 2, first, columns);
        if self.rewrite.desc(part).dtype != self.rewrite.desc(of.y).dtype {
            return Err("its outputs differ in type".to_owned());
        }
        let y = self.rewrite.stacked(of.y, of.output);
        self.rewrite.add(Op::Reshape(Reshape), vec![part], vec![y]);
        Ok(())
    }

    /// What a tensor was converted from, if that has fewer bits: kernels read any type.
    fn narrow(&self, uid: i64) -> i64 {
        let Some(Layer::Operation(operation)) = self.network.writer(uid) else { return uid };
        let from = operation.inputs[0];
        let is_cast = operation.as_pointwise().is_some_and(Pointwise::is_copy);
        let [own, other] = [self.rewrite.desc(uid), self.rewrite.desc(from)];
        let fits = other.dtype.is_float() && other.dtype.fits_f32() && own.dtype == DType::F32;
        if is_cast && fits { from } else { uid }
    }
}

/// The block of a tensor that has only one.
fn single(body: &mut Body<'_>, uid: i64) -> Refused<Lane> {
    match body.lanes_of(uid)?[..] {
        [lane] => Ok(lane),
        _ => Err("a next value has other blocks than its recurrence".to_owned()),
    }
}

/// What of some blocks is not written at every step.
fn not_shown(lanes: &[Lane]) -> Option<&'static str> {
    lanes.iter().find_map(|lane| match lane {
        Lane::Parameter { .. } => Some("what is the same in all trips"),
        Lane::Row { .. } => Some("what has a value for each row"),
        _ => None,
    })
}

/// The most trips, which all outputs have room for and iterators have elements for.
fn steps(network: &Network, of: Loop) -> Refused<i64> {
    let (extent, length) = room(network, of);
    let most = extent.min(length);
    let lengths = network.boundaries(of).filter_map(|layer| match layer {
        Layer::LoopOutput { output, .. } => output.concatenated().map(|(_, length)| length),
        _ => None,
    });
    match (most, lengths.max()) {
        (0, _) => Err("it has room for no trip".to_owned()),
        (_, Some(longest)) if longest > most => {
            Err(format!("an output has room for {longest} trips, all have for {most}"))
        }
        _ if most > STEPS_MAX => Err(format!("{most} trips are more than 2^24")),
        _ => Ok(most),
    }
}
