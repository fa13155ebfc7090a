//! A graph around one resampling, or a gradient of one, as extents, strides and programs:
//! `epilogue(resample(prologue(operand)))`.

use std::collections::BTreeSet;

use crate::engine::items::{Axes, Axis, Fusion, Item, check_parameters, offset_max, only, passed};
use crate::engine::program::{GraphProgram, ancestors, check_results};
use crate::engine::resample::line::Line;
use crate::engine::signature::refuse_i64_beside;
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, Operation, Resample, ResamplePass};
use crate::tensor::TensorDesc;

/// Minimum compute capability of the templates.
const CAPABILITY_MIN: u16 = 75;

/// Columns at most that a thread reads at once.
const SPAN_MAX: i64 = 32;

/// What a tensor is to a resampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// `x`.
    Image,
    /// `dy`, and the index of winners.
    Response,
    /// What is computed.
    Result,
}

/// The graph.
#[derive(Debug, Clone)]
pub(super) struct Problem<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a Resample,
    pub(super) lines: Vec<Line>,
    /// `x`; or `dy`, and `x` where its winners are found.
    pub(super) operands: Vec<Fusion>,
    /// The tensor of winners, which is stored forward and read backward.
    pub(super) index: Option<usize>,
    pub(super) epilogue: Fusion,
}

impl<'a> Problem<'a> {
    /// # Errors
    /// `NotSupported` with the rule that the graph breaks.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        if capability < CAPABILITY_MIN {
            let text = format!("sm_{capability} is older than sm_{CAPABILITY_MIN}");
            return Err(Error::not_supported(text));
        }
        let (operation, op) = resample(graph)?;
        let backward = op.pass == ResamplePass::Backward;
        let given = if backward { operation.inputs.get(1) } else { operation.outputs.get(1) };
        let index = given.filter(|_| op.index).map(|uid| *uid as usize);
        refuse_i64_beside(graph, index)?;
        index.map_or(Ok(()), |at| check_index(graph, at, backward))?;
        let result = operation.outputs[0] as usize;
        let mut read = vec![(operation.inputs[0] as usize, Role::Image)];
        if backward {
            read[0].1 = Role::Response;
            let image = operation.inputs.get(1).filter(|_| op.reads_image());
            read.extend(image.map(|uid| (*uid as usize, Role::Image)));
        }
        let prologues: Vec<BTreeSet<usize>> =
            read.iter().map(|(at, _)| ancestors(graph, &[*at])).collect();
        let is_stored = |at: &usize| graph.is_written(*at) && !graph.tensors[*at].is_virtual;
        let is_own = |at: &usize| backward || Some(*at) != index;
        let stored: Vec<usize> =
            (0..graph.tensors.len()).filter(|at| is_stored(at) && is_own(at)).collect();
        check_results(graph, &prologues, &stored, (result, "resampling"))?;
        let fusion = |tensor, role: Role, operations: &BTreeSet<usize>, outputs: &[usize]| {
            let operations = operations.iter().map(|index| &graph.operations[*index]);
            Fusion {
                tensor,
                name: role.name(),
                scope: role.scope(),
                program: GraphProgram::of(graph, operations, outputs),
                axes: axes(&graph.tensors[tensor]),
                coordinates: role.coordinates(op.sampling.spatial_dims()),
                element: role.element(op.sampling.spatial_dims()),
            }
        };
        let operands = read.iter().zip(&prologues);
        let operands: Vec<Fusion> = operands
            .map(|((at, role), operations)| fusion(*at, *role, operations, &[*at]))
            .collect();
        let epilogue = fusion(result, Role::Result, &ancestors(graph, &stored), &stored);
        operands.iter().try_for_each(|fusion| fusion.check(graph))?;
        epilogue.check(graph)?;
        let small = if backward { operation.inputs[0] as usize } else { result };
        let image = if backward { result } else { operation.inputs[0] as usize };
        let [image, small] = [image, small].map(|at| &graph.tensors[at].dims[2..]);
        let extents = image.iter().zip(small).enumerate();
        let lines = extents.map(|(at, (image, small))| Line::of(op, at, *image, *small)).collect();
        let problem = Problem { graph, op, lines, operands, index, epilogue };
        check_parameters(&problem.passed())?;
        Ok(problem)
    }

    /// The tensors that are passed: each once, inputs first, the index last.
    pub(super) fn passed(&self) -> Vec<usize> {
        let mut all = passed(&self.operands, &self.epilogue);
        all.extend(self.index);
        all
    }

    /// The largest number on the way to an element of any tensor.
    pub(super) fn reach(&self) -> i64 {
        let positions = self.lines.iter().map(Line::reach).max().unwrap_or(0);
        let fusions = self.operands.iter().chain([&self.epilogue]);
        let drawn = fusions.flat_map(|fusion| fusion.program.positions());
        let tensors: Vec<usize> = self.passed().into_iter().chain(drawn).collect();
        positions.max(offset_max(self.graph, &tensors))
    }

    /// What a thread's items are: channels, or columns where those are nearer in the largest of the
    /// tensors that are stored.
    pub(super) fn item(&self) -> Item {
        let Problem { graph, epilogue, .. } = self;
        let stored = epilogue.program.outputs.iter();
        let leader = stored.max_by_key(|at| graph.tensors[**at].dtype.bytes());
        let leader = *leader.expect("a graph stores something");
        let strides = epilogue.strides(*graph, leader).expect("checked before");
        let spatial = epilogue.axes.spatial.iter().zip(strides.spatial).enumerate();
        let columns = spatial.map(|(at, (extent, stride))| (Item::Spatial(at), *extent, stride));
        let all = [(Item::Inner, epilogue.axes.inner, strides.inner)].into_iter().chain(columns);
        let moving = all.filter(|(_, extent, _)| *extent > 1);
        moving.min_by_key(|(_, _, stride)| *stride).map_or(Item::Inner, |(item, ..)| item)
    }

    /// Columns that a thread's windows cover where they lie next to each other inside the image:
    /// a thread reads them at once. 0 where they do not.
    pub(super) fn span(&self, items: i64) -> i64 {
        let Item::Spatial(at) = self.item() else { return 0 };
        let (line, last) = (&self.lines[at], self.lines.len() - 1);
        let forward = self.op.pass == ResamplePass::Forward;
        let inside = (line.response - 1) * line.stride + line.window <= line.image;
        let joined = line.stride == line.window && line.padding == 0 && inside;
        let fits = line.window <= SPAN_MAX / items;
        let spans = forward && self.op.mode.is_pooling() && at == last && joined && fits;
        if spans { items * line.window } else { 0 }
    }

    /// Taps that are read for the whole result, those in the padding too.
    pub(super) fn taps(&self) -> f64 {
        let Axes { outer, inner, .. } = self.epilogue.axes;
        let along = |line: &Line| {
            let response = line.response as f64 * line.window as f64;
            // The window of a winner is read for each element that may be it.
            let windows = if self.op.reads_image() { line.window as f64 } else { 1.0 };
            response * windows
        };
        outer as f64 * inner as f64 * self.lines.iter().map(along).product::<f64>()
    }
}

