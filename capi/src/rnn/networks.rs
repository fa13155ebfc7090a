//! Networks that have been built for a number of sequences, and how they are called.

use std::sync::{Mutex, PoisonError};

use kiln::Kiln;
use kiln::graph::RowLayout;
use kiln::layers::{PersistentRnn, RnnPack, TempSpace};
use kiln::plan::DeviceMemory;
use kiln::rnn::{Optional, Rnn, RnnDataDescriptor, Role};

use crate::handle::Handle;
use crate::kept::{Lengths, UNKNOWN, aligned, use_last, workspace_bytes};
use crate::rnn::data::RnnData;
use crate::rnn::descriptor::Record;
use crate::rnn::values::RnnMode;
use crate::status::{Outcome, bad};

/// Networks, those used last at the end.
#[derive(Default)]
pub struct Networks(Mutex<Vec<Network>>);

/// A network on a device, for a number of sequences.
#[derive(Clone)]
pub struct Network {
    /// What launches it.
    pub built: PersistentRnn,
    /// Lengths of sequences in device memory, for calls that are given none there.
    lengths: Lengths,
}

impl Networks {
    /// Uses a network, which is found or made.
    fn with<R>(
        &self,
        (rnn, batch): (&Rnn, i64),
        make: impl FnOnce() -> Outcome<Network>,
        of: impl FnOnce(&mut Network) -> Outcome<R>,
    ) -> Outcome<R> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |known: &Network| known.built.mini_batch() == batch && known.built.rnn() == rnn;
        of(use_last(&mut all, is, make)?)
    }
}

impl Handle {
    /// Uses a network of this handle's, whose kernels all handles share.
    pub fn network<R>(
        &self,
        rnn: &Rnn,
        batch: i64,
        of: impl FnOnce(&mut Network) -> Outcome<R>,
    ) -> Outcome<R> {
        let kiln = &self.gpu().kiln;
        let new = || Network::new(kiln, rnn, batch);
        let share = || self.gpu().networks.with((rnn, batch), new, |network| Ok(network.clone()));
        self.networks().with((rnn, batch), share, of)
    }
}

impl Network {
    fn new(kiln: &Kiln, rnn: &Rnn, batch: i64) -> Outcome<Network> {
        Ok(Network { built: kiln.rnn(rnn, batch)?, lengths: Lengths::default() })
    }

    /// Compiles the kernels of inference, or finds them in a cache.
    pub fn prepare(&mut self) -> Outcome {
        let batch = self.built.mini_batch();
        match self.built.rnn().layout {
            RowLayout::Packed => {
                let with = Optional { lengths: true, ..Optional::default() };
                self.built.prepare_packed(batch, with)?;
            }
            _ => {
                self.built.prepare(1, Optional::default())?;
            }
        }
        Ok(())
    }

    /// Sizes of temporary memory.
    pub fn temp_space(&self, x: &RnnDataDescriptor, training: bool) -> Outcome<TempSpace> {
        let with = Optional { lengths: needs_lengths(x), reserve: training, ..Optional::default() };
        Ok(self.built.temp_space(x.extent().rows, with)?)
    }

    /// Where the lengths of sequences are, for a network that needs them: at the given address, or
    /// in memory of the library's own, which is filled once.
    fn lengths(&mut self, kiln: &Kiln, given: u64, x: &RnnDataDescriptor) -> Outcome<Option<u64>> {
        if !needs_lengths(x) {
            return Ok(None);
        }
        self.lengths.address(kiln, given, &x.get().seq_lengths).map(Some)
    }
}

/// Whether the lengths of sequences do not follow from the number of vectors.
fn needs_lengths(x: &RnnDataDescriptor) -> bool {
    x.is_ragged() || x.get().layout == RowLayout::Packed
}

