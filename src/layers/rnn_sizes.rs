//! Sizes of a recurrent network's temporary memory, found without compiling anything.

use crate::error::Result;
use crate::layers::rnn_plans::{Pass, with_all_states};
use crate::layers::weight_sum::SCRATCH_ALIGNMENT;
use crate::plan::Kiln;
use crate::rnn::{Extent, Optional, Rnn, Role};

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
        let with = with_all_states(has_others(rnn), with);
        let passes: &[Pass] = match with.reserve {
            true => &[Pass::Forward, Pass::BackwardData, Pass::BackwardWeights],
            false => &[Pass::Forward],
        };
        let mut space = TempSpace { workspace_bytes: 0, reserve_bytes: 0 };
        for pass in passes {
            let networks = pass.networks(rnn, extent, with)?;
            let first = match with.reserve {
                true => None,
                false => Some(pass.networks(rnn, one_step(extent.batch), with)?),
            };
            for (at, network) in networks.iter().enumerate() {
                let like = first.as_ref().map_or(&network.graph, |first| &first[at].graph);
                let plans = self.workspace_bytes_max(&network.graph, like)?;
                let kept = Pass::kept_bytes_max(network);
                let bytes = plans.next_multiple_of(SCRATCH_ALIGNMENT) + kept;
                space.workspace_bytes = space.workspace_bytes.max(bytes);
                space.reserve_bytes = network.bytes(Role::Reserve);
            }
        }
        Ok(space)
    }
}

/// One step of each sequence.
pub(super) fn one_step(batch: i64) -> Extent {
    Extent { batch, rows: batch }
}

/// Whether the cell has states besides `h`.
pub(super) fn has_others(rnn: &Rnn) -> bool {
    rnn.build_cell().states.len() > 1
}