impl Role {
    /// Name in comments.
    fn name(self) -> &'static str {
        match self {
            Role::Image => "image",
            Role::Response => "response",
            Role::Result => "result",
        }
    }

    fn scope(self) -> Option<&'static str> {
        match self {
            Role::Image => Some("Image"),
            Role::Response => Some("Response"),
            Role::Result => None,
        }
    }

    /// Names of an element's coordinates along outer, group, inner and so many spatial dimensions.
    fn coordinates(self, spatial: usize) -> Vec<String> {
        let own = (0..spatial).map(|at| match self {
            Role::Result => format!("p.s{at}"),
            role => format!("{}{at}", role.name()),
        });
        ["p.outer", "p.group", "p.inner"].map(str::to_owned).into_iter().chain(own).collect()
    }

    /// Parameters that declare them.
    fn element(self, spatial: usize) -> String {
        let own = (0..spatial).map(|at| format!(", coord_t {}{at}", self.name()));
        format!("const Point& p{}", own.collect::<String>())
    }
}

/// Images, channels, and the spatial dimensions.
fn axes(tensor: &TensorDesc) -> Axes {
    let dims = &tensor.dims;
    let spatial = dims[2..].to_vec();
    let of_spatial = (0..spatial.len()).map(Axis::Spatial);
    Axes {
        outer: dims[0],
        groups: 1,
        inner: dims[1],
        of_tensor: [Axis::Outer, Axis::Inner].into_iter().chain(of_spatial).collect(),
        spatial,
        joins_outer: false,
        channels: "CHANNELS",
        dims: dims.clone(),
        operation: "resampling",
    }
}

/// Checks that the index of winners is in memory and nothing is computed of it.
fn check_index(graph: CanonicalGraph<'_>, at: usize, backward: bool) -> Result<()> {
    let TensorDesc { name, uid, is_virtual, by_value, .. } = &graph.tensors[at];
    let reads = |of: &&Operation| of.inputs.contains(uid);
    let readers = graph.operations.iter().filter(reads).count();
    let written = backward && graph.is_written(at);
    if *is_virtual || *by_value || written || readers > usize::from(backward) {
        let text = format!("`{name}` is read or written by another operation than the resampling");
        return Err(Error::not_supported(text));
    }
    Ok(())
}

/// The one resampling of the graph, all else of which is elementwise.
fn resample(graph: CanonicalGraph<'_>) -> Result<(&Operation, &Resample)> {
    only(graph, "resampling", |op| match op {
        Op::Resample(op) => Some(op),
        _ => None,
    })
}
