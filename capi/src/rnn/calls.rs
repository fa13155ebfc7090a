//! Calls of a network's passes: what follows from their descriptors is found out once.

use kiln::device::Stream;
use kiln::graph::RowLayout;
use kiln::layers::{PersistentRnn, RnnPack, TempSpace};
use kiln::plan::DeviceMemory;
use kiln::rnn::{Rnn, RnnDataDescriptor, RnnDescriptor, Role};

use crate::handle::Handle;
use crate::kept::{UNKNOWN, aligned, use_last, workspace_bytes};
use crate::object::{Ref, number_to_come};
use crate::rnn::data::RnnData;
use crate::rnn::descriptor::{Record, RnnNetwork};
use crate::rnn::networks::{Network, needs_lengths};
use crate::rnn::values::RnnMode;
use crate::rnn::weights::Parts;
use crate::status::{Outcome, bad};
use crate::tensor::Tensor;

/// Descriptors of `h` and `c`, and whether there are such states.
#[derive(Clone, Copy, PartialEq, Eq)]
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

/// The descriptors of a call of the live interface, as the program holds them, and what of them is
/// looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Of the network.
    pub rnn: Ref<RnnNetwork>,
    /// Of `x`.
    pub x: Ref<RnnData>,
    /// Of `y`.
    pub y: Ref<RnnData>,
    /// Of states.
    pub states: States,
}

/// What describes a call.
pub enum Description<'a> {
    /// Descriptors of the program.
    Live(Descriptors),
    /// What descriptors of the old interface say, which do not outlive the call.
    Old(Described<'a>),
}

/// What descriptors say.
pub struct Described<'a> {
    /// The network's.
    pub record: Record,
    /// Descriptors of states.
    pub states: &'a [States],
    /// That of `x`.
    pub x: &'a RnnData,
    /// That of `y`.
    pub y: &'a RnnData,
}

/// What the passes of a network have in common.
pub struct Call<'a> {
    /// The handle.
    pub handle: &'a Handle,
    /// What describes it.
    pub description: Description<'a>,
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

/// A call as the program made it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Made {
    descriptors: Descriptors,
    pass: u64,
    training: bool,
    /// The number to come, before the descriptors were looked at.
    number: u64,
}

/// What a pass needs of its pack.
struct Needs {
    is_lstm: bool,
    space: TempSpace,
    /// The lengths of sequences, where they do not follow from the number of vectors.
    lengths: Option<RnnDataDescriptor>,
    /// The parts of the weight space.
    weights: Parts,
}

/// What follows from a call's descriptors.
pub struct Checked {
    key: Key,
    /// The last call of the kind.
    made: Option<Made>,
    rnn: Rnn,
    batch: i64,
    rows: i64,
    needs: Needs,
    /// The number of the network that ran last.
    network: u64,
    /// The stream of the last call.
    stream: Stream,
    /// What it was given.
    pack: RnnPack,
}

impl Call<'_> {
    /// Launches a pass on tensors at these addresses, of which those at 0 are left out.
    pub fn launch(&self, pass: &Pass, tensors: &[(Role, u64)]) -> Outcome {
        let descriptors = match &self.description {
            Description::Live(descriptors) => *descriptors,
            Description::Old(own) => {
                let mut checked = self.check(Key::default(), own)?;
                return self.launch_checked(&mut checked, pass, tensors);
            }
        };
        let (training, number) = (self.reserve.is_some(), number_to_come());
        let made = Made { descriptors, pass: pass.number, training, number };
        let mut all = self.handle.calls().all();
        // Nothing was set or destroyed since the same call was made.
        if let Some(last) = all.last_mut().filter(|last| last.made == Some(made)) {
            return self.launch_checked(last, pass, tensors);
        }
        let rnn = descriptors.rnn.get("rnnDesc")?;
        let record = rnn.v8()?;
        let (x, y) = (descriptors.x.get("xDesc")?, descriptors.y.get("yDesc")?);
        let [h, c] = descriptors.states.versions();
        let key = [
            rnn.0.version(),
            record.dropout.version(),
            x.version(),
            y.version(),
            h,
            c,
            pass.number,
            training.into(),
        ];
        let own = Described { record, states: &[descriptors.states], x: &x, y: &y };
        let is = |known: &Checked| known.key == key;
        let checked = use_last(&mut all, is, || self.check(key, &own))?;
        checked.made = Some(made);
        self.launch_checked(checked, pass, tensors)
    }

    fn launch_checked(
        &self,
        checked: &mut Checked,
        pass: &Pass,
        tensors: &[(Role, u64)],
    ) -> Outcome {
        self.handle.follow(&mut checked.stream);
        let Checked { rnn, batch, rows, needs, network: id, stream, pack, .. } = checked;
        self.handle.known_network(id, rnn, *batch, |network| {
            self.fill(pack, needs, network, pass, tensors)?;
            match rnn.layout {
                RowLayout::Packed => (pass.packed)(&mut network.built, stream, *rows, pack)?,
                _ => (pass.steps)(&mut network.built, stream, *rows / *batch, pack)?,
            }
            Ok(())
        })
    }

    fn check(&self, key: Key, own: &Described<'_>) -> Outcome<Checked> {
        let descriptor: RnnDescriptor = own.record.descriptor()?;
        own.x.with("xDesc", |x| {
            let extent = x.extent();
            for states in own.states {
                states.check(&own.record, &descriptor.rnn(), extent.batch)?;
            }
            let rnn = own.y.with("yDesc", |y| Ok(descriptor.network(x, y)?))?;
            let training = self.reserve.is_some();
            let space = |network: &mut Network| network.temp_space(x, training);
            Ok(Checked {
                key,
                made: None,
                needs: Needs {
                    is_lstm: own.record.cell == RnnMode::LSTM,
                    space: self.handle.network(&rnn, extent.batch, space)?,
                    lengths: needs_lengths(x).then(|| x.clone()),
                    weights: Parts::of(&rnn)?,
                },
                batch: extent.batch,
                rows: extent.rows,
                network: 0,
                stream: self.handle.stream(),
                pack: RnnPack::new(),
                rnn,
            })
        })
    }

    /// Fills in a pack, which may hold what another call was given.
    fn fill(
        &self,
        pack: &mut RnnPack,
        needs: &Needs,
        network: &mut Network,
        pass: &Pass,
        tensors: &[(Role, u64)],
    ) -> Outcome {
        let Needs { is_lstm, space: needed, lengths, weights: parts } = needs;
        let lengths = match (lengths, self.lengths) {
            (None, _) => 0,
            (Some(x), 0) => network.lengths(&self.handle.gpu().kiln, x)?,
            (Some(_), given) => given,
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
        for (role, address) in tensors.iter().filter(|(role, _)| *is_lstm || !cell_state(*role)) {
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
