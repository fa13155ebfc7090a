//! Recurrent networks built for a batch size: plans by number of vectors, reused without any work.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{Buffer, Stream};
use crate::dropout::{POSITION_BYTES, SEED_BYTES};
use crate::error::{Error, Result};
use crate::graph::RowLayout;
use crate::layers::bounded::Bounded;
use crate::layers::dropout::{Draw, DropoutStates};
use crate::layers::reserves::{Phase, Reserves};
use crate::layers::rnn_chunking::{Chunking, Order};
use crate::layers::rnn_pack::{RnnPack, RnnSlots};
use crate::layers::rnn_planning::Planning;
use crate::layers::rnn_plans::{Built, Pass};
use crate::layers::rnn_sizes::{TempSpace, has_others, one_step};
use crate::layers::rnn_wavefront::Lanes;
use crate::plan::{ExecutionPlan, Kiln, Slot};
use crate::rnn::{Extent, Optional, Rnn, Role};

/// A recurrent network on one device, for one batch size (`mcdnnBuildRNNDynamic`, section 6.2.1.2).
///
/// Kernels do not depend on the states that a call provides or requests, and are the same from one
/// power of two of steps to the next. Plans depend on the number of steps: those of the last 32
/// numbers are kept, and another one takes the kernels and settings of what there is; mostly it
/// follows from two others, without lowering anything. A clone has its own plans and shares the
/// kernels.
///
/// A call may have its final states in the memory of its initial ones (`hy` and `hx`, `cy` and
/// `cx`), and the gradients of initial states in that of the gradients of final ones; the states
/// that it overwrites are then kept in the workspace. Nothing else that is written may overlap
/// another tensor.
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
    pub(super) kiln: Kiln,
    rnn: Rnn,
    batch: i64,
    /// Whether the cell has states besides `h`.
    has_others: bool,
    /// Plans by pass, number of vectors and optional tensors, all states included.
    plans: Bounded<(Pass, i64, Optional), Ready>,
    /// What makes them.
    planning: Planning,
    /// Allocated with the first plan.
    stand_ins: Option<Arc<StandIns>>,
    /// What the reserve spaces of this network hold, by address.
    pub(super) reserves: Reserves<Vectors>,
    /// Of dropouts between layers, if there are any.
    dropouts: Option<Arc<DropoutStates>>,
    /// What a forward pass in training does with them; built with its plan.
    draw: Option<Draw>,
    /// What makes chunks of steps, in which layers run side by side.
    chunking: Chunking,
    /// What chunks are launched into, by the caller's stream.
    lanes: Lanes,
    /// Sizes that were asked for, by number of vectors and optional tensors.
    sizes: Arc<Mutex<Bounded<(i64, Optional), TempSpace>>>,
}

/// What runs a pass.
#[derive(Clone)]
pub(super) struct Ready {
    pub(super) built: Built,
    /// How its layers run.
    order: Order,
}

impl Ready {
    fn is_outdated(&self) -> bool {
        self.built.is_outdated() || self.order.is_outdated()
    }
}

/// Plans of a network that are kept: each takes about 45 kB for a network of two layers, three
/// times that in chunks, and up to 6 MB for one with kernels for each step.
const PLANS_MAX: usize = 32;

/// Of the numbers of steps whose kernels are built at once, the last power of two.
const BUILT_OCTAVES: u32 = 10;

/// Sizes that are kept.
const SIZES_MAX: usize = 256;

