//! Kernels that count rows, or elements along K, at run time: one for every number of them.

use kiln::DType::{self, *};
use kiln::OperationGraph;
use kiln::expr::Mode;
use kiln::graph::MatmulMath;

use super::cases::{Case, Fusion, Lay, heuristic, inputs};
use super::fusion::{bias_gelu, prologues, rich, weight_gradients};
use crate::harness;

const ROWS: [i64; 5] = [2, 17, 64, 65, 200];

/// Kernels for some rows are those for any others, and compute what they should.
fn one_kernel_for_all(engine: &str, knobs: &[(&str, i64)], graph: impl Fn(i64) -> OperationGraph) {
    let knobs = [knobs, &[("dynamic_m", 1)]].concat();
    one_kernel(engine, &knobs, &ROWS, graph);
}

/// As [`one_kernel_for_all`], of elements along K, which engines count unasked.
fn one_kernel_for_every_k(
    engine: &str,
    knobs: &[(&str, i64)],
    graph: impl Fn(i64) -> OperationGraph,
) {
    let own = heuristic(harness::kiln(), &graph(64), engine);
    assert_eq!(own.knob("dynamic_k").ok(), Some(1), "{own}");
    one_kernel(engine, knobs, &[2, 17, 64, 65, 200], graph);
}

fn one_kernel(
    engine: &str,
    knobs: &[(&str, i64)],
    counts: &[i64],
    graph: impl Fn(i64) -> OperationGraph,
) {
    for kiln in harness::dialects() {
        let target = kiln.device().target();
        if engine == "gemm_wgmma" && target.arch.to_string() != "sm_90a" {
            continue;
        }
        let own = heuristic(kiln, &graph(64), engine);
        let config = knobs.iter().fold(own, |config, (knob, value)| config.with(knob, *value));
        let first = kiln.sources(&graph(64), &config).unwrap();
        for count in counts {
            let graph = graph(*count);
            let sources = kiln.sources(&graph, &config).unwrap();
            for (source, first) in sources.iter().zip(&first) {
                let pairs = source.text.lines().zip(first.text.lines());
                let apart = pairs.into_iter().find(|(own, first)| own != first);
                assert_eq!(apart, None, "{count}");
                assert_eq!(source.text.len(), first.text.len(), "{count}");
            }
            harness::check(kiln, &graph, Some(&config), &inputs(&graph), &format!("{count}"));
        }
    }
}

/// `x w + bias` of a layer in both directions, which share their input: the matrices of the result
/// lie as far apart as it has rows.
fn directions(rows: i64, dtype: DType) -> OperationGraph {
    let mut fusion = Fusion::new((&[1, rows, 40], dtype), (&[2, 40, 48], dtype));
    let bias = fusion.graph.input("bias", &[2, 1, 48], dtype);
    let c = fusion.product(fusion.a, fusion.b, MatmulMath::F32, DType::F32);
    let y = fusion.binary(Mode::Add, [c, bias], DType::F32);
    fusion.output(y, "y", DType::F32);
    fusion.build()
}

/// Steps of some sequences, which become rows together.
fn sequences(rows: i64) -> OperationGraph {
    let mut fusion = Fusion::new((&[rows, 3, 40], F16), (&[1, 40, 64], F16));
    let c = fusion.product(fusion.a, fusion.b, MatmulMath::F32, F16);
    fusion.output(c, "c", F16);
    fusion.build()
}

#[test]
fn simt_rows_are_counted() {
    one_kernel_for_all("gemm_simt", &[], |rows| bias_gelu([rows, 70, 40], DType::F32));
    one_kernel_for_all("gemm_simt", &[], |rows| rich([rows, 45, 40], F16));
    one_kernel_for_all("gemm_simt", &[], |rows| directions(rows, DType::F32));
    one_kernel_for_all("gemm_simt", &[("split_k", 2)], |rows| directions(rows, DType::F32));
}

#[test]
fn mma_rows_are_counted() {
    one_kernel_for_all("gemm_mma", &[], |rows| bias_gelu([rows, 72, 40], Bf16));
    one_kernel_for_all("gemm_mma", &[], |rows| prologues([rows, 72, 40], F16));
    one_kernel_for_all("gemm_mma", &[], |rows| rich([rows, 45, 40], F16));
    one_kernel_for_all("gemm_mma", &[], |rows| directions(rows, Bf16));
    one_kernel_for_all("gemm_mma", &[], sequences);
    one_kernel_for_all("gemm_mma", &[("split_k", 2), ("cta_k", 32)], |rows| {
        bias_gelu([rows, 72, 128], F16)
    });
}

#[test]
fn wgmma_rows_are_counted() {
    one_kernel_for_all("gemm_wgmma", &[], |rows| bias_gelu([rows, 136, 72], Bf16));
    one_kernel_for_all("gemm_wgmma", &[("cluster", 2)], |rows| rich([rows, 72, 136], F16));
    one_kernel_for_all("gemm_wgmma", &[("ping_pong", 1)], |rows| directions(rows, Bf16));
    one_kernel_for_all("gemm_wgmma", &[], sequences);
}

