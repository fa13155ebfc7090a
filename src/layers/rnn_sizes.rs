//! Sizes of a recurrent network's temporary memory, found without compiling anything.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Result;
use crate::layers::bounded::Bounded;
use crate::layers::octaves::{Family, Octave, Octaves};
use crate::layers::rnn_plans::Pass;
use crate::layers::rnn_wavefront::room_bytes;
use crate::layers::weight_sum::SCRATCH_ALIGNMENT;
use crate::plan::{Candidates, Contents, Kiln};
use crate::progression::Progression;
use crate::rnn::{DataChunks, Extent, Network, Optional, Rnn, Training};

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
    /// Sizes by optional tensors.
    octaves: Octaves<Optional, Vec<Sizes>>,
}

/// What a graph of a pass needs of temporary memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sizes {
    plans: Contents,
    /// Bytes of the workspace behind what plans use.
    kept: u64,
    /// Bytes of the states that chunks of steps leave to each other.
    between: u64,
    /// Bytes of the reserve space, and where each tensor in it begins: what is rounded follows only
    /// where each of its parts does.
    reserve: u64,
    reserve_offsets: Vec<u64>,
}

impl Sizes {
    fn workspace_bytes(&self) -> u64 {
        self.plans.bytes().next_multiple_of(SCRATCH_ALIGNMENT) + self.kept
    }
}

impl Progression for Sizes {
    fn term(first: &Sizes, second: &Sizes, at: i64) -> Option<Sizes> {
        Some(Sizes {
            plans: Contents::term(&first.plans, &second.plans, at)?,
            kept: u64::term(&first.kept, &second.kept, at)?,
            between: u64::term(&first.between, &second.between, at)?,
            reserve: u64::term(&first.reserve, &second.reserve, at)?,
            reserve_offsets: Vec::term(&first.reserve_offsets, &second.reserve_offsets, at)?,
        })
    }
}

/// The sizes of a network's passes by number of vectors.
struct Measured<'a> {
    passes: &'a mut Passes,
    kiln: &'a Kiln,
    batch: i64,
    with: Optional,
}

impl Family<Vec<Sizes>> for Measured<'_> {
    fn make(&mut self, rows: i64) -> Result<Vec<Sizes>> {
        self.passes.measured(self.kiln, Extent { batch: self.batch, rows }, self.with)
    }

    fn term(
        &mut self,
        first: &Vec<Sizes>,
        second: &Vec<Sizes>,
        at: i64,
    ) -> Result<Option<Vec<Sizes>>> {
        Ok(Vec::term(first, second, at))
    }

    fn same(&self, one: &Vec<Sizes>, other: &Vec<Sizes>) -> bool {
        one == other
    }

    fn is_final(&self, _of: &Vec<Sizes>) -> bool {
        true
    }

    fn may_follow(&self, of: &Vec<Sizes>) -> bool {
        !of.iter().any(|sizes| sizes.plans.is_alone())
    }
}

/// Bytes of the length of a sequence.
const LENGTH_BYTES: u64 = size_of::<i32>() as u64;

/// Extents whose training is kept: of a call, of its chunks, of what the plans of these are like,
/// and of those that they follow from.
const TRAININGS_MAX: usize = 8;

impl Passes {
    pub(super) fn of(rnn: &Rnn) -> Passes {
        let (trainings, candidates) = (Bounded::new(TRAININGS_MAX), HashMap::new());
        Passes { rnn: rnn.clone(), trainings, candidates, octaves: Octaves::default() }
    }

    /// The networks of a pass.
    pub(super) fn networks(
        &mut self,
        pass: Pass,
        extent: Extent,
        with: Optional,
    ) -> Result<Vec<Network>> {
        // Chunks of a forward pass may have states of another type.
        let apart = pass == Pass::ForwardChunk && !self.rnn.keeps_states();
        if !with.reserve || apart {
            return pass.networks(&self.rnn, extent, with);
        }
        pass.of_training(self.training(extent, with)?)
    }

    /// What goes before the chunks of a pass, and behind them.
    pub(super) fn ends(
        &mut self,
        pass: Pass,
        extent: Extent,
        with: Optional,
    ) -> Result<[Vec<Network>; 2]> {
        match pass.whole() {
            Pass::BackwardData => {
                let DataChunks { before, after, .. } =
                    self.training(extent, with)?.data.data_in_chunks()?;
                Ok([before, after])
            }
            _ => self.rnn.state_casts(extent.batch),
        }
    }

    fn training(&mut self, extent: Extent, with: Optional) -> Result<&Arc<Training>> {
        let key = (extent, with);
        if !self.trainings.has(&key) {
            self.trainings.insert(key, Arc::new(self.rnn.training(extent, with)?));
        }
        Ok(self.trainings.get(&key).expect("it is there"))
    }

