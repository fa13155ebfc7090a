//! Recurrent networks built for a batch size: plans by number of vectors, reused without any work.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use crate::device::{Buffer, Stream};
use crate::dropout::{POSITION_BYTES, SEED_BYTES};
use crate::engine::EngineConfig;
use crate::error::{Error, Result};
use crate::graph::RowLayout;
use crate::layers::dropout::{Draw, DropoutStates};
use crate::layers::reserves::{Phase, Reserves};
use crate::layers::rnn_pack::{RnnPack, RnnSlots};
use crate::layers::weight_sum::{SCRATCH_ALIGNMENT, Sum};
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Slot, VariantPack};
use crate::rnn::{Extent, Network, Optional, Rnn, Role};

/// A recurrent network on one device, for one batch size (`mcdnnBuildRNNDynamic`, section 6.2.1.2).
///
/// Kernels depend neither on the number of steps nor on the states that a call provides or
/// requests. Plans depend on the number of steps and are kept for every number that has been used.
/// A clone has its own plans and shares the kernels.
///
/// ```
/// use kiln::device::DeviceChoice;
/// use kiln::layers::RnnPack;
/// use kiln::rnn::{Rnn, Role, WeightSpace};
/// use kiln::{Config, Kiln};
///
/// let device = Some(DeviceChoice::Sim("sim".to_owned()));
/// let kiln = Kiln::open(Config { device, ..Config::default() })?;
/// let rnn = Rnn::lstm(8, 16);
/// let mut built = kiln.build_rnn_dynamic(&rnn, 2)?;
/// let weights = kiln.device().upload(&vec![0; WeightSpace::new(&rnn)?.bytes() as usize])?;
/// let (steps, batch) = (5, 2);
/// let x = kiln.device().upload(&vec![0; steps * batch * 8 * 4])?;
/// let y = kiln.device().upload(&vec![0; steps * batch * 16 * 4])?;
/// let pack = RnnPack::new().with(Role::Input, &x).with(Role::Output, &y);
/// let pack = pack.with(Role::Weights, &weights);
/// let workspace = kiln.device().alloc(built.prepare(5, pack.optional())?.workspace_bytes())?;
/// built.forward(&kiln.stream(), 5, &pack.with_workspace(&workspace))?;
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Clone)]
pub struct PersistentRnn {
    kiln: Kiln,
    rnn: Rnn,
    batch: i64,
    /// Whether the cell has states besides `h`.
    has_others: bool,
    /// Plans by pass, number of vectors and optional tensors, all states included.
    plans: HashMap<(Pass, i64, Optional), Built>,
    /// The configurations of the first plan of a pass with these optional tensors, which later
    /// plans reuse.
    settings: HashMap<(Pass, Optional), Vec<Vec<EngineConfig>>>,
    stand_ins: Arc<StandIns>,
    /// What the reserve spaces of this network hold, by address.
    pub(super) reserves: Reserves<Vectors>,
    /// Of dropouts between layers, if there are any.
    dropouts: Option<(Arc<DropoutStates>, Draw)>,
}

/// Sizes of temporary memory in bytes (`mcdnnGetRNNTempSpaceSizes`, section 6.2.1.29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TempSpace {
    /// Workspace, used during a call; in training the largest of the three passes.
    pub workspace_bytes: u64,
    /// Reserve space, passed from the forward pass to the backward passes; 0 in inference.
    pub reserve_bytes: u64,
}

/// A pass through a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    Forward,
    BackwardData,
    BackwardWeights,
}

/// The problem whose data a reserve space holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vectors {
    rows: i64,
    lengths: bool,
    reset: bool,
}

impl Vectors {
    pub(super) fn new(rows: i64, with: Optional) -> Vectors {
        Vectors { rows, lengths: with.lengths, reset: with.reset }
    }
}

impl fmt::Display for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = match (self.lengths, self.reset) {
            (false, false) => "",
            (true, false) => " with lengths",
            (false, true) => " with resets",
            (true, true) => " with lengths and resets",
        };
        write!(f, "{} vectors{optional}", self.rows)
    }
}

impl Pass {
    pub(super) fn name(self) -> &'static str {
        match self {
            Pass::Forward => "rnn forward",
            Pass::BackwardData => "rnn backward data",
            Pass::BackwardWeights => "rnn backward weights",
        }
    }
}

/// Memory that replaces states that a call lacks, as large as the states of all layers.
struct StandIns {
    /// Initial states, and gradients of final ones, that a call does not provide.
    zeros: Buffer,
    /// Final states, and gradients of initial ones, that a call does not request: `h`, and the
    /// others.
    unread: [Buffer; 2],
}

