//! The plans of a recurrent network's passes: where their tensors are in the caller's memory, and
//! what a call keeps in the workspace behind what the plans themselves use.

use crate::device::Stream;
use crate::error::{Error, Result};
use crate::layers::rnn_pack::RnnSlots;
use crate::layers::weight_sum::SCRATCH_ALIGNMENT;
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Queued, Slot, Tier, VariantPack};
use crate::progression::Progression;
use crate::rnn::{Extent, Network, Optional, Rnn, Role, Training};

/// A pass through a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    Forward,
    BackwardData,
    BackwardWeights,
    /// A forward pass over some of the steps ([`Rnn::chunk`]).
    ForwardChunk,
    /// A backward pass of the data over some of the steps ([`Network::data_in_chunks`]).
    DataChunk,
}

/// States that a pass reads, each with those that it writes in the same layout: a call may have
/// both in one place.
pub(super) const IN_PLACE: [[Role; 2]; 4] = [
    [Role::HInitial, Role::HFinal],
    [Role::StatesInitial, Role::StatesFinal],
    [Role::HFinalGradient, Role::HInitialGradient],
    [Role::StatesFinalGradient, Role::StatesInitialGradient],
];

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
pub(super) struct Built {
    plans: Vec<Planned>,
    /// The plans that these are like, and whether they were specialised then.
    likes: Vec<(ExecutionPlan, Tier)>,
    /// The caller's tensors and their sizes in bytes.
    roles: Vec<(Role, u64)>,
    /// Where each tensor in the reserve space begins, in bytes.
    reserve_offsets: Vec<u64>,
}

/// The location of a graph tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
struct View {
    role: Role,
    offset_bytes: u64,
    bytes: u64,
    /// How far it is from that of one step to that of the next, in bytes; 0 where all steps of a
    /// pass are in it, or share it.
    step_bytes: u64,
}

impl Progression for View {
    fn term(first: &View, second: &View, at: i64) -> Option<View> {
        let role = (first.role == second.role).then_some(first.role)?;
        let offset_bytes = u64::term(&first.offset_bytes, &second.offset_bytes, at)?;
        let bytes = u64::term(&first.bytes, &second.bytes, at)?;
        let step_bytes = u64::term(&first.step_bytes, &second.step_bytes, at)?;
        Some(View { role, offset_bytes, bytes, step_bytes })
    }
}

impl Pass {
    pub(super) fn name(self) -> &'static str {
        match self {
            Pass::Forward | Pass::ForwardChunk => "rnn forward",
            Pass::BackwardData | Pass::DataChunk => "rnn backward data",
            Pass::BackwardWeights => "rnn backward weights",
        }
    }

    /// The same pass over some of the steps; `None` for one without recurrent layers.
    pub(super) fn chunk(self) -> Option<Pass> {
        match self {
            Pass::Forward => Some(Pass::ForwardChunk),
            Pass::BackwardData => Some(Pass::DataChunk),
            _ => None,
        }
    }

    /// The pass over all steps.
    pub(super) fn whole(self) -> Pass {
        match self {
            Pass::ForwardChunk => Pass::Forward,
            Pass::DataChunk => Pass::BackwardData,
            whole => whole,
        }
    }

    /// The states that it reads, each with those that it writes: `h`, and the others.
    pub(super) fn states(self) -> [[Role; 2]; 2] {
        let [h, others, h_gradient, other_gradients] = IN_PLACE;
        match self.whole() {
            Pass::Forward => [h, others],
            _ => [h_gradient, other_gradients],
        }
    }

    /// The networks of the pass.
    pub(super) fn networks(
        self,
        rnn: &Rnn,
        extent: Extent,
        with: Optional,
    ) -> Result<Vec<Network>> {
        match self {
            Pass::Forward => Ok(vec![rnn.network(extent, with)?]),
            Pass::ForwardChunk => Ok(vec![rnn.chunk(extent, with)?]),
            _ => self.of_training(&rnn.training(extent, with)?),
        }
    }

    /// The networks of the pass in training.
    pub(super) fn of_training(self, training: &Training) -> Result<Vec<Network>> {
        match self {
            Pass::Forward => Ok(vec![training.forward.clone()]),
            Pass::ForwardChunk => Ok(vec![training.forward_chunk()?]),
            Pass::BackwardData => Ok(vec![training.data.clone()]),
            Pass::DataChunk => Ok(vec![training.data.data_in_chunks()?.chunk]),
            Pass::BackwardWeights => {
                training.weights.iter().cloned().map(Network::adding).collect()
            }
        }
    }

    /// The most bytes that a call keeps in the workspace behind what the plans use: states that are
    /// overwritten in place.
    pub(super) fn kept_bytes_max(network: &Network) -> u64 {
        let used = |role: Role| match network.roles().any(|own| own == role) {
            true => network.bytes(role).next_multiple_of(SCRATCH_ALIGNMENT),
            false => 0,
        };
        IN_PLACE.iter().map(|[read, written]| used(*read).min(used(*written))).sum()
    }
}

