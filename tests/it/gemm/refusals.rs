//! What no kernel of an engine for products takes, with the rule that says so.

use kiln::DType::{self, *};
use kiln::engine;
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, MatmulMath, Reduction, ReductionOp};
use kiln::target::Target;
use kiln::{ErrorKind, OperationGraph, TensorDesc};

use super::cases::{Case, Fusion, Lay};
use super::fusion::swiglu;
use crate::harness;

const F32: MatmulMath = MatmulMath::F32;

/// Graphs that are not a product with pointwise operations around it.
#[test]
fn graphs_without_one_product() {
    let target = harness::kiln().device().target();
    let engine = engine::engine_named("gemm_simt").unwrap();
    let refused = |graph: OperationGraph, rule: &str| {
        let error = engine.support(graph.canonical(), target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert_eq!(error.to_string(), rule);
    };
    let mut fusion = Fusion::new((&[4, 4], DType::F32), (&[4, 4], DType::F32));
    let c = fusion.product(fusion.a, fusion.b, F32, DType::F32);
    let d = fusion.graph.matmul(Matmul::new(F32), c, fusion.b).unwrap();
    fusion.output(d, "d", DType::F32);
    refused(fusion.build(), "the graph has more than one GEMM");

    let mut fusion = Fusion::new((&[4, 4], DType::F32), (&[4, 4], DType::F32));
    let a = fusion.unary(Mode::Exp, fusion.a, DType::F32);
    fusion.output(a, "exp", DType::F32);
    let c = fusion.product(a, fusion.b, F32, DType::F32);
    fusion.output(c, "c", DType::F32);
    refused(fusion.build(), "`exp` is a result and an operand of the GEMM is computed from it");

    let mut fusion = Fusion::new((&[1, 4, 4], DType::F32), (&[1, 4, 4], DType::F32));
    let x = fusion.graph.input("x", &[2, 4, 4], DType::F32);
    let c = fusion.product(fusion.a, fusion.b, F32, DType::F32);
    let y = fusion.binary(Mode::Add, [c, x], DType::F32);
    fusion.output(y, "y", DType::F32);
    refused(fusion.build(), "`y` is [2, 4, 4], the GEMM is [1, 4, 4]");

    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[4, 4], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Exp), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    refused(graph.build().unwrap(), "the graph has no GEMM");
}

