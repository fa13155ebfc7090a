//! Tensors as the templates see them: where elements lie, and how a chunk is loaded and stored.

use crate::engine::access::access_bytes;
use crate::engine::reduction::schedule::Schedule;
use crate::engine::reduction::space::Space;
use crate::engine::reduction::template::{Layout, Load, Store};
use crate::engine::signature::{ctype, untold};
use crate::graph::CanonicalGraph;

/// Inputs of a tensor's layout.
#[derive(Clone, Copy)]
pub(super) struct Layouts<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) space: &'a Space,
    pub(super) schedule: &'a Schedule,
}

impl Layouts<'_> {
    /// Where the elements of a tensor of this name are stored.
    pub(super) fn layout(&self, at: usize, name: &str) -> Layout {
        let outer = self.space.columns.extents.len() - 1;
        Layout {
            name: name.to_owned(),
            text: untold(&self.graph.tensors[at]),
            is_row: self.space.is_row(at),
            access_bytes: self.access_bytes(at),
            stride: self.space.stride(at),
            strides: self.space.rows.strides[at].clone(),
            steps: self.space.columns.strides[at][..outer].to_vec(),
            offset: self.offset(at),
        }
    }

    pub(super) fn load(&self, at: usize, name: &str) -> Load {
        let [load, load_stride] = self.access("load", at, name);
        let broadcast = self.space.stride(at) == 0 && !self.graph.is_written(at);
        Load {
            name: name.to_owned(),
            ctype: ctype(self.graph.tensors[at].dtype),
            fragment: if broadcast { "1" } else { "VECTOR" },
            load,
            load_stride,
        }
    }

    pub(super) fn store(&self, at: usize, name: &str) -> Store {
        let [store, store_stride] = self.access("store", at, name);
        Store {
            name: name.to_owned(),
            ctype: ctype(self.graph.tensors[at].dtype),
            store,
            store_stride,
            guard: self.guard(at),
        }
    }

    /// The function that moves a vector, and the argument for a stride that is not 1.
    fn access(&self, verb: &str, at: usize, name: &str) -> [String; 2] {
        match self.space.stride(at) {
            0 | 1 => [format!("{verb}<{name}_layout::ACCESS>"), String::new()],
            _ => [format!("{verb}_strided"), format!("{name}_layout::STRIDE, ")],
        }
    }

    fn access_bytes(&self, at: usize) -> i64 {
        let tensor = &self.graph.tensors[at];
        let (strides, extents) = self.space.outer(at);
        match self.space.stride(at) {
            _ if tensor.is_virtual => 0,
            1 => access_bytes(tensor, &strides, &extents, self.schedule.vector),
            _ => tensor.dtype.bytes() as i64,
        }
    }

    fn offset(&self, at: usize) -> String {
        let moves = |strides: &[i64], coordinate: &str, constant: &str| -> Vec<String> {
            let strides = strides.iter().enumerate().filter(|(_, stride)| **stride != 0);
            strides.map(|(n, _)| format!("{coordinate}{n} * {constant}{n}")).collect()
        };
        let outer = self.space.columns.extents.len() - 1;
        let mut terms = moves(&self.space.rows.strides[at], "r.i", "STRIDE");
        terms.extend(moves(&self.space.columns.strides[at][..outer], "c.k", "STEP"));
        match self.space.stride(at) {
            0 => {}
            1 => terms.push("c.column".to_owned()),
            _ => terms.push("c.column * STRIDE".to_owned()),
        }
        if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
    }

    /// The condition under which an output smaller than the space is written: once per element.
    fn guard(&self, at: usize) -> String {
        let (rows, columns) = (&self.space.rows, &self.space.columns);
        let still = |strides: &[i64], extents: &[i64]| -> Vec<usize> {
            let pairs = strides.iter().zip(extents).enumerate();
            pairs.filter(|(_, (s, e))| **s == 0 && **e > 1).map(|(n, _)| n).collect()
        };
        let mut conditions: Vec<String> = still(&rows.strides[at], &rows.extents)
            .into_iter()
            .map(|n| format!("r.i{n} == 0"))
            .collect();
        if !self.space.is_row(at) {
            let last = columns.extents.len() - 1;
            conditions.extend(still(&columns.strides[at], &columns.extents).into_iter().map(|n| {
                match n == last {
                    true => "c.column == 0".to_owned(),
                    false => format!("c.k{n} == 0"),
                }
            }));
        }
        conditions.join(" && ")
    }
}
