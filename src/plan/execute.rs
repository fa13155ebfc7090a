//! Executing a plan: check the variant pack, fill in the kernel arguments, launch. Nothing here
//! renders, hashes, allocates or reads the environment.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::trace_span;

use crate::device::{Device, Launch, MAP_WORDS, Stream};
use crate::engine::Part;
use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::plan::dump::capture::Captured;
use crate::plan::overlap::{Overlap, overlap};
use crate::plan::recipe::{Binding, Feed, MAP_ALIGNMENT, PlannedKernel, Recipe, TENSORS_MAX};
use crate::plan::upgrade::{Tier, Upgrade};
use crate::plan::variant_pack::{Slot, VariantPack};
use crate::plan::workspace::ALIGNMENT;

/// A graph's kernels loaded on one device and ready to launch. Clones share them; any thread may
/// execute a plan.
#[derive(Clone)]
pub struct ExecutionPlan {
    pub(super) inner: Arc<PlanInner>,
}

pub(super) struct PlanInner {
    pub(super) graph: OperationGraph,
    pub(super) device: Device,
    /// The device's identity ([`Buffer::owner`](crate::device::Buffer::owner)).
    pub(super) owner: usize,
    /// The kernels that the plan was built with.
    pub(super) first: Recipe,
    /// Specialised kernels that replace `first` once they have been compiled in the background.
    pub(super) upgrade: Option<Arc<Upgrade>>,
}

impl ExecutionPlan {
    /// Launches the graph's kernels on a stream.
    ///
    /// An input and an output may be the same memory if both have the graph's full (broadcast)
    /// shape and equal strides and types; otherwise, no tensor that is written may overlap another
    /// tensor.
    ///
    /// A CUDA graph into which the stream is captured holds the kernels and the addresses, nothing
    /// else: as long as it is replayed, the plan, which keeps its kernels loaded, and the memory in
    /// the pack must be kept.
    ///
    /// # Errors
    /// `BadParam` when the pack lacks a tensor or has one that is virtual or unknown, when a buffer
    /// is too small, misaligned or on another device, when a tensor that is written overlaps
    /// another one, or when the stream belongs to another device; `Driver` when a launch fails.
    /// With `BadParam`, nothing was launched. What the launched kernels do is known once the stream
    /// has been synchronised: a wait for a signal that ends by its time is an error then.
    pub fn execute(&self, stream: &Stream, pack: &VariantPack) -> Result<()> {
        self.execute_each(stream, pack, |_| ())
    }

    /// As [`ExecutionPlan::execute`]. `launched` is called after each launch with the kernel's
    /// position.
    #[inline]
    pub(super) fn execute_each(
        &self,
        stream: &Stream,
        pack: &VariantPack,
        mut launched: impl FnMut(usize),
    ) -> Result<()> {
        self.execute_on(stream, pack, |kernel| {
            kernel.launch(stream)?;
            launched(kernel.position);
            Ok(())
        })
    }

    /// As [`ExecutionPlan::execute`], for a stream on which others depend: `queue` launches each
    /// kernel into one of them.
    #[inline]
    pub(crate) fn execute_on(
        &self,
        stream: &Stream,
        pack: &VariantPack,
        queue: impl FnMut(&Queued<'_>) -> Result<()>,
    ) -> Result<()> {
        let plan = &*self.inner;
        let _span = trace_span!(
            "execute",
            family = &*self.kernels()[0].config().engine,
            target = %plan.device.target().arch,
            key = %self.kernels()[0].report.key
        )
        .entered();
        if !plan.device.owns(stream) {
            return Err(Error::bad_param("the stream belongs to another device than the plan"));
        }
        let recipe = match &plan.upgrade {
            None => &plan.first,
            Some(upgrade) => {
                let special = upgrade.pick(|| plan.device.capture(stream));
                special.filter(|special| special.fits(pack)).unwrap_or(&plan.first)
            }
        };
        if pack.entries.len() != recipe.bindings.len() {
            return Err(plan.surplus_or_missing(recipe, pack));
        }
        // Stack arrays of three sizes: clearing 4096 words would dominate a small launch.
        match recipe.bindings.len() {
            0..=16 => plan.launch::<16>(recipe, pack, queue),
            17..=64 => plan.launch::<64>(recipe, pack, queue),
            65..=512 => plan.launch::<512>(recipe, pack, queue),
            _ => plan.launch::<TENSORS_MAX>(recipe, pack, queue),
        }
    }

    /// The kernels that an execution outside of captures launches.
    pub(super) fn recipe(&self) -> &Recipe {
        let special = self.inner.upgrade.as_ref().and_then(|upgrade| upgrade.special());
        special.unwrap_or(&self.inner.first)
    }

    /// Size in bytes of the workspace that [`ExecutionPlan::execute`] needs in the pack. What it
    /// returned once stays enough: specialised kernels that need more replace generic ones in
    /// executions with a workspace that is large enough for them.
    pub fn workspace_bytes(&self) -> u64 {
        self.inner.first.workspace_bytes.max(self.recipe().workspace_bytes)
    }

    /// Uids of the tensors that a pack must have, in the order for which lookups are fastest.
    pub fn tensors(&self) -> impl Iterator<Item = i64> + '_ {
        self.recipe().bindings.iter().map(|binding| binding.uid)
    }

