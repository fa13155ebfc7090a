//! What the template of the direct engine reads.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::{ceil_div, volume};
use crate::engine::convolution::axes::{Axes, Axis};
use crate::engine::convolution::direct::Settings;
use crate::engine::convolution::layout::{Context, Layout, Load, Output};
use crate::engine::convolution::problem::{Fusion, Problem};
use crate::engine::dimensions::coordinates;
use crate::engine::instruction::multiply_add;
use crate::engine::program::Source;
use crate::engine::signature::{
    Indent, Width, ctype, kernel_parameter, list, names_with_positions,
};
use crate::expr::Identifiers;
use crate::graph::{ConvolutionMode, ConvolutionPass, ConvolutionShape};

/// The passes: their tensors in words, and their names in those of kernels.
pub(super) const ROLES: [(&str, &str); 3] = [
    ("y[n, g, k, o] = sum over c, t of x[n, g, c, i] w[g, k, c, t]", "forward"),
    ("dx[n, g, c, i] = sum over k, t of w[g, k, c, t] dy[n, g, k, o]", "backward_data"),
    ("dw[g, k, c, t] = sum over n, o of x[n, g, c, i] dy[n, g, k, o]", "backward_filter"),
];

/// Variables of `convolution/sm75_convolution_direct.cu`.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    formula: &'static str,
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    pass: &'static str,
    wide: bool,
    threads: i64,
    items: i64,
    /// Type in which operands are multiplied, which is that of sums.
    element: &'static str,
    multiply_add: &'static str,
    reversed: bool,
    spatial: Vec<Spatial>,
    /// Groups, or channels of one, that items are of.
    channels: i64,
    /// Channels of groups by which indices along both are counted.
    counted: Vec<Count>,
    summed: i64,
    meetings: i64,
    /// Whether a thread's items are groups, not the inner channels of one.
    items_are_groups: bool,
    /// Extents of the dimensions that a thread's index runs through, the innermost last.
    extents: Vec<i64>,
    /// The coordinates of its point by name.
    coordinates: Vec<Coordinate>,
    operands: Vec<Operand>,
    tensors: Vec<Layout>,
    loaded: Vec<Load>,
    outputs: Vec<Output>,
    lines: Vec<String>,
    chain_parameters: String,
    chain_arguments: String,
    kernel_parameters: String,
}

/// A spatial dimension.
#[derive(Debug, Serialize)]
struct Spatial {
    at: usize,
    image: i64,
    filter: i64,
    response: i64,
    stride: i64,
    dilation: i64,
    padding: i64,
    /// Expressions for the tap and the response at a meeting's index.
    tap_of: String,
    response_of: String,
}

#[derive(Debug, Serialize)]
struct Coordinate {
    name: String,
    value: String,
}

/// An operand of the convolution.
#[derive(Debug, Serialize)]
struct Operand {
    name: &'static str,
    r#type: &'static str,
    tensors: Vec<Layout>,
    loaded: Vec<Load>,
    /// Whether all items share it.
    shared: bool,
    /// Whether it is computed from what is loaded.
    computed: bool,
    chain_parameters: String,
    chain_arguments: String,
    lines: Vec<String>,
    result_type: &'static str,
    /// The element of what is loaded or computed.
    value: String,
}

/// A number of channels.
#[derive(Debug, Serialize)]
struct Count {
    name: &'static str,
    value: i64,
}

/// A program as statements.
struct Chain {
    parameters: Vec<String>,
    arguments: Vec<String>,
    lines: Vec<String>,
    types: Vec<&'static str>,
}

