//! The launches of a plan: kernels in order, the sources of their parameters, the tensors of the
//! pack.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crate::codegen::KernelSource;
use crate::compile::Image;
use crate::device::{Device, Launch, Launchable, MAP_WORDS, ReportSite, Waited};
use crate::dtype::DType;
use crate::engine::{EngineConfig, Part, engine_named};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, InPlace, OperationGraph};
use crate::kernel::{Argument, KernelPlan, KernelSpec, LaunchPlan, TensorMap, Wait};
use crate::plan::context::report::BuildReport;
use crate::plan::stages::Stages;
use crate::plan::variant_pack::{Slot, VariantPack};
use crate::plan::workspace::{self, Lifetime};
use crate::tensor::{ALIGNMENT_MAX, TensorDesc};

/// Alignment of tensor maps in 8-byte words: 64 bytes (`CUtensorMap`).
pub(super) const MAP_ALIGNMENT: usize = 8;

/// Maximum number of tensors in a pack: an execution keeps their addresses on the stack.
pub(super) const TENSORS_MAX: usize = 4096;

/// The launches of an execution, in order, and the memory that they need.
pub(super) struct Recipe {
    pub(super) kernels: Vec<PlannedKernel>,
    /// The tensors of the pack, in the order for which lookups are fastest.
    pub(super) bindings: Vec<Binding>,
    pub(super) workspace_bytes: u64,
}

/// A kernel loaded on the device, with its launch configuration for one graph.
pub struct PlannedKernel {
    /// The part of the graph that it computes, alone or together with other kernels.
    pub(super) part: Arc<Part>,
    pub(super) spec: KernelSpec,
    pub(super) source: Arc<KernelSource>,
    pub(super) image: Arc<Image>,
    pub(super) report: BuildReport,
    pub(super) kernel: Arc<dyn Launchable>,
    /// Grid, block and shared memory; a grid of 0 (a graph without elements) is not launched.
    pub(super) launch: Launch,
    /// The launch as its engine describes it. Tensors have their canonical uid in the part.
    pub(super) described: LaunchPlan,
    /// The sources of the arguments, followed by constants.
    pub(super) feeds: Vec<Feed>,
    /// The sources of the part's inputs and outputs, by uid.
    pub(super) tensors: Vec<(i64, Feed)>,
    /// The waits that [`Feed::Report`] refers to.
    pub(super) waits: Vec<Arc<ReportSite>>,
    /// The source of the address of each tensor map's tensor.
    pub(super) map_bases: Vec<Feed>,
    /// Size of all parameters in 8-byte words, padding included.
    pub(super) words: usize,
    /// Sizes of the part's scratch buffers in bytes.
    pub(super) scratch: Vec<u64>,
    /// Position among the part's launches, and their number.
    pub(super) position: usize,
    pub(super) launches: usize,
    /// Number of its stage.
    pub(super) stage: usize,
    /// Set if the kernel's dump is to contain the tensors of its first launch.
    pub(super) capture: OnceLock<Capture>,
}

/// The destination of the tensors of a kernel's first launch.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) folder: PathBuf,
    /// Launches with more bytes of tensors are not captured
    /// ([`Config::dump_tensor_bytes`](crate::plan::Config::dump_tensor_bytes)).
    pub(super) bytes_max: u64,
    /// Set by the first launch.
    pub(super) taken: AtomicBool,
}

impl Capture {
    pub(super) fn new(folder: PathBuf, bytes_max: u64) -> Capture {
        Capture { folder, bytes_max, taken: AtomicBool::new(false) }
    }
}

/// The source of a kernel parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Feed {
    /// The address, plus `offset` bytes, or the value of the tensor at this position of the
    /// bindings.
    Pack { at: usize, offset: u64 },
    /// The address of a tensor at `at` bytes of the workspace, plus `offset` bytes.
    Workspace { at: u64, offset: u64 },
    /// A constant.
    Number(u64),
    /// Where the wait at this position of [`PlannedKernel::waits`] reports of the stream.
    Report(usize),
    /// The tensor map at this position of [`LaunchPlan::maps`].
    Map(usize),
}

