//! Calls of a network's passes: what follows from their descriptors is found out once.

use kiln::device::Stream;
use kiln::graph::RowLayout;
use kiln::layers::{PersistentRnn, RnnPack, TempSpace};
use kiln::plan::DeviceMemory;
use kiln::rnn::{Rnn, RnnDescriptor, Role};

use crate::handle::Handle;
use crate::kept::{UNKNOWN, aligned, workspace_bytes};
use crate::object::Ref;
use crate::rnn::data::RnnData;
use crate::rnn::descriptor::Record;
use crate::rnn::networks::{Network, needs_lengths};
use crate::rnn::values::RnnMode;
use crate::rnn::weights::Parts;
use crate::status::{Outcome, bad};
use crate::tensor::Tensor;

/// Descriptors of `h` and `c`, and whether there are such states.
pub struct States {
    /// The descriptors.
    pub descriptors: (Ref<Tensor>, Ref<Tensor>),
    /// Whether a call has states of them.
    pub there: (bool, bool),
}

impl States {
    /// The numbers of what the descriptors say; 0 of those that are not looked at.
    fn versions(&self) -> [u64; 2] {
        let of = |descriptor: Ref<Tensor>, there: bool| match there {
            true => descriptor.get("a state").map_or(u64::MAX, |descriptor| descriptor.version()),
            false => 0,
        };
        [of(self.descriptors.0, self.there.0), of(self.descriptors.1, self.there.1)]
    }

    /// Refuses descriptors of states that are there but have other dimensions than the network's.
    fn check(&self, record: &Record, rnn: &Rnn, batch: i64) -> Outcome {
        let count = rnn.layers * rnn.directions();
        let States { descriptors: (h, c), there: (has_h, has_c) } = *self;
        let has_c = has_c && record.cell == RnnMode::LSTM;
        let states = [
            ("hDesc", h, rnn.state_size(), record.vector_type(), has_h),
            ("cDesc", c, rnn.hidden_size, record.data_type, has_c),
        ];
        for (name, descriptor, size, of, _) in states.into_iter().filter(|(.., there)| *there) {
            let descriptor = descriptor.get(name)?;
            let layout = descriptor.layout();
            if layout.data_type != of {
                return bad(format!("{name} has another type than the network"));
            }
            let wanted = [count, batch, size];
            if !descriptor.has_dims(&wanted) {
                let dims = layout.dims;
                return bad(format!("{name} has dimensions {dims:?}, expected {wanted:?}"));
            }
        }
        Ok(())
    }
}

/// A pass: what launches a pack over so many vectors, or, unpacked, steps.
pub type Launch = fn(&mut PersistentRnn, &Stream, i64, &RnnPack) -> kiln::Result<()>;

/// The forms of a pass for unpacked and packed vectors.
pub struct Pass {
    /// That of no other.
    pub number: u64,
    /// Of so many steps.
    pub steps: Launch,
    /// Of so many vectors.
    pub packed: Launch,
    /// The role of the weight space.
    pub weights: Role,
}

/// What the passes of a network have in common.
pub struct Call<'a> {
    /// The handle.
    pub handle: &'a Handle,
    /// What the network's descriptor says.
    pub record: Record,
    /// The number of that, where the descriptors of `x` and `y` outlive the call.
    pub version: Option<u64>,
    /// Descriptors of states.
    pub states: &'a [States],
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

/// The numbers of what a call's descriptors say, the pass, and whether it is one of training.
type Key = [u64; 8];

/// What follows from a call's descriptors.
pub struct Checked {
    key: Key,
    rnn: Rnn,
    batch: i64,
    rows: i64,
    needed: TempSpace,
    needs_lengths: bool,
    /// The parts of the weight space.
    weights: Parts,
    /// The number of the network that ran last.
    network: u64,
    /// What it was given.
    pack: RnnPack,
}

