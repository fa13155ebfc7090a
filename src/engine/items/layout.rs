//! Tensors as a kernel's template sees them: where the elements of a thread's items are,
//! and how they are loaded and stored.

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::access::access_bytes;
use crate::engine::items::axes::{Axis, Strides};
use crate::engine::items::fusion::Fusion;
use crate::engine::items::item::Item;
use crate::engine::position::Neighbours;
use crate::engine::program::Source;
use crate::engine::signature::ctype;
use crate::expr::Identifiers;
use crate::graph::CanonicalGraph;

/// Where a tensor's elements are stored.
#[derive(Debug, Serialize)]
pub(in crate::engine) struct Layout {
    name: String,
    text: String,
    /// Bytes of one access; 0 of what is not stored.
    access: i64,
    strides: Vec<Stride>,
    /// Elements between those of neighbouring items.
    item: i64,
    /// The element of a position. Signed: what a padded position's would be is less than 0, and
    /// compilers derive those of others from it.
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
pub(in crate::engine) struct Load {
    name: String,
    ctype: &'static str,
    /// Elements that are loaded: one where all items share it.
    fragment: &'static str,
    verb: String,
    stride: String,
    valid: String,
}

/// A tensor that is stored.
#[derive(Debug, Serialize)]
pub(in crate::engine) struct Output {
    name: String,
    ctype: &'static str,
    value_type: &'static str,
    verb: String,
    stride: String,
}

/// A graph with the names of its tensors, and what a thread computes of its result.
#[derive(Clone)]
pub(in crate::engine) struct Context<'a> {
    pub(in crate::engine) graph: CanonicalGraph<'a>,
    pub(in crate::engine) epilogue: &'a Fusion,
    /// The dimension of the result along which a thread's items are neighbours, and their number.
    pub(in crate::engine) item: Item,
    pub(in crate::engine) items: i64,
    /// Their number as a kernel has it, and how many of them there are at the edge.
    pub(in crate::engine) count: &'static str,
    pub(in crate::engine) valid: String,
    /// The type in which the operation's result is computed, its name in the epilogue, and the
    /// variable that holds that of item `j`.
    pub(in crate::engine) math: DType,
    pub(in crate::engine) operation: &'static str,
    pub(in crate::engine) value: &'static str,
    pub(in crate::engine) identifiers: Identifiers,
    pub(in crate::engine) names: Vec<String>,
}

impl Context<'_> {
    fn strides(&self, fusion: &Fusion, at: usize) -> Strides {
        fusion.strides(self.graph, at).expect("the problem checked every tensor")
    }

    /// Elements of a tensor between those of neighbouring items; 0 where they share one.
    pub(in crate::engine) fn item_stride(&self, fusion: &Fusion, at: usize) -> i64 {
        let Strides { outer, group, inner, spatial } = self.strides(fusion, at);
        let own = fusion.coordinates.iter().position(|name| *name == self.item.coordinate());
        own.map_or(0, |at| [&[outer, group, inner], &spatial[..]].concat()[at])
    }

    /// Whether a program counts along the dimension of items.
    pub(in crate::engine) fn counts_items(&self, fusion: &Fusion) -> bool {
        let counted = |source: &Source| match source {
            Source::Coordinate(Some(axis)) => {
                self.coordinate(fusion, &Some(*axis)).contains(&self.item.coordinate())
            }
            Source::Position(at) => self.item_stride(fusion, *at) != 0,
            _ => false,
        };
        fusion.program.sources.iter().any(counted)
    }

    /// The position of an item in random numbers.
    pub(in crate::engine) fn position(&self, fusion: &Fusion, at: usize) -> String {
        let (scope, point) = match fusion.scope {
            None => (String::new(), "p".to_owned()),
            Some(scope) => (format!("{scope}::"), fusion.arguments()),
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
    pub(in crate::engine) fn coordinate(&self, fusion: &Fusion, axis: &Option<usize>) -> String {
        let Some(axis) = axis else { return "0".to_owned() };
        let names = &fusion.coordinates;
        let item = |name: &String| match *name == self.item.coordinate() {
            true => format!("{name} + j"),
            false => name.clone(),
        };
        let joined = if fusion.axes.joins_outer { 0 } else { 2 };
        match fusion.axes.of_tensor[*axis] {
            Axis::Outer => item(&names[0]),
            Axis::Group => item(&names[1]),
            Axis::Inner => item(&names[2]),
            Axis::Spatial(at) => item(&names[3 + at]),
            Axis::Channels => {
                let channels = fusion.axes.channels;
                format!("({}) * {channels} + {}", item(&names[1]), item(&names[joined]))
            }
        }
    }

    pub(in crate::engine) fn layout(&self, fusion: &Fusion, at: usize) -> Layout {
        let tensor = &self.graph.tensors[at];
        let Strides { outer, group, inner, spatial } = self.strides(fusion, at);
        let all = [&[outer, group, inner], &spatial[..]].concat();
        let names = ["OUTER", "GROUP", "INNER"].map(str::to_owned);
        let names = names.into_iter().chain((0..spatial.len()).map(|at| format!("SPATIAL{at}")));
        let terms: Vec<(String, i64, String)> = fusion
            .coordinates
            .iter()
            .cloned()
            .zip(all.iter().copied())
            .zip(names)
            .map(|((coordinate, stride), name)| (coordinate, stride, name))
            .filter(|(coordinate, stride, _)| {
                *stride != 0 && (fusion.axes.groups != 1 || coordinate != "p.group")
            })
            .collect();
        let term = |(coordinate, stride, name): &(String, i64, String)| match stride {
            1 => format!("coord_t({coordinate})"),
            _ => format!("coord_t({coordinate}) * {name}"),
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
        let scope = fusion.scope.map_or(String::new(), |scope| format!("{scope}::"));
        let name = &self.names[at];
        match self.item_stride(fusion, at) {
            0 | 1 => [format!("{verb}<{scope}{name}_layout::ACCESS>"), String::new()],
            _ => [format!("{verb}_strided"), format!("{scope}{name}_layout::ITEM, ")],
        }
    }

    pub(in crate::engine) fn load(&self, fusion: &Fusion, at: usize) -> Load {
        let [verb, stride] = self.access("load", fusion, at);
        let shared = self.item_stride(fusion, at) == 0;
        Load {
            name: self.names[at].clone(),
            ctype: ctype(self.graph.tensors[at].dtype),
            fragment: if shared { "1" } else { self.count },
            verb,
            stride,
            valid: if shared { "1".to_owned() } else { self.valid.clone() },
        }
    }

    pub(in crate::engine) fn output(&self, at: usize, value_type: &'static str) -> Output {
        let [verb, stride] = self.access("store", self.epilogue, at);
        let ctype = ctype(self.graph.tensors[at].dtype);
        Output { name: self.names[at].clone(), ctype, value_type, verb, stride }
    }
}
