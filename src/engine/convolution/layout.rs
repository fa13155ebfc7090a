//! Tensors as the direct engine's template sees them: where the elements of a thread's items are,
//! and how they are loaded and stored.

use serde::Serialize;

use crate::engine::access::access_bytes;
use crate::engine::convolution::axes::{Axis, Role, Strides};
use crate::engine::convolution::problem::{Fusion, Problem};
use crate::engine::position::Neighbours;
use crate::engine::program::Source;
use crate::engine::signature::ctype;
use crate::expr::Identifiers;
use crate::graph::ConvolutionPass;

/// Where a tensor's elements are stored.
#[derive(Debug, Serialize)]
pub(super) struct Layout {
    name: String,
    text: String,
    /// Bytes of one access; 0 of what is not stored.
    access: i64,
    strides: Vec<Stride>,
    /// Elements between those of neighbouring items.
    item: i64,
    offset: String,
}

/// A named stride.
#[derive(Debug, Serialize)]
struct Stride {
    name: String,
    value: i64,
}

/// How the elements of a thread's items are loaded.
#[derive(Debug, Serialize)]
pub(super) struct Load {
    name: String,
    ctype: &'static str,
    /// Elements that are loaded: one where all items share it.
    fragment: &'static str,
    verb: String,
    stride: String,
    valid: &'static str,
}

/// A tensor that is stored.
#[derive(Debug, Serialize)]
pub(super) struct Output {
    name: String,
    ctype: &'static str,
    value_type: &'static str,
    verb: String,
    stride: String,
}

/// A problem with the names of its tensors, and how many items a thread has.
pub(super) struct Context<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) items: i64,
    pub(super) identifiers: Identifiers,
    pub(super) names: Vec<String>,
}

/// The coordinates of an element of a tensor along outer, group and inner dimensions. Those of the
/// result are a thread's own; of an operand one is summed over.
fn coordinates_of(pass: ConvolutionPass, role: Role) -> [&'static str; 3] {
    match (pass, role) {
        (ConvolutionPass::Forward, Role::Image) => ["p.outer", "p.group", "r"],
        (ConvolutionPass::Forward, Role::Filter) => ["p.inner", "p.group", "r"],
        (ConvolutionPass::BackwardData, Role::Filter) => ["r", "p.group", "p.inner"],
        (ConvolutionPass::BackwardData, Role::Response) => ["p.outer", "p.group", "r"],
        (ConvolutionPass::BackwardFilter, Role::Image) => ["r", "p.group", "p.inner"],
        (ConvolutionPass::BackwardFilter, Role::Response) => ["r", "p.group", "p.outer"],
        _ => ["p.outer", "p.group", "p.inner"],
    }
}