impl Parameters {
    pub(super) fn of(problem: &Problem<'_>, settings: Settings) -> Parameters {
        let mut identifiers = Identifiers::new();
        let names = names_with_positions(problem.graph, &mut identifiers);
        let context = Context { problem, items: settings.items, identifiers, names };
        let mut functions = BTreeSet::new();
        let operands = [0, 1].map(|at| context.operand(at, &mut functions));
        let Problem { graph, op, shape, epilogue, .. } = problem;
        let (formula, pass) = ROLES[op.pass as usize];
        let Axes { groups, inner, .. } = epilogue.axes;
        let (extents, coordinates) = context.point();
        let chain = context.chain(epilogue, &mut functions);
        let stored = &epilogue.program.outputs;
        let mut arguments = chain.arguments;
        arguments.extend(stored.iter().map(|at| format!("{}_value[j]", context.names[*at])));
        let followers: Vec<usize> =
            problem.followers().filter(|at| !graph.tensors[*at].by_value).collect();
        let positions: Vec<usize> = epilogue.program.positions().collect();
        let behind = followers.iter().chain(&positions).chain(stored);
        let passed = problem.passed();
        let parameter = |at: &usize| kernel_parameter(*graph, *at, &context.names[*at]);
        let kernel_parameters: Vec<String> = passed.iter().map(parameter).collect();
        let outputs = stored.iter().zip(&chain.types);
        let ConvolutionShape { n, c, k, filter, response, .. } = shape;
        let (summed, meetings) = match op.pass {
            ConvolutionPass::Forward => (*c, filter),
            ConvolutionPass::BackwardData => (*k, filter),
            ConvolutionPass::BackwardFilter => (*n, response),
        };
        Parameters {
            formula,
            listing: context.listing(),
            pass,
            wide: context.is_wide(),
            threads: settings.threads,
            items: settings.items,
            element: op.math.dtype().register(),
            multiply_add: multiply_add(op.math),
            reversed: op.mode == ConvolutionMode::Convolution,
            spatial: context.spatial(),
            channels: if inner == 1 { groups } else { inner },
            counted: context.counted(),
            summed,
            meetings: volume(meetings),
            items_are_groups: inner == 1,
            extents,
            coordinates,
            operands: operands.into(),
            tensors: behind.map(|at| context.layout(epilogue, *at)).collect(),
            loaded: followers.iter().map(|at| context.load(epilogue, *at)).collect(),
            outputs: outputs.map(|(at, value)| context.output(*at, value)).collect(),
            lines: chain.lines,
            chain_parameters: list(&chain.parameters, Indent(4), Width(60)),
            chain_arguments: list(&arguments, Indent(18), Width(75)),
            kernel_parameters: list(&kernel_parameters, Indent(4), Width(0)),
            functions,
        }
    }
}

