//! What a plan launches: kernels in order, where their parameters come from, what a pack holds.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crate::codegen::KernelSource;
use crate::compile::Image;
use crate::device::{Launch, Launchable, MAP_WORDS};
use crate::dtype::DType;
use crate::engine::{EngineConfig, Part, engine_named};
use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::kernel::{Argument, KernelPlan, KernelSpec, LaunchPlan, Lowering, TensorMap};
use crate::plan::context::report::BuildReport;
use crate::plan::workspace::{self, Lifetime};
use crate::tensor::{ALIGNMENT_MAX, TensorDesc};

/// Tensor maps begin at a multiple of 64 bytes.
pub(super) const MAP_ALIGNMENT: usize = 8;

/// The most tensors of a pack: an execution holds their addresses on the stack.
pub(super) const TENSORS_MAX: usize = 4096;

/// All that an execution launches, in order, and the memory it needs.
pub(super) struct Recipe {
    pub(super) kernels: Vec<PlannedKernel>,
    /// The tensors of the pack, in the order that is looked up fastest.
    pub(super) bindings: Vec<Binding>,
    pub(super) workspace_bytes: u64,
}

/// A kernel on the device with the way to launch it for one graph.
pub struct PlannedKernel {
    /// The part of the graph it runs, alone or with the kernels beside it.
    pub(super) part: Arc<Part>,
    pub(super) spec: KernelSpec,
    pub(super) source: Arc<KernelSource>,
    pub(super) image: Arc<Image>,
    pub(super) report: BuildReport,
    pub(super) kernel: Arc<dyn Launchable>,
    /// `grid` 0: the graph has no element, nothing is launched.
    pub(super) launch: Launch,
    /// The kernel's parameters, in order; tensors by their canonical uid in the part.
    pub(super) arguments: Vec<Argument>,
    /// Where they come from, and the numbers behind them.
    pub(super) feeds: Vec<Feed>,
    /// Where the part's inputs and outputs are, by uid.
    pub(super) tensors: Vec<(i64, Feed)>,
    /// What [`Feed::Map`] refers to: each map with where its tensor is.
    pub(super) maps: Vec<(TensorMap, Feed)>,
    /// All parameters in words of 8 bytes, with gaps.
    pub(super) words: usize,
    /// Bytes of the part's scratch memory.
    pub(super) scratch: Vec<u64>,
    /// Set where the dump of the kernel is to hold tensors.
    pub(super) capture: OnceLock<Capture>,
}

/// Where the first launch's tensors go.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) folder: PathBuf,
    /// Dumping more than this is a mistake more often than not.
    pub(super) bytes_max: u64,
    /// Set by the launch that is captured.
    pub(super) taken: AtomicBool,
}

impl Capture {
    pub(super) fn new(folder: PathBuf, bytes_max: u64) -> Capture {
        Capture { folder, bytes_max, taken: AtomicBool::new(false) }
    }
}

/// Where a parameter of a kernel comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Feed {
    /// The address or the value of the tensor at this position of the bindings.
    Pack(usize),
    /// An address of the workspace: so many bytes behind its start.
    Workspace(u64),
    /// A number that is known now.
    Number(u64),
    /// The tensor map at this position of [`PlannedKernel::maps`].
    Map(usize),
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

/// A part of the graph with its kernels on the device, before their parameters are placed.
pub(super) struct BuiltPart {
    pub(super) part: Arc<Part>,
    pub(super) kernels: Vec<BuiltKernel>,
    /// As in [`Lowering::scratch`].
    pub(super) scratch: Vec<u64>,
}

/// One of its kernels.
pub(super) struct BuiltKernel {
    pub(super) plan: KernelPlan,
    pub(super) source: Arc<KernelSource>,
    pub(super) image: Arc<Image>,
    pub(super) report: BuildReport,
    pub(super) kernel: Arc<dyn Launchable>,
    pub(super) launch: Launch,
}