impl Context<'_> {
    fn strides(&self, fusion: &Fusion, at: usize) -> Strides {
        self.problem.strides(fusion, at).expect("the problem checked every tensor")
    }

    fn is_result(&self, fusion: &Fusion) -> bool {
        fusion.tensor == self.problem.epilogue.tensor
    }

    /// Names of the coordinates along all dimensions.
    fn coordinates(&self, fusion: &Fusion) -> Vec<String> {
        let outer = coordinates_of(self.problem.op.pass, fusion.role).map(str::to_owned);
        let spatial = (0..fusion.axes.spatial.len()).map(|at| match self.is_result(fusion) {
            true => format!("p.s{at}"),
            false => format!("m.{}{at}", fusion.role.spatial_name()),
        });
        outer.into_iter().chain(spatial).collect()
    }

    /// The coordinate that counts a thread's items.
    fn item_coordinate(&self) -> &'static str {
        if self.problem.epilogue.axes.inner == 1 { "p.group" } else { "p.inner" }
    }

    /// Elements of a tensor between those of neighbouring items; 0 where they share one.
    pub(super) fn item_stride(&self, fusion: &Fusion, at: usize) -> i64 {
        let Strides { outer, group, inner, .. } = self.strides(fusion, at);
        let names = coordinates_of(self.problem.op.pass, fusion.role);
        let own = names.iter().position(|name| *name == self.item_coordinate());
        own.map_or(0, |at| [outer, group, inner][at])
    }

    /// Whether a program counts along the dimension of items.
    pub(super) fn counts_items(&self, fusion: &Fusion) -> bool {
        let counted = |source: &Source| match source {
            Source::Coordinate(Some(axis)) => {
                self.coordinate(fusion, &Some(*axis)).contains(self.item_coordinate())
            }
            Source::Position(at) => self.item_stride(fusion, *at) != 0,
            _ => false,
        };
        fusion.program.sources.iter().any(counted)
    }

    /// The position of an item in random numbers.
    pub(super) fn position(&self, fusion: &Fusion, at: usize) -> String {
        let (scope, point) = match self.is_result(fusion) {
            true => (String::new(), "p"),
            false => (format!("{}::", fusion.role.type_name()), "p, m, r"),
        };
        let layout = format!("{scope}{}_layout", self.names[at]);
        let Strides { outer, group, inner, spatial } = self.strides(fusion, at);
        let all = [&[outer, group, inner], &spatial[..]].concat();
        let neighbours = Neighbours {
            first: &format!("{layout}::at({point})"),
            count: self.items,
            step: self.item_stride(fusion, at),
            step_name: &format!("{layout}::ITEM"),
            others: &all.into_iter().filter(|stride| *stride != 1).collect::<Vec<_>>(),
        };
        neighbours.position()
    }

    /// The coordinate of an item along an axis of the convolution's tensor.
    pub(super) fn coordinate(&self, fusion: &Fusion, axis: &Option<usize>) -> String {
        let Some(axis) = axis else { return "0".to_owned() };
        let names = self.coordinates(fusion);
        let item = |name: &String| match name == self.item_coordinate() {
            true => format!("{name} + j"),
            false => name.clone(),
        };
        let joined = if fusion.role == Role::Filter { 0 } else { 2 };
        match fusion.axes.of_tensor[*axis] {
            Axis::Outer => item(&names[0]),
            Axis::Group => item(&names[1]),
            Axis::Inner => item(&names[2]),
            Axis::Spatial(at) => item(&names[3 + at]),
            Axis::Channels => {
                let channels = fusion.role.channels();
                format!("({}) * {channels} + {}", item(&names[1]), item(&names[joined]))
            }
        }
    }

    pub(super) fn layout(&self, fusion: &Fusion, at: usize) -> Layout {
        let tensor = &self.problem.graph.tensors[at];
        let Strides { outer, group, inner, spatial } = self.strides(fusion, at);
        let all = [&[outer, group, inner], &spatial[..]].concat();
        let names = ["OUTER", "GROUP", "INNER"].map(str::to_owned);
        let names = names.into_iter().chain((0..spatial.len()).map(|at| format!("SPATIAL{at}")));
        let terms: Vec<(String, i64, String)> = self
            .coordinates(fusion)
            .into_iter()
            .zip(all.iter().copied())
            .zip(names)
            .map(|((coordinate, stride), name)| (coordinate, stride, name))
            .filter(|(coordinate, stride, _)| {
                *stride != 0 && (fusion.axes.groups != 1 || coordinate != "p.group")
            })
            .collect();
        let term = |(coordinate, stride, name): &(String, i64, String)| match stride {
            1 => format!("index_t({coordinate})"),
            _ => format!("index_t({coordinate}) * {name}"),
        };
        let offset: Vec<String> = terms.iter().map(term).collect();
        let item = self.item_stride(fusion, at);
        let others: Vec<i64> = all.iter().copied().filter(|stride| *stride > 1).collect();
        let access = match item {
            _ if tensor.is_virtual => 0,
            1 => access_bytes(tensor, &others, &vec![2; others.len()], self.items),
            _ => tensor.dtype.bytes() as i64,
        };
        let named = terms.into_iter().filter(|(_, stride, _)| *stride > 1);
        Layout {
            name: self.names[at].clone(),
            text: tensor.to_string(),
            access,
            strides: named.map(|(_, value, name)| Stride { name, value }).collect(),
            item: if item > 1 { item } else { 0 },
            offset: if offset.is_empty() { "0".to_owned() } else { offset.join(" + ") },
        }
    }

    /// The function that moves a thread's items, and the argument for a stride that is not 1.
    fn access(&self, verb: &str, fusion: &Fusion, at: usize) -> [String; 2] {
        let scope = match self.is_result(fusion) {
            true => String::new(),
            false => format!("{}::", fusion.role.type_name()),
        };
        let name = &self.names[at];
        match self.item_stride(fusion, at) {
            0 | 1 => [format!("{verb}<{scope}{name}_layout::ACCESS>"), String::new()],
            _ => [format!("{verb}_strided"), format!("{scope}{name}_layout::ITEM, ")],
        }
    }

    pub(super) fn load(&self, fusion: &Fusion, at: usize) -> Load {
        let [verb, stride] = self.access("load", fusion, at);
        let shared = self.item_stride(fusion, at) == 0;
        Load {
            name: self.names[at].clone(),
            ctype: ctype(self.problem.graph.tensors[at].dtype),
            fragment: if shared { "1" } else { "ITEMS" },
            verb,
            stride,
            valid: if shared { "1" } else { "p.valid" },
        }
    }

    pub(super) fn output(&self, at: usize, value_type: &'static str) -> Output {
        let [verb, stride] = self.access("store", &self.problem.epilogue, at);
        let ctype = ctype(self.problem.graph.tensors[at].dtype);
        Output { name: self.names[at].clone(), ctype, value_type, verb, stride }
    }
}