/// Requirements on a tensor of the variant pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) uid: i64,
    /// The element type if the tensor is passed by value.
    pub(super) by_value: Option<DType>,
    /// Size in bytes from the tensor's first to its last element.
    pub(super) bytes: u64,
    /// Whether the plan writes the tensor.
    pub(super) written: bool,
    /// Class of tensors with the graph's full shape and equal strides and types, from 1. An input
    /// and an output of one class may be the same memory, because each element is read by the
    /// thread that writes it. 0 for every other tensor.
    pub(super) class: u32,
    /// The tensor's guaranteed alignment in bytes, minus 1.
    pub(super) misalignment_mask: u64,
    /// The tensor in whose memory it must lie, by uid, and so many bytes behind its address.
    pub(super) within: Option<(i64, u64)>,
}

/// A part of the graph with its kernels loaded on the device, before their parameters are assigned.
pub(super) struct BuiltPart {
    pub(super) part: Arc<Part>,
    pub(super) kernels: Vec<BuiltKernel>,
    /// [`Lowering::scratch`].
    pub(super) scratch: Vec<u64>,
}

/// A kernel of a [`BuiltPart`].
pub(super) struct BuiltKernel {
    pub(super) plan: KernelPlan,
    pub(super) source: Arc<KernelSource>,
    pub(super) image: Arc<Image>,
    pub(super) report: BuildReport,
    pub(super) kernel: Arc<dyn Launchable>,
    pub(super) launch: Launch,
}

/// A kernel of a part or of a plan that is loaded on the device.
pub(super) struct Obtained<'a> {
    pub(super) spec: &'a KernelSpec,
    pub(super) source: &'a Arc<KernelSource>,
    pub(super) image: &'a Arc<Image>,
    pub(super) report: &'a BuildReport,
    pub(super) kernel: &'a Arc<dyn Launchable>,
}

