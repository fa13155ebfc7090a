//! The hot path: check the pack, fill in the arguments, launch. Nothing here renders, hashes,
//! allocates or reads the environment.

use std::fmt;
use std::sync::Arc;

use tracing::trace_span;

use crate::codegen::KernelSource;
use crate::compile::Image;
use crate::device::{Device, Launch, Launchable, Stream};
use crate::dtype::DType;
use crate::engine::{EngineConfig, KernelSpec};
use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::plan::report::BuildReport;
use crate::plan::upgrade::Upgrade;
use crate::plan::variant_pack::{Slot, VariantPack};

/// A graph ready to run on one device; clones share it, any thread may execute it.
#[derive(Clone)]
pub struct ExecutionPlan {
    pub(super) inner: Arc<PlanInner>,
}

pub(super) struct PlanInner {
    pub(super) graph: OperationGraph,
    pub(super) device: Device,
    /// The device's identity, as buffers know it.
    pub(super) owner: usize,
    /// What the plan was made with.
    pub(super) first: PlannedKernel,
    /// What it is to be replaced by, where that was not built yet.
    pub(super) upgrade: Option<Upgrade>,
}

/// A kernel on the device with the way to launch it for one graph.
pub(super) struct PlannedKernel {
    pub(super) config: EngineConfig,
    pub(super) spec: KernelSpec,
    pub(super) source: KernelSource,
    pub(super) image: Arc<Image>,
    pub(super) report: BuildReport,
    pub(super) kernel: Arc<dyn Launchable>,
    /// `grid` 0: the graph has no element, nothing is launched.
    pub(super) launch: Launch,
    /// The kernel's parameters first, in order; then tensors it does not touch.
    pub(super) bindings: Vec<Binding>,
    /// How many of the bindings are parameters.
    pub(super) parameters: usize,
    /// Parameters behind those.
    pub(super) numbers: Vec<u64>,
}

/// What a tensor of the variant pack must be like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binding {
    pub(super) uid: i64,
    /// The element type of a by-value tensor.
    pub(super) by_value: Option<DType>,
    /// Bytes the tensor spans.
    pub(super) bytes: u64,
    /// Whether the plan writes the tensor.
    pub(super) written: bool,
    /// Tensors of one class lie alike and are as large as the graph's whole shape: an input and an
    /// output of a class may be the same memory, because each element is read by the thread that
    /// writes it. 0 for every other tensor.
    pub(super) class: u32,
    /// Guaranteed alignment minus 1.
    pub(super) misalignment_mask: u64,
}

impl ExecutionPlan {
    /// Queues the graph on a stream.
    ///
    /// An input and an output may be the same memory where both have the graph's whole (broadcast)
    /// shape and equal strides and types; otherwise what is written must overlap nothing.
    ///
    /// # Errors
    /// `BadParam` when the pack lacks a tensor, holds one that is virtual or unknown, a buffer is
    /// too small, misaligned or on another device, what is written overlaps another tensor, or the
    /// stream belongs to another device; `Driver` when the launch fails. Nothing was launched then.
    pub fn execute(&self, stream: &Stream, pack: &VariantPack) -> Result<()> {
        let plan = &*self.inner;
        let _span = trace_span!(
            "execute",
            family = self.config().engine,
            target = %plan.device.target().arch,
            key = %self.report().key
        )
        .entered();
        if !stream.belongs_to(&plan.device) {
            return Err(Error::bad_param("the stream belongs to another device than the plan"));
        }
        let kernel = match &plan.upgrade {
            None => &plan.first,
            Some(upgrade) => upgrade.pick(&self.inner, stream),
        };
        if pack.entries.len() != kernel.bindings.len() {
            return Err(plan.surplus_or_missing(kernel, pack));
        }
        // Stack space in steps, so that the common kernel does not pay for clearing 4 KiB.
        match kernel.parameters + kernel.numbers.len() {
            0..=16 => plan.launch::<16>(kernel, stream, pack),
            17..=64 => plan.launch::<64>(kernel, stream, pack),
            _ => plan.launch::<512>(kernel, stream, pack),
        }
    }

    /// The kernel that runs now, outside of captures.
    pub(super) fn kernel(&self) -> &PlannedKernel {
        self.inner.upgrade.as_ref().and_then(Upgrade::special).unwrap_or(&self.inner.first)
    }

    /// Bytes of workspace [`ExecutionPlan::execute`] needs in the pack.
    pub fn workspace_bytes(&self) -> u64 {
        0
    }

