//! How the plans of a recurrent network's passes are made.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::graph::RowLayout;
use crate::layers::octaves::{Family, Octave, Octaves};
use crate::layers::rnn_plans::{Built, Pass};
use crate::layers::rnn_sizes::{Passes, like_extent, smaller_likes};
use crate::plan::{ExecutionPlan, Kiln, Tier};
use crate::rnn::{Extent, Network, Optional, Rnn};

/// What makes the plans of a network for one batch size. A clone shares the passes.
#[derive(Clone)]
pub(super) struct Planning {
    kiln: Kiln,
    layout: RowLayout,
    batch: i64,
    /// The network's passes by extent.
    pub(super) passes: Arc<Mutex<Passes>>,
    /// Plans by pass, optional tensors and number of vectors that those of other numbers are like:
    /// their kernels count vectors at run time.
    likes: HashMap<(Pass, Optional, i64), Vec<ExecutionPlan>>,
    /// Plans by pass, optional tensors and number of vectors of those that they are like, from
    /// which those of other numbers follow.
    octaves: Octaves<(Pass, Optional, i64), Built>,
}

/// The plans of a pass by number of vectors, which are like that of another one.
struct OfPass<'a> {
    planning: &'a mut Planning,
    pass: Pass,
    with: Optional,
    like: Extent,
}

impl Family<Built> for OfPass<'_> {
    fn make(&mut self, rows: i64) -> Result<Built> {
        self.planning.made(self.pass, rows, self.with, self.like)
    }

    fn term(&mut self, first: &Built, second: &Built, at: i64) -> Result<Option<Built>> {
        first.term(second, &self.planning.kiln, at)
    }

    fn same(&self, one: &Built, other: &Built) -> bool {
        one.launches_as(other)
    }

    fn is_final(&self, of: &Built) -> bool {
        of.is_final()
    }

    fn may_follow(&self, of: &Built) -> bool {
        of.has_kernels_of_likes()
    }
}

impl Planning {
    pub(super) fn new(kiln: &Kiln, rnn: &Rnn, batch: i64) -> Planning {
        Planning {
            kiln: kiln.clone(),
            layout: rnn.layout,
            batch,
            passes: Arc::new(Mutex::new(Passes::of(rnn))),
            likes: HashMap::new(),
            octaves: Octaves::default(),
        }
    }