impl<'a> Obtained<'a> {
    pub(super) fn of_built(of: &'a BuiltKernel) -> Obtained<'a> {
        let BuiltKernel { plan, source, image, report, kernel, .. } = of;
        Obtained { spec: &plan.spec, source, image, report, kernel }
    }

    pub(super) fn of_planned(of: &'a PlannedKernel) -> Obtained<'a> {
        let PlannedKernel { spec, source, image, report, kernel, .. } = of;
        Obtained { spec, source, image, report, kernel }
    }
}

impl BuiltPart {
    /// Checks that the device holds the blocks of each kernel that wait for each other.
    ///
    /// # Errors
    /// `NotSupported` if it does not.
    pub(super) fn check(&self) -> Result<()> {
        self.kernels.iter().try_for_each(|kernel| kernel.kernel.check(&kernel.launch))
    }

    /// Bytes per thread that the generated kernels spill. Overrides do not count: the user chose
    /// them.
    pub(super) fn spill_bytes(&self) -> u32 {
        let spilled = |kernel: &BuiltKernel| match kernel.report.overridden {
            Some(_) => 0,
            None => kernel.report.resources.spill_bytes,
        };
        self.kernels.iter().map(spilled).max().unwrap_or(0)
    }
}

impl Recipe {
    /// Assigns the sources of all kernel parameters: tensors of the graph are in the pack, tensors
    /// between kernels in the workspace.
    ///
    /// # Errors
    /// `NotSupported` for too many tensors, `OutOfMemory` where the device has none for reports.
    pub(super) fn new(
        graph: &OperationGraph,
        parts: Vec<BuiltPart>,
        device: &Device,
    ) -> Result<Recipe> {
        let bindings = bindings(graph, &parts)?;
        if bindings.len() > TENSORS_MAX {
            let count = bindings.len();
            return Err(Error::not_supported(format!(
                "{count} tensors with storage exceed the {TENSORS_MAX} of a plan"
            )));
        }
        let lowered: Vec<Lowered<'_>> = parts.iter().map(Lowered::of_built).collect();
        let (places, workspace_bytes) = places(graph, &lowered)?;
        let in_workspace = |piece: Piece| {
            let place = places.iter().find(|(known, _)| *known == piece);
            place.map(|(_, at)| Feed::Workspace { at: *at, offset: 0 })
        };
        let tensor = |uid: i64| {
            let uid = graph.memory_of(uid);
            match bindings.iter().position(|binding| binding.uid == uid) {
                Some(at) => Some(Feed::Pack { at, offset: 0 }),
                None => in_workspace(Piece::Tensor(uid)),
            }
        };
        let mut kernels: Vec<PlannedKernel> = Vec::new();
        let mut stages = Stages::default();
        for (number, BuiltPart { part, kernels: built, scratch }) in parts.into_iter().enumerate() {
            let canonical = part.graph.canonical();
            let stage = stages.next(&part.graph);
            let stored = part.graph.inputs().chain(part.graph.outputs());
            let tensors: Vec<_> = stored.filter_map(|of| Some((of.uid, tensor(of.uid)?))).collect();
            let feed = |argument: &Argument| {
                let feed = match *argument {
                    Argument::Scratch(at) => in_workspace(Piece::Scratch { part: number, at }),
                    Argument::Address(at) => {
                        let at = at as usize;
                        tensor(canonical.uids[at]).map(|of| of.behind(canonical.offset_bytes(at)))
                    }
                    Argument::Value(at, _) => tensor(canonical.uids[at as usize]),
                    Argument::Map(at) => Some(Feed::Map(at)),
                    Argument::Report(_) => unreachable!("reports are told apart before"),
                };
                feed.expect("what a kernel takes has a place")
            };
            let launches = built.len();
            for (position, built) in built.into_iter().enumerate() {
                let BuiltKernel { plan, source, image, report, kernel, launch } = built;
                let KernelPlan { spec, launch: described } = plan;
                let numbers = described.numbers.iter().map(|of| Feed::Number(*of as u64));
                let mut waits = Vec::new();
                let mut feeds: Vec<Feed> = Vec::new();
                for argument in &described.arguments {
                    feeds.push(match argument {
                        Argument::Report(wait) => {
                            let uid = canonical.uids[wait.flag as usize];
                            let flag = part.graph.tensor(uid)?.name.clone();
                            let Wait { value, timeout_ms, .. } = *wait;
                            let waited = Waited { flag, uid, value, timeout_ms };
                            waits.push(Arc::new(device.report_site(waited)?));
                            Feed::Report(waits.len() - 1)
                        }
                        argument => feed(argument),
                    });
                }
                feeds.extend(numbers);
                // What the stream has before the plan is not known to have waited in turn.
                let behind = kernels.iter().any(|earlier| earlier.launch.grid > 0);
                let programmatic = launch.programmatic && behind && kernel.waits_for_grids();
                let launch = Launch { programmatic, ..launch };
                let base = |map: &TensorMap| feed(&map.memory.into());
                let map_bases = described.maps.iter().map(base).collect();
                kernels.push(PlannedKernel {
                    part: part.clone(),
                    spec,
                    source,
                    image,
                    report,
                    kernel,
                    launch,
                    words: words(&feeds),
                    feeds,
                    waits,
                    map_bases,
                    described,
                    tensors: tensors.clone(),
                    scratch: scratch.clone(),
                    position,
                    launches,
                    stage,
                    capture: OnceLock::new(),
                });
            }
        }
        Ok(Recipe { kernels, bindings, workspace_bytes })
    }
}

impl Recipe {
    /// Whether the workspace of a pack is large enough.
    pub(super) fn fits(&self, pack: &VariantPack) -> bool {
        let given = match pack.workspace {
            Some(Slot::Memory { bytes, .. }) => bytes,
            _ => 0,
        };
        given >= self.workspace_bytes
    }
}

/// The size of a kernel's parameters in 8-byte words.
fn words(feeds: &[Feed]) -> usize {
    feeds.iter().fold(0, |words, feed| match feed {
        Feed::Map(_) => usize::next_multiple_of(words, MAP_ALIGNMENT) + MAP_WORDS,
        _ => words + 1,
    })
}

/// The bindings of the graph's inputs and outputs, in the order in which kernels use them.
fn bindings(graph: &OperationGraph, parts: &[BuiltPart]) -> Result<Vec<Binding>> {
    let mut uids: Vec<i64> = Vec::new();
    for BuiltPart { part, kernels, .. } in parts {
        let own = part.graph.canonical().uids;
        for LaunchPlan { arguments, maps, .. } in kernels.iter().map(|of| &of.plan.launch) {
            for argument in arguments {
                uids.extend(tensor_of(argument, maps).map(|at| own[at as usize]));
            }
        }
    }
    uids.extend(graph.tensors().iter().map(|tensor| tensor.uid));
    let written: HashSet<i64> = graph.outputs().map(|output| output.uid).collect();
    let in_place: Vec<InPlace> = graph.in_place().collect();
    let mut known = HashSet::new();
    let mut bindings: Vec<Binding> = Vec::new();
    for uid in uids.into_iter().filter(|uid| !is_between(graph, *uid)) {
        let tensor = graph.tensor(uid)?;
        if !known.insert(uid) {
            continue;
        }
        let within = in_place.iter().find(|of| of.uid == uid);
        let within = within.map(|of| (of.within, of.offset_bytes));
        bindings.push(Binding {
            uid,
            written: written.contains(&uid),
            class: class(graph, parts, tensor),
            by_value: tensor.by_value.then_some(tensor.dtype),
            bytes: tensor.span_bytes()?,
            // Of what is in place no kernel is told the address.
            misalignment_mask: match within {
                Some(_) => 0,
                None => tensor.alignment.min(ALIGNMENT_MAX) as u64 - 1,
            },
            within,
        });
    }
    Ok(bindings)
}

/// The class of a tensor ([`Binding::class`]).
fn class(graph: &OperationGraph, parts: &[BuiltPart], tensor: &TensorDesc) -> u32 {
    let engine = |of: &BuiltPart| engine_named(&of.part.config.engine);
    let in_place = |of: &BuiltPart| engine(of).is_ok_and(|engine| engine.elementwise());
    let CanonicalGraph { tensors, uids, .. } = graph.canonical();
    let own = pieces(graph, tensor.uid);
    // What a result is added to, where each part writes of the result what it reads of that.
    if let Some(pair) = graph.added().find(|pair| pair.contains(&tensor.uid)) {
        let adds = |of: &BuiltPart| {
            let [before, result] = pair.map(|uid| pieces(&of.part.graph, uid));
            let is_whole = match result[..] {
                [] => return false,
                [(_, dims, ..)] => {
                    let within = |other: &TensorDesc| {
                        let mut pairs = other.dims.iter().zip(dims);
                        other.dims.len() == dims.len() && pairs.all(|(other, own)| other <= own)
                    };
                    of.part.graph.tensors().iter().all(within)
                }
                _ if has_shapes(&of.part.graph, &result) => true,
                _ => return false,
            };
            result == before && engine(of).is_ok_and(|engine| engine.adds_in_place(is_whole))
        };
        let has = |of: &&BuiltPart| pair.iter().any(|uid| of.part.graph.tensor(*uid).is_ok());
        let mut touching = parts.iter().filter(has).peekable();
        if touching.peek().is_some() && touching.all(adds) {
            let at = uids.iter().position(|other| *other == pair[0]);
            return at.map_or(0, |at| at as u32 + 1);
        }
    }
    let largest = |axis: usize| tensors.iter().filter_map(|other| other.dims.get(axis)).max();
    let is_whole = |dims: &[i64]| (0..dims.len()).all(|axis| largest(axis) == Some(&dims[axis]));
    if parts.len() != 1
        || !parts.iter().all(in_place)
        || own.is_empty()
        || !own.iter().all(|(_, dims, ..)| is_whole(dims))
    {
        return 0;
    }
    uids.iter().position(|other| pieces(graph, *other) == own).map_or(0, |at| at as u32 + 1)
}

/// A part of a tensor: its offset, dimensions, strides and type.
type Touched<'a> = (i64, &'a [i64], &'a [i64], DType);

/// Whether a graph is elementwise, and every operation has the shape of a piece, as those have that
/// it passes values to: each element of a piece is then computed once.
fn has_shapes(graph: &OperationGraph, pieces: &[Touched<'_>]) -> bool {
    let CanonicalGraph { tensors, operations, .. } = graph.canonical();
    let dims = |uid: &i64| &tensors[*uid as usize].dims[..];
    let is_passed = |uid: &i64| operations.iter().any(|of| of.outputs.contains(uid));
    operations.iter().all(|operation| {
        let own = dims(&operation.outputs[0]);
        let mut read = operation.inputs.iter().filter(|uid| is_passed(uid));
        operation.is_elementwise()
            && pieces.iter().any(|(_, of_piece, ..)| *of_piece == own)
            && read.all(|uid| dims(uid) == own)
    })
}

/// What kernels touch of a tensor: all of it, or some pieces.
fn pieces(graph: &OperationGraph, uid: i64) -> Vec<Touched<'_>> {
    let CanonicalGraph { tensors, uids, offsets, .. } = graph.canonical();
    let own = (0..tensors.len()).filter(|at| uids[*at] == uid);
    let piece = |at: usize| {
        let TensorDesc { dims, strides, dtype, .. } = &tensors[at];
        (offsets[at], &dims[..], &strides[..], *dtype)
    };
    let mut pieces: Vec<_> = own.map(piece).collect();
    pieces.sort_unstable();
    pieces
}

/// Whether a tensor only passes between parts: it is virtual, or internal to an operation that is
/// written in primitives.
fn is_between(graph: &OperationGraph, uid: i64) -> bool {
    graph.tensor(uid).map_or(true, |tensor| tensor.is_virtual)
}

/// The canonical uid of the tensor that an argument or its tensor map refers to.
fn tensor_of(argument: &Argument, maps: &[TensorMap]) -> Option<i64> {
    match *argument {
        Argument::Address(at) | Argument::Value(at, _) => Some(at),
        Argument::Map(at) => tensor_of(&maps[at].memory.into(), maps),
        Argument::Scratch(_) | Argument::Report(_) => None,
    }
}

/// The scratch buffer that an argument or its tensor map refers to.
fn scratch_of(argument: &Argument, maps: &[TensorMap]) -> Option<usize> {
    match *argument {
        Argument::Scratch(at) => Some(at),
        Argument::Map(at) => scratch_of(&maps[at].memory.into(), maps),
        _ => None,
    }
}

/// A buffer in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// A tensor that passes between parts of the graph.
    Tensor(i64),
    /// A scratch buffer of a part.
    Scratch { part: usize, at: usize },
}

/// What determines the memory of a part: its launches and its scratch buffers.
struct Lowered<'a> {
    part: &'a Part,
    launches: Vec<&'a LaunchPlan>,
    scratch: &'a [u64],
}

