//! Kernels that count rows at run time: one for every number of them.

use kiln::DType::{self, *};
use kiln::OperationGraph;
use kiln::expr::Mode;
use kiln::graph::MatmulMath;

use super::cases::{Fusion, heuristic, inputs};
use super::fusion::{bias_gelu, prologues, rich};
use crate::harness;

const ROWS: [i64; 5] = [2, 17, 64, 65, 200];

/// Kernels for some rows are those for any others, and compute what they should.
fn one_kernel_for_all(engine: &str, knobs: &[(&str, i64)], graph: impl Fn(i64) -> OperationGraph) {
    for kiln in harness::dialects() {
        let target = kiln.device().target();
        if engine == "gemm_wgmma" && target.arch.to_string() != "sm_90a" {
            continue;
        }
        let own = heuristic(kiln, &graph(64), engine).with("dynamic_m", 1);
        let config = knobs.iter().fold(own, |config, (knob, value)| config.with(knob, *value));
        let first = kiln.sources(&graph(64), &config).unwrap();
        for rows in ROWS {
            let graph = graph(rows);
            let sources = kiln.sources(&graph, &config).unwrap();
            for (source, first) in sources.iter().zip(&first) {
                assert_eq!(source.text, first.text, "{rows} rows");
            }
            harness::check(kiln, &graph, Some(&config), &inputs(&graph), &format!("{rows} rows"));
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
