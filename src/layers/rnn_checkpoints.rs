//! Recurrent networks trained with little memory: the reserve space has the states between parts of
//! the steps, and what the forward pass of one part keeps.

use crate::device::Stream;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Direction, RowLayout};
use crate::layers::dropout::DropoutStates;
use crate::layers::reserves::{Phase, Reserves};
use crate::layers::rnn::{PersistentRnn, Vectors};
use crate::layers::rnn_lengths::Lengths;
use crate::layers::rnn_pack::RnnPack;
use crate::layers::rnn_plans::Pass;
use crate::layers::rnn_sizes::{TempSpace, has_others, one_step};
use crate::layers::weight_sum::SCRATCH_ALIGNMENT;
use crate::plan::{Kiln, Slot};
use crate::rnn::{Optional, Rnn, Role};

/// Tensors with a row for every vector.
const OF_ROWS: [Role; 9] = [
    Role::Input,
    Role::Output,
    Role::Reset,
    Role::RowInputs,
    Role::UnitInputs,
    Role::OutputGradient,
    Role::InputGradient,
    Role::RowInputsGradient,
    Role::UnitInputsGradient,
];

/// Alignment of the tensors of a network in bytes.
const ALIGNMENT: u64 = 16;

/// A recurrent network that is trained in parts of `every` steps (Chen et al. 2016, "Training Deep
/// Nets with Sublinear Memory Cost"): the forward pass keeps the states before each part, and the
/// backward pass runs the forward pass of a part again, for one forward pass more. Where
/// [`PersistentRnn`] reserves what every step keeps, this reserves what `every` steps keep, and the
/// states of `steps / every`.
///
/// The forward pass that runs again is bitwise the one before: of the same kernels, with the same
/// dropouts. Each part numbers the elements of its dropouts from 0, and draws its own state. States
/// between parts are of the network's type: a cell state in 16 bits is rounded there, as between
/// two calls.
///
/// ```
/// use kiln::device::DeviceChoice;
/// use kiln::layers::RnnPack;
/// use kiln::rnn::{Optional, Rnn, Role, WeightSpace};
/// use kiln::{Config, Kiln};
///
/// let device = Some(DeviceChoice::Sim("sim".to_owned()));
/// let kiln = Kiln::open(Config { device, ..Config::default() })?;
/// let (rnn, steps, batch) = (Rnn::lstm(8, 16), 6, 2);
/// let zeros = |elements: usize| kiln.device().upload(&vec![0; 4 * elements]);
/// let weights = WeightSpace::new(&rnn)?.bytes() as usize / 4;
/// let [x, dx, y, dy] = [8, 8, 16, 16].map(|size| zeros(steps * batch * size));
/// let (weights, gradients) = (zeros(weights)?, zeros(weights)?);
///
/// let mut network = kiln.checkpointed_rnn(&rnn, 2, 3)?;
/// let space = network.temp_space(6, Optional::default())?;
/// let reserve = kiln.device().alloc(space.reserve_bytes)?;
/// let workspace = kiln.device().alloc(space.workspace_bytes.max(1))?;
/// let (x, dx, y, dy) = (x?, dx?, y?, dy?);
/// let pack = RnnPack::new().with(Role::Input, &x).with(Role::Output, &y);
/// let pack = pack.with(Role::Weights, &weights).with(Role::Reserve, &reserve);
/// let pack = pack.with_workspace(&workspace);
/// network.forward(&kiln.stream(), 6, &pack)?;
/// let pack = pack.with(Role::OutputGradient, &dy).with(Role::InputGradient, &dx);
/// network.backward(&kiln.stream(), 6, &pack.with(Role::WeightGradients, &gradients))?;
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CheckpointedRnn {
    rnn: PersistentRnn,
    every: i64,
    sizes: Sizes,
    /// The lengths of a part; planned with the first call that has lengths.
    part_lengths: Option<Lengths>,
    /// What the reserve spaces hold, by address.
    reserves: Reserves<Vectors>,
}

/// Sizes in bytes.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Of one step, by role.
    step: [u64; Role::ALL.len()],
    /// `h` of all layers, the other states of all layers, and the states of dropouts: what there is
    /// for every part.
    part: [u64; 3],
    lengths: u64,
}

/// Offsets in a reserve space, in bytes.
#[derive(Debug, Clone, Copy)]
struct Places {
    /// Gradients of the states between parts, of two parts that take turns.
    gradients: u64,
    lengths: u64,
    parts: u64,
    total: u64,
}

fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(SCRATCH_ALIGNMENT)
}

impl Kiln {
    /// A network that is trained in parts of `every` steps, of which nothing is compiled yet.
    ///
    /// # Errors
    /// As [`Kiln::rnn`]; `BadParam` for parts of no steps; `NotSupported` for what has no states
    /// between parts, a network with a direction against time, for rows of a part that do not lie
    /// together, and for a quantised network, which is not trained.
    pub fn checkpointed_rnn(
        &self,
        rnn: &Rnn,
        mini_batch: i64,
        every: i64,
    ) -> Result<CheckpointedRnn> {
        if every < 1 {
            return Err(Error::bad_param(format!("a network in parts of {every} steps")));
        }
        let refuse =
            |what: String| Err(Error::not_supported(format!("a network in parts: {what}")));
        if rnn.direction != Direction::Forward {
            return refuse("a direction against time begins at the last part".to_owned());
        }
        if rnn.layout != RowLayout::SequenceMajor {
            let layout = rnn.layout.name();
            return refuse(format!("rows of layout {layout} of a part do not lie together"));
        }
        if rnn.quantization.is_some() {
            return refuse("a quantised network is not trained".to_owned());
        }
        let persistent = self.rnn(rnn, mini_batch)?;
        Ok(CheckpointedRnn {
            sizes: Sizes::of(rnn, mini_batch)?,
            rnn: persistent,
            every,
            part_lengths: None,
            reserves: Reserves::default(),
        })
    }
}

impl Sizes {
    fn of(rnn: &Rnn, batch: i64) -> Result<Sizes> {
        let with = Optional { lengths: true, reset: true, reserve: true, ..Optional::default() };
        let with = with.with_all_states(has_others(rnn));
        let mut bytes = [0; Role::ALL.len()];
        for pass in [Pass::Forward, Pass::BackwardData, Pass::BackwardWeights] {
            for network in pass.networks(rnn, one_step(batch), with)? {
                for role in network.roles() {
                    bytes[role as usize] = network.bytes(role);
                }
            }
        }
        let [h, others] = [Role::HFinal, Role::StatesFinal].map(|role| bytes[role as usize]);
        let dropouts = DropoutStates::bytes_of(rnn.dropouts() as usize) as u64;
        let lengths = batch as u64 * DType::I32.bytes() as u64;
        Ok(Sizes { step: bytes, part: [h, others, dropouts], lengths })
    }

    fn all_of_part(&self) -> u64 {
        self.part.iter().copied().map(aligned).sum()
    }
}

/// A part of the steps.
#[derive(Debug, Clone, Copy)]
struct Part {
    at: i64,
    first_step: i64,
    steps: i64,
    is_last: bool,
}

impl CheckpointedRnn {
    /// The network, in whose parts plans are made.
    pub fn network(&self) -> &PersistentRnn {
        &self.rnn
    }

    /// The steps of a part.
    pub fn every(&self) -> i64 {
        self.every
    }

    /// Sizes in bytes of the workspace of both passes and of the reserve space, for this number of
    /// steps: `reserve(every) + steps / every * states`, to which gradients of two states and the
    /// lengths of a part come.
    ///
    /// # Errors
    /// As [`PersistentRnn::temp_space`].
    pub fn temp_space(&self, steps: i64, with: Optional) -> Result<TempSpace> {
        let with = Optional { reserve: true, history: false, ..with };
        let mut workspace_bytes = 0;
        for steps in [self.every.min(steps), steps % self.every] {
            if steps > 0 || workspace_bytes == 0 {
                let rows = steps * self.rnn.mini_batch();
                let space = self.rnn.temp_space(rows, with)?;
                workspace_bytes = space.workspace_bytes.max(workspace_bytes);
            }
        }
        Ok(TempSpace { workspace_bytes, reserve_bytes: self.places(steps, with)?.total })
    }

    fn places(&self, steps: i64, with: Optional) -> Result<Places> {
        let rows = self.every.min(steps) * self.rnn.mini_batch();
        let gradients = aligned(self.rnn.temp_space(rows, with)?.reserve_bytes);
        let [h, others, _] = self.sizes.part.map(aligned);
        let lengths = gradients + 2 * (h + others);
        let parts = lengths + aligned(self.sizes.lengths);
        let total = parts + self.parts(steps) as u64 * self.sizes.all_of_part();
        Ok(Places { gradients, lengths, parts, total })
    }

