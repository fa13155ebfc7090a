//! What is around the body of a loop that becomes one operation.

use crate::dtype::DType;
use crate::graph::{LOOP_TENSORS_MAX, LoopFrame, Op};
use crate::loops::body::{Recurrence, Refused, desc, recurrences, room};
use crate::loops::layer::{Layer, Loop, LoopOutput, TripLimit};
use crate::loops::loop_operation::LoopOperation;
use crate::loops::network::Network;
use crate::loops::rewrite::Rewrite;

/// An iterator.
pub(super) struct Iterated {
    x: i64,
    axis: usize,
    reverse: bool,
    pub(super) y: i64,
}

/// A concatenated output.
pub(super) struct Stacked {
    pub(super) x: i64,
    y: i64,
    output: LoopOutput,
}

/// Tensors and limits of a loop.
pub(super) struct Framed<'a> {
    network: &'a Network,
    of: Loop,
    count: Option<i64>,
    pub(super) condition: Option<i64>,
    pub(super) states: Vec<Recurrence>,
    pub(super) iterated: Vec<Iterated>,
    pub(super) stacked: Vec<Stacked>,
    /// For each state what hands its last value out.
    finals: Vec<Option<i64>>,
    extent: i64,
    length: i64,
}

impl<'a> Framed<'a> {
    pub(super) fn of(network: &'a Network, of: Loop) -> Refused<Framed<'a>> {
        let (extent, length) = room(network, of);
        if extent == 0 || length == 0 {
            return Err("it has room for no trip".to_owned());
        }
        let [count, condition] =
            [TripLimit::Count, TripLimit::While].map(|limit| network.limit(of, limit));
        let states = recurrences(network, of);
        match states.first() {
            None => return Err("it has no recurrence".to_owned()),
            Some(state) if desc(network, state.y)?.is_empty() => {
                return Err("its recurrences have no elements".to_owned());
            }
            Some(_) => {}
        }
        let (mut iterated, mut stacked) = (Vec::new(), Vec::new());
        let mut finals = vec![None; states.len()];
        for layer in network.boundaries(of) {
            match layer {
                Layer::Iterator { x, axis, reverse, y, .. } => {
                    iterated.push(Iterated { x: *x, axis: *axis, reverse: *reverse, y: *y });
                }
                Layer::LoopOutput { output: LoopOutput::LastValue, x, y, .. } => {
                    let state = states.iter().position(|state| state.y == *x);
                    let slot = state.map(|state| &mut finals[state]);
                    match slot {
                        Some(slot @ None) => *slot = Some(*y),
                        _ => {
                            let text = "the last value of a recurrence is handed out twice";
                            return Err(text.to_owned());
                        }
                    }
                }
                Layer::LoopOutput { output, x, y, .. } => {
                    let reverse = matches!(output, LoopOutput::Reverse { .. });
                    if reverse && condition.is_some() {
                        let name = network.reference(*y);
                        return Err(format!(
                            "`{name}` begins with the last trip, which it finds last"
                        ));
                    }
                    stacked.push(Stacked { x: *x, y: *y, output: *output });
                }
                _ => {}
            }
        }
        Ok(Framed {
            network,
            of,
            count,
            condition,
            states,
            iterated,
            stacked,
            finals,
            extent,
            length,
        })
    }

    /// The frame of its operation.
    pub(super) fn frame(&self, captured: usize) -> Refused<LoopFrame> {
        let counts = [self.states.len(), self.iterated.len(), captured, self.stacked.len()];
        if let Some(most) = counts.into_iter().max().filter(|count| *count > LOOP_TENSORS_MAX) {
            return Err(format!("it has {most} tensors of a kind, at most {LOOP_TENSORS_MAX} are"));
        }
        let trips_max = self.network.descriptor(self.of).trips_max;
        let trips_max = self.condition.map_or(0, |_| trips_max);
        if trips_max >= i64::from(i32::MAX) {
            return Err(format!("{trips_max} trips may be made"));
        }
        let reverse = |of: &Stacked| matches!(of.output, LoopOutput::Reverse { .. });
        Ok(LoopFrame {
            states: self.states.len(),
            iterated: self.iterated.iter().map(|of| of.reverse).collect(),
            captured,
            last: self.finals.iter().map(Option::is_some).collect(),
            stacked: self.stacked.iter().map(reverse).collect(),
            count: self.count.is_some(),
            condition: self.condition.is_some(),
            trips_max,
        })
    }

    /// The network with an operation in the loop's place, which takes elements of other
    /// dimensions.
    pub(super) fn rewritten(
        self,
        op: Op,
        captured: &[i64],
        shaped: impl Fn(&[i64]) -> Vec<i64>,
        step: &'static str,
    ) -> Refused<(Rewrite<'a>, LoopOperation)> {
        let Framed { network, of, count, condition, extent, length, .. } = self;
        let dims_of = |uid: i64| Ok::<_, String>(shaped(&desc(network, uid)?.dims));
        let led_by = |trips: i64, dims: Vec<i64>| -> Vec<i64> {
            std::iter::once(trips).chain(dims).collect()
        };
        let mut rewrite = Rewrite::without(network, of);
        let mut inputs: Vec<i64> = count.into_iter().collect();
        for state in &self.states {
            inputs.push(rewrite.reshaped(state.initial, &dims_of(state.y)?));
        }
        for Iterated { x, axis, y, .. } in &self.iterated {
            let led = rewrite.led_by(*x, *axis);
            let trips = rewrite.desc(led).dims[0];
            inputs.push(rewrite.reshaped(led, &led_by(trips, dims_of(*y)?)));
        }
        for uid in captured {
            inputs.push(rewrite.reshaped(*uid, &dims_of(*uid)?));
        }
        let mut outputs = Vec::new();
        for y in self.finals.into_iter().flatten() {
            outputs.push(rewrite.reshaped_to(y, &dims_of(y)?));
        }
        for Stacked { y, output, .. } in self.stacked {
            let led = rewrite.stacked(y, output);
            let dims = &rewrite.desc(led).dims;
            let dims = led_by(dims[0], shaped(&dims[1..]));
            outputs.push(rewrite.reshaped_to(led, &dims));
        }
        let trips = condition.map(|_| rewrite.tensor(&[1], DType::I32));
        outputs.extend(trips);
        let y = outputs[0];
        rewrite.add(op, inputs, outputs);
        Ok((rewrite, LoopOperation { of, step, count, trips, extent, length, y }))
    }
}
