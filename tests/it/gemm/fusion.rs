//! Graphs around products that several tests build, from `tests/cases/gemm.toml` and
//! `tests/cases/operand_sums.toml`.

use std::sync::LazyLock;

use kiln::{DType, OperationGraph};
use serde_json::{Value, json};

use crate::cases::File;

/// A graph of `tests/cases/gemm.toml`.
pub fn from_file(name: &str, extents: [i64; 3], dtype: DType) -> OperationGraph {
    from_file_with(name, extents, dtype, &[])
}

/// The same with further parameters.
pub fn from_file_with(
    name: &str,
    [m, n, k]: [i64; 3],
    dtype: DType,
    with: &[(&str, Value)],
) -> OperationGraph {
    static FILE: LazyLock<File> = LazyLock::new(|| File::read("gemm"));
    let own = [("m", m.into()), ("n", n.into()), ("k", k.into()), ("t", json!(dtype))];
    let all = own.into_iter().chain(with.iter().cloned());
    FILE.graph(name, &all.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The gradients of a layer's weights, `m` inputs by `n` outputs, and of both of its biases, from
/// `k` rows: by columns, of which kernels write the transpose, or by rows.
pub fn weight_gradients([m, n, k]: [i64; 3], dtype: DType, lay: &str) -> OperationGraph {
    let own = [("m", m.into()), ("n", n.into()), ("k", k.into()), ("t", json!(dtype))];
    let all = own.into_iter().chain([("lay_c", lay.into())]);
    let all = all.map(|(name, value)| (name.to_owned(), value));
    File::read("operand_sums").graph("of_columns", &all.collect())
}

/// `gelu(a b + bias)`, as linear layers have it.
pub fn bias_gelu(extents: [i64; 3], dtype: DType) -> OperationGraph {
    from_file("bias_gelu", extents, dtype)
}

/// `relu(a) dequantised(b)`: a program on either operand, one with an operand per column.
pub fn prologues(extents: [i64; 3], dtype: DType) -> OperationGraph {
    from_file("prologues", extents, dtype)
}

/// Two outputs, and operands of every shape.
pub fn rich(extents: [i64; 3], dtype: DType) -> OperationGraph {
    from_file("rich", extents, dtype)
}

/// The gate and the value of SwiGLU's second half, from a product that both read.
pub fn two_outputs(extents: [i64; 3], dtype: DType) -> OperationGraph {
    from_file("two_outputs", extents, dtype)
}

/// `y = swish(x gate) * (x up + bias)`, weights by rows or columns.
pub fn swiglu(extents: [i64; 3], dtype: DType, by_columns: bool) -> OperationGraph {
    let lay = if by_columns { "columns" } else { "rows" };
    from_file_with("swiglu", extents, dtype, &[("lay", lay.into())])
}

/// `y = gelu(a b + bias)` and its sums along rows, along columns, and its largest magnitude.
pub fn reduced_everywhere(extents: [i64; 3], dtype: DType) -> OperationGraph {
    let reductions = [("op0", "add"), ("op1", "amax"), ("op2", "add")];
    let kept = [("kept0", "rows"), ("kept1", "nothing"), ("kept2", "columns")];
    let with = reductions.into_iter().chain(kept).map(|(name, value)| (name, value.into()));
    let of = [("of", json!(dtype)), ("hidden", false.into())];
    from_file_with("reduced", extents, dtype, &with.chain(of).collect::<Vec<_>>())
}
