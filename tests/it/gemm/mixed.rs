//! Operands of f16 next to bf16: tensor cores multiply both as tf32, which holds every value of
//! either, where they are faster than lanes.

use kiln::DType::{self, *};
use kiln::engine::{self, NumericalNote, Selection};
use kiln::graph::MatmulMath;
use kiln::target::Target;

use super::cases::{Case, check, heuristic, inputs};
use crate::harness;

const MIXED: [[DType; 3]; 3] = [[F16, Bf16, DType::F32], [Bf16, F16, Bf16], [F16, Bf16, F16]];

fn case(types: [DType; 3], extents: [i64; 3]) -> Case {
    Case::new(MatmulMath::F32, types, extents)
}

#[test]
fn tensor_cores_are_chosen_and_nothing_is_rounded() {
    // A GeForce's tensor cores multiply tf32 as fast as its lanes do f32: no rule there.
    for (name, wanted) in [
        ("t4", "gemm_simt"),
        ("a100", "gemm_mma"),
        ("l40s", "gemm_mma"),
        ("h200", "gemm_mma"),
        ("b200", "gemm_mma"),
    ] {
        let target = Target::named(name).unwrap();
        for extents in [[4096, 4096, 4096], [16, 4096, 4096], [100, 70, 300]] {
            for types in MIXED {
                let graph = case(types, extents).graph();
                let chosen = engine::choose(graph.canonical(), &target, &Selection::default());
                let chosen = chosen.unwrap();
                assert_eq!(chosen.engine, wanted, "{name}: {extents:?} of {types:?}");
                let supported = engine::supported(wanted, graph.canonical(), &target).unwrap();
                let numerical = supported.notes(&chosen).numerical;
                let has = |note| numerical.contains(&note);
                assert_eq!(has(NumericalNote::TensorCore), wanted == "gemm_mma", "{name}");
                assert!(!has(NumericalNote::DownConvertInputs), "{name}: {types:?}");
            }
        }
    }
}

/// Operands of 16 bits are multiplied as they are whatever the math rounds others to.
#[test]
fn tf32_takes_operands_of_16_bits_as_they_are() {
    for types in [[F16, F16, DType::F32], [Bf16, Bf16, DType::F32], [F16, Bf16, DType::F32]] {
        let graph = Case::new(MatmulMath::Tf32, types, [64, 64, 64]).graph();
        let config = heuristic(harness::kiln(), &graph, "gemm_mma");
        let source = harness::kiln().sources(&graph, &config).unwrap().remove(0).text;
        assert!(!source.contains("= round_tf32("), "{types:?}");
        let is_half = source.contains("m16n8k16");
        assert_eq!(is_half, types[0] == types[1], "{types:?}");
        check(harness::kiln(), &graph, "gemm_mma", &format!("{types:?}"));
    }
}

/// The ends of both ranges: a single product is exact in f32, and so is the result.
#[test]
fn extreme_values_are_multiplied_exactly() {
    let wide = [65504.0, 2f64.powi(-24), 1.0 + 2f64.powi(-10), -3.0 * 2f64.powi(-24)];
    let far = [2f64.powi(127), 2f64.powi(-126), 1.0 + 2f64.powi(-7), -(2f64.powi(100))];
    let graph = case(MIXED[0], [4, 4, 1]).graph();
    let [a, b] = [0, 1].map(|at| graph.inputs().nth(at).unwrap().uid);
    let c = graph.outputs().next().unwrap().uid;
    let mut values = inputs(&graph);
    values.insert(a, wide.to_vec());
    values.insert(b, far.to_vec());
    for kiln in harness::dialects() {
        let config = heuristic(kiln, &graph, "gemm_mma");
        let results = harness::run(kiln, &graph, Some(&config), &values).unwrap();
        for (at, own) in results[&c].iter().enumerate() {
            let product = wide[at / 4] * far[at % 4];
            let nearest = product as f32;
            // A tensor core may round the other way.
            let place = f64::from(nearest.abs().next_up()) - f64::from(nearest.abs());
            let near = (own - product).abs() < place && place.is_finite();
            let what = format!("{} by {}: {own}", wide[at / 4], far[at % 4]);
            assert!(*own == f64::from(nearest) || near, "{what}");
        }
    }
}
