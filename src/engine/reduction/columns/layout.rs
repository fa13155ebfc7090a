//! Tensors as the template sees them: where elements lie, and how a vector is loaded and stored.

use serde_json::{Value as Json, json};

use crate::engine::access::access_bytes;
use crate::engine::reduction::space::Space;
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

/// The variables of a tensor in memory under this name, accessed in vectors.
pub(super) fn tensor(
    graph: CanonicalGraph<'_>,
    space: &Space,
    at: usize,
    name: &str,
    vector: i64,
) -> Json {
    let tensor = &graph.tensors[at];
    let stride = space.rows.stride(at);
    let access = |verb: &str| match stride {
        0 | 1 => (format!("{verb}<{name}_layout::ACCESS>"), String::new()),
        _ => (format!("{verb}_strided"), format!("{name}_layout::STRIDE, ")),
    };
    let ((load, load_stride), (store, store_stride)) = (access("load"), access("store"));
    let (strides, extents) = outer(space, at);
    let access_bytes = match stride {
        1 => access_bytes(tensor, &strides, &extents, vector),
        _ => tensor.dtype.bytes() as i64,
    };
    json!({
        "name": name,
        "text": untold(tensor),
        "ctype": ctype(tensor.dtype),
        "is_row": space.is_row(at),
        "access_bytes": access_bytes,
        "stride": stride,
        "kept_strides": space.rows.outer_strides(at),
        "reduced_strides": space.columns.strides[at],
        "offset": offset(space, at),
        "fragment": if stride == 0 && !graph.is_written(at) { "1" } else { "VECTOR" },
        "load": load,
        "load_stride": load_stride,
        "store": store,
        "store_stride": store_stride,
        "guard": guard(space, at),
    })
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
