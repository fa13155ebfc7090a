//! Tensors as the template sees them: where elements lie, and how a vector is loaded and stored.

use crate::engine::access::access_bytes;
use crate::engine::reduction::space::Space;
use crate::engine::reduction::template::{Layout, Load, Store};
use crate::engine::signature::{ctype, untold};
use crate::graph::CanonicalGraph;

/// A tensor's strides along all dimensions but the innermost kept one, and the extents of those.
pub(super) fn outer(space: &Space, tensor: usize) -> (Vec<i64>, Vec<i64>) {
    let Space { rows, columns, .. } = space;
    (
        [rows.outer_strides(tensor), &columns.strides[tensor]].concat(),
        [rows.outer(), &columns.extents].concat(),
    )
}

/// Where the elements of a tensor of this name are stored, accessed in vectors.
pub(super) fn layout(
    graph: CanonicalGraph<'_>,
    space: &Space,
    at: usize,
    name: &str,
    vector: i64,
) -> Layout {
    let tensor = &graph.tensors[at];
    let stride = space.rows.stride(at);
    let (strides, extents) = outer(space, at);
    let access_bytes = match stride {
        _ if tensor.is_virtual => 0,
        1 => access_bytes(tensor, &strides, &extents, vector),
        _ => tensor.dtype.bytes() as i64,
    };
    Layout {
        name: name.to_owned(),
        text: untold(tensor),
        is_row: space.is_row(at),
        access_bytes,
        stride,
        strides: space.rows.outer_strides(at).to_vec(),
        steps: space.columns.strides[at].clone(),
        offset: offset(space, at),
    }
}

pub(super) fn load(graph: CanonicalGraph<'_>, space: &Space, at: usize, name: &str) -> Load {
    let [load, load_stride] = access("load", space, at, name);
    let broadcast = space.rows.stride(at) == 0 && !graph.is_written(at);
    Load {
        name: name.to_owned(),
        ctype: ctype(graph.tensors[at].dtype),
        fragment: if broadcast { "1" } else { "VECTOR" },
        load,
        load_stride,
    }
}

pub(super) fn store(graph: CanonicalGraph<'_>, space: &Space, at: usize, name: &str) -> Store {
    let [store, store_stride] = access("store", space, at, name);
    Store {
        name: name.to_owned(),
        ctype: ctype(graph.tensors[at].dtype),
        store,
        store_stride,
        guard: guard(space, at),
    }
}

/// The function that moves a vector, and the argument for a stride that is not 1.
fn access(verb: &str, space: &Space, at: usize, name: &str) -> [String; 2] {
    match space.rows.stride(at) {
        0 | 1 => [format!("{verb}<{name}_layout::ACCESS>"), String::new()],
        _ => [format!("{verb}_strided"), format!("{name}_layout::STRIDE, ")],
    }
}

fn offset(space: &Space, at: usize) -> String {
    let moves = |strides: &[i64], coordinate: &str, constant: &str| -> Vec<String> {
        let strides = strides.iter().enumerate().filter(|(_, stride)| **stride != 0);
        strides.map(|(n, _)| format!("{coordinate}{n} * {constant}{n}")).collect()
    };
    let mut terms = moves(space.rows.outer_strides(at), "c.i", "STRIDE");
    terms.extend(moves(&space.columns.strides[at], "r.k", "STEP"));
    match space.rows.stride(at) {
        0 => {}
        1 => terms.push("c.column".to_owned()),
        _ => terms.push("c.column * STRIDE".to_owned()),
    }
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}

/// The condition under which an output smaller than the space is written: once per element.
fn guard(space: &Space, at: usize) -> String {
    let Space { rows, columns, .. } = space;
    let still = |strides: &[i64], extents: &[i64], coordinate: &str| -> Vec<String> {
        let pairs = strides.iter().zip(extents).enumerate();
        let still = pairs.filter(|(_, (stride, extent))| **stride == 0 && **extent > 1);
        still.map(|(n, _)| format!("{coordinate}{n} == 0")).collect()
    };
    let mut conditions = still(rows.outer_strides(at), rows.outer(), "c.i");
    if rows.stride(at) == 0 && rows.width() > 1 {
        conditions.push("c.column == 0".to_owned());
    }
    if !space.is_row(at) {
        conditions.extend(still(&columns.strides[at], &columns.extents, "r.k"));
    }
    conditions.join(" && ")
}