    /// The graph that the plan computes.
    pub fn graph(&self) -> &OperationGraph {
        &self.inner.graph
    }

    /// The kernels, in launch order.
    pub fn kernels(&self) -> &[PlannedKernel] {
        &self.recipe().kernels
    }

    /// The parts of the graph in execution order, each executed by the kernels of one engine.
    pub fn parts(&self) -> Vec<&Part> {
        let mut parts: Vec<&Part> = self.kernels().iter().map(PlannedKernel::part).collect();
        parts.dedup_by(|next, last| std::ptr::eq(*next, *last));
        parts
    }
}

impl ExecutionPlan {
    /// Whether the plan runs specialised or generic kernels. It changes from generic to specialised
    /// at most once, and never for executions captured into a CUDA graph that already has generic
    /// ones.
    pub fn tier(&self) -> Tier {
        self.inner.upgrade.as_ref().map_or(Tier::Special, |upgrade| upgrade.tier())
    }

    /// Waits until the plan runs its specialised kernels, or until the timeout; returns the tier
    /// after that.
    ///
    /// Call it before a capture that is to contain the specialised kernels, never during one: a
    /// capture in progress may get kernels of both tiers.
    ///
    /// # Errors
    /// `Compile` when the specialised kernels failed to compile; the plan keeps its generic ones.
    pub fn settle(&self, timeout: Duration) -> Result<Tier> {
        match &self.inner.upgrade {
            Some(upgrade) => upgrade.settle(timeout),
            None => Ok(Tier::Special),
        }
    }

    /// Queues the compilation of the specialised kernels if the plan runs generic ones.
    pub(super) fn start_upgrade(&self) {
        if let Some(upgrade) = &self.inner.upgrade {
            upgrade.enqueue();
        }
    }
}

impl fmt::Debug for ExecutionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts().iter().map(|part| part.config.to_string()).collect();
        write!(f, "ExecutionPlan({} on {})", parts.join(", "), self.inner.device.target())
    }
}