impl Call<'_> {
    /// Launches a pass on tensors at these addresses, of which those at 0 are left out.
    pub fn launch(&self, pass: &Pass, tensors: &[(Role, u64)]) -> Outcome {
        let launch = |checked: &mut Checked| {
            let Checked { rnn, batch, rows, needed, needs_lengths, weights, network, pack, .. } =
                checked;
            self.handle.known_network(network, rnn, *batch, |network| {
                self.fill(pack, network, (*needed, *needs_lengths), (pass, weights), tensors)?;
                let stream = self.handle.stream();
                match rnn.layout {
                    RowLayout::Packed => (pass.packed)(&mut network.built, &stream, *rows, pack)?,
                    _ => (pass.steps)(&mut network.built, &stream, *rows / *batch, pack)?,
                }
                Ok(())
            })
        };
        match self.version {
            Some(version) => {
                let key = self.key(version, pass);
                let is = |known: &Checked| known.key == key;
                self.handle.calls().with(is, || self.check(key), launch)
            }
            None => launch(&mut self.check(Key::default())?),
        }
    }

    fn key(&self, version: u64, pass: &Pass) -> Key {
        let [h, c] = self.states.first().map_or([0; 2], States::versions);
        let (x, y) = (self.x.version(), self.y.version());
        let (dropout, training) = (self.record.dropout.version(), self.reserve.is_some());
        [version, dropout, x, y, h, c, pass.number, training.into()]
    }

    fn check(&self, key: Key) -> Outcome<Checked> {
        let descriptor: RnnDescriptor = self.record.descriptor()?;
        self.x.with("xDesc", |x| {
            let extent = x.extent();
            for states in self.states {
                states.check(&self.record, &descriptor.rnn(), extent.batch)?;
            }
            let rnn = self.y.with("yDesc", |y| Ok(descriptor.network(x, y)?))?;
            let training = self.reserve.is_some();
            let space = |network: &mut Network| network.temp_space(x, training);
            let needed = self.handle.network(&rnn, extent.batch, space)?;
            let (batch, rows, needs_lengths) = (extent.batch, extent.rows, needs_lengths(x));
            let weights = Parts::of(&rnn)?;
            let (network, pack) = (0, RnnPack::new());
            Ok(Checked { key, rnn, batch, rows, needed, needs_lengths, weights, network, pack })
        })
    }

    /// Fills in a pack, which may hold what another call was given.
    fn fill(
        &self,
        pack: &mut RnnPack,
        network: &mut Network,
        (needed, needs_lengths): (TempSpace, bool),
        (pass, parts): (&Pass, &Parts),
        tensors: &[(Role, u64)],
    ) -> Outcome {
        let lengths = match (needs_lengths, self.lengths) {
            (false, _) => 0,
            (true, 0) => {
                let kiln = &self.handle.gpu().kiln;
                self.x.with("xDesc", |x| network.lengths(kiln, x))?
            }
            (true, given) => given,
        };
        let (bytes, address) = self.workspace;
        let workspace = aligned(address, bytes as u64);
        if workspace.map_or(0, |(_, bytes)| bytes) < needed.workspace_bytes {
            let needed = workspace_bytes(needed.workspace_bytes);
            return bad(format!("workSpaceSize is {bytes}, expected at least {needed}"));
        }
        if workspace.is_none() {
            *pack = RnnPack::new();
        }
        let mut set = |role, address, bytes| match address {
            0 => pack.remove(role),
            // SAFETY: the program keeps its memory until the work of the call is done.
            address => unsafe { pack.set_address(role, DeviceMemory { address, bytes }) },
        };
        // Cells without a cell state have no use for one.
        let cell_state =
            |role: Role| matches!(role.of_gradient(), Role::StatesInitial | Role::StatesFinal);
        let lstm = self.record.cell == RnnMode::LSTM;
        for (role, address) in tensors.iter().filter(|(role, _)| lstm || !cell_state(*role)) {
            set(*role, *address, UNKNOWN);
        }
        let (bytes, address) = self.weights;
        match parts.integers {
            None => set(pass.weights, address, bytes as u64),
            Some((end, first)) => {
                parts.check("weightSpaceSize", bytes)?;
                set(pass.weights, address, end);
                set(Role::WeightNumbers, address.wrapping_add(first), parts.bytes - first);
            }
        }
        set(Role::Lengths, lengths, UNKNOWN);
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
        Ok(())
    }
}
