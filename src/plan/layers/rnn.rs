//! Networks built for a batch: plans by number of vectors, found again without any work.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use crate::device::{Buffer, Stream};
use crate::engine::{EngineConfig, Part};
use crate::error::{Error, Result};
use crate::graph::{OperationGraph, RowLayout};
use crate::plan::build::Kiln;
use crate::plan::execute::ExecutionPlan;
use crate::plan::layers::rnn_pack::{RnnPack, RnnSlots};
use crate::plan::recipe;
use crate::plan::variant_pack::{DeviceMemory, Slot, VariantPack};
use crate::rnn::{Extent, Network, Optional, Rnn, Role};
use crate::target::Target;

/// A recurrent network on one device, for one batch size (`mcdnnBuildRNNDynamic`, section 6.2.1.2).
///
/// Kernels depend neither on the number of steps nor on which states a call gives or asks for;
/// plans depend on the number of steps, and are kept for every number that was asked for. A clone
/// keeps its own plans, kernels are shared.
///
/// ```
/// use kiln::device::DeviceChoice;
/// use kiln::plan::RnnPack;
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
    /// By vectors, and by optional tensors with all states among them.
    plans: HashMap<(i64, Optional), Built>,
    /// The setting of each part of the first plan with these optional tensors: later plans take
    /// them.
    settings: HashMap<Optional, Vec<EngineConfig>>,
    stand_ins: Arc<StandIns>,
}

/// Memory in the place of states, as large as those of all layers.
struct StandIns {
    /// For states that a call does not give.
    zeros: Buffer,
    /// For those that it does not ask for: `h`, and the others.
    unread: [Buffer; 2],
}

/// A plan, and where its tensors stand in those of a caller.
#[derive(Clone)]
struct Built {
    plan: ExecutionPlan,
    /// Overwritten at every call: its entries stand in the order of `views`.
    pack: VariantPack,
    views: Vec<View>,
    /// The tensors a caller gives, and their bytes.
    roles: Vec<(Role, u64)>,
    reserve_bytes: u64,
}

/// Part of a caller's tensor.
#[derive(Clone, Copy)]
struct View {
    role: Role,
    offset_bytes: u64,
    bytes: u64,
}

impl Kiln {
    /// A network for batches of exactly so many sequences. Its kernels are specialised for the
    /// network and the batch, and are compiled, or found in the cache, now; those of calls with
    /// lengths of a layout that does not need them, resets, a history or a reserve when
    /// [`PersistentRnn::prepare`] or the first such call asks for them.
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

    /// Sequences of a batch.
    pub fn mini_batch(&self) -> i64 {
        self.batch
    }

    /// Queues a forward pass over so many steps on a stream. A number of steps, or a set of
    /// optional tensors, that was not seen before is planned first; after that, a call looks up
    /// its plan, fills in addresses and launches: it allocates nothing.
    ///
    /// # Errors
    /// `BadParam` for a packed network, a tensor of the pack that is missing, too small or not the
    /// network's; as [`ExecutionPlan::execute`]; for a new plan, as [`Rnn::network`] and
    /// [`Kiln::plan`].
    pub fn forward(&mut self, stream: &Stream, steps: i64, pack: &RnnPack) -> Result<()> {
        let rows = self.rows(steps)?;
        self.launch(stream, rows, pack)
    }

    /// As [`PersistentRnn::forward`], of a packed network: `rows` vectors in all.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`]; `BadParam` for a network that is not packed.
    pub fn forward_packed(&mut self, stream: &Stream, rows: i64, pack: &RnnPack) -> Result<()> {
        self.expect_packed()?;
        self.launch(stream, rows, pack)
    }

    /// The plan of a forward pass over so many steps with these optional tensors, made now if there
    /// is none.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`].
    pub fn prepare(&mut self, steps: i64, with: Optional) -> Result<&ExecutionPlan> {
        let rows = self.rows(steps)?;
        Ok(&self.find(rows, with)?.plan)
    }