/// A plan and the locations of its tensors.
#[derive(Clone)]
struct Planned {
    plan: ExecutionPlan,
    /// Its addresses are set at every call; entries are in the order of `views`.
    pack: VariantPack,
    views: Vec<View>,
}

/// The plans of a pass.
#[derive(Clone)]
struct Built {
    plans: Vec<Planned>,
    /// The caller's tensors and their sizes in bytes.
    roles: Vec<(Role, u64)>,
    reserve_bytes: u64,
    /// Of the weights' pass, what adds its results to the gradients in memory.
    sums: Vec<Sum>,
}

/// The location of a graph tensor.
#[derive(Clone, Copy)]
struct View {
    uid: i64,
    role: Role,
    offset_bytes: u64,
    bytes: u64,
}

impl Kiln {
    /// Builds a network for one batch size. Its kernels are specialised for the network and the
    /// batch size, and are compiled or found in a cache now. Kernels for resets, a history, a
    /// reserve space, or lengths in a layout that does not require them are built by
    /// [`PersistentRnn::prepare`] or by the first call that needs them.
    ///
    /// # Errors
    /// As [`Rnn::network`] and [`Kiln::plan`].
    pub fn build_rnn_dynamic(&self, rnn: &Rnn, mini_batch: i64) -> Result<PersistentRnn> {
        let lengths = rnn.layout == RowLayout::Packed;
        let with = Optional { lengths, ..Optional::default() };
        let has_others = rnn.build_cell().states.len() > 1;
        let all = with_all_states(has_others, with);
        let network = rnn.network(Extent { batch: mini_batch, rows: mini_batch }, all)?;
        let states = [Role::HFinal, Role::StatesFinal].map(|role| network.bytes(role));
        let [h_bytes, others_bytes] = states.map(|bytes| bytes.max(1));
        let stand_ins = StandIns {
            zeros: self.device().upload(&vec![0; h_bytes.max(others_bytes) as usize])?,
            unread: [self.device().alloc(h_bytes)?, self.device().alloc(others_bytes)?],
        };
        let dropouts = match rnn.dropouts() {
            0 => None,
            count => {
                let all = vec![rnn.dropout; count as usize];
                let states = DropoutStates::new(self.device(), &all)?;
                Some((Arc::new(states), Draw::new(self, count as usize)?))
            }
        };
        let mut built = PersistentRnn {
            kiln: self.clone(),
            rnn: rnn.clone(),
            batch: mini_batch,
            has_others,
            plans: HashMap::new(),
            settings: HashMap::new(),
            stand_ins: Arc::new(stand_ins),
            reserves: Reserves::default(),
            dropouts,
        };
        built.find(Pass::Forward, mini_batch, with)?;
        Ok(built)
    }
}

impl PersistentRnn {
    /// The network.
    pub fn rnn(&self) -> &Rnn {
        &self.rnn
    }

    /// The batch size.
    pub fn mini_batch(&self) -> i64 {
        self.batch
    }

    /// The state of the dropouts between layers, if there are any: clones share it.
    pub fn dropout_states(&self) -> Option<&DropoutStates> {
        self.dropouts.as_ref().map(|(states, _)| &**states)
    }

    /// Launches a forward pass over `steps` time steps on a stream. The first call for a number of
    /// steps or a set of optional tensors plans it; later calls look up the plan, fill in addresses
    /// and launch, and allocate nothing.
    ///
    /// # Errors
    /// `BadParam` for a packed network, and for a tensor of the pack that is missing, too small or
    /// not one of the network's; as [`ExecutionPlan::execute`]; for a new plan, as [`Rnn::network`]
    /// and [`Kiln::plan`].
    pub fn forward(&mut self, stream: &Stream, steps: i64, pack: &RnnPack) -> Result<()> {
        let rows = self.rows(Pass::Forward, steps)?;
        self.launch(Pass::Forward, stream, rows, pack)
    }

    /// As [`PersistentRnn::forward`], for a packed network with `rows` vectors.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`]; `BadParam` for a network that is not packed.
    pub fn forward_packed(&mut self, stream: &Stream, rows: i64, pack: &RnnPack) -> Result<()> {
        self.expect_packed(Pass::Forward)?;
        self.launch(Pass::Forward, stream, rows, pack)
    }

    /// The plan of a forward pass over `steps` time steps with these optional tensors, which is
    /// built if necessary.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`].
    pub fn prepare(&mut self, steps: i64, with: Optional) -> Result<&ExecutionPlan> {
        let rows = self.rows(Pass::Forward, steps)?;
        Ok(&self.find(Pass::Forward, rows, with)?.plans[0].plan)
    }

