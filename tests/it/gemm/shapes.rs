//! Types, layouts, edges of tiles, batches, empty extents.

use kiln::DType::{self, *};
use kiln::graph::MatmulMath;

use super::cases::{Case, Lay, check};
use crate::harness;

const LAYS: [[Lay; 3]; 8] = [
    [Lay::Rows, Lay::Rows, Lay::Rows],
    [Lay::Rows, Lay::Columns, Lay::Rows],
    [Lay::Columns, Lay::Rows, Lay::Rows],
    [Lay::Columns, Lay::Columns, Lay::Rows],
    [Lay::Rows, Lay::Rows, Lay::Columns],
    [Lay::OddRows, Lay::OddColumns, Lay::OddRows],
    [Lay::OddColumns, Lay::OddRows, Lay::OddColumns],
    [Lay::Misaligned, Lay::Misaligned, Lay::Misaligned],
];

const F32: MatmulMath = MatmulMath::F32;

fn every_layout(engine: &str, math: MatmulMath, types: [DType; 3]) {
    for kiln in harness::dialects() {
        for lays in LAYS {
            let case = Case::new(math, types, [35, 42, 50]).lays(lays);
            check(kiln, &case.graph(), engine, &format!("{case:?}"));
        }
    }
}

#[test]
fn simt_layouts_f32() {
    every_layout("gemm_simt", F32, [DType::F32, DType::F32, DType::F32]);
}

#[test]
fn simt_layouts_f64() {
    every_layout("gemm_simt", MatmulMath::F64, [F64, F64, F64]);
}

#[test]
fn simt_layouts_16_bits() {
    every_layout("gemm_simt", F32, [F16, Bf16, F16]);
}

#[test]
fn simt_layouts_integers() {
    every_layout("gemm_simt", MatmulMath::I32, [I8, U8, I32]);
}

#[test]
fn mma_layouts_16_bits() {
    every_layout("gemm_mma", F32, [F16, F16, DType::F32]);
    every_layout("gemm_mma", F32, [Bf16, Bf16, Bf16]);
}

#[test]
fn mma_layouts_tf32() {
    every_layout("gemm_mma", MatmulMath::Tf32, [DType::F32, DType::F32, DType::F32]);
}

#[test]
fn mma_layouts_integers() {
    every_layout("gemm_mma", MatmulMath::I32, [I8, U8, I32]);
}

/// Types of A, B and C that are widened, narrowed and mixed.
const TYPES: [(MatmulMath, [DType; 3]); 12] = [
    (F32, [Bf16, Bf16, Bf16]),
    (F32, [F16, DType::F32, F64]),
    (F32, [F64, I32, DType::F32]),
    (F32, [I8, U8, Bf16]),
    (F32, [Bool, F16, I8]),
    (F32, [DType::F32, DType::F32, U8]),
    (F32, [DType::F32, Bf16, Bool]),
    (MatmulMath::Tf32, [DType::F32, F16, DType::F32]),
    (MatmulMath::F64, [DType::F32, I32, F64]),
    (MatmulMath::F64, [F64, Bf16, F16]),
    (MatmulMath::I32, [U8, U8, F16]),
    (MatmulMath::I32, [I8, I8, DType::F32]),
];

#[test]
fn simt_types() {
    for kiln in harness::oldest() {
        for (math, types) in TYPES {
            let case = Case::new(math, types, [17, 33, 19]);
            check(kiln, &case.graph(), "gemm_simt", &format!("{case:?}"));
        }
    }
}

/// Types that tensor cores multiply exactly, some after they are widened.
const EXACT: [(MatmulMath, [DType; 3]); 10] = [
    (F32, [F16, F16, Bf16]),
    (F32, [Bf16, Bf16, F64]),
    (F32, [I8, F16, F16]),
    (F32, [Bf16, U8, DType::F32]),
    (F32, [Bool, I8, I8]),
    (F32, [Bf16, F16, DType::F32]),
    (MatmulMath::Tf32, [F16, F64, DType::F32]),
    (MatmulMath::I32, [U8, U8, F16]),
    (MatmulMath::I32, [I8, I8, DType::F32]),
    (MatmulMath::I32, [U8, I8, I8]),
];