    fn parts(&self, steps: i64) -> i64 {
        // At least one, which refuses what there is to refuse.
        ((steps + self.every - 1) / self.every).max(1)
    }

    fn part(&self, steps: i64, at: i64) -> Part {
        let first_step = at * self.every;
        let is_last = at + 1 == self.parts(steps);
        Part { at, first_step, steps: self.every.min(steps - first_step), is_last }
    }

    /// Launches the forward pass in training over `steps` time steps on a stream, part by part.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`]; `BadParam` for a pack without a reserve space or with a
    /// history, for a reserve space that is too small or not aligned to 256 bytes, and where parts
    /// of a tensor are no multiples of 16 bytes.
    pub fn forward(&mut self, stream: &Stream, steps: i64, pack: &RnnPack) -> Result<()> {
        let (with, places, reserve) = self.checked("forward", steps, pack)?;
        for at in 0..self.parts(steps) {
            let part = self.part(steps, at);
            let own = self.forward_pack(stream, part, pack, (&places, reserve))?;
            self.rnn.forward_pass(stream, self.rows(part), &own, true)?;
            let [_, _, drawn] = self.kept(part.at, &places, reserve);
            copy(stream, reserve, drawn)?;
        }
        let held = Vectors::new(steps * self.rnn.mini_batch(), with);
        self.record(reserve, held, Phase::Forward);
        Ok(())
    }

    /// Launches the backward passes of data and weights, from the last part to the first: the
    /// gradients that the pack asks for, and what is added to [`Role::WeightGradients`]. The output
    /// is written again, bit by bit as before.
    ///
    /// # Errors
    /// As [`PersistentRnn::backward_data`] and [`PersistentRnn::backward_weights`].
    pub fn backward(&mut self, stream: &Stream, steps: i64, pack: &RnnPack) -> Result<()> {
        let (with, places, reserve) = self.checked("backward", steps, pack)?;
        let held = Vectors::new(steps * self.rnn.mini_batch(), with);
        let wanted = "a forward pass in training";
        let Slot::Memory { address, .. } = reserve else { unreachable!("it has been checked") };
        let name = "rnn backward in parts";
        self.reserves.check(name, address, &held, (Phase::Forward, wanted))?;
        // The last part's is still there, unless another backward pass has used its place.
        let is_fresh = !self.reserves.has(address, Phase::Backward);
        self.record(reserve, held, Phase::Backward);
        for at in (0..self.parts(steps)).rev() {
            let part = self.part(steps, at);
            let rows = self.rows(part);
            let mut own = self.forward_pack(stream, part, pack, (&places, reserve))?;
            if !(part.is_last && is_fresh) {
                let [_, _, drawn] = self.kept(part.at, &places, reserve);
                copy(stream, drawn, reserve)?;
                self.rnn.forward_pass(stream, rows, &own, false)?;
            }
            for (nth, [last, first]) in Pass::BackwardData.states().into_iter().enumerate() {
                if self.sizes.part[nth] == 0 {
                    continue;
                }
                let between = |at: i64| self.gradient(at, nth, &places, reserve);
                if !part.is_last {
                    own.slots.set(last, between(part.at + 1));
                }
                if part.at > 0 {
                    own.slots.set(first, between(part.at));
                } else if let Some(slot) = pack.slots.slot(first) {
                    own.slots.set(first, slot);
                }
            }
            self.rnn.backward(Pass::BackwardData, stream, rows, &own)?;
            self.rnn.backward(Pass::BackwardWeights, stream, rows, &own)?;
        }
        Ok(())
    }

    fn record(&self, reserve: Slot, held: Vectors, phase: Phase) {
        if let Slot::Memory { address, .. } = reserve {
            self.reserves.record(address, held, phase);
        }
    }

    fn rows(&self, part: Part) -> i64 {
        part.steps * self.rnn.mini_batch()
    }