/// What the passes of a network have in common.
pub struct Call<'a> {
    /// The handle.
    pub handle: &'a Handle,
    /// What its descriptor says.
    pub record: Record,
    /// Descriptor of `x`.
    pub x: &'a RnnData,
    /// Descriptor of `y`.
    pub y: &'a RnnData,
    /// `devSeqLengths`, or 0.
    pub lengths: u64,
    /// `weightSpaceSize` and the address.
    pub weights: (usize, u64),
    /// `workSpaceSize` and the address.
    pub workspace: (usize, u64),
    /// `reserveSpaceSize` and the address; none in inference.
    pub reserve: Option<(usize, u64)>,
}

/// A pass: what launches a pack over so many vectors, or, unpacked, steps.
pub type Launch = fn(&mut PersistentRnn, &kiln::device::Stream, i64, &RnnPack) -> kiln::Result<()>;

/// The forms of a pass for unpacked and packed vectors.
pub struct Pass {
    /// Of so many steps.
    pub steps: Launch,
    /// Of so many vectors.
    pub packed: Launch,
    /// The role of the weight space.
    pub weights: Role,
}

impl Call<'_> {
    /// Launches a pass on tensors at these addresses, of which those at 0 are left out, and states
    /// with their descriptors.
    pub fn launch(&self, pass: &Pass, tensors: &[(Role, u64)]) -> Outcome {
        let descriptor = self.record.descriptor()?;
        self.x.with("xDesc", |x| {
            self.y.with("yDesc", |y| {
                let rnn = descriptor.network(x, y)?;
                let extent = x.extent();
                let pack = |network: &mut Network| self.pack(network, pass, tensors, x);
                self.handle.network(&rnn, extent.batch, |network| {
                    let pack = pack(network)?;
                    let stream = self.handle.stream();
                    match rnn.layout {
                        RowLayout::Packed => {
                            (pass.packed)(&mut network.built, &stream, extent.rows, &pack)?;
                        }
                        _ => {
                            let steps = extent.rows / extent.batch;
                            (pass.steps)(&mut network.built, &stream, steps, &pack)?;
                        }
                    }
                    Ok(())
                })
            })
        })
    }

    fn pack(
        &self,
        network: &mut Network,
        pass: &Pass,
        tensors: &[(Role, u64)],
        x: &RnnDataDescriptor,
    ) -> Outcome<RnnPack> {
        let training = self.reserve.is_some();
        let lengths = network.lengths(&self.handle.gpu().kiln, self.lengths, x)?;
        let needed = network.temp_space(x, training)?;
        let (bytes, address) = self.workspace;
        let workspace = aligned(address, bytes as u64);
        if workspace.map_or(0, |(_, bytes)| bytes) < needed.workspace_bytes {
            let needed = workspace_bytes(needed.workspace_bytes);
            return bad(format!("workSpaceSize is {bytes}, expected at least {needed}"));
        }
        let mut pack = RnnPack::new();
        let mut set = |role, address, bytes| {
            if address != 0 {
                // SAFETY: the program keeps its memory until the work of the call is done.
                unsafe { pack.set_address(role, DeviceMemory { address, bytes }) };
            }
        };
        // Cells without a cell state have no use for one.
        let cell_state =
            |role: Role| matches!(role.of_gradient(), Role::StatesInitial | Role::StatesFinal);
        let lstm = self.record.cell == RnnMode::LSTM;
        for (role, address) in tensors.iter().filter(|(role, _)| lstm || !cell_state(*role)) {
            set(*role, *address, UNKNOWN);
        }
        set(pass.weights, self.weights.1, self.weights.0 as u64);
        set(Role::Lengths, lengths.unwrap_or(0), UNKNOWN);
        if let Some((bytes, address)) = self.reserve {
            if (bytes as u64) < needed.reserve_bytes {
                let needed = needed.reserve_bytes;
                return bad(format!("reserveSpaceSize is {bytes}, expected at least {needed}"));
            }
            set(Role::Reserve, address, bytes as u64);
        }
        if let Some((address, bytes)) = workspace {
            // SAFETY: as above.
            unsafe { pack.set_workspace_address(DeviceMemory { address, bytes }) };
        }
        Ok(pack)
    }
}