impl Planned {
    fn new(network: &Network, plan: ExecutionPlan) -> Result<Planned> {
        let mut views = Vec::new();
        for uid in plan.tensors() {
            let place = network.places.iter().find(|place| place.uid == uid);
            let place = place.expect("every input and output has a place");
            let tensor = network.graph.tensor(uid)?;
            let offset_bytes = (place.offset * tensor.dtype.bytes() as i64) as u64;
            let (role, bytes) = (place.role, tensor.span_bytes()?);
            views.push(View { role, offset_bytes, bytes, step_bytes: 0 });
        }
        Ok(Planned::of(plan, views))
    }

    fn of(plan: ExecutionPlan, views: Vec<View>) -> Planned {
        let mut pack = VariantPack::new();
        for (uid, View { bytes, .. }) in plan.tensors().zip(&views) {
            pack.place(uid, DeviceMemory { address: 0, bytes: *bytes });
        }
        Planned { plan, pack, views }
    }
}

impl Built {
    /// Plans of networks, each like another plan.
    pub(super) fn new(
        networks: &[Network],
        plans: Vec<ExecutionPlan>,
        likes: &[ExecutionPlan],
    ) -> Result<Built> {
        let likes = likes.iter().map(|plan| (plan.clone(), plan.tier())).collect();
        let mut roles: Vec<(Role, u64)> = Vec::new();
        for network in networks {
            let own = network.roles().map(|role| (role, network.bytes(role)));
            let new = own.filter(|(role, _)| roles.iter().all(|(known, _)| known != role));
            let new: Vec<(Role, u64)> = new.collect();
            roles.extend(new);
        }
        let planned = networks.iter().zip(plans).map(|(network, plan)| Planned::new(network, plan));
        let plans: Vec<Planned> = planned.collect::<Result<_>>()?;
        let reserve_offsets = networks.first().map(|of| of.reserve_offsets.clone());
        Ok(Built { plans, likes, roles, reserve_offsets: reserve_offsets.unwrap_or_default() })
    }