    /// The optional tensors of a call, where things are in its reserve space, and that.
    fn checked(&self, pass: &str, steps: i64, pack: &RnnPack) -> Result<(Optional, Places, Slot)> {
        let bad = |rule: String| Err(Error::bad_param(format!("rnn {pass} in parts: {rule}")));
        let with = pack.optional();
        if with.history {
            return bad("a history is not kept".to_owned());
        }
        if steps < 0 || steps.checked_mul(self.rnn.mini_batch()).is_none() {
            return bad(format!("{steps} steps of {} sequences", self.rnn.mini_batch()));
        }
        let reserve = pack.slots.slot(Role::Reserve);
        let Some(reserve @ Slot::Memory { address, bytes, .. }) = reserve else {
            return bad("`reserve` is missing".to_owned());
        };
        let places = self.places(steps, Optional { reserve: true, ..with })?;
        if bytes < places.total {
            let needed = places.total;
            return bad(format!("`reserve` has {bytes} bytes, the network needs {needed}"));
        }
        if !address.is_multiple_of(SCRATCH_ALIGNMENT) {
            return bad(format!(
                "`reserve` at {address:#x} is not aligned to {SCRATCH_ALIGNMENT} bytes"
            ));
        }
        for role in OF_ROWS {
            let Some(Slot::Memory { bytes, .. }) = pack.slots.slot(role) else { continue };
            let (name, step) = (role.name(), self.sizes.step[role as usize]);
            let needed = steps as u64 * step;
            if bytes < needed {
                return bad(format!("`{name}` has {bytes} bytes, the network needs {needed}"));
            }
            let part = self.every as u64 * step;
            if steps > self.every && !part.is_multiple_of(ALIGNMENT) {
                let every = self.every;
                return bad(format!(
                    "{every} steps of `{name}` have {part} bytes, the next part would not be \
                     aligned to {ALIGNMENT}"
                ));
            }
        }
        Ok((with, places, reserve))
    }

    /// What is kept of a part: `h` and the other states before it, and the state of its dropouts.
    fn kept(&self, part: i64, places: &Places, reserve: Slot) -> [Slot; 3] {
        let mut at = places.parts + part as u64 * self.sizes.all_of_part();
        self.sizes.part.map(|bytes| {
            let slot = reserve.piece(at, bytes);
            at += aligned(bytes);
            slot
        })
    }

    /// The gradient of a state before a part.
    fn gradient(&self, part: i64, nth: usize, places: &Places, reserve: Slot) -> Slot {
        let [h, others, _] = self.sizes.part.map(aligned);
        let turn = (part % 2) as u64 * (h + others);
        let at = places.gradients + turn + if nth == 0 { 0 } else { h };
        reserve.piece(at, self.sizes.part[nth])
    }

    /// The pack of a part's forward pass, and what it shares with the backward passes.
    fn forward_pack(
        &mut self,
        stream: &Stream,
        part: Part,
        pack: &RnnPack,
        (places, reserve): (&Places, Slot),
    ) -> Result<RnnPack> {
        let mut own = pack.clone();
        for role in OF_ROWS {
            if let Some(slot) = pack.slots.slot(role) {
                let bytes = self.sizes.step[role as usize];
                let [first, bytes] = [part.first_step, part.steps].map(|of| of as u64 * bytes);
                own.slots.set(role, slot.piece(first, bytes));
            }
        }
        own.slots.set(Role::Reserve, reserve.piece(0, places.gradients));
        for (nth, [first, last]) in Pass::Forward.states().into_iter().enumerate() {
            if self.sizes.part[nth] == 0 {
                continue;
            }
            if part.at > 0 {
                own.slots.set(first, self.kept(part.at, places, reserve)[nth]);
            }
            if !part.is_last {
                own.slots.set(last, self.kept(part.at + 1, places, reserve)[nth]);
            }
        }
        if let Some(lengths) = pack.slots.slot(Role::Lengths) {
            let own_lengths = reserve.piece(places.lengths, self.sizes.lengths);
            let planned = match &mut self.part_lengths {
                Some(planned) => planned,
                none => none.insert(Lengths::new(&self.rnn.kiln, self.rnn.mini_batch())?),
            };
            planned.execute(stream, [part.first_step, part.steps], lengths, own_lengths)?;
            own.slots.set(Role::Lengths, own_lengths);
        }
        Ok(own)
    }
}

/// Copies as many bytes as both have.
fn copy(stream: &Stream, from: Slot, to: Slot) -> Result<()> {
    match (from, to) {
        (
            Slot::Memory { address: from, bytes, .. },
            Slot::Memory { address: to, bytes: room, .. },
        ) if bytes.min(room) > 0 => stream.copy(from, to, bytes.min(room)),
        _ => Ok(()),
    }
}