#[test]
fn mma_types() {
    for kiln in harness::dialects() {
        for (math, types) in EXACT {
            let case = Case::new(math, types, [17, 33, 19]);
            check(kiln, &case.graph(), "gemm_mma", &format!("{case:?}"));
        }
    }
}

/// One, and one less and more than the tile that the heuristic takes for small matrices.
fn edges(engine: &str, dtype: DType, sizes: [i64; 4]) {
    for kiln in harness::dialects() {
        for (at, m) in sizes.into_iter().enumerate() {
            for (n, k) in sizes.into_iter().flat_map(|n| [(n, sizes[at]), (n, 15 + at as i64)]) {
                let case = Case::new(F32, [dtype, dtype, DType::F32], [m, n, k]);
                let case = case.lays([LAYS[0], LAYS[3]][(m + n) as usize % 2]);
                check(kiln, &case.graph(), engine, &format!("{case:?}"));
            }
        }
    }
}

#[test]
fn simt_edges() {
    edges("gemm_simt", DType::F32, [1, 31, 32, 33]);
}

#[test]
fn mma_edges() {
    edges("gemm_mma", F16, [1, 63, 64, 65]);
}

#[test]
fn large_extents() {
    for extents in [[200, 3, 40], [2, 300, 33], [5, 6, 1000], [130, 130, 17]] {
        let case = Case::new(F32, [Bf16, Bf16, DType::F32], extents);
        for engine in ["gemm_simt", "gemm_mma"] {
            check(harness::kiln(), &case.graph(), engine, &format!("{case:?}"));
        }
    }
}

#[test]
fn empty_extents() {
    for extents in [[0, 5, 6], [5, 0, 6], [5, 6, 0], [0, 0, 0]] {
        let case = Case::new(F32, [F16, F16, DType::F32], extents);
        for engine in ["gemm_simt", "gemm_mma"] {
            check(harness::kiln(), &case.graph(), engine, &format!("{case:?}"));
        }
    }
}

/// Batches of both operands, of one, broadcast either way, and some that become rows.
const BATCHES: [[&[i64]; 2]; 8] = [
    [&[3], &[3]],
    [&[3], &[1]],
    [&[1], &[3]],
    [&[1], &[1]],
    [&[2, 3], &[2, 3]],
    [&[2, 1], &[1, 3]],
    [&[2, 3], &[1, 3]],
    [&[2, 3], &[1, 1]],
];

fn every_batch(engine: &str, dtype: DType) {
    for kiln in harness::dialects() {
        for batches in BATCHES {
            for lays in [LAYS[0], LAYS[4], LAYS[5]] {
                let case = Case::new(F32, [dtype, dtype, DType::F32], [5, 18, 20]);
                let case = Case { batches, ..case }.lays(lays);
                check(kiln, &case.graph(), engine, &format!("{case:?}"));
            }
        }
    }
}

#[test]
fn simt_batches() {
    every_batch("gemm_simt", DType::F32);
}

#[test]
fn mma_batches() {
    every_batch("gemm_mma", Bf16);
}

/// A matrix per row of the batch: the batches become the rows of one product.
#[test]
fn batches_of_vectors_are_one_product() {
    let case = Case::new(F32, [DType::F32, DType::F32, DType::F32], [1, 40, 20]);
    let graph = Case { batches: [&[4, 10], &[1, 1]], ..case }.graph();
    let config = super::cases::heuristic(harness::kiln(), &graph, "gemm_simt");
    let text = harness::kiln().sources(&graph, &config).unwrap().remove(0).text;
    // A constant that nothing reads is not rendered: there is one batch.
    assert!(text.contains("M = 40;") && !text.contains("BATCHES"), "{text}");
    check(harness::kiln(), &graph, "gemm_simt", "rows");
}
