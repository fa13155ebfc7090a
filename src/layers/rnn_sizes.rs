//! Sizes of a recurrent network's temporary memory, found without compiling anything.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Result;
use crate::layers::bounded::Bounded;
use crate::layers::rnn_plans::{Pass, with_all_states};
use crate::layers::weight_sum::SCRATCH_ALIGNMENT;
use crate::plan::{Candidates, Kiln};
use crate::rnn::{Extent, Network, Optional, Rnn, Role, Training};

/// Sizes of temporary memory in bytes (`mcdnnGetRNNTempSpaceSizes`, section 6.2.1.29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TempSpace {
    /// Workspace, used during a call; in training the largest of the three passes.
    pub workspace_bytes: u64,
    /// Reserve space, passed from the forward pass to the backward passes; 0 in inference.
    pub reserve_bytes: u64,
}

impl Kiln {
    /// Sizes in bytes of the workspace and the reserve space of a network for this extent
    /// (`mcdnnGetRNNTempSpaceSizes`, section 6.2.1.29): enough for whatever configurations planning
    /// falls back to, for kernels that run until others are compiled, for every choice of states,
    /// and for states that are overwritten in place. Nothing is compiled, and nothing that is built
    /// later makes a difference.
    ///
    /// # Errors
    /// As [`Rnn::network`]; `NotSupported` with every engine's reason.
    pub fn rnn_temp_space(&self, rnn: &Rnn, extent: Extent, with: Optional) -> Result<TempSpace> {
        Passes::of(rnn).temp_space(self, extent, with)
    }
}

/// The passes of a network.
#[derive(Debug)]
pub(super) struct Passes {
    rnn: Rnn,
    /// Those of training that were asked for last: each is a part of all.
    trainings: Bounded<(Extent, Optional), Arc<Training>>,
    /// What runs passes that others are like, by pass, optional tensors and number of vectors.
    candidates: HashMap<(Pass, Optional, i64), Vec<Candidates>>,
}

/// Extents whose training is kept: of a call, and what its plans are like.
const TRAININGS_MAX: usize = 4;

impl Passes {
    pub(super) fn of(rnn: &Rnn) -> Passes {
        let (trainings, candidates) = (Bounded::new(TRAININGS_MAX), HashMap::new());
        Passes { rnn: rnn.clone(), trainings, candidates }
    }

    /// The networks of a pass.
    pub(super) fn networks(
        &mut self,
        pass: Pass,
        extent: Extent,
        with: Optional,
    ) -> Result<Vec<Network>> {
        if !with.reserve {
            return pass.networks(&self.rnn, extent, with);
        }
        let key = (extent, with);
        if !self.trainings.has(&key) {
            self.trainings.insert(key, Arc::new(self.rnn.training(extent, with)?));
        }
        let training = self.trainings.get(&key).expect("it is there");
        pass.of_training(training)
    }

    /// [`Kiln::rnn_temp_space`] of the network.
    pub(super) fn temp_space(
        &mut self,
        kiln: &Kiln,
        extent: Extent,
        with: Optional,
    ) -> Result<TempSpace> {
        let with = with_all_states(has_others(&self.rnn), with);
        let passes: &[Pass] = match with.reserve {
            true => &[Pass::Forward, Pass::BackwardData, Pass::BackwardWeights],
            false => &[Pass::Forward],
        };
        let mut space = TempSpace { workspace_bytes: 0, reserve_bytes: 0 };
        for pass in passes {
            let like = like_extent(extent, with);
            let key = (*pass, with, like.rows);
            if !self.candidates.contains_key(&key) {
                let networks = self.networks(*pass, like, with)?;
                let own = networks.iter().map(|network| kiln.candidates(&network.graph));
                self.candidates.insert(key, own.collect::<Result<_>>()?);
            }
            let networks = self.networks(*pass, extent, with)?;
            for (network, like) in networks.iter().zip(&self.candidates[&key]) {
                let plans = kiln.workspace_bytes_max(&network.graph, like)?;
                let kept = Pass::kept_bytes_max(network);
                let bytes = plans.next_multiple_of(SCRATCH_ALIGNMENT) + kept;
                space.workspace_bytes = space.workspace_bytes.max(bytes);
                space.reserve_bytes = network.bytes(Role::Reserve);
            }
        }
        Ok(space)
    }
}

/// The extent whose plans those of an extent are like: one step in inference; in training, where
/// products along the steps are split by their number, as many as the last power of two.
pub(super) fn like_extent(Extent { batch, rows }: Extent, with: Optional) -> Extent {
    let steps = match with.reserve {
        true => 1 << (rows / batch).max(1).ilog2(),
        false => 1,
    };
    Extent { batch, rows: batch.saturating_mul(steps) }
}

/// One step of each sequence.
pub(super) fn one_step(batch: i64) -> Extent {
    Extent { batch, rows: batch }
}

/// Whether the cell has states besides `h`.
pub(super) fn has_others(rnn: &Rnn) -> bool {
    rnn.build_cell().states.len() > 1
}
