//! What products cost, counted: the least traffic and arithmetic that tiles allow, no conflict.

use kiln::device::Counters;
use kiln::graph::MatmulMath;
use kiln::{DType, OperationGraph};

use super::cases::{Case, Lay, inputs};
use super::fusion::{bias_gelu, weight_gradients};
use crate::harness::{self, conflicts};

fn count(graph: &OperationGraph, config: &str) -> Counters {
    harness::count(graph, Some(&config.parse().unwrap()), &inputs(graph))
}

/// A product of tensors that begin at a sector.
fn aligned(math: MatmulMath, types: [DType; 3], extents: [i64; 3]) -> Case {
    Case { alignment: 256, ..Case::new(math, types, extents) }
}

const MMA: &str = "gemm_mma{cta_k=32, cta_m=64, cta_n=64, dynamic_k=0, dynamic_m=0, \
                   group=8, raster=0, \
                   split_k=1, stages=3, warp_m=32, warp_n=32}";

/// Whole tiles of 16-bit operands, 2 x 2 of them, in every layout.
#[test]
fn tensor_cores_do_the_least() {
    let [m, n, k] = [128, 128, 96];
    for (a, b) in [
        (Lay::Rows, Lay::Rows),
        (Lay::Rows, Lay::Columns),
        (Lay::Columns, Lay::Rows),
        (Lay::Columns, Lay::Columns),
    ] {
        let case = aligned(MatmulMath::F32, [DType::F16; 3], [m, n, k]);
        let counters = count(&case.lays([a, b, Lay::Rows]).graph(), MMA);
        assert_eq!(conflicts(&counters), 0, "{a:?} {b:?}");
        // Every tile of an operand is read by the two blocks that need it, C is written once.
        let [bytes_a, bytes_b, bytes_c] = [m * k, k * n, m * n].map(|count| 2 * count as u64);
        let total = &counters.total.global;
        assert_eq!(total.bytes, 2 * bytes_a + 2 * bytes_b + bytes_c);
        assert_eq!((total.sectors * 32, total.sectors_per_request()), (total.bytes, 16.0));
        assert_eq!(counters.dram_read_bytes, bytes_a + bytes_b);
        assert_eq!(counters.dram_written_bytes, bytes_c);
        let [products] = &counters.products[..] else { panic!("{:?}", counters.products) };
        assert_eq!(products.multiply_adds, (m * n * k) as u64);
    }
}

/// Tiles at the edges are computed whole, and no more than those.
#[test]
fn edges_are_whole_tiles() {
    let graph = bias_gelu([70, 136, 40], DType::Bf16);
    let counters = count(&graph, MMA);
    assert_eq!(conflicts(&counters), 0);
    assert_eq!(counters.products[0].multiply_adds, 128 * 192 * 64);
}

/// An operand is added up by one column or row of warps, or of tiles: MMAs of 8 columns for every
/// fragment of A, of 16 rows for every one of B, or of the operand's rows by 8 columns of ones;
/// nothing is read again.
#[test]
fn sums_of_an_operand_are_eight_columns_more() {
    let [inputs_of, outputs_of, rows] = [128, 192, 96];
    let wgmma = "gemm_wgmma{cluster=1, cta_m=64, cta_n=64, dynamic_k=0, dynamic_m=0, \
                 group=8, ping_pong=0, \
                 raster=0, split_k=1, stages=4}";
    for (lay, config, whole, each) in [
        ("columns", MMA, rows, 8),
        ("columns", wgmma, 128, 8),
        ("rows", MMA, rows, 16),
        ("rows", wgmma, 128, 8),
    ] {
        let graph = weight_gradients([inputs_of, outputs_of, rows], DType::F16, lay);
        let counters = &harness::count_each(&graph, &config.parse().unwrap(), &inputs(&graph))[0];
        assert_eq!(conflicts(counters), 0, "{config}");
        let all: u64 = counters.products.iter().map(|products| products.multiply_adds).sum();
        assert_eq!(all, (outputs_of * (inputs_of + each) * whole) as u64, "{lay}: {config}");
        // Both operands, weights that are added to, two biases.
        let [a, b, c] = [inputs_of * rows, rows * outputs_of, inputs_of * outputs_of];
        let read = 2 * (a + b + c) as u64;
        let biases = 2 * 2 * outputs_of as u64;
        assert!((read..=read + biases).contains(&counters.dram_read_bytes), "{lay}: {config}");
    }
}

/// tf32 and integers along the depth are read by ldmatrix, tf32 along rows by words.
#[test]
fn other_types_have_no_conflicts() {
    let deep = MMA.replace("cta_k=32", "cta_k=16");
    for lays in [[Lay::Rows, Lay::Rows, Lay::Rows], [Lay::Columns, Lay::Columns, Lay::Rows]] {
        let case = Case::new(MatmulMath::Tf32, [DType::F32; 3], [64, 64, 48]);
        assert_eq!(conflicts(&count(&case.lays(lays).graph(), &deep)), 0, "{lays:?}");
    }
    let case = Case::new(MatmulMath::I32, [DType::I8, DType::I8, DType::I32], [64, 64, 128]);
    let case = case.lays([Lay::Rows, Lay::Columns, Lay::Rows]);
    let counters = count(&case.graph(), &MMA.replace("cta_k=32", "cta_k=64"));
    assert_eq!(conflicts(&counters), 0);
    assert_eq!(counters.products[0].multiply_adds, 64 * 64 * 128);
}

#[test]
fn ordinary_units_do_the_least() {
    let simt = "gemm_simt{cta_k=16, cta_m=64, cta_n=64, dynamic_k=0, dynamic_m=0, \
                   group=8, raster=0, \
                split_k=1, thread_m=4, thread_n=4}";
    let [m, n, k] = [128, 128, 48];
    for (dtype, math) in [(DType::F32, MatmulMath::F32), (DType::F64, MatmulMath::F64)] {
        for (a, b) in [(Lay::Rows, Lay::Rows), (Lay::Columns, Lay::Columns)] {
            let case = aligned(math, [dtype; 3], [m, n, k]).lays([a, b, Lay::Rows]);
            let counters = count(&case.graph(), simt);
            assert_eq!(conflicts(&counters), 0, "{dtype} {a:?} {b:?}");
            let size = dtype.bytes() as i64;
            let [bytes_a, bytes_b, bytes_c] = [m * k, k * n, m * n].map(|n| (size * n) as u64);
            let total = &counters.total.global;
            assert_eq!(total.bytes, 2 * bytes_a + 2 * bytes_b + bytes_c);
            assert_eq!((total.sectors * 32, total.sectors_per_request()), (total.bytes, 16.0));
            assert_eq!(counters.dram_bytes(), bytes_a + bytes_b + bytes_c);
        }
    }
}