    /// As [`PersistentRnn::prepare`], for a packed network with `rows` vectors.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward_packed`].
    pub fn prepare_packed(&mut self, rows: i64, with: Optional) -> Result<&ExecutionPlan> {
        self.expect_packed(Pass::Forward)?;
        Ok(&self.find(Pass::Forward, rows, with)?.plans[0].plan)
    }

    /// Sizes in bytes of the workspace and the reserve space for this number of vectors
    /// (`mcdnnGetRNNTempSpaceSizes`, section 6.2.1.29). Nothing is compiled: without a plan, the
    /// workspace is an upper bound over the configurations that planning may fall back to.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`].
    pub fn temp_space(&self, rows: i64, with: Optional) -> Result<TempSpace> {
        let mut bytes = 0;
        let mut reserve = 0;
        let with = with_all_states(self.has_others, with);
        let passes: &[Pass] = match with.reserve {
            true => &[Pass::Forward, Pass::BackwardData, Pass::BackwardWeights],
            false => &[Pass::Forward],
        };
        for pass in passes {
            if let Some(built) = self.plans.get(&(*pass, rows, with)) {
                bytes = bytes.max(built.workspace_bytes());
                reserve = built.reserve_bytes;
                continue;
            }
            let networks = networks(&self.rnn, Extent { batch: self.batch, rows }, *pass, with)?;
            let settings = self.settings.get(&(*pass, with));
            for (at, network) in networks.iter().enumerate() {
                let settings = settings.map(|settings| settings[at].as_slice());
                let mut own = self.kiln.workspace_bytes_max(&network.graph, settings)?;
                if *pass == Pass::BackwardWeights {
                    let results = network.bytes(Role::WeightGradients);
                    own = own.next_multiple_of(SCRATCH_ALIGNMENT) + results;
                }
                bytes = bytes.max(own);
                reserve = network.bytes(Role::Reserve);
            }
        }
        Ok(TempSpace { workspace_bytes: bytes, reserve_bytes: reserve })
    }

    pub(super) fn expect_packed(&self, pass: Pass) -> Result<()> {
        let layout = self.rnn.layout;
        match layout == RowLayout::Packed {
            true => Ok(()),
            false => Err(Error::bad_param(format!(
                "{}: packed vectors of a network of layout {}",
                pass.name(),
                layout.name()
            ))),
        }
    }

    pub(super) fn rows(&self, pass: Pass, steps: i64) -> Result<i64> {
        let packed = self.rnn.layout == RowLayout::Packed;
        let name = pass.name();
        match steps.checked_mul(self.batch).filter(|_| !packed) {
            Some(rows) => Ok(rows),
            None if packed => Err(Error::bad_param(format!(
                "{name}: a packed network is asked for a number of vectors, not of steps"
            ))),
            None => {
                Err(Error::bad_param(format!("{name}: {steps} steps of {} sequences", self.batch)))
            }
        }
    }

    /// The plan of a pass for a number of vectors, which is built if necessary.
    fn find(&mut self, pass: Pass, rows: i64, with: Optional) -> Result<&mut Built> {
        let PersistentRnn { kiln, rnn, batch, has_others, plans, settings, .. } = self;
        let with = with_all_states(*has_others, with);
        let place = match plans.entry((pass, rows, with)) {
            Entry::Occupied(found) => return Ok(found.into_mut()),
            Entry::Vacant(place) => place,
        };
        let networks = networks(rnn, Extent { batch: *batch, rows }, pass, with)?;
        let known = settings.get(&(pass, with));
        let mut plans = Vec::new();
        for (at, network) in networks.iter().enumerate() {
            plans.push(match known {
                Some(settings) => kiln.plan_reusing(&network.graph, &settings[at])?,
                None => kiln.plan(&network.graph)?,
            });
        }
        if known.is_none() {
            let own = |plan: &ExecutionPlan| {
                plan.parts().iter().map(|part| part.config.clone()).collect()
            };
            settings.insert((pass, with), plans.iter().map(own).collect());
        }
        let mut built = Built::new(&networks, plans)?;
        if pass == Pass::BackwardWeights {
            for (network, planned) in networks.iter().zip(&built.plans) {
                let results = planned.views.iter();
                for view in results.filter(|view| view.role == Role::WeightGradients) {
                    let tensor = network.graph.tensor(view.uid)?;
                    built.sums.push(Sum::new(kiln, tensor, view.offset_bytes)?);
                }
            }
        }
        Ok(place.insert(built))
    }