    /// Uids of the tensors a pack must hold, in the order that is looked up fastest.
    pub fn tensors(&self) -> impl Iterator<Item = i64> + '_ {
        self.kernel().bindings.iter().map(|binding| binding.uid)
    }

    /// The graph it computes.
    pub fn graph(&self) -> &OperationGraph {
        &self.inner.graph
    }

    /// The engine and knobs it runs with.
    pub fn config(&self) -> &EngineConfig {
        &self.kernel().config
    }

    /// What its kernel was generated from.
    pub fn spec(&self) -> &KernelSpec {
        &self.kernel().spec
    }

    /// The source of its kernel.
    pub fn source(&self) -> &KernelSource {
        &self.kernel().source
    }

    /// The compiled kernel.
    pub fn image(&self) -> &Image {
        &self.kernel().image
    }

    /// The names of the tensors its kernel takes, in the order of the parameters.
    pub fn arguments(&self) -> Vec<&str> {
        let kernel = self.kernel();
        let parameters = &kernel.bindings[..kernel.parameters];
        parameters.iter().map(|binding| self.inner.name(binding.uid)).collect()
    }

    /// How it came to be.
    pub fn report(&self) -> &BuildReport {
        &self.kernel().report
    }

    /// What its kernel takes behind those: numbers fixed by the plan, 8 bytes each.
    pub fn numbers(&self) -> &[u64] {
        &self.kernel().numbers
    }

    /// The shape of its launch.
    pub fn launch(&self) -> Launch {
        self.kernel().launch
    }
}

impl fmt::Debug for ExecutionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExecutionPlan({} on {})", self.config(), self.inner.device.target())
    }
}

impl PlannedKernel {
    pub(super) fn spill_bytes(&self) -> u32 {
        self.report.resources.spill_bytes
    }
}

impl PlanInner {
    fn launch<const N: usize>(
        &self,
        kernel: &PlannedKernel,
        stream: &Stream,
        pack: &VariantPack,
    ) -> Result<()> {
        let mut arguments = [0u64; N];
        let parameters = kernel.parameters;
        for (index, binding) in kernel.bindings.iter().enumerate() {
            let argument = match (pack.find(binding.uid, index), binding.by_value) {
                (Some(Slot::Memory { address, bytes, owner }), None) => {
                    let unfit = (address & binding.misalignment_mask) != 0;
                    if (unfit || *bytes < binding.bytes) && binding.bytes != 0 {
                        return Err(self.unfit_buffer(binding, *address, *bytes));
                    }
                    if *owner != 0 && *owner != self.owner {
                        return Err(self.foreign_buffer(binding));
                    }
                    if binding.written {
                        self.check_overlap(kernel, index, *address, pack)?;
                    }
                    *address
                }
                (Some(Slot::Value(value)), Some(dtype)) => dtype.round(*value).to_bits(),
                _ => return Err(self.surplus_or_missing(kernel, pack)),
            };
            if index < parameters {
                arguments[index] = argument;
            }
        }
        if kernel.launch.grid == 0 {
            return Ok(());
        }
        let end = parameters + kernel.numbers.len();
        arguments[parameters..end].copy_from_slice(&kernel.numbers);
        kernel.kernel.launch(&kernel.launch, &arguments[..end], stream.handle())
    }

    /// Checks a written tensor against every other one.
    fn check_overlap(
        &self,
        kernel: &PlannedKernel,
        at: usize,
        address: u64,
        pack: &VariantPack,
    ) -> Result<()> {
        let binding = &kernel.bindings[at];
        for (index, other) in kernel.bindings.iter().enumerate() {
            let Some(Slot::Memory { address: start, .. }) = pack.find(other.uid, index) else {
                continue;
            };
            let apart = start.saturating_add(other.bytes) <= address
                || address.saturating_add(binding.bytes) <= *start;
            let same = *start == address && other.class == binding.class && binding.class != 0;
            // Of two outputs each is checked against the other, and neither may be the other.
            let allowed = same && !other.written;
            if index != at && !apart && !allowed && binding.bytes != 0 {
                return Err(self.overlap(binding, other));
            }
        }
        Ok(())
    }

    #[cold]
    fn overlap(&self, written: &Binding, other: &Binding) -> Error {
        let (name, uid) = (self.name(written.uid), written.uid);
        let other = self.name(other.uid);
        Error::bad_param(format!(
            "tensor `{name}` (uid {uid}) is written but its memory overlaps that of `{other}`"
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

    /// Says what is wrong with the set of uids in a pack.
    #[cold]
    fn surplus_or_missing(&self, kernel: &PlannedKernel, pack: &VariantPack) -> Error {
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
        match kernel.bindings.iter().find(|binding| !present(binding.uid)) {
            Some(Binding { uid, .. }) => Error::bad_param(format!(
                "variant pack: tensor `{}` (uid {uid}) is missing",
                self.name(*uid)
            )),
            None => Error::internal("variant pack: every tensor is there but was not found"),
        }
    }

    fn name(&self, uid: i64) -> &str {
        self.graph.tensor(uid).map_or("", |tensor| &tensor.name)
    }
}