/// A gradient of weights without what it is added to, and as many steps of it.
fn transposed(k: i64, dtype: DType, math: MatmulMath, extents: [i64; 2]) -> OperationGraph {
    let case = Case::new(math, [dtype, dtype, F32], [extents[0], extents[1], k]);
    case.lays([Lay::Columns, Lay::Rows, Lay::Rows]).graph()
}

/// Of both directions of a layer: the matrices of an operand lie as far apart as it has rows.
fn transposed_twice(k: i64, dtype: DType) -> OperationGraph {
    let case = Case::new(MatmulMath::F32, [dtype, dtype, F32], [64, 72, k]);
    let case = case.lays([Lay::Columns, Lay::Rows, Lay::Rows]);
    Case { batches: [&[2], &[2]], ..case }.graph()
}

#[test]
fn simt_counts_k() {
    one_kernel_for_every_k("gemm_simt", &[], |k| transposed_twice(k, F32));
    one_kernel_for_every_k("gemm_simt", &[], |k| transposed(k, F32, MatmulMath::F32, [70, 45]));
    one_kernel_for_every_k("gemm_simt", &[("cta_m", 64), ("cta_n", 64)], |k| {
        weight_gradients([64, 72, k], F32, "columns")
    });
    one_kernel_for_every_k("gemm_simt", &[("split_k", 2), ("cta_k", 8)], |k| {
        transposed(k.max(17), F16, MatmulMath::F32, [64, 40])
    });
}

#[test]
fn mma_counts_k() {
    one_kernel_for_every_k("gemm_mma", &[], |k| transposed_twice(k, Bf16));
    for dtype in [F16, Bf16] {
        one_kernel_for_every_k("gemm_mma", &[], |k| {
            transposed(k, dtype, MatmulMath::F32, [72, 40])
        });
    }
    one_kernel_for_every_k("gemm_mma", &[], |k| transposed(k, F32, MatmulMath::Tf32, [64, 40]));
    for lay in ["columns", "rows"] {
        one_kernel_for_every_k("gemm_mma", &[], |k| weight_gradients([64, 72, k], F16, lay));
    }
    one_kernel_for_every_k("gemm_mma", &[("split_k", 2), ("cta_k", 32)], |k| {
        weight_gradients([64, 72, k.max(33)], F16, "columns")
    });
}

#[test]
fn wgmma_counts_k() {
    one_kernel_for_every_k("gemm_wgmma", &[], |k| transposed_twice(k, F16));
    one_kernel_for_every_k("gemm_wgmma", &[("cluster", 2)], |k| {
        transposed(k, Bf16, MatmulMath::F32, [136, 72])
    });
    one_kernel_for_every_k("gemm_wgmma", &[("ping_pong", 1), ("cta_m", 64)], |k| {
        transposed(k, F16, MatmulMath::F32, [200, 136])
    });
    for lay in ["columns", "rows"] {
        one_kernel_for_every_k("gemm_wgmma", &[("ping_pong", 0)], |k| {
            weight_gradients([128, 64, k], F16, lay)
        });
    }
    one_kernel_for_every_k("gemm_wgmma", &[("split_k", 2), ("ping_pong", 0)], |k| {
        weight_gradients([128, 64, k.max(65)], F16, "columns")
    });
}

/// K that is a constant gives the same bits.
#[test]
fn k_that_is_counted_gives_the_bits_of_one_that_is_known() {
    let (kiln, graph) = (harness::kiln(), weight_gradients([64, 72, 83], F16, "columns"));
    for engine in ["gemm_simt", "gemm_mma", "gemm_wgmma"] {
        let [known, counted] = [0, 1].map(|dynamic_k| {
            let config = heuristic(kiln, &graph, engine).with("dynamic_k", dynamic_k);
            harness::run(kiln, &graph, Some(&config), &inputs(&graph)).unwrap()
        });
        for (uid, values) in &known {
            let bits = |of: &[f64]| of.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(values), bits(&counted[uid]), "{engine}: {uid}");
        }
    }
}

/// Where the strides of rows depend on K, it is a constant.
#[test]
fn k_is_counted_where_no_stride_depends_on_it() {
    let target = harness::kiln().device().target();
    for (lays, convertible) in [
        ([Lay::Columns, Lay::Rows, Lay::Rows], true),
        ([Lay::Rows, Lay::Rows, Lay::Rows], false),
        ([Lay::Columns, Lay::Columns, Lay::Rows], false),
    ] {
        let graph = Case::new(MatmulMath::F32, [F16; 3], [64, 64, 64]).lays(lays).graph();
        for name in ["gemm_simt", "gemm_mma", "gemm_wgmma"] {
            let engine = kiln::engine::supported(name, graph.canonical(), target).unwrap();
            let knobs = engine.knobs();
            let knob =
                knobs.iter().find(|knob| knob.name == "dynamic_k").expect("engines share it");
            assert_eq!(knob.values.contains(&1), convertible, "{name} {lays:?}");
        }
    }
}
