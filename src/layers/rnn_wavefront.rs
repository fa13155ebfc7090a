//! Passes in chunks of steps, of which layers run side by side: a layer begins a chunk when the one
//! that it reads has ended it, which runs the next one meanwhile (Appleyard, Kočiský and Blunsom
//! 2016, "Optimizing Performance of Recurrent Neural Networks on GPUs", section 3.3).
//!
//! A chunk is an execution of the plan for so many steps. Its stages, products and recurrences in
//! turn, are launched into a lane each, the first into the caller's stream. Chunks take turns with
//! pieces of the workspace for what passes between stages; more pieces of it hold the states
//! between chunks, which are not rounded there. A forward pass begins with the first steps, a
//! backward pass with the last ones. Results are the same bits as without chunks.

use crate::device::{Buffer, Device, Mark, Stream};
use crate::error::Result;
use crate::layers::rnn_lengths::Lengths;
use crate::layers::rnn_pack::RnnSlots;
use crate::layers::rnn_plans::{Built, IN_PLACE, Pass};
use crate::plan::{ALIGNMENT, ExecutionPlan, Queued, Slot};
use crate::rnn::{ALIGNMENT as TENSOR_ALIGNMENT, Role};

/// Chunks have a multiple of so many steps, so that vectors of each are aligned as those of all.
const STEPS_UNIT: i64 = 16;

/// Random numbers of a subsequence ([`crate::graph::Rng`]); chunks begin with one.
const WORDS: i64 = 4;

/// What a chunk of a layer takes beyond its steps, in microseconds: two launches, of which one
/// waits for another stream, and the weights.
const BOUNDARY_US: f64 = 8.0;

/// How many times longer layers must take one after the other: what chunks cost is not measured.
pub(super) const GAIN_MIN: f64 = 1.25;

/// Bytes of a workspace beyond what a pass without chunks needs, given those of the states between
/// two chunks and of the lengths of sequences: states are there twice, and each chunk has lengths
/// and tensors of its own, which are aligned.
pub(super) fn room_bytes(steps: i64, between_bytes: u64, lengths_bytes: u64) -> u64 {
    let of_chunk = 4 * ALIGNMENT + lengths_bytes.next_multiple_of(ALIGNMENT);
    2 * between_bytes + of_chunk * (steps.max(0) / STEPS_UNIT) as u64
}

/// Steps in chunks, of which the last may be shorter, or one step longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunks {
    pub(super) count: usize,
    /// Steps of every chunk but the last.
    pub(super) steps: i64,
    pub(super) last_steps: i64,
}

