//! Whether the layers of a network run side by side in a pass, and in which chunks of steps.

use std::collections::HashMap;

use crate::layers::rnn_lengths::Lengths;
use crate::layers::rnn_planning::Planning;
use crate::layers::rnn_plans::{Built, Pass};
use crate::layers::rnn_wavefront::{Chunks, Ends, GAIN_MIN, Wavefront};
use crate::plan::{Kiln, Recurrences};
use crate::rnn::{Extent, Optional, Rnn};

/// How the layers of a network run in a pass.
#[derive(Clone)]
pub(super) enum Order {
    /// One after the other.
    InTurn,
    /// One after the other, until the kernels of chunks have been compiled.
    Waiting(Built),
    /// Side by side, given the room.
    SideBySide(Box<Wavefront>),
}

impl Order {
    /// What runs the pass in chunks.
    pub(super) fn wavefront(&self) -> Option<&Wavefront> {
        match self {
            Order::SideBySide(wavefront) => Some(wavefront),
            _ => None,
        }
    }

    /// Whether specialised kernels have been compiled that change it.
    pub(super) fn is_outdated(&self) -> bool {
        matches!(self, Order::Waiting(built) if built.is_outdated())
    }
}

/// What makes wavefronts of a network for one batch size.
#[derive(Clone)]
pub(super) struct Chunking {
    kiln: Kiln,
    batch: i64,
    /// Steps of a chunk, if they were set.
    pub(super) steps: Option<i64>,
    /// By pass, optional tensors and number of vectors of what the plans of a pass are like.
    ends: HashMap<(Pass, Optional, i64), Ends>,
    lengths: Option<Lengths>,
}

impl Chunking {
    pub(super) fn new(kiln: &Kiln, batch: i64) -> Chunking {
        Chunking { kiln: kiln.clone(), batch, steps: None, ends: HashMap::new(), lengths: None }
    }

    /// How the layers of a pass run: side by side where that is worth it.
    pub(super) fn order(
        &mut self,
        rnn: &Rnn,
        planning: &mut Planning,
        key: (Pass, i64, Optional),
        whole: &Built,
    ) -> Order {
        self.side_by_side(rnn, planning, key, whole).unwrap_or(Order::InTurn)
    }

    fn side_by_side(
        &mut self,
        rnn: &Rnn,
        planning: &mut Planning,
        (pass, rows, with): (Pass, i64, Optional),
        whole: &Built,
    ) -> Option<Order> {
        let chunk = pass.chunk().filter(|_| rnn.runs_in_chunks(with))?;
        let plan = whole.first_plan();
        let Recurrences { count, blocks, us } = plan.recurrences()?;
        let at_once = f64::from(self.kiln.device().target().sm_count) / f64::from(blocks);
        if !whole.is_final() || (at_once < GAIN_MIN && self.steps.is_none()) {
            return None;
        }
        let steps = rows / self.batch;
        let chunks = match self.steps {
            Some(own) => Chunks::of(steps, own),
            None if !self.kiln.overlaps_launches() => None,
            None => Chunks::best(steps, count, at_once, us),
        };
        // In inference the kernels of chunks come with the first plan of others like it, whatever
        // its number of steps. Without them layers run one after the other.
        if chunks.is_none() && with.reserve {
            return None;
        }
        let like = planning.like(rows);
        let ends = self.ends(planning, chunk, with, like)?;
        let chunks = chunks?;
        let lengths = match with.lengths {
            true => Some(self.lengths()?),
            false => None,
        };
        let mut built = Vec::new();
        for own in [chunks.steps, chunks.last_steps] {
            let plans = planning.plans_like(chunk, own * self.batch, with, like).ok()?;
            if !plans.is_final() {
                return Some(Order::Waiting(plans));
            }
            built.push(plans.within(whole, [own, steps])?);
        }
        let built = built.try_into().ok()?;
        let elements = self.batch * rnn.state_size();
        let wavefront =
            Wavefront::new(pass, (chunks, count), whole, built, ends, lengths, elements)?;
        Some(Order::SideBySide(Box::new(wavefront)))
    }

