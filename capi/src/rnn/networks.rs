//! Networks that have been built for a number of sequences.

use kiln::Kiln;
use kiln::graph::RowLayout;
use kiln::layers::{PersistentRnn, TempSpace};
use kiln::rnn::{Optional, Rnn, RnnDataDescriptor};

use crate::handle::Handle;
use crate::kept::Lengths;
use crate::object::next_number;
use crate::status::Outcome;

/// A network on a device, for a number of sequences.
#[derive(Clone)]
pub struct Network {
    /// A number that no other network has but its clones.
    id: u64,
    /// What launches it.
    pub built: PersistentRnn,
    /// Lengths of sequences in device memory, for calls that are given none there.
    lengths: Lengths,
}

impl Handle {
    /// Uses a network of this handle's, whose kernels all handles share.
    pub fn network<R>(
        &self,
        rnn: &Rnn,
        batch: i64,
        of: impl FnOnce(&mut Network) -> Outcome<R>,
    ) -> Outcome<R> {
        self.known_network(&mut 0, rnn, batch, of)
    }

    /// As [`Handle::network`], of the number that it had last; 0 where that is not known. It is
    /// that of the network afterwards.
    pub fn known_network<R>(
        &self,
        id: &mut u64,
        rnn: &Rnn,
        batch: i64,
        of: impl FnOnce(&mut Network) -> Outcome<R>,
    ) -> Outcome<R> {
        let last = *id;
        let is = |known: &Network| {
            known.id == last || known.built.mini_batch() == batch && known.built.rnn() == rnn
        };
        let new = || Network::new(&self.gpu().kiln, rnn, batch);
        let share = || self.gpu().networks.with(is, new, |network| Ok(network.clone()));
        self.networks().with(is, share, |network| {
            *id = network.id;
            of(network)
        })
    }
}

impl Network {
    fn new(kiln: &Kiln, rnn: &Rnn, batch: i64) -> Outcome<Network> {
        let (id, lengths) = (next_number(), Lengths::default());
        Ok(Network { id, built: kiln.rnn(rnn, batch)?, lengths })
    }

    /// Compiles the kernels of inference, or finds them in a cache.
    pub fn prepare(&mut self) -> Outcome {
        Ok(self.built.build()?)
    }

    /// Sizes of temporary memory.
    pub fn temp_space(&self, x: &RnnDataDescriptor, training: bool) -> Outcome<TempSpace> {
        let with = Optional { lengths: needs_lengths(x), reserve: training, ..Optional::default() };
        Ok(self.built.temp_space(x.extent().rows, with)?)
    }

    /// Where the lengths of sequences are: in memory of the library's own, which is filled once.
    pub fn lengths(&mut self, kiln: &Kiln, x: &RnnDataDescriptor) -> Outcome<u64> {
        self.lengths.address(kiln, 0, &x.get().seq_lengths)
    }
}

/// Whether the lengths of sequences do not follow from the number of vectors.
pub fn needs_lengths(x: &RnnDataDescriptor) -> bool {
    x.is_ragged() || x.get().layout == RowLayout::Packed
}