    /// As [`PersistentRnn::prepare`], of a packed network: `rows` vectors in all.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward_packed`].
    pub fn prepare_packed(&mut self, rows: i64, with: Optional) -> Result<&ExecutionPlan> {
        self.expect_packed()?;
        Ok(&self.find(rows, with)?.plan)
    }

    /// Bytes of workspace and of reserve space that so many vectors need
    /// (`mcdnnGetRNNTempSpaceSizes`, section 6.2.1.29). It compiles nothing: of a plan that is not
    /// there yet, the most that any setting takes which planning may fall back to.
    pub(in crate::plan) fn temp_space(&self, rows: i64, with: Optional) -> Result<(u64, u64)> {
        let with = with_all_states(self.has_others, with);
        if let Some(built) = self.plans.get(&(rows, with)) {
            return Ok((built.plan.workspace_bytes(), built.reserve_bytes));
        }
        let network = self.rnn.network(Extent { batch: self.batch, rows }, with)?;
        let target = self.kiln.device().target();
        let mut parts = self.kiln.inner.parts(&network.graph, target)?;
        if let Some(settings) = self.settings.get(&with) {
            take_settings(&mut parts, settings, target)?;
        }
        let lowered = |part: Part| {
            let lowering = part.supported(target)?.lower(&part.config)?;
            Ok((part, lowering))
        };
        let mut lowered: Vec<_> = parts.into_iter().map(lowered).collect::<Result<_>>()?;
        let mut bytes = recipe::workspace_bytes(&network.graph, &lowered)?;
        for at in 0..lowered.len() {
            let first = lowered[at].clone();
            while let Some(smaller) = lowered[at].0.smaller(target)? {
                let lowering = smaller.supported(target)?.lower(&smaller.config)?;
                lowered[at] = (smaller, lowering);
                bytes = bytes.max(recipe::workspace_bytes(&network.graph, &lowered)?);
            }
            lowered[at] = first;
        }
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

    /// The plan for so many vectors, made if there is none.
    fn find(&mut self, rows: i64, with: Optional) -> Result<&mut Built> {
        let PersistentRnn { kiln, rnn, batch, has_others, plans, settings, .. } = self;
        let with = with_all_states(*has_others, with);
        let place = match plans.entry((rows, with)) {
            Entry::Occupied(found) => return Ok(found.into_mut()),
            Entry::Vacant(place) => place,
        };
        let network = rnn.network(Extent { batch: *batch, rows }, with)?;
        let plan = match settings.get(&with) {
            Some(settings) => plan_with(kiln, &network.graph, settings)?,
            None => kiln.plan(&network.graph)?,
        };
        settings
            .entry(with)
            .or_insert_with(|| plan.parts().iter().map(|part| part.config.clone()).collect());
        Ok(place.insert(Built::new(&network, plan)?))
    }

    /// The pack with something in the place of every state that it lacks.
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

    pub(in crate::plan) fn launch(
        &mut self,
        stream: &Stream,
        rows: i64,
        pack: &RnnPack,
    ) -> Result<()> {
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

/// A plan with the settings of another, of a graph that differs in the number of rows alone:
/// kernels that count rows at run time are those that are there already.
fn plan_with(
    kiln: &Kiln,
    graph: &OperationGraph,
    settings: &[EngineConfig],
) -> Result<ExecutionPlan> {
    let target = kiln.device().target();
    let mut parts = kiln.inner.parts(graph, target)?;
    take_settings(&mut parts, settings, target)?;
    kiln.plan_parts(graph, parts)
}

/// Gives parts these settings where their engines allow them.
fn take_settings(parts: &mut [Part], settings: &[EngineConfig], target: &Target) -> Result<()> {
    for (part, config) in parts.iter_mut().zip(settings) {
        let same = part.config.engine == config.engine;
        if same && part.supported(target)?.lower(config).is_ok() {
            part.config = config.clone();
        }
    }
    Ok(())
}

/// These optional tensors and every state that the network has: kernels for them serve calls
/// without.
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

    /// Checks that a pack holds the whole of every tensor of the network, and no other.
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