/// Reductions that a product does not leave behind.
#[test]
fn reductions_behind_a_product() {
    let target = harness::kiln().device().target();
    let refused = |graph: &OperationGraph, rule: &str| {
        let error = engine::supported("gemm_simt", graph.canonical(), target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert_eq!(error.to_string(), rule);
    };
    let mut fusion = Fusion::new((&[2, 8, 8], F16), (&[2, 8, 8], F16));
    let c = fusion.product(fusion.a, fusion.b, F32, DType::F32);
    let whole = Reduction::new(ReductionOp::Add);
    let value = fusion.graph.reduction(whole, c, &[2, 8, 8]).unwrap();
    fusion.output(value, "value0", DType::F32);
    let graph = fusion.build();
    refused(&graph, "`value0` reduces neither rows nor columns");

    let mut fusion = Fusion::new((&[8, 8], F16), (&[8, 8], F16));
    let c = fusion.product(fusion.a, fusion.b, F32, DType::F32);
    let sum = fusion.graph.reduction(Reduction::new(ReductionOp::Add), c, &[8, 1]).unwrap();
    fusion.graph.name(sum, "sum", DType::F32);
    let y = fusion.apply(Pointwise::new(Mode::Div), &[c, sum], DType::F32);
    fusion.output(y, "y", DType::F32);
    refused(&fusion.build(), "`sum` is read, a result of an epilogue reduction");

    let mut fusion = Fusion::new((&[8, 8], F16), (&[8, 8], F16));
    let a = fusion.unary(Mode::Exp, fusion.a, F16);
    let sum = fusion.graph.reduction(Reduction::new(ReductionOp::Add), a, &[8, 1]).unwrap();
    let c = fusion.product(a, fusion.b, F32, DType::F32);
    fusion.output(sum, "sum", DType::F32);
    fusion.output(c, "c", DType::F32);
    let graph = fusion.build();
    let name = graph.tensor(a).unwrap().name.clone();
    let rule = format!("`{name}` is a result and an operand of the GEMM is computed from it");
    refused(&graph, &rule);
}

/// What warpgroups do not take: TMA copies load and store it.
#[test]
fn what_tma_does_not_load() {
    let engine = engine::engine_named("gemm_wgmma").unwrap();
    let refused_for = |target: &str, graph: &OperationGraph, rule: &str| {
        let target = Target::named(target).unwrap();
        let error = engine.support(graph.canonical(), &target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert_eq!(error.to_string(), rule);
    };
    let refused = |graph: &OperationGraph, rule: &str| refused_for("h200", graph, rule);
    let case = |types, extents, lays| Case::new(F32, types, extents).lays(lays).graph();
    let rows = [Lay::Rows; 3];
    refused_for("b200", &case([F16; 3], [64, 64, 64], rows), "sm_100a is not sm_90a");
    refused(
        &case([F16, Bf16, F16], [64; 3], rows),
        "wgmma does not multiply f16 by bf16 in math f32",
    );
    refused(&case([F16; 3], [64, 64, 0], rows), "a TMA copy takes at least one element");
    refused(
        &case([F16; 3], [64, 64, 60], rows),
        "a stride of `a` is 120 bytes, a TMA copy needs multiples of 16",
    );
    refused(
        &case([F16; 3], [64, 64, 64], [Lay::Rows, Lay::Misaligned, Lay::Rows]),
        "`b` is aligned to 2 bytes, a TMA copy needs 16",
    );
    let tf32 = Case::new(MatmulMath::Tf32, [DType::F32; 3], [64; 3]);
    refused(&tf32.graph(), "`b` is not K-major, as wgmma needs f32");
    let batches: [&'static [i64]; 2] = [&[2, 2, 2, 2, 2, 2], &[1, 2, 1, 2, 1, 2]];
    let many = Case { batches, ..Case::new(F32, [F16; 3], [64; 3]) };
    refused(&many.graph(), "`a` has 6 dimensions of batches, a TMA copy 3");
    let mut fusion = Fusion::new((&[64, 64], F16), (&[64, 64], F16));
    let a = fusion.unary(Mode::ReluFwd, fusion.a, F16);
    let c = fusion.product(a, fusion.b, F32, DType::F32);
    let y = fusion.apply(Pointwise::new(Mode::Exp), &[c], DType::F32);
    fusion.output(y, "y", DType::F32);
    let graph = fusion.build();
    let name = &graph.tensor(a).unwrap().name;
    refused(&graph, &format!("operand `{name}` is computed, a TMA copy loads it as it is"));
}

/// Two GEMMs that are not one dual GEMM.
#[test]
fn two_gemms_that_are_not_dual() {
    let target = Target::named("h200").unwrap();
    let refused = |engine: &str, graph: &OperationGraph, rule: &str| {
        let error = engine::supported(engine, graph.canonical(), &target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert_eq!(error.to_string(), rule);
    };
    let graph = swiglu([64; 3], F16, false);
    refused("gemm_simt", &graph, "a dual GEMM needs tensor cores");
    let two = |strides: [Vec<i64>; 2], shared: bool| {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[8, 8], F16);
        let [up, down] = std::array::from_fn(|at| {
            let tensor = TensorDesc::packed(20 + at as i64, ["up", "down"][at], &[8, 8], F16);
            graph.tensor(TensorDesc { strides: strides[at].clone(), ..tensor })
        });
        let first = graph.matmul(Matmul::new(F32), x, up).unwrap();
        let second = graph.matmul(Matmul::new(F32), if shared { x } else { up }, down).unwrap();
        let y = graph.pointwise(Pointwise::new(Mode::Mul), &[first, second]).unwrap();
        graph.output(y, "y", F16);
        graph.build().unwrap()
    };
    let (rows, columns) = (vec![8, 1], vec![1, 8]);
    let rule = "the graph has more than one GEMM";
    refused("gemm_mma", &two([rows.clone(), rows.clone()], false), rule);
    let rule = "`up` and `down` have different layouts, a dual GEMM needs one";
    refused("gemm_mma", &two([rows, columns], true), rule);
}
