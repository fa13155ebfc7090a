//! Recurrent networks built for a batch size: plans by number of vectors, reused without any work.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use crate::device::{Buffer, Stream};
use crate::engine::EngineConfig;
use crate::error::{Error, Result};
use crate::graph::RowLayout;
use crate::layers::rnn_pack::{RnnPack, RnnSlots};
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
    /// Plans by number of vectors and by optional tensors, all states included.
    plans: HashMap<(i64, Optional), Built>,
    /// The configurations of the first plan with these optional tensors, which later plans reuse.
    settings: HashMap<Optional, Vec<EngineConfig>>,
    stand_ins: Arc<StandIns>,
}

/// Memory that replaces states that a call lacks, as large as the states of all layers.
struct StandIns {
    /// Initial states that a call does not provide.
    zeros: Buffer,
    /// Final states that a call does not request: `h`, and the others.
    unread: [Buffer; 2],
}

/// A plan and the locations of its tensors.
#[derive(Clone)]
struct Built {
    plan: ExecutionPlan,
    /// Its addresses are set at every call; entries are in the order of `views`.
    pack: VariantPack,
    views: Vec<View>,
    /// The caller's tensors and their sizes in bytes.
    roles: Vec<(Role, u64)>,
    reserve_bytes: u64,
}

/// The location of a graph tensor.
#[derive(Clone, Copy)]
struct View {
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
        let mut built = PersistentRnn {
            kiln: self.clone(),
            rnn: rnn.clone(),
            batch: mini_batch,
            has_others,
            plans: HashMap::new(),
            settings: HashMap::new(),
            stand_ins: Arc::new(stand_ins),
        };
        built.find(mini_batch, with)?;
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

    /// Launches a forward pass over `steps` time steps on a stream. The first call for a number of
    /// steps or a set of optional tensors plans it; later calls look up the plan, fill in addresses
    /// and launch, and allocate nothing.
    ///
    /// # Errors
    /// `BadParam` for a packed network, and for a tensor of the pack that is missing, too small or
    /// not one of the network's; as [`ExecutionPlan::execute`]; for a new plan, as [`Rnn::network`]
    /// and [`Kiln::plan`].
    pub fn forward(&mut self, stream: &Stream, steps: i64, pack: &RnnPack) -> Result<()> {
        let rows = self.rows(steps)?;
        self.launch(stream, rows, pack)
    }

    /// As [`PersistentRnn::forward`], for a packed network with `rows` vectors.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`]; `BadParam` for a network that is not packed.
    pub fn forward_packed(&mut self, stream: &Stream, rows: i64, pack: &RnnPack) -> Result<()> {
        self.expect_packed()?;
        self.launch(stream, rows, pack)
    }

    /// The plan of a forward pass over `steps` time steps with these optional tensors, which is
    /// built if necessary.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`].
    pub fn prepare(&mut self, steps: i64, with: Optional) -> Result<&ExecutionPlan> {
        let rows = self.rows(steps)?;
        Ok(&self.find(rows, with)?.plan)
    }

    /// As [`PersistentRnn::prepare`], for a packed network with `rows` vectors.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward_packed`].
    pub fn prepare_packed(&mut self, rows: i64, with: Optional) -> Result<&ExecutionPlan> {
        self.expect_packed()?;
        Ok(&self.find(rows, with)?.plan)
    }

    /// Sizes in bytes of the workspace and the reserve space for this number of vectors
    /// (`mcdnnGetRNNTempSpaceSizes`, section 6.2.1.29). Nothing is compiled: without a plan, the
    /// workspace is an upper bound over the configurations that planning may fall back to.
    pub(super) fn temp_space(&self, rows: i64, with: Optional) -> Result<(u64, u64)> {
        let with = with_all_states(self.has_others, with);
        if let Some(built) = self.plans.get(&(rows, with)) {
            return Ok((built.plan.workspace_bytes(), built.reserve_bytes));
        }
        let network = self.rnn.network(Extent { batch: self.batch, rows }, with)?;
        let settings = self.settings.get(&with).map(Vec::as_slice);
        let bytes = self.kiln.workspace_bytes_max(&network.graph, settings)?;
        Ok((bytes, network.bytes(Role::Reserve)))
    }

    fn expect_packed(&self) -> Result<()> {
        let layout = self.rnn.layout;
        match layout == RowLayout::Packed {
            true => Ok(()),
            false => Err(Error::bad_param(format!(
                "rnn forward: packed vectors of a network of layout {}",
                layout.name()
            ))),
        }
    }