impl Chunks {
    /// Chunks of at least so many steps; `None` where one has all. A last step is not a chunk by
    /// itself: the one before it has it.
    pub(super) fn of(all: i64, steps: i64) -> Option<Chunks> {
        let steps = steps.clamp(1, all.max(1)) as u64;
        let steps = steps.next_multiple_of(STEPS_UNIT as u64) as i64;
        let count = (all - 2).max(0) / steps + 1;
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

/// What is at the ends of a pass in chunks.
#[derive(Clone)]
pub(super) struct Ends {
    /// What goes before the first chunk to run, and behind the last one.
    pub(super) built: [Built; 2],
    /// The `h` that the first chunk begins with, where it is no one's. A captured pass refers to
    /// it: it stays as long as the network.
    pub(super) zeros: Option<Buffer>,
}

/// A pass in chunks.
#[derive(Clone)]
pub(super) struct Wavefront {
    pass: Pass,
    chunks: Chunks,
    layers: usize,
    stages: usize,
    /// What runs a chunk, and that of the last steps.
    built: [Built; 2],
    ends: Ends,
    /// The caller's tensors and their sizes in bytes.
    roles: Vec<(Role, u64)>,
    /// States between chunks, in the order of [`Pass::states`].
    between: [Between; 2],
    /// What computes the lengths of sequences in a chunk, if they have any.
    lengths: Option<Lengths>,
    /// Elements of a dropout at a step.
    step_elements: i64,
    /// Bytes of the workspace for a chunk, and for that of the last steps.
    piece_bytes: [u64; 2],
    /// Bytes of the lengths at the end of each.
    lengths_bytes: u64,
}

/// A state of all layers between chunks.
#[derive(Clone)]
struct Between {
    bytes: u64,
    /// Whether chunks begin with it and leave it at both ends, too: it is not the caller's.
    own: bool,
}

/// Pieces of a workspace that chunks take turns with.
#[derive(Clone, Copy)]
struct Turns {
    count: usize,
    /// Bytes from one to the next.
    apart: u64,
}

/// The chunk at an end of a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

impl Wavefront {
    /// A pass in these chunks, of so many layers, run by these plans; `None` where they run
    /// otherwise than the plan of all steps, or where their stages differ.
    pub(super) fn new(
        pass: Pass,
        (chunks, layers): (Chunks, usize),
        whole: &Built,
        built: [Built; 2],
        ends: Ends,
        lengths: Option<Lengths>,
        step_elements: i64,
    ) -> Option<Wavefront> {
        let [own, last] = built.each_ref().map(Built::first_plan);
        let runs_as = |plan: &ExecutionPlan| plan.runs_as_part_of(whole.first_plan());
        if !runs_as(own) || !runs_as(last) || !own.stages().eq(last.stages()) {
            return None;
        }
        let stages = own.stages().max()? + 1;
        let between = pass.states().map(|[read, written]| {
            let bytes = built[0].used_bytes(read);
            let at_end = |of: &Built| of.used_bytes(read) + of.used_bytes(written) > 0;
            Between { bytes, own: ends.built.iter().any(at_end) }
        });
        let lengths_bytes = built[0].bytes_of(Role::Lengths).next_multiple_of(ALIGNMENT);
        let of_ends = ends.built.each_ref().map(Built::workspace_bytes).into_iter().max()?;
        let piece_bytes = built.each_ref().map(|of| {
            let bytes = of.workspace_bytes().max(of_ends).next_multiple_of(ALIGNMENT);
            bytes + lengths_bytes
        });
        let roles = whole.roles().to_vec();
        Some(Wavefront {
            pass,
            chunks,
            layers,
            stages,
            built,
            ends,
            roles,
            between,
            lengths,
            step_elements,
            piece_bytes,
            lengths_bytes,
        })
    }

    pub(super) fn chunks(&self) -> Chunks {
        self.chunks
    }

    /// Pieces of a workspace for chunks: one for each, or as many as there is room for; `None`
    /// where there is none for half of those that run side by side, or where it is not aligned.
    fn turns(&self, pack: &RnnSlots) -> Option<Turns> {
        let Some(Slot::Memory { address, bytes, .. }) = pack.workspace else { return None };
        let room = bytes.checked_sub(self.all_states_bytes())?;
        let [own, last] = self.piece_bytes.map(|bytes| bytes.max(1));
        let count = self.chunks.count;
        let turns = match (count as u64 - 1) * own + last <= room {
            true => Turns { count, apart: own },
            false => {
                let pieces = (room / own.max(last)).min(count as u64 - 1);
                Turns { count: pieces as usize, apart: own.max(last) }
            }
        };
        let enough = turns.count > 1 && 2 * turns.count >= count.min(self.layers);
        (enough && address.is_multiple_of(ALIGNMENT)).then_some(turns)
    }

    /// Whether a pack has a workspace for chunks.
    #[cfg(test)]
    pub(super) fn has_room(&self, pack: &RnnSlots) -> bool {
        self.turns(pack).is_some()
    }

    /// Bytes of the states of two chunks.
    fn all_states_bytes(&self) -> u64 {
        2 * self.between.iter().map(|of| of.bytes.next_multiple_of(ALIGNMENT)).sum::<u64>()
    }

    /// Whether plans take the memory of a pack: it is aligned, on their device, and overlaps only
    /// where initial states become final ones. The plan of all steps says what is wrong.
    fn is_taken(&self, pack: &RnnSlots) -> bool {
        let device = self.built[0].first_plan().device().owner();
        let is_own = |slot: &Slot| match slot {
            Slot::Memory { address, owner, .. } => {
                address.is_multiple_of(TENSOR_ALIGNMENT as u64) && [0, device].contains(owner)
            }
            Slot::Value(_) => false,
        };
        // What dropouts are drawn from lies in the reserve space.
        let drawn = [Role::DropoutSeeds, Role::DropoutPositions];
        let roles = || self.roles.iter().filter(|(role, _)| !drawn.contains(role));
        let own = roles().filter_map(|(role, _)| pack.slot(*role));
        if !own.chain(pack.workspace).all(|slot| is_own(&slot)) {
            return false;
        }
        let place = |(role, bytes): &(Role, u64)| match pack.slot(*role) {
            Some(Slot::Memory { address, .. }) => Some((Some(*role), address, *bytes)),
            _ => None,
        };
        let workspace = match pack.workspace {
            Some(Slot::Memory { address, bytes, .. }) => Some((None, address, bytes)),
            _ => None,
        };
        let places = || roles().filter_map(place).chain(workspace);
        let is_written = |role: Option<Role>| role.is_none_or(Role::is_output);
        let in_place = |one: Option<Role>, other: Option<Role>| {
            let pairs = IN_PLACE.iter().map(|[read, written]| [Some(*read), Some(*written)]);
            let mut pairs = pairs.flat_map(|[read, written]| [[read, written], [written, read]]);
            pairs.any(|pair| pair == [one, other])
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
        let Some(turns) = self.turns(pack).filter(|_| self.is_taken(pack)) else {
            return Ok(false);
        };
        let device = self.built[0].first_plan().device();
        let lanes = lanes.of_stream(device, stream);
        lanes.grow(device, self.stages, turns.count)?;
        // Stages that something was launched in.
        let mut reached = 0;
        let count = self.chunks.count;
        let before = self.at_end(pack, End::First);
        self.ends.built[0].execute(stream, &before, 0, |kernel| kernel.launch(stream))?;
        let launched = (0..count).try_for_each(|at| {
            if at >= turns.count {
                stream.wait_for(&lanes.pieces[self.piece(at, turns)])?;
            }
            self.launch_chunk((at, turns), stream, pack, lanes, &mut reached)
        });
        if launched.is_err() {
            // Nothing that comes later runs beside what was launched.
            lanes.join(stream, reached);
        }
        launched?;
        stream.wait_for(&lanes.pieces[self.piece(count - 1, turns)])?;
        let after = self.at_end(pack, End::Last);
        self.ends.built[1].execute(stream, &after, 0, |kernel| kernel.launch(stream))?;
        Ok(true)
    }

    /// The place of a chunk, by the order in which they run, among the steps.
    fn place(&self, at: usize) -> usize {
        match self.pass {
            Pass::Forward => at,
            _ => self.chunks.count - 1 - at,
        }
    }

    /// The piece of the workspace of a chunk: each has its own, in the order of the steps, or they
    /// take turns.
    fn piece(&self, at: usize, turns: Turns) -> usize {
        if turns.count == self.chunks.count { self.place(at) } else { at % turns.count }
    }

    /// Where states between chunks are: those that a chunk reads, and those that it writes.
    fn states(&self, pack: &RnnSlots, chunk: usize) -> [[Slot; 2]; 2] {
        let workspace = pack.workspace.expect("there is room");
        let mut offset = 0;
        self.between.each_ref().map(|Between { bytes, .. }| {
            let apart = bytes.next_multiple_of(ALIGNMENT);
            let place = |at: usize| workspace.piece(offset + (at % 2) as u64 * apart, *bytes);
            let own = [place(chunk + 1), place(chunk)];
            offset += 2 * apart;
            own
        })
    }

    /// A pack for what goes before the first chunk, and writes what that reads, or behind the last
    /// one, and reads what that has written.
    fn at_end(&self, pack: &RnnSlots, end: End) -> RnnSlots {
        let mut own = *pack;
        // Nothing else runs meanwhile.
        let pieces = self.all_states_bytes();
        own.workspace = pack.workspace.map(|all| all.piece(pieces, self.piece_bytes[0]));
        let chunk = if end == End::First { 0 } else { self.chunks.count - 1 };
        let states = self.pass.states().into_iter().zip(self.states(pack, chunk));
        let states = states.zip(&self.between).filter(|(_, between)| between.own);
        for (([initial, last], [read, written]), _) in states {
            match end {
                End::First => own.set(last, read),
                End::Last => own.set(initial, written),
            }
        }
        own
    }

    /// Launches a chunk, by the order in which they run, and marks its end.
    fn launch_chunk(
        &mut self,
        (at, turns): (usize, Turns),
        stream: &Stream,
        pack: &RnnSlots,
        lanes: &LaneSet,
        reached: &mut usize,
    ) -> Result<()> {
        let (is_first, is_last) = (at == 0, at + 1 == self.chunks.count);
        let has_last_steps = usize::from(self.place(at) + 1 == self.chunks.count);
        let first = self.place(at) as i64 * self.chunks.steps;
        let piece = self.piece(at, turns);
        let mut own = *pack;
        let states = self.pass.states().into_iter().zip(self.states(pack, at));
        for (([initial, last], [read, written]), between) in states.zip(&self.between) {
            if between.bytes > 0 && (!is_first || between.own) {
                own.set(initial, read);
            }
            if between.bytes > 0 && (!is_last || between.own) {
                own.set(last, written);
            }
        }
        if let (Some(zeros), true) = (&self.ends.zeros, is_first) {
            let [[h, _], _] = self.pass.states();
            own.set(h, Slot::of(zeros));
        }
        let offset = self.all_states_bytes() + piece as u64 * turns.apart;
        let bytes = self.piece_bytes[has_last_steps];
        let workspace = pack.workspace.expect("there is room").piece(offset, bytes);
        own.workspace = Some(workspace);
        if let (Some(lengths), Some(all)) = (&mut self.lengths, pack.slot(Role::Lengths)) {
            let steps = [self.chunks.steps, self.chunks.last_steps][has_last_steps];
            let behind = workspace.piece(bytes - self.lengths_bytes, self.lengths_bytes);
            lengths.execute(stream, [first, steps], all, behind)?;
            own.set(Role::Lengths, behind);
        }
        let (mut stage, last_stage) = (0, self.stages - 1);
        let drawn = first * self.step_elements / WORDS;
        own.set(Role::DropoutSubsequence, Slot::Value(drawn as f64));
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
        self.built[has_last_steps].execute(stream, &own, first as u64, queue)?;
        lanes.of(stage, stream).mark(&lanes.pieces[piece])
    }
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
        assert_eq!((Chunks::of(97, 1), Chunks::of(98, 1)), (of(6, 16, 17), of(7, 16, 2)));
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