    /// The plans of a pass for a number of vectors.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(super) fn plans(&mut self, pass: Pass, rows: i64, with: Optional) -> Result<Built> {
        self.plans_like(pass, rows, with, self.like(rows))
    }

    /// The extent whose plans those of a number of vectors are like.
    pub(super) fn like(&self, rows: i64) -> Extent {
        like_extent(Extent { batch: self.batch, rows })
    }

    /// The plans of a pass for a number of vectors, like those of this extent.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(super) fn plans_like(
        &mut self,
        pass: Pass,
        rows: i64,
        with: Optional,
        like: Extent,
    ) -> Result<Built> {
        let extent = Extent { batch: self.batch, rows };
        let Some(octave) = Octave::of(extent, self.layout) else {
            return self.made(pass, rows, with, like);
        };
        let mut octaves = std::mem::take(&mut self.octaves);
        let mut family = OfPass { planning: self, pass, with, like };
        let plans = octaves.get(((pass, with, like.rows), octave), rows, &mut family);
        self.octaves = octaves;
        plans
    }

    /// What goes before the chunks of a pass, and behind them.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(super) fn ends(&self, chunk: Pass, with: Optional, like: Extent) -> Result<[Built; 2]> {
        let [before, after] = {
            let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
            passes.ends(chunk, like, with)?
        };
        let built = |networks: Vec<Network>| {
            let plans = networks.iter().map(|network| self.kiln.plan(&network.graph));
            let plans: Vec<ExecutionPlan> = plans.collect::<Result<_>>()?;
            Built::new(&networks, plans.clone(), &plans)
        };
        Ok([built(before)?, built(after)?])
    }

    /// The plans of a pass, each like that of another number of vectors; where there are none, as
    /// without a compiler, those of kernels for this number alone, or like those of fewer steps.
    fn made(&mut self, pass: Pass, rows: i64, with: Optional, like: Extent) -> Result<Built> {
        self.made_like(pass, rows, with, like).or_else(|error| {
            if let Ok(alone) = self.alone(pass, rows, with) {
                return Ok(alone);
            }
            let smaller = smaller_likes(like).filter(|_| self.kiln.compiles_nothing());
            let smaller: Vec<Extent> = smaller.collect();
            let mut smaller = smaller.into_iter();
            smaller.find_map(|like| self.made_like(pass, rows, with, like).ok()).ok_or(error)
        })
    }

    fn made_like(&mut self, pass: Pass, rows: i64, with: Optional, like: Extent) -> Result<Built> {
        let (kiln, extent) = (&self.kiln, Extent { batch: self.batch, rows });
        let passes = &self.passes;
        let networks_of = |extent| {
            let mut passes = passes.lock().unwrap_or_else(PoisonError::into_inner);
            passes.networks(pass, extent, with)
        };
        // Chunks run as all steps do, whatever has been tuned.
        let whole = self.likes.get(&(pass.whole(), with, like.rows)).and_then(|of| of.first());
        let is_final = |whole: &&ExecutionPlan| whole.tier() == Tier::Special;
        let whole = whole.filter(|_| pass != pass.whole()).filter(is_final).cloned();
        let plan = |network: &Network| {
            let plan = kiln.plan(&network.graph)?;
            match &whole {
                Some(whole) if plan.tier() == Tier::Special && !plan.runs_as_part_of(whole) => {
                    kiln.plan_cut(&network.graph, whole)
                }
                _ => Ok(plan),
            }
        };
        let likes = match self.likes.entry((pass, with, like.rows)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let networks = networks_of(like)?;
                let plans = networks.iter().map(plan);
                place.insert(plans.collect::<Result<_>>()?)
            }
        };
        let networks = networks_of(extent)?;
        let plan = |(network, like): (&Network, &ExecutionPlan)| match like.graph() {
            graph if *graph == network.graph => Ok(like.clone()),
            _ => kiln.plan_like(&network.graph, like),
        };
        let plans = networks.iter().zip(likes.iter()).map(plan).collect::<Result<_>>()?;
        Built::new(&networks, plans, likes)
    }

    fn alone(&self, pass: Pass, rows: i64, with: Optional) -> Result<Built> {
        let networks = {
            let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
            passes.networks(pass, Extent { batch: self.batch, rows }, with)?
        };
        let plans = networks.iter().map(|network| self.kiln.plan_anew(&network.graph));
        Built::new(&networks, plans.collect::<Result<_>>()?, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;
    use crate::dtype::DType;
    use crate::plan::Config;

    /// Packed or not, in inference and in training, on kernels that are compiled once.
    #[test]
    fn plans_of_networks_follow_from_two() {
        let device = Some(DeviceChoice::Null("h100".to_owned()));
        let kiln = Kiln::open(Config { device, ..Config::default() }).expect("it opens");
        let batch = 8;
        for layout in [RowLayout::SequenceMajor, RowLayout::Packed] {
            let rnn = Rnn::lstm(64, 64).dtype(DType::F16).layout(layout);
            let packed = layout == RowLayout::Packed;
            let mut planning = Planning::new(&kiln, &rnn, batch);
            for reserve in [false, true] {
                let with = Optional { lengths: packed, reserve, ..Optional::default() };
                let with = with.with_all_states(true);
                for steps in [65, 100, 127] {
                    let rows = batch * steps + i64::from(packed);
                    planning.plans(Pass::Forward, rows, with).expect("supported");
                }
            }
            assert!(planning.octaves.all_follow(), "{layout:?}");
        }
    }
}