impl Context<'_> {
    /// The graph, line by line: what operands are computed from, and what is computed behind.
    fn listing(&self) -> Vec<String> {
        let Problem { operands, epilogue, graph, op, .. } = self.problem;
        let texts = operands.iter().filter(|of| !of.is_plain()).map(|of| {
            let of = &of.program.program;
            of.to_string()
        });
        let own = |fusion: &Fusion| match graph.tensors[fusion.tensor].name.as_str() {
            "" => fusion.role.name().to_owned(),
            name => name.to_owned(),
        };
        let [first, second] = [0, 1].map(|at| own(&operands[at]));
        let result = own(epilogue);
        let convolution = format!("{result} = {op}({first}, {second})");
        let behind = epilogue.program.program.to_string();
        texts
            .chain([convolution, behind])
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    /// The channels of groups, where an index counts along groups and channels.
    fn counted(&self) -> Vec<Count> {
        let Problem { operands, epilogue, shape, .. } = self.problem;
        let counts = |fusion: &Fusion| {
            let along = |source: &Source| match source {
                Source::Coordinate(Some(axis)) => fusion.axes.of_tensor[*axis] == Axis::Channels,
                _ => false,
            };
            fusion.program.sources.iter().any(along)
        };
        let named = |(name, value): (&'static str, i64)| {
            let own = |fusion: &&Fusion| fusion.role.channels() == name;
            let mut all = operands.iter().chain([epilogue]).filter(own);
            all.any(counts).then_some(Count { name, value })
        };
        [("C", shape.c), ("K", shape.k)].into_iter().filter_map(named).collect()
    }

    /// Whether offsets and coordinates need more than 32 bits.
    fn is_wide(&self) -> bool {
        let Problem { op, shape, .. } = self.problem;
        let window = &op.window;
        let reach = |axis: usize| {
            let padding = window.pre_paddings[axis].saturating_add(window.post_paddings[axis]);
            let taps = window.dilations[axis].saturating_mul(shape.filter[axis]);
            let moved = window.filter_strides[axis].saturating_mul(shape.response[axis]);
            let padded = shape.image[axis].saturating_add(padding);
            padded.saturating_add(taps).saturating_add(moved)
        };
        let elements = self.problem.graph.tensors[self.problem.epilogue.tensor].elements();
        let coordinates = (0..shape.image.len()).map(reach).max().unwrap_or(0);
        let most = coordinates.max(elements.unwrap_or(i64::MAX)).max(self.problem.offset_max());
        // The last items, and the threads past the last element, still do not wrap.
        most >= (1 << 31) - (1 << 24)
    }

    fn spatial(&self) -> Vec<Spatial> {
        let Problem { op, shape, .. } = self.problem;
        let count = shape.image.len();
        let [taps, responses] =
            ["FILTER", "RESPONSE"].map(|extent| coordinates(count, "at", extent));
        let spatial = |at: usize| Spatial {
            at,
            image: shape.image[at],
            filter: shape.filter[at],
            response: shape.response[at],
            stride: op.window.filter_strides[at],
            dilation: op.window.dilations[at],
            padding: op.window.pre_paddings[at],
            tap_of: taps[at].clone(),
            response_of: responses[at].clone(),
        };
        (0..count).map(spatial).collect()
    }

    /// Extents of the dimensions that a thread's index runs through, from the largest stride of the
    /// result to the smallest, and the coordinates of its point.
    fn point(&self) -> (Vec<i64>, Vec<Coordinate>) {
        let Problem { graph, epilogue, .. } = self.problem;
        let Axes { outer, groups, inner, spatial, .. } = &epilogue.axes;
        let stored =
            epilogue.program.outputs.iter().max_by_key(|at| graph.tensors[**at].dtype.bytes());
        let leader = stored.expect("a graph stores something");
        let strides = self.problem.strides(epilogue, *leader).expect("checked before");
        let blocks = |extent: i64| ceil_div(extent, self.items);
        let grouped = *inner == 1;
        let mut dimensions = vec![
            ("outer".to_owned(), *outer, strides.outer, false),
            (
                "group".to_owned(),
                if grouped { blocks(*groups) } else { *groups },
                strides.group,
                grouped,
            ),
            ("inner".to_owned(), if grouped { 1 } else { blocks(*inner) }, strides.inner, !grouped),
        ];
        dimensions.extend(
            spatial
                .iter()
                .zip(&strides.spatial)
                .enumerate()
                .map(|(at, (extent, stride))| (format!("s{at}"), *extent, *stride, false)),
        );
        let (moving, still): (Vec<_>, Vec<_>) =
            dimensions.into_iter().partition(|(_, extent, ..)| *extent != 1);
        let mut moving = moving;
        moving.sort_by_key(|(_, _, stride, _)| std::cmp::Reverse(*stride));
        let expressions = coordinates(moving.len(), "at", "EXTENT");
        let extents = moving.iter().map(|(_, extent, ..)| *extent).collect();
        let moving = moving.into_iter().zip(expressions).map(|((name, .., is_item), value)| {
            let value = if is_item { format!("({value}) * ITEMS") } else { value };
            Coordinate { name, value }
        });
        let still = still.into_iter().map(|(name, ..)| Coordinate { name, value: "0".to_owned() });
        (extents, moving.chain(still).collect())
    }

    /// A program as statements; what is read is an element of what was loaded.
    fn chain(&self, fusion: &Fusion, functions: &mut BTreeSet<&'static str>) -> Chain {
        let graph = self.problem.graph;
        let mut identifiers = self.identifiers.clone();
        let program = &fusion.program;
        let is_sum = |at: usize| at == fusion.tensor && at == self.problem.epilogue.tensor;
        let mut name = |source: &Source| match source {
            Source::Tensor(at) if is_sum(*at) => identifiers.fresh("convolution"),
            Source::Tensor(at) | Source::Position(at) => self.names[*at].clone(),
            Source::Coordinate(_) => identifiers.fresh("index"),
        };
        let inputs: Vec<String> = program.sources.iter().map(&mut name).collect();
        let output = |at: &usize| match self.names[*at].is_empty() || !graph.is_written(*at) {
            true => identifiers.fresh("result"),
            false => self.names[*at].clone(),
        };
        let outputs: Vec<String> = program.outputs.iter().map(output).collect();
        let text = program.program.emit(&inputs, &outputs, &mut identifiers);
        let (mut parameters, mut arguments) = (Vec::new(), Vec::new());
        for input in (0..inputs.len()).filter(|input| program.reads(*input)) {
            let register = text.input_types[input];
            parameters.push(format!("const {register} {}", inputs[input]));
            arguments.push(match program.sources[input] {
                Source::Tensor(at) if is_sum(at) => self.sum(at, register),
                Source::Tensor(at) if graph.tensors[at].by_value => {
                    format!("{register}({})", self.names[at])
                }
                Source::Tensor(at) => {
                    let item = if self.item_stride(fusion, at) == 0 { "0" } else { "j" };
                    format!("{}_in.get({item})", self.names[at])
                }
                Source::Position(at) => self.position(fusion, at),
                Source::Coordinate(axis) => {
                    format!("{register}({})", self.coordinate(fusion, &axis))
                }
            });
        }
        let results = outputs.iter().zip(&text.outputs);
        parameters.extend(results.map(|(name, output)| format!("{}& {name}", output.ctype)));
        functions.extend(text.functions);
        let types = text.outputs.iter().map(|output| output.ctype).collect();
        Chain { parameters, arguments, lines: text.lines, types }
    }

    /// A sum as the epilogue reads it: rounded to the result's type.
    fn sum(&self, at: usize, register: &str) -> String {
        let dtype = self.problem.graph.tensors[at].dtype;
        match dtype == self.problem.op.math.dtype() {
            true => "sums[j]".to_owned(),
            false => format!("{register}(widen(Narrow<{}>::from(sums[j])))", ctype(dtype)),
        }
    }

    fn operand(&self, at: usize, functions: &mut BTreeSet<&'static str>) -> Operand {
        let (graph, fusion) = (self.problem.graph, &self.problem.operands[at]);
        let element = self.problem.op.math.dtype().register();
        let stored: Vec<usize> =
            fusion.inputs().filter(|at| !graph.tensors[*at].by_value).collect();
        let shared = stored.iter().all(|at| self.item_stride(fusion, *at) == 0)
            && !self.counts_items(fusion);
        let placed = stored.iter().copied().chain(fusion.program.positions());
        let chain = self.chain(fusion, functions);
        let dtype = graph.tensors[fusion.tensor].dtype;
        let value = match fusion.is_plain() {
            true => format!("{element}({})", chain.arguments[0]),
            // The value that a virtual operand has is of its type.
            false => format!("{element}(widen(Narrow<{}>::from(value)))", ctype(dtype)),
        };
        let mut arguments = chain.arguments;
        arguments.push("value".to_owned());
        Operand {
            name: fusion.role.name(),
            r#type: fusion.role.type_name(),
            tensors: placed.map(|at| self.layout(fusion, at)).collect(),
            loaded: stored.iter().map(|at| self.load(fusion, *at)).collect(),
            shared,
            computed: !fusion.is_plain(),
            chain_parameters: list(&chain.parameters, Indent(8), Width(56)),
            chain_arguments: list(&arguments, Indent(18), Width(75)),
            lines: chain.lines,
            result_type: chain.types[0],
            value,
        }
    }
}
