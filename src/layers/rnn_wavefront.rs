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
use crate::plan::{ALIGNMENT, ExecutionPlan, Kiln, Queued, Slot};
use crate::rnn::{ALIGNMENT as TENSOR_ALIGNMENT, Role};

/// Chunks have a multiple of so many steps, so that vectors of each are aligned as those of all.
const STEPS_UNIT: i64 = 16;

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

/// A pass in chunks.
#[derive(Clone)]
pub(super) struct Wavefront {
    pass: Pass,
    chunks: Chunks,
    layers: usize,
    stages: usize,
    /// What runs a chunk, and that of the last steps.
    built: [Built; 2],
    /// What goes before the first chunk to run, and behind the last one.
    ends: [Built; 2],
    /// The caller's tensors and their sizes in bytes.
    roles: Vec<(Role, u64)>,
    /// States between chunks, in the order of [`Pass::states`].
    between: [Between; 2],
    /// What computes the lengths of sequences in a chunk, if they have any.
    lengths: Option<Lengths>,
    /// Bytes of the workspace for a chunk, of which those behind the first so many are lengths.
    piece_bytes: u64,
    plan_bytes: u64,
}

/// A state of all layers between chunks.
#[derive(Clone)]
struct Between {
    bytes: u64,
    /// Whether chunks begin with it and leave it at both ends, too: it is not the caller's.
    own: bool,
    /// What the first chunk begins with, where nothing computes it.
    zeros: Option<Buffer>,
}

/// The chunk at an end of a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

impl Wavefront {
    /// A pass in these chunks, run by these plans; `None` where they run otherwise than the plan of
    /// all steps, where their stages differ, or without memory.
    pub(super) fn new(
        pass: Pass,
        chunks: Chunks,
        layers: usize,
        whole: &Built,
        built: [Built; 2],
        ends: [Built; 2],
        lengths: Option<Lengths>,
        kiln: &Kiln,
    ) -> Option<Wavefront> {
        let [own, last] = built.each_ref().map(Built::first_plan);
        let runs_as = |plan: &ExecutionPlan| plan.runs_as_part_of(whole.first_plan());
        if !runs_as(own) || !runs_as(last) || !own.stages().eq(last.stages()) {
            return None;
        }
        let stages = own.stages().max()? + 1;
        let between = pass.states().map(|[read, written]| {
            let bytes = built[0].used_bytes(read);
            let own = ends.iter().any(|of| of.used_bytes(read) + of.used_bytes(written) > 0);
            let is_computed = ends[0].used_bytes(written) > 0;
            Some(match own && !is_computed {
                true => {
                    let zeros = kiln.device().upload(&vec![0; bytes as usize]).ok()?;
                    Between { bytes, own, zeros: Some(zeros) }
                }
                false => Between { bytes, own, zeros: None },
            })
        });
        let [h, others] = between;
        let plan_bytes = built.iter().chain(&ends).map(Built::workspace_bytes).max()?;
        let plan_bytes = plan_bytes.next_multiple_of(ALIGNMENT);
        let lengths_bytes = built[0].bytes_of(Role::Lengths).next_multiple_of(ALIGNMENT);
        Some(Wavefront {
            pass,
            chunks,
            layers,
            stages,
            built,
            ends,
            roles: whole.roles().to_vec(),
            between: [h?, others?],
            lengths,
            piece_bytes: plan_bytes + lengths_bytes,
            plan_bytes,
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
        let own = self.roles.iter().filter_map(|(role, _)| pack.slot(*role));
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
        let places = || self.roles.iter().filter_map(place).chain(workspace);
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
        let Some(turns) = self.turns(pack) else { return Ok(false) };
        let lanes = lanes.of_stream(self.built[0].first_plan().device(), stream);
        lanes.grow(self.built[0].first_plan().device(), self.stages, turns)?;
        // Stages that something was launched in.
        let mut reached = 0;
        let count = self.chunks.count;
        let before = self.at_end(pack, End::First);
        self.ends[0].execute(stream, &before, 0, |kernel| kernel.launch(stream))?;
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
        let after = self.at_end(pack, End::Last);
        self.ends[1].execute(stream, &after, 0, |kernel| kernel.launch(stream))?;
        Ok(true)
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

    /// The piece of the workspace of a chunk.
    fn piece(&self, pack: &RnnSlots, piece: usize) -> Option<Slot> {
        let offset = self.all_states_bytes() + piece as u64 * self.piece_bytes;
        pack.workspace.map(|whole| whole.piece(offset, self.piece_bytes))
    }

    /// A pack for what goes before the first chunk, and writes what that reads, or behind the last
    /// one, and reads what that has written.
    fn at_end(&self, pack: &RnnSlots, end: End) -> RnnSlots {
        let mut own = *pack;
        // Nothing else runs meanwhile.
        own.workspace = self.piece(pack, 0);
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
        let of_steps = match self.pass {
            Pass::Forward => at,
            _ => self.chunks.count - 1 - at,
        };
        let mut own = *pack;
        own.workspace = self.piece(pack, piece);
        let states = self.pass.states().into_iter().zip(self.states(pack, at));
        for (([initial, last], [read, written]), between) in states.zip(&self.between) {
            if between.bytes > 0 && (!is_first || between.own) {
                let zeros = between.zeros.as_ref().filter(|_| is_first);
                own.set(initial, zeros.map_or(read, Slot::of));
            }
            if between.bytes > 0 && (!is_last || between.own) {
                own.set(last, written);
            }
        }
        let is_short = usize::from(of_steps + 1 == self.chunks.count);
        let first = of_steps as i64 * self.chunks.steps;
        if let (Some(lengths), Some(all)) = (&mut self.lengths, pack.slot(Role::Lengths)) {
            let steps = [self.chunks.steps, self.chunks.last_steps][is_short];
            let bytes = self.piece_bytes - self.plan_bytes;
            let piece = own.workspace.expect("there is room").piece(self.plan_bytes, bytes);
            lengths.execute(stream, [first, steps], all, piece)?;
            own.set(Role::Lengths, piece);
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
        self.built[is_short].execute(stream, &own, first as u64, queue)?;
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
