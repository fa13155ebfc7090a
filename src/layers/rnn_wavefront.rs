//! A forward pass in chunks of steps, of which layers run side by side: a layer begins a chunk when
//! the layer below has ended it, which runs the next one meanwhile (Appleyard, Kočiský and Blunsom
//! 2016, "Optimizing Performance of Recurrent Neural Networks on GPUs", section 3.3).
//!
//! A chunk is an execution of the plan for so many steps. Its stages, products and recurrences in
//! turn, are launched into a lane each, the first into the caller's stream. Chunks take turns with
//! pieces of the workspace for what passes between stages; two more pieces of it hold the states
//! between chunks, which are not rounded there. Results are the same bits as without chunks.

use crate::device::{Device, Mark, Stream};
use crate::error::Result;
use crate::layers::cast::Cast;
use crate::layers::rnn_pack::RnnSlots;
use crate::layers::rnn_plans::{Built, IN_PLACE};
use crate::plan::{ALIGNMENT, ExecutionPlan, Queued, Slot};
use crate::rnn::{ALIGNMENT as TENSOR_ALIGNMENT, Role};

/// Chunks have a multiple of so many steps, so that vectors of each are aligned as those of all.
const STEPS_UNIT: i64 = 16;

/// What a chunk of a layer takes beyond its steps, in microseconds: two launches, of which one
/// waits for another stream, and the weights.
const BOUNDARY_US: f64 = 8.0;

/// How many times longer layers must take one after the other: what chunks cost is not measured.
pub(super) const GAIN_MIN: f64 = 1.25;

/// The roles with a vector for each row.
const OF_ROWS: [Role; 5] =
    [Role::Input, Role::Output, Role::Reset, Role::RowInputs, Role::UnitInputs];

/// States between chunks: those that one reads, and those that the one before it writes.
const STATES: [[Role; 2]; 2] =
    [[Role::HInitial, Role::HFinal], [Role::StatesInitial, Role::StatesFinal]];

/// Bytes of a workspace beyond what a forward pass without chunks needs, given those of all states,
/// of which it has room for one: they are there twice, in up to twice the bytes, and each chunk has
/// tensors of its own that are aligned.
pub(super) fn room_bytes(steps: i64, states_bytes: u64) -> u64 {
    3 * states_bytes + 4 * ALIGNMENT * (steps.max(0) / STEPS_UNIT) as u64
}

/// Steps in chunks, of which the last may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunks {
    pub(super) count: usize,
    /// Steps of every chunk but the last.
    pub(super) steps: i64,
    pub(super) last_steps: i64,
}

impl Chunks {
    /// Chunks of at least so many steps; `None` where one has all.
    pub(super) fn of(all: i64, steps: i64) -> Option<Chunks> {
        let steps = steps.clamp(1, all.max(1)) as u64;
        let steps = steps.next_multiple_of(STEPS_UNIT as u64) as i64;
        let count = (all - 1).max(0) / steps + 1;
        let chunks = Chunks { count: count as usize, steps, last_steps: all - (count - 1) * steps };
        (count > 1).then_some(chunks)
    }

    /// Those that take the least time for so many layers, some of which run at once, of which one
    /// takes `layer_us` for all steps; `None` where layers had better run one after the other.
    pub(super) fn best(all: i64, layers: usize, at_once: f64, layer_us: f64) -> Option<Chunks> {
        let us = |chunks: &Chunks| {
            let each = layer_us * chunks.steps as f64 / all as f64 + BOUNDARY_US;
            let waves = (chunks.count + layers - 1) as f64;
            let works = (chunks.count * layers) as f64;
            each * waves.max(works / at_once)
        };
        let sizes = (1..=all / STEPS_UNIT).map(|units| units * STEPS_UNIT);
        let all_chunks = sizes.filter_map(|steps| Chunks::of(all, steps));
        let best = all_chunks.min_by(|a, b| us(a).total_cmp(&us(b)))?;
        let in_turn = layers as f64 * (layer_us + BOUNDARY_US);
        (us(&best) * GAIN_MIN < in_turn).then_some(best)
    }
}