impl PlanInner {
    fn launch<const N: usize>(
        &self,
        recipe: &Recipe,
        pack: &VariantPack,
        mut queue: impl FnMut(&Queued<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut words = [0u64; N];
        for (index, binding) in recipe.bindings.iter().enumerate() {
            words[index] = match (pack.find(binding.uid, index), binding.by_value) {
                (Some(Slot::Memory { address, bytes, owner }), None) => {
                    let unfit = (address & binding.misalignment_mask) != 0;
                    if (unfit || *bytes < binding.bytes) && binding.bytes != 0 {
                        return Err(self.unfit_buffer(binding, *address, *bytes));
                    }
                    if *owner != 0 && *owner != self.owner {
                        return Err(self.foreign_buffer(binding));
                    }
                    if binding.written {
                        self.check_overlap(recipe, index, *address, pack)?;
                    }
                    *address
                }
                (Some(Slot::Value(value)), Some(dtype)) => dtype.round(*value).to_bits(),
                _ => return Err(self.surplus_or_missing(recipe, pack)),
            };
        }
        let workspace = match recipe.workspace_bytes {
            0 => 0,
            _ => self.workspace(recipe, pack)?,
        };
        let _entered = self.device.enter()?;
        let kernels = recipe.kernels.iter().enumerate();
        for (position, kernel) in kernels.filter(|(_, kernel)| kernel.launch.grid > 0) {
            let device = &self.device;
            queue(&Queued { device, kernel, position, words: &words, workspace })?;
        }
        Ok(())
    }

    /// The address of the workspace, which must be large enough, aligned, and overlap no tensor.
    fn workspace(&self, recipe: &Recipe, pack: &VariantPack) -> Result<u64> {
        let needed = recipe.workspace_bytes;
        let Some(Slot::Memory { address, bytes, owner }) = pack.workspace else {
            return Err(Error::bad_param(format!(
                "variant pack: the plan needs a workspace of {needed} bytes, the pack has none"
            )));
        };
        if bytes < needed {
            return Err(Error::bad_param(format!(
                "variant pack: the workspace has {bytes} bytes, the plan needs {needed}"
            )));
        }
        if address % ALIGNMENT != 0 {
            return Err(Error::bad_param(format!(
                "variant pack: workspace address {address:#x} is not aligned to {ALIGNMENT} bytes"
            )));
        }
        if owner != 0 && owner != self.owner {
            return Err(Error::bad_param("variant pack: the workspace is on another device"));
        }
        for (index, binding) in recipe.bindings.iter().enumerate() {
            if let Some(Slot::Memory { address: start, .. }) = pack.find(binding.uid, index)
                && start.saturating_add(binding.bytes) > address
                && address.saturating_add(needed) > *start
                && binding.bytes != 0
            {
                return Err(Error::bad_param(format!(
                    "variant pack: the workspace overlaps tensor `{}` (uid {})",
                    self.name(binding.uid),
                    binding.uid
                )));
            }
        }
        Ok(address)
    }

    /// Checks that a tensor that is written overlaps no other one.
    fn check_overlap(
        &self,
        recipe: &Recipe,
        at: usize,
        address: u64,
        pack: &VariantPack,
    ) -> Result<()> {
        let binding = &recipe.bindings[at];
        for (index, other) in recipe.bindings.iter().enumerate() {
            let Some(Slot::Memory { address: start, .. }) = pack.find(other.uid, index) else {
                continue;
            };
            if let Some((_, offset)) = other.within.filter(|(uid, _)| *uid == binding.uid) {
                if *start != address.wrapping_add(offset) && other.bytes != 0 {
                    return Err(self.out_of_place(other, binding, *start, address + offset));
                }
                continue;
            }
            if binding.within.is_some_and(|(uid, _)| uid == other.uid) {
                continue;
            }
            let apart = start.saturating_add(other.bytes) <= address
                || address.saturating_add(binding.bytes) <= *start;
            let same = *start == address && other.class == binding.class && binding.class != 0;
            // Two outputs are checked against each other twice; neither may alias the other.
            let allowed = same && !other.written;
            if index != at && !apart && !allowed && binding.bytes != 0 {
                let distance = i128::from(*start) - i128::from(address);
                self.check_interleaved(binding, other, distance)?;
            }
        }
        Ok(())
    }

    /// As [`ExecutionPlan::check_overlap`], for two tensors whose address ranges overlap: they may
    /// be interleaved without sharing a byte.
    #[cold]
    fn check_interleaved(&self, written: &Binding, other: &Binding, distance: i128) -> Result<()> {
        let (name, uid) = (self.name(written.uid), written.uid);
        let [own, theirs] = [written, other].map(|of| self.graph.tensor(of.uid));
        let (own, theirs) = (own?, theirs?);
        let other = &theirs.name;
        Err(Error::bad_param(match overlap(own, theirs, distance) {
            Overlap::Apart => return Ok(()),
            Overlap::Shared => format!(
                "tensor `{name}` (uid {uid}) is written but its memory overlaps that of `{other}`"
            ),
            Overlap::Unknown => format!(
                "tensor `{name}` (uid {uid}) is written, and its strides {:?} do not prove that it \
                 shares no element with `{other}` of strides {:?}",
                own.strides, theirs.strides
            ),
        }))
    }

    #[cold]
    fn out_of_place(&self, of: &Binding, within: &Binding, given: u64, wanted: u64) -> Error {
        let [name, whole] = [of, within].map(|of| self.name(of.uid));
        let uid = of.uid;
        Error::bad_param(format!(
            "tensor `{name}` (uid {uid}) is in place in `{whole}`: its address is {given:#x}, \
             expected {wanted:#x}"
        ))
    }

    #[cold]
    fn foreign_buffer(&self, binding: &Binding) -> Error {
        let (name, uid) = (self.name(binding.uid), binding.uid);
        Error::bad_param(format!("tensor `{name}` (uid {uid}): the buffer is on another device"))
    }

    #[cold]
    fn unfit_buffer(&self, binding: &Binding, address: u64, bytes: u64) -> Error {
        let (uid, needed) = (binding.uid, binding.bytes);
        let name = self.name(uid);
        let alignment = binding.misalignment_mask + 1;
        if !address.is_multiple_of(alignment) {
            return Error::bad_param(format!(
                "tensor `{name}` (uid {uid}): \
                 address {address:#x} is not aligned to {alignment} bytes"
            ));
        }
        Error::bad_param(format!(
            "tensor `{name}` (uid {uid}): the buffer has {bytes} bytes, the tensor spans {needed}"
        ))
    }

    /// The error for a pack with missing or surplus uids.
    #[cold]
    fn surplus_or_missing(&self, recipe: &Recipe, pack: &VariantPack) -> Error {
        for (uid, slot) in &pack.entries {
            let tensor = match self.graph.tensor(*uid) {
                Ok(tensor) => tensor,
                Err(error) => return error.context("variant pack"),
            };
            let name = &tensor.name;
            if tensor.is_virtual {
                return Error::bad_param(format!(
                    "variant pack: tensor `{name}` (uid {uid}) is virtual: it has no memory"
                ));
            }
            if tensor.by_value != matches!(slot, Slot::Value(_)) {
                let (is, given) = match tensor.by_value {
                    true => ("by value", "memory"),
                    false => ("in memory", "a value"),
                };
                return Error::bad_param(format!(
                    "variant pack: tensor `{name}` (uid {uid}) is {is} but the pack holds {given}"
                ));
            }
        }
        let present = |uid: i64| pack.entries.iter().any(|(known, _)| *known == uid);
        match recipe.bindings.iter().find(|binding| !present(binding.uid)) {
            Some(Binding { uid, .. }) => Error::bad_param(format!(
                "variant pack: tensor `{}` (uid {uid}) is missing",
                self.name(*uid)
            )),
            None => Error::internal("variant pack: every tensor is there but was not found"),
        }
    }

    pub(super) fn name(&self, uid: i64) -> &str {
        self.graph.tensor(uid).map_or("", |tensor| &tensor.name)
    }
}

/// A kernel of an execution that is to be launched.
pub(crate) struct Queued<'a> {
    device: &'a Device,
    kernel: &'a PlannedKernel,
    /// Among the plan's kernels.
    position: usize,
    /// The values of the recipe's bindings.
    words: &'a [u64],
    /// Its address.
    workspace: u64,
}