    /// Those so many behind the first of a progression, given these and the next; `None` where
    /// these are not the begin of one.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(super) fn term(&self, next: &Built, kiln: &Kiln, at: i64) -> Result<Option<Built>> {
        let mut plans = Vec::new();
        for (first, second) in self.plans.iter().zip(&next.plans) {
            let Some(plan) = kiln.plan_term(&first.plan, &second.plan, at)? else {
                return Ok(None);
            };
            let Some(views) = Vec::term(&first.views, &second.views, at) else { return Ok(None) };
            plans.push(Planned::of(plan, views));
        }
        let role = |((role, first), (_, second)): (&(Role, u64), &(Role, u64))| {
            Some((*role, u64::term(first, second, at)?))
        };
        let roles = self.roles.iter().zip(&next.roles).map(role).collect::<Option<_>>();
        let alike = self.plans.len() == next.plans.len() && self.roles.len() == next.roles.len();
        let offsets = Vec::term(&self.reserve_offsets, &next.reserve_offsets, at);
        let likes = self.likes.clone();
        let known = roles.zip(offsets).filter(|_| alike);
        Ok(known.map(|(roles, reserve_offsets)| Built { plans, likes, roles, reserve_offsets }))
    }

    /// Whether they do the same as others.
    pub(super) fn launches_as(&self, other: &Built) -> bool {
        let same = |(own, other): (&Planned, &Planned)| {
            own.plan.launches_as(&other.plan) && own.views == other.views
        };
        self.roles == other.roles
            && self.reserve_offsets == other.reserve_offsets
            && self.plans.len() == other.plans.len()
            && self.plans.iter().zip(&other.plans).all(same)
    }

    /// Whether they run specialised kernels, which stay.
    pub(super) fn is_final(&self) -> bool {
        self.likes.iter().all(|(_, tier)| *tier == Tier::Special)
    }

    /// Whether they run the same kernels as the plans that they are like, one for one.
    pub(super) fn has_kernels_of_likes(&self) -> bool {
        let same = |(own, (like, _)): (&Planned, &(ExecutionPlan, Tier))| {
            let (own, like) = (own.plan.kernels(), like.kernels());
            let mut pairs = own.iter().zip(like);
            own.len() == like.len() && pairs.all(|(own, like)| own.spec() == like.spec())
        };
        self.plans.len() == self.likes.len() && self.plans.iter().zip(&self.likes).all(same)
    }

    /// Whether they run generic kernels, and specialised ones have been compiled since.
    pub(super) fn is_outdated(&self) -> bool {
        self.likes.iter().any(|(plan, tier)| plan.tier() != *tier)
    }

    /// All plans.
    pub(super) fn plans(&self) -> impl Iterator<Item = &ExecutionPlan> {
        self.plans.iter().map(|of| &of.plan)
    }

    /// The first plan: all of a forward pass, of one of the data, or of a chunk.
    pub(super) fn first_plan(&self) -> &ExecutionPlan {
        &self.plans[0].plan
    }

    /// The caller's tensors and their sizes in bytes.
    pub(super) fn roles(&self) -> &[(Role, u64)] {
        &self.roles
    }

    /// Bytes of a caller's tensor; 0 where the pass has none.
    pub(super) fn bytes_of(&self, role: Role) -> u64 {
        self.roles.iter().find(|(known, _)| *known == role).map_or(0, |(_, bytes)| *bytes)
    }

    /// The bytes of a caller's tensor that are used; 0 where there is none.
    pub(super) fn used_bytes(&self, role: Role) -> u64 {
        let views = self.plans.iter().flat_map(|of| &of.views).filter(|view| view.role == role);
        views.map(|view| view.offset_bytes + view.bytes).max().unwrap_or(0)
    }

    /// The most bytes of workspace that a plan uses.
    pub(super) fn workspace_bytes(&self) -> u64 {
        self.plans.iter().map(|of| of.plan.workspace_bytes()).max().unwrap_or(0)
    }

    /// The same for some of the steps of a pass: all but the states, and what dropouts begin with,
    /// are where they are in that of all steps, and move on with the steps. `None` where there is
    /// something else.
    pub(super) fn within(mut self, whole: &Built, [own, all]: [i64; 2]) -> Option<Built> {
        let ([chunk], [whole_plan]) = (&mut self.plans[..], &whole.plans[..]) else { return None };
        let stays = |role: &Role| {
            IN_PLACE.as_flattened().contains(role) || *role == Role::DropoutSubsequence
        };
        let moves = |view: &View| !stays(&view.role);
        let uids = whole_plan.plan.tensors();
        let mut places = uids.zip(&whole_plan.views).filter(|(_, view)| moves(view));
        let views = chunk.plan.tensors().zip(&mut chunk.views);
        for (uid, view) in views.filter(|(_, view)| moves(view)) {
            let (known, place) = places.next()?;
            let at = |of: &[u64], offset: u64| of.iter().position(|own| *own == offset);
            let is_same = match view.role {
                Role::Reserve => {
                    let own = at(&self.reserve_offsets, view.offset_bytes)?;
                    at(&whole.reserve_offsets, place.offset_bytes) == Some(own)
                }
                _ => view.offset_bytes == place.offset_bytes,
            };
            if (known, place.role) != (uid, view.role) || !is_same {
                return None;
            }
            view.step_bytes = match () {
                () if place.bytes == view.bytes => 0,
                () if place.bytes * own as u64 == view.bytes * all as u64 => {
                    place.bytes / all as u64
                }
                () => return None,
            };
            view.offset_bytes = place.offset_bytes;
        }
        places.next().is_none().then_some(self)
    }

    /// Checks that a pack has the network's tensors, all of sufficient size, and no others.
    pub(super) fn check(&self, pass: Pass, pack: &RnnSlots) -> Result<()> {
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

    /// The states that a call has in one place with those that the pass writes: roles, addresses
    /// and sizes in bytes.
    fn in_place(&self, pack: &RnnSlots) -> [Option<(Role, u64, u64)>; IN_PLACE.len()] {
        IN_PLACE.map(|[read, written]| {
            let address = |role: Role| match pack.slot(role) {
                Some(Slot::Memory { address, .. }) if self.bytes_of(role) > 0 => Some(address),
                _ => None,
            };
            let at = address(read)?;
            (address(written) == Some(at)).then(|| (read, at, self.bytes_of(read)))
        })
    }

    /// Launches the plans on what a checked pack holds.
    /// States that it overwrites are then elsewhere in the pack.
    pub(super) fn launch(
        &mut self,
        pass: Pass,
        stream: &Stream,
        pack: &mut RnnSlots,
    ) -> Result<()> {
        let overwritten = self.in_place(pack);
        let sizes = overwritten.iter().flatten().map(|(_, _, bytes)| bytes);
        let kept = sizes.map(|bytes| bytes.next_multiple_of(SCRATCH_ALIGNMENT)).sum();
        if kept > 0 {
            let (mut to, owner) = self.behind(pass, pack.workspace, kept)?;
            for (role, from, bytes) in overwritten.into_iter().flatten() {
                // Blocks write final states while others have yet to read initial ones.
                stream.copy(from, to, bytes)?;
                pack.set(role, Slot::Memory { address: to, bytes, owner });
                to += bytes.next_multiple_of(SCRATCH_ALIGNMENT);
            }
        }
        self.execute(stream, pack, 0, |kernel| kernel.launch(stream))
    }

    /// Executes the plans on what a pack holds, from a step on; `queue` launches their kernels
    /// ([`ExecutionPlan::execute_on`]).
    pub(super) fn execute(
        &mut self,
        stream: &Stream,
        pack: &RnnSlots,
        step: u64,
        mut queue: impl FnMut(&Queued<'_>) -> Result<()>,
    ) -> Result<()> {
        for Planned { plan, pack: own, views } in &mut self.plans {
            for (view, (_, slot)) in views.iter().zip(&mut own.entries) {
                if let Some(whole) = pack.slot(view.role) {
                    let offset_bytes = view.offset_bytes + step * view.step_bytes;
                    *slot = whole.piece(offset_bytes, view.bytes);
                }
            }
            own.workspace = pack.workspace;
            plan.execute_on(stream, own, &mut queue)?;
        }
        Ok(())
    }

    /// Address and device of so many bytes of the workspace behind what the plans use.
    fn behind(&self, pass: Pass, workspace: Option<Slot>, kept: u64) -> Result<(u64, usize)> {
        let bad = |rule: String| Err(Error::bad_param(format!("{}: {rule}", pass.name())));
        let before = self.workspace_bytes().next_multiple_of(SCRATCH_ALIGNMENT);
        let (address, given, owner) = match workspace {
            Some(Slot::Memory { address, bytes, owner }) => (address, bytes, owner),
            _ => (0, 0, 0),
        };
        if given < before + kept {
            let needed = before + kept;
            return bad(format!("the workspace has {given} bytes, the network needs {needed}"));
        }
        if !address.is_multiple_of(SCRATCH_ALIGNMENT) {
            return bad(format!(
                "workspace address {address:#x} is not aligned to {SCRATCH_ALIGNMENT} bytes"
            ));
        }
        Ok((address + before, owner))
    }
}