/// A forward pass in chunks.
#[derive(Clone)]
pub(super) struct Wavefront {
    chunks: Chunks,
    layers: usize,
    stages: usize,
    /// What runs a chunk, and the last one.
    built: [Built; 2],
    /// Bytes of a step, of roles with a vector for each row.
    step_bytes: [(Role, u64); OF_ROWS.len()],
    /// Bytes of the states of all layers between chunks, in the order of [`STATES`].
    state_bytes: [u64; 2],
    /// What makes the caller's states other than `h` those between chunks, and back, where they are
    /// of different types.
    casts: Option<[Cast; 2]>,
    /// Bytes of the workspace for a chunk.
    piece_bytes: u64,
}

impl Wavefront {
    /// A forward pass in these chunks, run by these plans; `None` where they run otherwise than the
    /// plan of all steps, or their stages differ.
    pub(super) fn new(
        chunks: Chunks,
        layers: usize,
        whole: &ExecutionPlan,
        built: [Built; 2],
        casts: Option<[Cast; 2]>,
    ) -> Option<Wavefront> {
        let [own, last] = built.each_ref().map(Built::first_plan);
        let alike = own.runs_as(whole) && last.runs_as(whole);
        if !alike || !own.stages().eq(last.stages()) {
            return None;
        }
        let stages = own.stages().max()? + 1;
        let piece_bytes = own.workspace_bytes().max(last.workspace_bytes());
        let step_bytes = OF_ROWS.map(|role| (role, built[0].bytes_of(role) / chunks.steps as u64));
        let state_bytes = STATES.map(|[_, role]| built[0].bytes_of(role));
        let piece_bytes = piece_bytes.next_multiple_of(ALIGNMENT);
        Some(Wavefront {
            chunks,
            layers,
            stages,
            built,
            step_bytes,
            state_bytes,
            casts,
            piece_bytes,
        })
    }

    pub(super) fn chunks(&self) -> Chunks {
        self.chunks
    }

    /// Whether the plans of chunks run generic kernels, and specialised ones have been compiled.
    pub(super) fn is_outdated(&self) -> bool {
        self.built.iter().any(Built::is_outdated)
    }

    /// Chunks that take turns with pieces of a workspace; `None` where there is no room for half of
    /// those that run side by side, where it is not aligned, or where tensors overlap.
    fn turns(&self, pack: &RnnSlots) -> Option<usize> {
        let Some(Slot::Memory { address, bytes, .. }) = pack.workspace else { return None };
        let pieces = bytes.checked_sub(self.all_states_bytes())? / self.piece_bytes.max(1);
        let turns = self.chunks.count.min(pieces.try_into().unwrap_or(usize::MAX));
        let enough = turns > 1 && 2 * turns >= self.chunks.count.min(self.layers);
        let fits = enough && address.is_multiple_of(ALIGNMENT) && self.is_taken(pack);
        fits.then_some(turns)
    }

    /// Bytes of the states of two chunks.
    fn all_states_bytes(&self) -> u64 {
        2 * self.state_bytes.iter().map(|bytes| bytes.next_multiple_of(ALIGNMENT)).sum::<u64>()
    }

    /// Whether plans take the memory of a pack: it is aligned, on their device, and overlaps only
    /// where initial states become final ones. The plan of all steps says what is wrong.
    fn is_taken(&self, pack: &RnnSlots) -> bool {
        let bytes = |role: Role| {
            let of_step = self.step_bytes.iter().find(|(known, _)| *known == role);
            let steps = (self.chunks.count as i64 - 1) * self.chunks.steps + self.chunks.last_steps;
            of_step.map_or(self.built[0].bytes_of(role), |(_, bytes)| bytes * steps as u64)
        };
        let device = self.built[0].first_plan().device().owner();
        let is_own = |slot: &Slot| match slot {
            Slot::Memory { address, owner, .. } => {
                address.is_multiple_of(TENSOR_ALIGNMENT as u64) && [0, device].contains(owner)
            }
            Slot::Value(_) => false,
        };
        let slots = || Role::ALL.iter().filter_map(|role| pack.slot(*role)).chain(pack.workspace);
        if !slots().all(|slot| is_own(&slot)) {
            return false;
        }
        let place = |role: &Role| match pack.slot(*role) {
            Some(Slot::Memory { address, .. }) => Some((Some(*role), address, bytes(*role))),
            _ => None,
        };
        let workspace = match pack.workspace {
            Some(Slot::Memory { address, bytes, .. }) => Some((None, address, bytes)),
            _ => None,
        };
        let places = || Role::ALL.iter().filter_map(place).chain(workspace);
        let is_written = |role: Option<Role>| role.is_none_or(Role::is_output);
        let in_place = |one: Option<Role>, other: Option<Role>| {
            IN_PLACE.iter().any(|[read, written]| (one, other) == (Some(*read), Some(*written)))
        };
        places().enumerate().all(|(at, (one, start, bytes))| {
            places().skip(at + 1).all(|(other, others_start, others_bytes)| {
                let apart = start.saturating_add(bytes) <= others_start
                    || others_start.saturating_add(others_bytes) <= start;
                let same = in_place(one, other) && start == others_start;
                apart || same || !(is_written(one) || is_written(other))
            })
        })
    }