impl BuiltPart {
    /// Bytes that generated kernels spill; what a user's own kernel spills is the user's wish.
    pub(super) fn spill_bytes(&self) -> u32 {
        let spilled = |kernel: &BuiltKernel| match kernel.report.overridden {
            Some(_) => 0,
            None => kernel.report.resources.spill_bytes,
        };
        self.kernels.iter().map(spilled).max().unwrap_or(0)
    }
}

impl Recipe {
    /// Places the parameters of all kernels: tensors of the graph come from the pack, what only
    /// passes between kernels lies in the workspace.
    pub(super) fn new(graph: &OperationGraph, parts: Vec<BuiltPart>) -> Result<Recipe> {
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
            place.map(|(_, offset)| Feed::Workspace(*offset))
        };
        let tensor = |uid: i64| match bindings.iter().position(|binding| binding.uid == uid) {
            Some(position) => Some(Feed::Pack(position)),
            None => in_workspace(Piece::Tensor(uid)),
        };
        let mut kernels = Vec::new();
        for (number, BuiltPart { part, kernels: built, scratch }) in parts.into_iter().enumerate() {
            let uids = part.graph.canonical().uids;
            let stored = part.graph.inputs().chain(part.graph.outputs());
            let tensors: Vec<_> = stored.filter_map(|of| Some((of.uid, tensor(of.uid)?))).collect();
            let feed = |argument: &Argument| {
                let feed = match *argument {
                    Argument::Scratch(at) => in_workspace(Piece::Scratch { part: number, at }),
                    Argument::Address(at) | Argument::Value(at, _) => tensor(uids[at as usize]),
                    Argument::Map(at) => Some(Feed::Map(at)),
                };
                feed.expect("what a kernel takes has a place")
            };
            for BuiltKernel { plan, source, image, report, kernel, launch } in built {
                let LaunchPlan { arguments, maps, numbers, .. } = plan.launch;
                let numbers = numbers.iter().map(|of| Feed::Number(*of as u64));
                let feeds: Vec<Feed> = arguments.iter().map(feed).chain(numbers).collect();
                let mapped = |map: TensorMap| {
                    let base = feed(&Argument::Address(map.tensor));
                    (map, base)
                };
                kernels.push(PlannedKernel {
                    part: part.clone(),
                    spec: plan.spec,
                    source,
                    image,
                    report,
                    kernel,
                    launch,
                    words: words(&feeds),
                    feeds,
                    maps: maps.into_iter().map(mapped).collect(),
                    arguments,
                    tensors: tensors.clone(),
                    scratch: scratch.clone(),
                    capture: OnceLock::new(),
                });
            }
        }
        Ok(Recipe { kernels, bindings, workspace_bytes })
    }
}

/// The size of a kernel's parameters.
fn words(feeds: &[Feed]) -> usize {
    feeds.iter().fold(0, |words, feed| match feed {
        Feed::Map(_) => usize::next_multiple_of(words, MAP_ALIGNMENT) + MAP_WORDS,
        _ => words + 1,
    })
}

/// What the graph's own tensors must be like: those that kernels take first, in their order.
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
    let mut known = HashSet::new();
    let mut bindings: Vec<Binding> = Vec::new();
    for uid in uids.into_iter().filter(|uid| !is_between(graph, *uid)) {
        let tensor = graph.tensor(uid)?;
        if !known.insert(uid) {
            continue;
        }
        bindings.push(Binding {
            uid,
            written: written.contains(&uid),
            class: class(graph, parts, tensor),
            by_value: tensor.by_value.then_some(tensor.dtype),
            bytes: tensor.span_bytes()?,
            misalignment_mask: tensor.alignment.min(ALIGNMENT_MAX) as u64 - 1,
        });
    }
    Ok(bindings)
}