    fn rows(&self, steps: i64) -> Result<i64> {
        let packed = self.rnn.layout == RowLayout::Packed;
        match steps.checked_mul(self.batch).filter(|_| !packed) {
            Some(rows) => Ok(rows),
            None if packed => Err(Error::bad_param(
                "rnn forward: a packed network is asked for a number of vectors, not of steps",
            )),
            None => Err(Error::bad_param(format!(
                "rnn forward: {steps} steps of {} sequences",
                self.batch
            ))),
        }
    }

    /// The plan for a number of vectors, which is built if necessary.
    fn find(&mut self, rows: i64, with: Optional) -> Result<&mut Built> {
        let PersistentRnn { kiln, rnn, batch, has_others, plans, settings, .. } = self;
        let with = with_all_states(*has_others, with);
        let place = match plans.entry((rows, with)) {
            Entry::Occupied(found) => return Ok(found.into_mut()),
            Entry::Vacant(place) => place,
        };
        let network = rnn.network(Extent { batch: *batch, rows }, with)?;
        let plan = match settings.get(&with) {
            Some(settings) => kiln.plan_reusing(&network.graph, settings)?,
            None => kiln.plan(&network.graph)?,
        };
        settings
            .entry(with)
            .or_insert_with(|| plan.parts().iter().map(|part| part.config.clone()).collect());
        Ok(place.insert(Built::new(&network, plan)?))
    }

    /// Completes a pack with memory for all states that it lacks.
    fn with_states(&self, pack: &RnnSlots) -> RnnSlots {
        let all = with_all_states(self.has_others, pack.optional());
        let StandIns { zeros, unread: [h_unread, others_unread] } = &*self.stand_ins;
        let states = [
            (Role::HInitial, zeros),
            (Role::StatesInitial, zeros),
            (Role::HFinal, h_unread),
            (Role::StatesFinal, others_unread),
        ];
        let missing = |(role, _): &(Role, &Buffer)| all.has(*role) && pack.slot(*role).is_none();
        states.into_iter().filter(missing).fold(*pack, |pack, (role, own)| pack.with(role, own))
    }

    pub(super) fn launch(&mut self, stream: &Stream, rows: i64, pack: &RnnPack) -> Result<()> {
        let pack = &self.with_states(&pack.slots);
        let built = self.find(rows, pack.optional())?;
        built.check(pack)?;
        for (view, (_, slot)) in built.views.iter().zip(&mut built.pack.entries) {
            if let Some(Slot::Memory { address, owner, .. }) = pack.slot(view.role) {
                let address = address + view.offset_bytes;
                *slot = Slot::Memory { address, bytes: view.bytes, owner };
            }
        }
        built.pack.workspace = pack.workspace;
        built.plan.execute(stream, &built.pack)
    }
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

impl Built {
    fn new(network: &Network, plan: ExecutionPlan) -> Result<Built> {
        let (mut pack, mut views) = (VariantPack::new(), Vec::new());
        for uid in plan.tensors() {
            let place = network.places.iter().find(|place| place.uid == uid);
            let place = place.expect("every input and output has a place");
            let tensor = network.graph.tensor(uid)?;
            let offset_bytes = (place.offset * tensor.dtype.bytes() as i64) as u64;
            let bytes = tensor.span_bytes()?;
            pack.place(uid, DeviceMemory { address: 0, bytes });
            views.push(View { role: place.role, offset_bytes, bytes });
        }
        let roles = network.roles().map(|role| (role, network.bytes(role))).collect();
        let reserve_bytes = network.bytes(Role::Reserve);
        Ok(Built { plan, pack, views, roles, reserve_bytes })
    }

    /// Checks that a pack has the network's tensors, all of sufficient size, and no others.
    fn check(&self, pack: &RnnSlots) -> Result<()> {
        let bad = |rule: String| Err(Error::bad_param(format!("rnn forward: {rule}")));
        for role in Role::ALL {
            let needed = self.roles.iter().find(|(known, _)| *known == role);
            match (pack.slot(role), needed) {
                (Some(Slot::Memory { bytes, .. }), Some((_, needed))) if bytes < *needed => {
                    let name = role.name();
                    return bad(format!("`{name}` has {bytes} bytes, the network needs {needed}"));
                }
                (None, Some(_)) => return bad(format!("`{}` is missing", role.name())),
                (Some(_), None) => return bad(format!("the network has no `{}`", role.name())),
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