impl Lowered<'_> {
    fn of_built(of: &BuiltPart) -> Lowered<'_> {
        let launches = of.kernels.iter().map(|kernel| &kernel.plan.launch).collect();
        Lowered { part: &of.part, launches, scratch: &of.scratch }
    }
}

/// What the workspace of a plan of these parts holds, with scratch buffers of these sizes.
pub(super) fn lifetimes(
    graph: &OperationGraph,
    parts: &[(&Part, &[u64])],
) -> Result<Vec<Lifetime>> {
    let Pieces(pieces) = of_parts(graph, parts.iter().copied())?;
    Ok(pieces.into_iter().map(|(_, lifetime)| lifetime).collect())
}

/// The offset of each buffer in the workspace, and the workspace size in bytes: as launches use
/// them or as parts do, whichever takes less. By itself, the layout of shorter lifetimes may.
fn places(graph: &OperationGraph, parts: &[Lowered<'_>]) -> Result<(Vec<(Piece, u64)>, u64)> {
    let by_launches = of_launches(graph, parts)?.layout();
    let by_parts = of_parts(graph, parts.iter().map(|of| (of.part, of.scratch)))?.layout();
    Ok(if by_parts.1 < by_launches.1 { by_parts } else { by_launches })
}

/// Buffers of a workspace.
#[derive(Default)]
struct Pieces(Vec<(Piece, Lifetime)>);

impl Pieces {
    fn touch(&mut self, piece: Piece, bytes: u64, step: usize) {
        match self.0.iter_mut().find(|(known, _)| *known == piece) {
            Some((_, lifetime)) => {
                (lifetime.last, lifetime.bytes) = (step, lifetime.bytes.max(bytes));
            }
            None => self.0.push((piece, Lifetime { bytes, first: step, last: step })),
        }
    }

    fn layout(self) -> (Vec<(Piece, u64)>, u64) {
        let lifetimes: Vec<Lifetime> = self.0.iter().map(|(_, lifetime)| *lifetime).collect();
        let (offsets, bytes) = workspace::layout(&lifetimes);
        (self.0.into_iter().map(|(piece, _)| piece).zip(offsets).collect(), bytes)
    }
}

/// Buffers that live while the parts run that use them.
fn of_parts<'a>(
    graph: &OperationGraph,
    parts: impl Iterator<Item = (&'a Part, &'a [u64])>,
) -> Result<Pieces> {
    let mut pieces = Pieces::default();
    for (number, (part, scratch)) in parts.enumerate() {
        for (at, bytes) in scratch.iter().enumerate() {
            pieces.touch(Piece::Scratch { part: number, at }, *bytes, number);
        }
        for tensor in part.graph.inputs().chain(part.graph.outputs()) {
            let uid = graph.memory_of(tensor.uid);
            if is_between(graph, uid) {
                pieces.touch(Piece::Tensor(uid), tensor.span_bytes()?, number);
            }
        }
    }
    Ok(pieces)
}