    /// Completes a pack with memory for all states that a pass needs and it lacks.
    fn with_states(&self, pass: Pass, pack: &RnnSlots) -> RnnSlots {
        let StandIns { zeros, unread: [h_unread, others_unread] } = &*self.stand_ins;
        let initial = [(Role::HInitial, zeros), (Role::StatesInitial, zeros)];
        let forward = [(Role::HFinal, h_unread), (Role::StatesFinal, others_unread)];
        let data = [
            (Role::HFinalGradient, zeros),
            (Role::StatesFinalGradient, zeros),
            (Role::HInitialGradient, h_unread),
            (Role::StatesInitialGradient, others_unread),
        ];
        let others: &[(Role, &Buffer)] = match pass {
            Pass::BackwardWeights => &[],
            Pass::Forward => &forward,
            Pass::BackwardData => &data,
        };
        let of_others = |role: Role| {
            matches!(
                role,
                Role::StatesInitial
                    | Role::StatesFinal
                    | Role::StatesInitialGradient
                    | Role::StatesFinalGradient
            )
        };
        let missing = |(role, _): &(Role, &Buffer)| {
            (self.has_others || !of_others(*role)) && pack.slot(*role).is_none()
        };
        let states = initial.into_iter().chain(others.iter().copied()).filter(missing);
        states.fold(*pack, |pack, (role, own)| pack.with(role, own))
    }

    /// Completes a pack with the seeds and positions of dropouts in the reserve space.
    fn with_dropouts(&self, mut pack: RnnSlots) -> RnnSlots {
        if let (Some(_), Some(Slot::Memory { address, owner, .. })) =
            (&self.dropouts, pack.slot(Role::Reserve))
        {
            let count = self.rnn.dropouts() as u64;
            let [seeds, positions] = [SEED_BYTES, POSITION_BYTES].map(|of| count * of as u64);
            let memory = |address, bytes| Slot::Memory { address, bytes, owner };
            pack.set(Role::DropoutSeeds, memory(address, seeds));
            pack.set(Role::DropoutPositions, memory(address + seeds, positions));
        }
        pack
    }