    /// Launches all chunks of a checked pack; `false` where it does not fit and nothing was.
    ///
    /// # Errors
    /// As [`crate::ExecutionPlan::execute`].
    pub(super) fn launch(
        &mut self,
        stream: &Stream,
        pack: &RnnSlots,
        lanes: &mut Lanes,
    ) -> Result<bool> {
        let Some(turns) = self.turns(pack) else { return Ok(false) };
        let lanes = lanes.of_stream(self.built[0].first_plan().device(), stream);
        lanes.grow(self.built[0].first_plan().device(), self.stages, turns)?;
        // Stages that something was launched in.
        let mut reached = 0;
        let count = self.chunks.count;
        let [_, others] = self.between(pack, 0);
        if let (Some([widen, _]), Some(own)) = (&mut self.casts, pack.slot(Role::StatesInitial)) {
            widen.execute(stream, own, others.initial)?;
        }
        let launched = (0..count).try_for_each(|at| {
            let piece = at % turns;
            if at >= turns {
                stream.wait_for(&lanes.pieces[piece])?;
            }
            self.launch_chunk([at, piece], stream, pack, lanes, &mut reached)
        });
        if launched.is_err() {
            // Nothing that comes later runs beside what was launched.
            lanes.join(stream, reached);
        }
        launched?;
        stream.wait_for(&lanes.pieces[(count - 1) % turns])?;
        let [_, others] = self.between(pack, count - 1);
        if let (Some([_, narrow]), Some(own)) = (&mut self.casts, pack.slot(Role::StatesFinal)) {
            narrow.execute(stream, others.last, own)?;
        }
        Ok(true)
    }

    /// The states that a chunk reads and writes, but for the caller's, in the order of [`STATES`].
    fn between(&self, pack: &RnnSlots, chunk: usize) -> [Between; 2] {
        let workspace = pack.workspace.expect("there is room");
        let mut offset = 0;
        self.state_bytes.map(|bytes| {
            let apart = bytes.next_multiple_of(ALIGNMENT);
            let place = |at: usize| workspace.piece(offset + (at % 2) as u64 * apart, bytes);
            let own = Between { initial: place(chunk + 1), last: place(chunk) };
            offset += 2 * apart;
            own
        })
    }

    /// Launches a chunk, and marks its end.
    fn launch_chunk(
        &mut self,
        [at, piece]: [usize; 2],
        stream: &Stream,
        pack: &RnnSlots,
        lanes: &LaneSet,
        reached: &mut usize,
    ) -> Result<()> {
        let (is_first, is_last) = (at == 0, at + 1 == self.chunks.count);
        let steps = if is_last { self.chunks.last_steps } else { self.chunks.steps } as u64;
        let first = at as u64 * self.chunks.steps as u64;
        let mut own = *pack;
        for (role, bytes) in self.step_bytes {
            if let Some(whole) = pack.slot(role) {
                own.set(role, whole.piece(first * bytes, steps * bytes));
            }
        }
        let offset = self.all_states_bytes() + piece as u64 * self.piece_bytes;
        own.workspace = pack.workspace.map(|whole| whole.piece(offset, self.piece_bytes));
        let is_cast = [false, self.casts.is_some()];
        let states = STATES.into_iter().zip(self.between(pack, at)).zip(is_cast);
        for (([initial, last], between), is_cast) in states {
            if pack.slot(initial).is_none() {
                continue;
            }
            if !is_first || is_cast {
                own.set(initial, between.initial);
            }
            if !is_last || is_cast {
                own.set(last, between.last);
            }
        }
        let (mut stage, last_stage) = (0, self.stages - 1);
        let queue = |kernel: &Queued<'_>| {
            // A capture may have other kernels than executions outside.
            let next = kernel.stage().min(last_stage);
            if next != stage {
                lanes.of(stage, stream).mark(&lanes.stages[stage])?;
                lanes.of(next, stream).wait_for(&lanes.stages[stage])?;
                stage = next;
                *reached = next.max(*reached);
            }
            kernel.launch(lanes.of(stage, stream))
        };
        self.built[usize::from(is_last)].execute(stream, &own, queue)?;
        lanes.of(stage, stream).mark(&lanes.pieces[piece])
    }
}