/// Buffers that live from the first launch that uses them to the last.
fn of_launches(graph: &OperationGraph, parts: &[Lowered<'_>]) -> Result<Pieces> {
    let mut pieces = Pieces::default();
    let mut step = 0;
    for (number, Lowered { part, launches, scratch }) in parts.iter().enumerate() {
        for LaunchPlan { arguments, maps, .. } in launches {
            for argument in arguments {
                if let Some(at) = scratch_of(argument, maps) {
                    pieces.touch(Piece::Scratch { part: number, at }, scratch[at], step);
                } else if let Some(at) = tensor_of(argument, maps) {
                    let own = part.graph.canonical().uids[at as usize];
                    let uid = graph.memory_of(own);
                    if is_between(graph, uid) {
                        pieces.touch(
                            Piece::Tensor(uid),
                            part.graph.tensor(own)?.span_bytes()?,
                            step,
                        );
                    }
                }
            }
            step += 1;
        }
    }
    Ok(pieces)
}

impl PlannedKernel {
    /// The configuration that the kernel belongs to.
    pub fn config(&self) -> &EngineConfig {
        &self.part.config
    }

    /// The part of the graph that it computes, alone or together with other kernels.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Template, parameters and architecture that the kernel was generated from.
    pub fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    /// The rendered source.
    pub fn source(&self) -> &KernelSource {
        &self.source
    }

    /// The compiled image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Origin, build times and resources.
    pub fn report(&self) -> &BuildReport {
        &self.report
    }

    /// Grid, block and dynamic shared memory of its launch.
    pub fn launch(&self) -> Launch {
        self.launch
    }
}
