//! What every kernel of items has: the points of its threads, what follows the operation, and its
//! launch.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::ceil_div;
use crate::engine::dimensions::coordinates;
use crate::engine::items::axes::Strides;
use crate::engine::items::fusion::Fusion;
use crate::engine::items::item::{Item, blocks};
use crate::engine::items::layout::{Context, Layout, Load, Output};
use crate::engine::signature::{Indent, Width, arguments, kernel_parameter, list};
use crate::graph::CanonicalGraph;
use crate::kernel::{Grid, LaunchPlan};

/// The point of a thread: its first item, and how many of them there are.
#[derive(Debug, Serialize)]
pub(in crate::engine) struct Point {
    /// Extents of the dimensions that a thread's index runs through, the innermost last.
    extents: Vec<i64>,
    /// The coordinates by name; whether that of groups is one of them.
    coordinates: Vec<Coordinate>,
    grouped: bool,
    /// Spatial dimensions by number.
    point_spatial: Vec<usize>,
    /// The coordinate that counts items, and the extent of the result along it.
    item: String,
    item_extent: i64,
    /// Whether it is a spatial coordinate, whose type is signed.
    item_is_spatial: bool,
}

#[derive(Debug, Serialize)]
struct Coordinate {
    name: String,
    value: String,
}

/// What follows the operation, and what the kernel takes.
#[derive(Debug, Serialize)]
pub(in crate::engine) struct Kernel {
    operation: &'static str,
    wide: bool,
    threads: i64,
    items: i64,
    tensors: Vec<Layout>,
    loaded: Vec<Load>,
    outputs: Vec<Output>,
    lines: Vec<String>,
    chain_parameters: String,
    chain_arguments: String,
    kernel_parameters: String,
}

/// Elements from which on offsets have 64 bits: the last items, and the threads past the last
/// element, still do not wrap.
pub(in crate::engine) const WIDE_FROM: i64 = (1 << 31) - (1 << 24);

/// A thread for each point: an SM takes the next block when one has ended.
pub(in crate::engine) fn launch(
    graph: CanonicalGraph<'_>,
    points: i64,
    threads: i64,
    passed: &[usize],
) -> LaunchPlan {
    let blocks_max = ceil_div(points, threads).min(i32::MAX.into()) as u32;
    LaunchPlan {
        grid: Grid::fixed(blocks_max),
        threads: threads as u32,
        shared_bytes: 0,
        cooperative: false,
        arguments: arguments(graph, passed.iter()),
        maps: Vec::new(),
        numbers: Vec::new(),
    }
}

impl Context<'_> {
    /// The point of a thread: coordinates from the largest stride of the result to the smallest.
    pub(in crate::engine) fn point(&self, grouped: bool) -> Point {
        let Context { graph, epilogue, item, .. } = self;
        let axes = &epilogue.axes;
        let stored =
            epilogue.program.outputs.iter().max_by_key(|at| graph.tensors[**at].dtype.bytes());
        let leader = stored.expect("a graph stores something");
        let strides = epilogue.strides(*graph, *leader).expect("checked before");
        let Strides { outer, group, inner, spatial } = strides;
        let strides = [&[outer, group, inner], &spatial[..]].concat();
        let spatial_names = (0..spatial.len()).map(|at| format!("s{at}"));
        let names = ["outer", "group", "inner"].map(str::to_owned).into_iter().chain(spatial_names);
        let dimensions = names.zip(blocks(axes, *item, self.items)).zip(strides);
        let (mut moving, still): (Vec<_>, Vec<_>) =
            dimensions.partition(|((_, extent), _)| *extent != 1);
        moving.sort_by_key(|(_, stride)| Reverse(*stride));
        let expressions = coordinates(moving.len(), "at", "EXTENT");
        let extents = moving.iter().map(|((_, extent), _)| *extent).collect();
        let moving = moving.into_iter().zip(expressions).map(|(((name, _), _), value)| {
            let value = if name == item.name() { format!("({value}) * ITEMS") } else { value };
            Coordinate { name, value }
        });
        let still =
            still.into_iter().map(|((name, _), _)| Coordinate { name, value: "0".to_owned() });
        let whole = blocks(axes, *item, 1);
        let told = |of: &Coordinate| grouped || of.name != "group";
        Point {
            extents,
            coordinates: moving.chain(still).filter(told).collect(),
            grouped,
            point_spatial: (0..spatial.len()).collect(),
            item: item.coordinate(),
            item_extent: whole[item.position()],
            item_is_spatial: matches!(item, Item::Spatial(_)),
        }
    }

    /// Whether offsets, or coordinates as large as this, need 64 bits.
    pub(in crate::engine) fn is_wide(&self, most: i64) -> bool {
        let elements = self.graph.tensors[self.epilogue.tensor].elements();
        most.max(elements.unwrap_or(i64::MAX)) >= WIDE_FROM
    }

    /// The graph, line by line: what operands are computed from, the operation with its attributes,
    /// and what is computed behind.
    pub(in crate::engine) fn listing(&self, operands: &[Fusion], op: &str) -> Vec<String> {
        let texts = operands.iter().filter(|of| !of.is_plain()).map(|of| {
            let of = &of.program.program;
            of.to_string()
        });
        let own = |fusion: &Fusion| match self.graph.tensors[fusion.tensor].name.as_str() {
            "" => fusion.name.to_owned(),
            name => name.to_owned(),
        };
        let arguments: Vec<String> = operands.iter().map(own).collect();
        let operation = format!("{} = {op}({})", own(self.epilogue), arguments.join(", "));
        let behind = self.epilogue.program.program.to_string();
        texts
            .chain([operation, behind])
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    /// What follows the operation, of a kernel that takes these tensors. Those `beside` the result
    /// lie as it does and are no business of the epilogue.
    pub(in crate::engine) fn kernel(
        &self,
        passed: &[usize],
        beside: &[usize],
        wide: bool,
        threads: i64,
        functions: &mut BTreeSet<&'static str>,
    ) -> Kernel {
        let Context { graph, epilogue, .. } = self;
        let chain = self.chain(epilogue, functions);
        let stored = &epilogue.program.outputs;
        let mut arguments = chain.arguments;
        arguments.extend(stored.iter().map(|at| format!("{}_value[j]", self.names[*at])));
        let followers: Vec<usize> =
            epilogue.followers().filter(|at| !graph.tensors[*at].by_value).collect();
        let positions: Vec<usize> = epilogue.program.positions().collect();
        let behind = followers.iter().chain(&positions).chain(beside).chain(stored);
        let parameter = |at: &usize| kernel_parameter(*graph, *at, &self.names[*at]);
        let kernel_parameters: Vec<String> = passed.iter().map(parameter).collect();
        let outputs = stored.iter().zip(&chain.types);
        Kernel {
            operation: self.operation,
            wide,
            threads,
            items: self.items,
            tensors: behind.map(|at| self.layout(epilogue, *at)).collect(),
            loaded: followers.iter().map(|at| self.load(epilogue, *at)).collect(),
            outputs: outputs.map(|(at, value)| self.output(*at, value)).collect(),
            lines: chain.lines,
            chain_parameters: list(&chain.parameters, Indent(4), Width(60)),
            chain_arguments: list(&arguments, Indent(18), Width(75)),
            kernel_parameters: list(&kernel_parameters, Indent(4), Width(0)),
        }
    }
}