impl Queued<'_> {
    /// Number of its stage: each recurrence of the plan is one, and all that is between two.
    pub(crate) fn stage(&self) -> usize {
        self.kernel.stage
    }

    /// Launches it.
    ///
    /// # Errors
    /// As [`ExecutionPlan::execute`].
    #[inline]
    pub(crate) fn launch(&self, stream: &Stream) -> Result<()> {
        let Queued { device, kernel, words, workspace, .. } = *self;
        let run = || match kernel.words {
            0..=16 => self.launch_with::<16>(stream),
            17..=64 => self.launch_with::<64>(stream),
            _ => self.launch_with::<512>(stream),
        };
        match kernel.capture.get() {
            None => run(),
            Some(capture) => {
                Captured { device, kernel, stream, words, workspace }.around(capture, run)
            }
        }
    }

    fn launch_with<const N: usize>(&self, stream: &Stream) -> Result<()> {
        let Queued { device, kernel, words, workspace, .. } = *self;
        let mut arguments = [0u64; N];
        let mut at = 0usize;
        for feed in &kernel.feeds {
            if let Feed::Report(wait) = feed {
                arguments[at] = device.report_address(&kernel.waits[*wait], stream)?;
                at += 1;
            } else if let Feed::Map(map) = feed {
                let base = kernel.map_bases[*map].word(words, workspace);
                at = at.next_multiple_of(MAP_ALIGNMENT);
                let encoded = device.encode(&kernel.described.maps[*map], base)?;
                arguments[at..at + MAP_WORDS].copy_from_slice(&encoded);
                at += MAP_WORDS;
            } else {
                arguments[at] = feed.word(words, workspace);
                at += 1;
            }
        }
        let programmatic = kernel.launch.programmatic && !stream.launches_in_turn();
        let launch = Launch { programmatic, ..kernel.launch };
        kernel.kernel.launch(&launch, &arguments[..at], stream.handle())
    }
}

impl Feed {
    /// So many bytes behind it.
    pub(super) fn behind(self, bytes: u64) -> Feed {
        match self {
            Feed::Pack { at, offset } => Feed::Pack { at, offset: offset + bytes },
            Feed::Workspace { at, offset } => Feed::Workspace { at, offset: offset + bytes },
            Feed::Number(_) | Feed::Map(_) | Feed::Report(_) => self,
        }
    }

    /// The address of the whole tensor of which it is a piece.
    pub(super) fn whole(self) -> Feed {
        match self {
            Feed::Pack { at, .. } => Feed::Pack { at, offset: 0 },
            Feed::Workspace { at, .. } => Feed::Workspace { at, offset: 0 },
            Feed::Number(_) | Feed::Map(_) | Feed::Report(_) => self,
        }
    }

    /// The value of a kernel parameter; `words` are the values of the recipe's bindings.
    #[inline]
    pub(super) fn word(self, words: &[u64], workspace: u64) -> u64 {
        match self {
            Feed::Pack { at, offset } => words[at].wrapping_add(offset),
            Feed::Workspace { at, offset } => workspace + at + offset,
            Feed::Number(number) => number,
            Feed::Map(_) => unreachable!("a map is more than a word"),
            Feed::Report(_) => unreachable!("where it is depends on the stream"),
        }
    }
}