    /// Keeps the state of the dropouts in the reserve space, and moves it on.
    fn draw(&mut self, stream: &Stream, pack: &RnnSlots) -> Result<()> {
        match (&mut self.dropouts, pack.slot(Role::Reserve)) {
            (Some((states, draw)), Some(Slot::Memory { address, owner, .. })) => {
                draw.execute(stream, states, (address, owner))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn launch(
        &mut self,
        pass: Pass,
        stream: &Stream,
        rows: i64,
        pack: &RnnPack,
    ) -> Result<()> {
        let with = pack.optional();
        self.run(pass, stream, (rows, with), pack)?;
        if let (true, Some(Slot::Memory { address, .. })) =
            (with.reserve, pack.slots.slot(Role::Reserve))
        {
            self.reserves.record(address, Vectors::new(rows, with), Phase::Forward);
        }
        Ok(())
    }

    /// Launches a pass over so many vectors, with the optional tensors of the forward pass.
    pub(super) fn run(
        &mut self,
        pass: Pass,
        stream: &Stream,
        (rows, with): (i64, Optional),
        pack: &RnnPack,
    ) -> Result<()> {
        let pack = &self.with_dropouts(self.with_states(pass, &pack.slots));
        if let (Pass::Forward, true) = (pass, self.dropouts.is_some() && with.reserve) {
            // A call that is refused draws nothing.
            self.find(pass, rows, with)?.check(pass, pack)?;
            self.draw(stream, pack)?;
        }
        let built = self.find(pass, rows, with)?;
        built.check(pass, pack)?;
        let needed = built.workspace_bytes();
        let scratch = match (built.sums.is_empty(), pack.workspace) {
            (true, _) => None,
            (false, Some(Slot::Memory { address, bytes, owner })) if bytes >= needed => {
                let before = built.plans_bytes().next_multiple_of(SCRATCH_ALIGNMENT);
                Some((address + before, owner))
            }
            (false, other) => {
                let given = match other {
                    Some(Slot::Memory { bytes, .. }) => bytes,
                    _ => 0,
                };
                let name = pass.name();
                return Err(Error::bad_param(format!(
                    "{name}: the workspace has {given} bytes, the network needs {needed}"
                )));
            }
        };
        for Planned { plan, pack: own, views } in &mut built.plans {
            for (view, (_, slot)) in views.iter().zip(&mut own.entries) {
                if let Some(Slot::Memory { address, owner, .. }) = pack.slot(view.role) {
                    let (address, owner) = match scratch {
                        Some(scratch) if view.role == Role::WeightGradients => scratch,
                        _ => (address, owner),
                    };
                    let address = address + view.offset_bytes;
                    *slot = Slot::Memory { address, bytes: view.bytes, owner };
                }
            }
            own.workspace = pack.workspace;
            plan.execute(stream, own)?;
        }
        let gradients = pack.slot(Role::WeightGradients);
        if let (Some(scratch), Some(Slot::Memory { address, owner, .. })) = (scratch, gradients) {
            for sum in &mut built.sums {
                sum.execute(stream, scratch, (address, owner))?;
            }
        }
        Ok(())
    }
}

/// The networks of a pass.
fn networks(rnn: &Rnn, extent: Extent, pass: Pass, with: Optional) -> Result<Vec<Network>> {
    Ok(match pass {
        Pass::Forward => vec![rnn.network(extent, with)?],
        Pass::BackwardData => vec![rnn.training(extent, with)?.data],
        Pass::BackwardWeights => rnn.training(extent, with)?.weights,
    })
}

/// Adds all states of the network to the optional tensors: kernels with all states also serve calls
/// without them.
fn with_all_states(has_others: bool, with: Optional) -> Optional {
    Optional {
        h_initial: true,
        h_final: true,
        states_initial: with.states_initial || has_others,
        states_final: with.states_final || has_others,
        ..with
    }
}

impl Planned {
    fn new(network: &Network, plan: ExecutionPlan) -> Result<Planned> {
        let (mut pack, mut views) = (VariantPack::new(), Vec::new());
        for uid in plan.tensors() {
            let place = network.places.iter().find(|place| place.uid == uid);
            let place = place.expect("every input and output has a place");
            let tensor = network.graph.tensor(uid)?;
            let offset_bytes = (place.offset * tensor.dtype.bytes() as i64) as u64;
            let bytes = tensor.span_bytes()?;
            pack.place(uid, DeviceMemory { address: 0, bytes });
            views.push(View { uid, role: place.role, offset_bytes, bytes });
        }
        Ok(Planned { plan, pack, views })
    }
}

impl Built {
    fn new(networks: &[Network], plans: Vec<ExecutionPlan>) -> Result<Built> {
        let mut roles: Vec<(Role, u64)> = Vec::new();
        for network in networks {
            let own = network.roles().map(|role| (role, network.bytes(role)));
            let new = own.filter(|(role, _)| roles.iter().all(|(known, _)| known != role));
            let new: Vec<(Role, u64)> = new.collect();
            roles.extend(new);
        }
        let reserve_bytes = networks.first().map_or(0, |network| network.bytes(Role::Reserve));
        let planned = networks.iter().zip(plans).map(|(network, plan)| Planned::new(network, plan));
        let plans = planned.collect::<Result<_>>()?;
        Ok(Built { plans, roles, reserve_bytes, sums: Vec::new() })
    }

    /// Bytes of the workspace: that of the plan, and behind it the results that are added to what
    /// is in memory.
    fn workspace_bytes(&self) -> u64 {
        let own = self.plans_bytes();
        match self.sums.is_empty() {
            true => own,
            false => own.next_multiple_of(SCRATCH_ALIGNMENT) + self.bytes_of(Role::WeightGradients),
        }
    }

    fn plans_bytes(&self) -> u64 {
        self.plans.iter().map(|of| of.plan.workspace_bytes()).max().unwrap_or(0)
    }

    fn bytes_of(&self, role: Role) -> u64 {
        self.roles.iter().find(|(known, _)| *known == role).map_or(0, |(_, bytes)| *bytes)
    }

    /// Checks that a pack has the network's tensors, all of sufficient size, and no others.
    fn check(&self, pass: Pass, pack: &RnnSlots) -> Result<()> {
        let bad = |rule: String| Err(Error::bad_param(format!("{}: {rule}", pass.name())));
        for role in Role::ALL {
            let needed = self.roles.iter().find(|(known, _)| *known == role);
            match (pack.slot(role), needed) {
                (Some(Slot::Memory { bytes, .. }), Some((_, needed))) if bytes < *needed => {
                    let name = role.name();
                    return bad(format!("`{name}` has {bytes} bytes, the network needs {needed}"));
                }
                (None, Some(_)) => return bad(format!("`{}` is missing", role.name())),
                (Some(_), None) if pass == Pass::Forward && role == role.of_gradient() => {
                    return bad(format!("the network has no `{}`", role.name()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PersistentRnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PersistentRnn({:?}, batch {})", self.rnn, self.batch)
    }
}