/// Where states are between chunks.
struct Between {
    initial: Slot,
    last: Slot,
}

/// Lanes that are kept.
const LANES_MAX: usize = 8;

/// Lanes by the caller's stream and the capture that it is in: calls on several streams do not wait
/// for each other, and no lane is in two captures. A clone has its own.
#[derive(Default)]
pub(super) struct Lanes {
    /// Those used last are the last.
    sets: Vec<((u64, Option<u64>), LaneSet)>,
}

impl Clone for Lanes {
    fn clone(&self) -> Lanes {
        Lanes::default()
    }
}

impl Lanes {
    fn of_stream(&mut self, device: &Device, stream: &Stream) -> &mut LaneSet {
        let key = (stream.handle(), device.capture(stream));
        match self.sets.iter().position(|(known, _)| *known == key) {
            Some(at) => self.sets[at..].rotate_left(1),
            None => {
                if self.sets.len() == LANES_MAX {
                    self.sets.remove(0);
                }
                self.sets.push((key, LaneSet::default()));
            }
        }
        &mut self.sets.last_mut().expect("it is there").1
    }
}

/// The streams of stages behind the first.
#[derive(Default)]
struct LaneSet {
    streams: Vec<Stream>,
    /// Behind the last launch of each stage.
    stages: Vec<Mark>,
    /// Behind the last chunk that had each piece of the workspace.
    pieces: Vec<Mark>,
}

impl LaneSet {
    /// Makes what is missing for so many stages and pieces of the workspace.
    fn grow(&mut self, device: &Device, stages: usize, pieces: usize) -> Result<()> {
        while self.streams.len() + 1 < stages {
            self.streams.push(device.lane()?);
        }
        for (marks, count) in [(&mut self.stages, stages), (&mut self.pieces, pieces)] {
            while marks.len() < count {
                marks.push(device.mark()?);
            }
        }
        Ok(())
    }

    fn of<'a>(&'a self, stage: usize, stream: &'a Stream) -> &'a Stream {
        if stage == 0 { stream } else { &self.streams[stage - 1] }
    }

    /// Orders a stream behind the lanes of so many stages, as far as that can be done.
    fn join(&self, stream: &Stream, stages: usize) {
        for (lane, mark) in self.streams.iter().zip(&self.stages).take(stages) {
            let _ = lane.mark(mark).and_then(|()| stream.wait_for(mark));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_divided() {
        let of = |count, steps, last_steps| Some(Chunks { count, steps, last_steps });
        assert_eq!(Chunks::of(512, 64), of(8, 64, 64));
        assert_eq!(Chunks::of(100, 40), of(3, 48, 4));
        assert_eq!(Chunks::of(97, 1), of(7, 16, 1));
        assert_eq!((Chunks::of(16, 1), Chunks::of(0, 16), Chunks::of(40, 40)), (None, None, None));
    }

    #[test]
    fn chunks_are_as_long_as_pays() {
        // Two layers of 1.7 us a step: what 512 steps took on an H200, and a ninth of them.
        let chunks = Chunks::best(512, 2, 8.0, 880.0).expect("they run side by side");
        assert_eq!(chunks, Chunks { count: 8, steps: 64, last_steps: 64 });
        let more = Chunks::best(512, 8, 8.0, 880.0).expect("they run side by side");
        assert!(more.steps < chunks.steps, "{more:?}");
        assert_eq!(Chunks::best(512, 2, 1.0, 880.0), None, "one fills the device");
        assert_eq!(Chunks::best(512, 1, 8.0, 880.0), None, "there is one");
        assert_eq!(Chunks::best(32, 2, 8.0, 16.0), None, "they are over at once");
    }
}