    /// [`Kiln::rnn_temp_space`] of the network.
    pub(super) fn temp_space(
        &mut self,
        kiln: &Kiln,
        extent: Extent,
        with: Optional,
    ) -> Result<TempSpace> {
        let with = with.with_all_states(has_others(&self.rnn));
        let in_chunks = self.rnn.runs_in_chunks(with);
        let sizes = match Octave::of(extent, self.rnn.layout) {
            None => self.measured(kiln, extent, with)?,
            Some(octave) => {
                let mut octaves = std::mem::take(&mut self.octaves);
                let mut family = Measured { passes: self, kiln, batch: extent.batch, with };
                let sizes = octaves.get((with, octave), extent.rows, &mut family);
                self.octaves = octaves;
                sizes?
            }
        };
        let workspace_bytes = |sizes: &Sizes| match in_chunks {
            true => {
                let steps = extent.rows / extent.batch;
                let lengths = if with.lengths { extent.batch as u64 * LENGTH_BYTES } else { 0 };
                sizes.workspace_bytes() + room_bytes(steps, sizes.between, lengths)
            }
            false => sizes.workspace_bytes(),
        };
        Ok(TempSpace {
            workspace_bytes: sizes.iter().map(workspace_bytes).max().unwrap_or(0),
            reserve_bytes: sizes.last().map_or(0, |last| last.reserve),
        })
    }

    /// Sizes of the graphs of all passes.
    fn measured(&mut self, kiln: &Kiln, extent: Extent, with: Optional) -> Result<Vec<Sizes>> {
        let passes: &[Pass] = match with.reserve {
            true => &[Pass::Forward, Pass::BackwardData, Pass::BackwardWeights],
            false => &[Pass::Forward],
        };
        let mut sizes = Vec::new();
        let like = like_extent(extent);
        let smaller = smaller_likes(like).filter(|_| kiln.compiles_nothing());
        let likes: Vec<Extent> = [like].into_iter().chain(smaller).collect();
        for pass in passes {
            let networks = self.networks(*pass, extent, with)?;
            let mut plans = vec![Contents::default(); networks.len()];
            for like in &likes {
                let all = self.candidates(kiln, *pass, *like, with)?;
                for ((plans, network), like) in plans.iter_mut().zip(&networks).zip(all) {
                    *plans = std::mem::take(plans).or(kiln.workspace_max(&network.graph, like)?);
                }
            }
            for (network, plans) in networks.iter().zip(plans) {
                let (kept, reserve) = (Pass::kept_bytes_max(network), network.reserve_bytes);
                let between = network.states_between();
                let reserve_offsets = network.reserve_offsets.clone();
                sizes.push(Sizes { plans, kept, between, reserve, reserve_offsets });
            }
        }
        Ok(sizes)
    }

    /// What runs each network of a pass.
    fn candidates(
        &mut self,
        kiln: &Kiln,
        pass: Pass,
        extent: Extent,
        with: Optional,
    ) -> Result<&[Candidates]> {
        let key = (pass, with, extent.rows);
        if !self.candidates.contains_key(&key) {
            let networks = self.networks(pass, extent, with)?;
            let own = networks.iter().map(|network| kiln.candidates(&network.graph));
            self.candidates.insert(key, own.collect::<Result<_>>()?);
        }
        Ok(&self.candidates[&key])
    }
}

/// The extent whose plans those of an extent are like: as many steps as the last power of two.
pub(super) fn like_extent(Extent { batch, rows }: Extent) -> Extent {
    let steps = 1 << (rows / batch.max(1)).max(1).ilog2();
    Extent { batch, rows: batch.saturating_mul(steps) }
}

/// The extents that those of an extent may be like where nothing is compiled: the kernels of its
/// own, or of fewer steps.
pub(super) fn smaller_likes(like: Extent) -> impl Iterator<Item = Extent> {
    let half = |of: &Extent| (of.rows > of.batch).then_some(Extent { rows: of.rows / 2, ..*of });
    std::iter::successors(half(&like), half)
}

/// One step of each sequence.
pub(super) fn one_step(batch: i64) -> Extent {
    Extent { batch, rows: batch }
}

/// Whether the cell has states besides `h`.
pub(super) fn has_others(rnn: &Rnn) -> bool {
    rnn.build_cell().states.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;
    use crate::dtype::DType;
    use crate::graph::RowLayout;
    use crate::plan::Config;

    /// In inference and in training; what is rounded to 16 bytes in the reserve space does not.
    #[test]
    fn sizes_of_networks_follow_from_two() {
        let device = Some(DeviceChoice::Null("h100".to_owned()));
        let kiln = Kiln::open(Config { device, ..Config::default() }).expect("it opens");
        let batch = 8;
        for rnn in [
            Rnn::lstm(64, 64).dtype(DType::F16),
            Rnn::gru(32, 48).layers(2).bidirectional(),
            Rnn::lstm(64, 1024).dtype(DType::F16).projection(128).layout(RowLayout::BatchMajor),
            Rnn::lstm(64, 128).dtype(DType::Bf16).layers(3).layout(RowLayout::Packed),
        ] {
            let packed = rnn.layout == RowLayout::Packed;
            let mut passes = Passes::of(&rnn);
            for reserve in [false, true] {
                let with = Optional { lengths: packed, reserve, ..Optional::default() };
                for steps in [65, 100, 127, 400, 300] {
                    let rows = batch * steps + i64::from(packed);
                    passes.temp_space(&kiln, Extent { batch, rows }, with).expect("supported");
                }
            }
            assert!(passes.octaves.all_follow(), "{rnn:?}");
        }
    }
}
