//! Whether the layers of a network run side by side in a pass, and in which chunks of steps.

use std::collections::HashMap;

use crate::layers::rnn_lengths::Lengths;
use crate::layers::rnn_planning::Planning;
use crate::layers::rnn_plans::{Built, Pass};
use crate::layers::rnn_wavefront::{Chunks, GAIN_MIN, Wavefront};
use crate::plan::{Kiln, Recurrences, Tier};
use crate::rnn::{Extent, Optional, Rnn};

/// What makes wavefronts of a network for one batch size.
#[derive(Clone)]
pub(super) struct Chunking {
    kiln: Kiln,
    batch: i64,
    /// Steps of a chunk, if they were set.
    pub(super) steps: Option<i64>,
    /// What goes before the chunks of a pass, and behind them, by pass, optional tensors and number
    /// of vectors of what its plans are like.
    ends: HashMap<(Pass, Optional, i64), [Built; 2]>,
    lengths: Option<Lengths>,
}

impl Chunking {
    pub(super) fn new(kiln: &Kiln, batch: i64) -> Chunking {
        Chunking { kiln: kiln.clone(), batch, steps: None, ends: HashMap::new(), lengths: None }
    }

    /// What runs a pass in chunks, if that is worth it.
    pub(super) fn wavefront(
        &mut self,
        rnn: &Rnn,
        planning: &mut Planning,
        (pass, rows, with): (Pass, i64, Optional),
        built: &Built,
    ) -> Option<Wavefront> {
        let chunk = pass.chunk().filter(|_| rnn.runs_in_chunks(with))?;
        let whole = built.first_plan();
        let Recurrences { count, blocks, us } = whole.recurrences()?;
        let at_once = f64::from(self.kiln.device().target().sm_count) / f64::from(blocks);
        if whole.tier() != Tier::Special || (at_once < GAIN_MIN && self.steps.is_none()) {
            return None;
        }
        let like = planning.like(rows, with);
        // In inference the kernels of chunks come with the first plan, whatever its number of
        // steps. Without them layers run one after the other.
        if !with.reserve {
            self.ends(planning, chunk, with, like)?;
        }
        let steps = rows / self.batch;
        let chunks = match self.steps {
            Some(own) => Chunks::of(steps, own)?,
            None if !self.kiln.overlaps_launches() => return None,
            None => Chunks::best(steps, count, at_once, us)?,
        };
        let ends = self.ends(planning, chunk, with, like)?;
        let plans = |own: i64| {
            let plans = planning.plans_like(chunk, own * self.batch, with, like).ok()?;
            plans.within(built, [own, steps])
        };
        let mut plans = [chunks.steps, chunks.last_steps].map(plans).into_iter();
        let own = [plans.next()??, plans.next()??];
        let lengths = match with.lengths {
            true => Some(self.lengths()?),
            false => None,
        };
        Wavefront::new(pass, chunks, count, built, own, ends, lengths, &self.kiln)
    }

    /// What computes the lengths of sequences in a chunk.
    fn lengths(&mut self) -> Option<Lengths> {
        if self.lengths.is_none() {
            self.lengths = Some(Lengths::new(&self.kiln, self.batch).ok()?);
        }
        self.lengths.clone()
    }

    /// What goes before the chunks of a pass, and behind them, once there are kernels for chunks.
    fn ends(
        &mut self,
        planning: &mut Planning,
        chunk: Pass,
        with: Optional,
        like: Extent,
    ) -> Option<[Built; 2]> {
        let key = (chunk, with, like.rows);
        if !self.ends.contains_key(&key) {
            planning.plans_like(chunk, like.rows, with, like).ok()?;
            self.ends.insert(key, planning.ends(chunk, with, like).ok()?);
        }
        self.ends.get(&key).cloned()
    }
}