    /// What computes the lengths of sequences in a chunk.
    fn lengths(&mut self) -> Option<Lengths> {
        if self.lengths.is_none() {
            self.lengths = Some(Lengths::new(&self.kiln, self.batch).ok()?);
        }
        self.lengths.clone()
    }

    /// What is at the ends of a pass, once there are kernels for its chunks.
    fn ends(
        &mut self,
        planning: &mut Planning,
        chunk: Pass,
        with: Optional,
        like: Extent,
    ) -> Option<Ends> {
        let key = (chunk, with, like.rows);
        if !self.ends.contains_key(&key) {
            let plans = planning.plans_like(chunk, like.rows, with, like).ok()?;
            let built = planning.ends(chunk, with, like).ok()?;
            let [[read, written], _] = chunk.states();
            let is_own = built[1].used_bytes(read) > 0 && built[0].used_bytes(written) == 0;
            let zeros = match is_own {
                true => {
                    let zeros = vec![0; plans.used_bytes(read) as usize];
                    Some(self.kiln.device().upload(&zeros).ok()?)
                }
                false => None,
            };
            self.ends.insert(key, Ends { built, zeros });
        }
        self.ends.get(&key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;
    use crate::dropout::DropoutDescriptor;
    use crate::dtype::DType;
    use crate::expr::Real;
    use crate::layers::rnn_pack::RnnSlots;
    use crate::layers::rnn_sizes::has_others;
    use crate::plan::{Config, DeviceMemory, Slot};

    /// A call with the workspace that sizes say runs in chunks, however they divide the steps.
    #[test]
    fn sizes_have_room_for_chunks() {
        let device = Some(DeviceChoice::Null("h100".to_owned()));
        let kiln = Kiln::open(Config { device, ..Config::default() }).expect("it opens");
        let batch = 3;
        let none = Optional::default();
        let dropout = DropoutDescriptor::set(Real::new(0.5), 1).expect("valid");
        for (rnn, with) in [
            (Rnn::lstm(64, 64).dtype(DType::F16).layers(2), none),
            (Rnn::gru(32, 48).layers(3), Optional { lengths: true, ..none }),
            (Rnn::lstm(64, 64).dtype(DType::Bf16).layers(2), Optional { reserve: true, ..none }),
            (
                Rnn::gru(48, 64).layers(3).dropout(dropout),
                Optional { reserve: true, lengths: true, ..none },
            ),
        ] {
            let with = with.with_all_states(has_others(&rnn));
            for (steps, of_chunk) in [(33, 16), (100, 64), (87, 16), (512, 64)] {
                let rows = batch * steps;
                let built = kiln.rnn(&rnn, batch).expect("valid");
                let bytes = built.temp_space(rows, with).expect("supported").workspace_bytes;
                let mut planning = Planning::new(&kiln, &rnn, batch);
                let mut chunking = Chunking::new(&kiln, batch);
                chunking.steps = Some(of_chunk);
                let passes = [Pass::Forward, Pass::BackwardData];
                for pass in &passes[..1 + usize::from(with.reserve)] {
                    let whole = planning.plans(*pass, rows, with).expect("supported");
                    let order = chunking.order(&rnn, &mut planning, (*pass, rows, with), &whole);
                    let wavefront = order.wavefront().expect("it runs in chunks");
                    let memory = DeviceMemory { address: 1 << 20, bytes };
                    let mut pack = RnnSlots::default();
                    pack.workspace = Some(Slot::foreign(memory));
                    let what = format!("{pass:?}, {steps} steps in {of_chunk}: {rnn:?}");
                    assert!(wavefront.has_room(&pack), "{what}");
                }
            }
        }
    }
}