/// Memory that replaces states that a call lacks, as large as the states of all layers.
struct StandIns {
    /// Initial states, and gradients of final ones, that a call does not provide: 0 of `h`, whose
    /// integers stand for it, and of the others.
    zeros: [Buffer; 2],
    /// Final states, and gradients of initial ones, that a call does not request: `h`, and the
    /// others.
    unread: [Buffer; 2],
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

impl Kiln {
    /// A network for one batch size, of which nothing is compiled yet and that has no memory on the
    /// device: kernels are compiled, or found in a cache, by [`PersistentRnn::prepare`] or by the
    /// first call that needs them.
    ///
    /// # Errors
    /// As [`Rnn::network`].
    pub fn rnn(&self, rnn: &Rnn, mini_batch: i64) -> Result<PersistentRnn> {
        let has_others = has_others(rnn);
        let with = Optional { lengths: rnn.layout == RowLayout::Packed, ..Optional::default() };
        rnn.network(one_step(mini_batch), with.with_all_states(has_others))?;
        let dropouts = match rnn.dropouts() {
            0 => None,
            count => {
                let all = vec![rnn.dropout; count as usize];
                Some(Arc::new(DropoutStates::new(self.device(), &all)?))
            }
        };
        Ok(PersistentRnn {
            kiln: self.clone(),
            rnn: rnn.clone(),
            batch: mini_batch,
            has_others,
            plans: Bounded::new(PLANS_MAX),
            planning: Planning::new(self, rnn, mini_batch),
            stand_ins: None,
            reserves: Reserves::default(),
            dropouts,
            draw: None,
            chunking: Chunking::new(self, mini_batch),
            lanes: Lanes::default(),
            sizes: Arc::new(Mutex::new(Bounded::new(SIZES_MAX))),
        })
    }