/// The class of a tensor that may be read and written in place ([`Binding::class`]).
fn class(graph: &OperationGraph, parts: &[BuiltPart], tensor: &TensorDesc) -> u32 {
    let in_place = |of: &BuiltPart| {
        engine_named(&of.part.config.engine).is_ok_and(|engine| engine.elementwise())
    };
    let tensors = graph.canonical().tensors;
    let mut axes = 0..tensor.dims.len();
    let largest = |axis: usize| tensors.iter().filter_map(|other| other.dims.get(axis)).max();
    if parts.len() != 1
        || !parts.iter().all(in_place)
        || !axes.all(|axis| largest(axis) == Some(&tensor.dims[axis]))
    {
        return 0;
    }
    let alike = |other: &TensorDesc| {
        (&other.dims, &other.strides, other.dtype) == (&tensor.dims, &tensor.strides, tensor.dtype)
    };
    tensors.iter().position(alike).map_or(0, |at| at as u32 + 1)
}

/// Whether a tensor only passes between parts: it is virtual, or what an operation means has it.
fn is_between(graph: &OperationGraph, uid: i64) -> bool {
    graph.tensor(uid).map_or(true, |tensor| tensor.is_virtual)
}

/// The canonical uid of the tensor that an argument is or describes.
fn tensor_of(argument: &Argument, maps: &[TensorMap]) -> Option<i64> {
    match *argument {
        Argument::Address(at) | Argument::Value(at, _) => Some(at),
        Argument::Map(at) => Some(maps[at].tensor),
        Argument::Scratch(_) => None,
    }
}

/// What lies in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// A tensor that is virtual in the graph and passes between its parts.
    Tensor(i64),
    /// What passes between the kernels of a part.
    Scratch { part: usize, at: usize },
}

/// A part as its memory is seen: what it launches, and what its kernels share.
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

/// Bytes of the workspace of a plan of these parts, of which no kernel need be there.
pub(super) fn workspace_bytes(graph: &OperationGraph, parts: &[(Part, Lowering)]) -> Result<u64> {
    let lowered: Vec<Lowered<'_>> = parts
        .iter()
        .map(|(part, lowering)| Lowered {
            part,
            launches: lowering.kernels.iter().map(|kernel| &kernel.launch).collect(),
            scratch: &lowering.scratch,
        })
        .collect();
    Ok(places(graph, &lowered)?.1)
}

/// Where each piece of the workspace begins, and how large it is as a whole.
fn places(graph: &OperationGraph, parts: &[Lowered<'_>]) -> Result<(Vec<(Piece, u64)>, u64)> {
    let mut pieces: Vec<(Piece, Lifetime)> = Vec::new();
    let mut touch = |piece: Piece, bytes: u64, step: usize| match pieces
        .iter_mut()
        .find(|(known, _)| *known == piece)
    {
        Some((_, lifetime)) => lifetime.last = step,
        None => pieces.push((piece, Lifetime { bytes, first: step, last: step })),
    };
    let mut step = 0;
    for (number, Lowered { part, launches, scratch }) in parts.iter().enumerate() {
        for LaunchPlan { arguments, maps, .. } in launches {
            for argument in arguments {
                if let Argument::Scratch(at) = argument {
                    touch(Piece::Scratch { part: number, at: *at }, scratch[*at], step);
                } else if let Some(at) = tensor_of(argument, maps) {
                    let uid = part.graph.canonical().uids[at as usize];
                    if is_between(graph, uid) {
                        touch(Piece::Tensor(uid), part.graph.tensor(uid)?.span_bytes()?, step);
                    }
                }
            }
            step += 1;
        }
    }
    let lifetimes: Vec<Lifetime> = pieces.iter().map(|(_, lifetime)| *lifetime).collect();
    let (offsets, bytes) = workspace::layout(&lifetimes);
    Ok((pieces.into_iter().map(|(piece, _)| piece).zip(offsets).collect(), bytes))
}

impl PlannedKernel {
    /// The engine and knobs it runs with.
    pub fn config(&self) -> &EngineConfig {
        &self.part.config
    }

    /// The part of the graph it runs, alone or with the kernels beside it.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// What it was generated from.
    pub fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    /// Its source.
    pub fn source(&self) -> &KernelSource {
        &self.source
    }

    /// What it was compiled to.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// How it came to be.
    pub fn report(&self) -> &BuildReport {
        &self.report
    }

    /// The shape of its launch.
    pub fn launch(&self) -> Launch {
        self.launch
    }
}