    /// As [`Kiln::rnn`], with the kernels of inference ([`PersistentRnn::build`]).
    ///
    /// # Errors
    /// As [`Rnn::network`] and [`Kiln::plan`].
    pub fn build_rnn_dynamic(&self, rnn: &Rnn, mini_batch: i64) -> Result<PersistentRnn> {
        let mut built = self.rnn(rnn, mini_batch)?;
        built.build()?;
        Ok(built)
    }
}

impl PersistentRnn {
    /// Compiles the kernels of inference for up to 2047 steps, or finds them in a cache: they are
    /// specialised for the network and the batch size; the products of all steps' inputs have other
    /// tiles from some powers of two of steps on. Kernels for resets, a history, a reserve space,
    /// lengths in a layout that does not require them, or more steps are built by
    /// [`PersistentRnn::prepare`] or by the first call that needs them.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub fn build(&mut self) -> Result<()> {
        let lengths = self.rnn.layout == RowLayout::Packed;
        let with = Optional { lengths, ..Optional::default() };
        for steps in (0..=BUILT_OCTAVES).map(|octave| 1 << octave) {
            self.find(Pass::Forward, self.batch.saturating_mul(steps), with)?;
        }
        Ok(())
    }

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
        self.dropouts.as_deref()
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
        self.forward_pass(stream, rows, pack, true)
    }

    /// As [`PersistentRnn::forward`], for a packed network with `rows` vectors.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`]; `BadParam` for a network that is not packed.
    pub fn forward_packed(&mut self, stream: &Stream, rows: i64, pack: &RnnPack) -> Result<()> {
        self.expect_packed(Pass::Forward)?;
        self.forward_pass(stream, rows, pack, true)
    }

    /// The plan of a forward pass over `steps` time steps with these optional tensors, which is
    /// built if necessary.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`].
    pub fn prepare(&mut self, steps: i64, with: Optional) -> Result<&ExecutionPlan> {
        let rows = self.rows(Pass::Forward, steps)?;
        Ok(self.find(Pass::Forward, rows, with)?.built.first_plan())
    }

    /// As [`PersistentRnn::prepare`], for a packed network with `rows` vectors.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward_packed`].
    pub fn prepare_packed(&mut self, rows: i64, with: Optional) -> Result<&ExecutionPlan> {
        self.expect_packed(Pass::Forward)?;
        Ok(self.find(Pass::Forward, rows, with)?.built.first_plan())
    }

    /// As [`Kiln::rnn_temp_space`], for this number of vectors; the last 256 answers are kept.
    ///
    /// # Errors
    /// As [`Kiln::rnn_temp_space`].
    pub fn temp_space(&self, rows: i64, with: Optional) -> Result<TempSpace> {
        let known = || self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(space) = known().get(&(rows, with)) {
            return Ok(*space);
        }
        let extent = Extent { batch: self.batch, rows };
        let mut passes = self.planning.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let space = passes.temp_space(&self.kiln, extent, with)?;
        known().insert((rows, with), space);
        Ok(space)
    }

    /// Sets how many steps of a pass make a chunk.
    ///
    /// Layers run side by side, each a chunk behind the one that it reads, in forward passes and in
    /// backward passes of the data, where a network that goes forward has several, its vectors lie
    /// step by step, and no history is asked for; a projected network's backward pass runs in turn.
    /// They do on streams of the network's own, which the caller's stream waits for. Results are
    /// the same bits.
    ///
    /// `None`, as it is built: by the cost model, where launches may overlap
    /// ([`Config::overlap_launches`](crate::Config::overlap_launches)). Others are rounded up to a
    /// multiple of 16; as many steps as a pass has or more: layers run one after the other.
    pub fn set_chunk_steps(&mut self, steps: Option<i64>) {
        self.chunking.steps = steps;
        self.plans = Bounded::new(PLANS_MAX);
    }

    /// Steps of a chunk of a forward pass over `steps` time steps with these optional tensors;
    /// `None` where layers run one after the other. They may, too, in a call with a smaller
    /// workspace than [`PersistentRnn::temp_space`] says.
    ///
    /// # Errors
    /// As [`PersistentRnn::prepare`].
    pub fn chunk_steps(&mut self, steps: i64, with: Optional) -> Result<Option<i64>> {
        self.chunk_steps_of(Pass::Forward, steps, with)
    }

    /// As [`PersistentRnn::chunk_steps`], of the backward pass of the data.
    ///
    /// # Errors
    /// As [`PersistentRnn::backward_data`] of a call with a new number of steps.
    pub fn backward_chunk_steps(&mut self, steps: i64, with: Optional) -> Result<Option<i64>> {
        let with = Optional { history: false, reserve: true, ..with };
        self.chunk_steps_of(Pass::BackwardData, steps, with)
    }

    fn chunk_steps_of(&mut self, pass: Pass, steps: i64, with: Optional) -> Result<Option<i64>> {
        let rows = self.rows(pass, steps)?;
        let order = &self.find(pass, rows, with)?.order;
        Ok(order.wavefront().map(|of| of.chunks().steps))
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

    /// The plans of a pass for a number of vectors, which are built if necessary.
    pub(super) fn find(&mut self, pass: Pass, rows: i64, with: Optional) -> Result<&mut Ready> {
        let key = (pass, rows, with.with_all_states(self.has_others));
        if self.plans.get(&key).is_none_or(|ready| ready.is_outdated()) {
            let built = self.plan(key)?;
            let order = self.chunking.order(&self.rnn, &mut self.planning, key, &built);
            self.plans.insert(key, Ready { built, order });
        }
        Ok(self.plans.get(&key).expect("it has been built"))
    }

    fn plan(&mut self, (pass, rows, with): (Pass, i64, Optional)) -> Result<Built> {
        let kiln = &self.kiln;
        if self.stand_ins.is_none() {
            self.stand_ins = Some(Arc::new(StandIns::new(kiln, &self.rnn, self.batch)?));
        }
        if let (None, Some(states), true) = (&self.draw, &self.dropouts, with.reserve) {
            self.draw = Some(Draw::new(kiln, states.count())?);
        }
        self.planning.plans(pass, rows, with)
    }

    /// Completes a pack with memory for all states that a pass needs and it lacks.
    fn with_states(&self, pass: Pass, pack: &RnnSlots) -> RnnSlots {
        let stand_ins = self.stand_ins.as_deref().expect("they come with a plan");
        let StandIns { zeros: [h_zeros, zeros], unread: [h_unread, others_unread] } = stand_ins;
        let initial = [(Role::HInitial, h_zeros), (Role::StatesInitial, zeros)];
        let forward = [(Role::HFinal, h_unread), (Role::StatesFinal, others_unread)];
        let data = [
            (Role::HFinalGradient, h_zeros),
            (Role::StatesFinalGradient, zeros),
            (Role::HInitialGradient, h_unread),
            (Role::StatesInitialGradient, others_unread),
        ];
        let others: &[(Role, &Buffer)] = match pass {
            Pass::BackwardWeights => &[],
            Pass::Forward | Pass::ForwardChunk => &forward,
            Pass::BackwardData | Pass::DataChunk => &data,
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
        let mut complete = *pack;
        for (role, own) in initial.into_iter().chain(others.iter().copied()).filter(missing) {
            complete.set(role, Slot::of(own));
        }
        complete
    }

    /// Completes a pack with the seeds and positions of dropouts in the reserve space.
    fn add_dropouts(&self, pack: &mut RnnSlots) {
        if let (Some(_), Some(Slot::Memory { address, owner, .. })) =
            (&self.dropouts, pack.slot(Role::Reserve))
        {
            let count = self.rnn.dropouts() as u64;
            let [seeds, positions] = [SEED_BYTES, POSITION_BYTES].map(|of| count * of as u64);
            let memory = |address, bytes| Slot::Memory { address, bytes, owner };
            pack.set(Role::DropoutSeeds, memory(address, seeds));
            pack.set(Role::DropoutPositions, memory(address + seeds, positions));
        }
    }

    /// Keeps the state of the dropouts in the reserve space, and moves it on.
    fn draw(&mut self, stream: &Stream, pack: &RnnSlots) -> Result<()> {
        match (&self.dropouts, &mut self.draw, pack.slot(Role::Reserve)) {
            (Some(states), Some(draw), Some(Slot::Memory { address, owner, .. })) => {
                draw.execute(stream, states, (address, owner))
            }
            _ => Ok(()),
        }
    }

    /// Launches a forward pass, and notes it if it is in training; its dropouts are drawn, or those
    /// whose state the reserve space holds.
    pub(super) fn forward_pass(
        &mut self,
        stream: &Stream,
        rows: i64,
        pack: &RnnPack,
        draws: bool,
    ) -> Result<()> {
        let with = pack.optional();
        self.run(Pass::Forward, stream, (rows, with, draws), pack)?;
        if let (true, Some(Slot::Memory { address, .. })) =
            (with.reserve, pack.slots.slot(Role::Reserve))
        {
            self.reserves.record(address, Vectors::new(rows, with), Phase::Forward);
        }
        Ok(())
    }

    /// Launches a pass over so many vectors, with the optional tensors of the forward pass, and
    /// perhaps draws its dropouts.
    pub(super) fn run(
        &mut self,
        pass: Pass,
        stream: &Stream,
        (rows, with, draws): (i64, Optional, bool),
        pack: &RnnPack,
    ) -> Result<()> {
        if !self.kiln.device().owns(stream) {
            let name = pass.name();
            let text = format!("{name}: the stream belongs to another device than the network");
            return Err(Error::bad_param(text));
        }
        if self.stand_ins.is_none() {
            self.find(pass, rows, with)?;
        }
        let pack = &mut self.with_states(pass, &pack.slots);
        self.add_dropouts(pack);
        if draws && self.dropouts.is_some() && with.reserve {
            // A call that is refused draws nothing.
            self.find(pass, rows, with)?.built.check(pass, pack)?;
            self.draw(stream, pack)?;
        }
        let mut lanes = std::mem::take(&mut self.lanes);
        let launched = self.launch(pass, stream, (rows, with), pack, &mut lanes);
        self.lanes = lanes;
        launched
    }

    fn launch(
        &mut self,
        pass: Pass,
        stream: &Stream,
        (rows, with): (i64, Optional),
        pack: &mut RnnSlots,
        lanes: &mut Lanes,
    ) -> Result<()> {
        let Ready { built, order } = self.find(pass, rows, with)?;
        built.check(pass, pack)?;
        if let Order::SideBySide(wavefront) = order
            && wavefront.launch(stream, pack, lanes)?
        {
            return Ok(());
        }
        built.launch(pass, stream, pack)
    }
}

impl StandIns {
    fn new(kiln: &Kiln, rnn: &Rnn, batch: i64) -> Result<StandIns> {
        let with = Optional { lengths: rnn.layout == RowLayout::Packed, ..Optional::default() };
        let all = with.with_all_states(has_others(rnn));
        let network = rnn.network(one_step(batch), all)?;
        let states = [Role::HFinal, Role::StatesFinal].map(|role| network.bytes(role));
        let [h_bytes, others_bytes] = states.map(|bytes| bytes.max(1));
        // One byte, or all bytes of a number.
        let zero = rnn.quantization.map_or(0, |own| own.shift as u8);
        let filled = |byte: u8, bytes: u64| kiln.device().upload(&vec![byte; bytes as usize]);
        Ok(StandIns {
            zeros: [filled(zero, h_bytes)?, filled(0, others_bytes)?],
            unread: [kiln.device().alloc(h_bytes)?, kiln.device().alloc(others_bytes)?],
        })
    }
}

impl fmt::Debug for PersistentRnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PersistentRnn({:?}, batch {})", self.rnn, self.batch)
    }
}
