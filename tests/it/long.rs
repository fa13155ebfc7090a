//! Integers of 64 bits: where clients pass them as lengths, offsets, pages and seeds, and as they
//! are moved, compared and selected.

use kiln::expr::{Mode, Pointwise, Real};
use kiln::graph::{Attention, AttentionShape, MatmulMath, Reduction, ReductionOp};
use kiln::plan::{read_values, write_values};
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc, engine};

use crate::attention::cases::{self, Case, ENGINES, SHAPE, Storage};
use crate::harness::{self, Values};

/// Beyond 32 bits, and up to what values hold.
const WIDE: [f64; 6] = [
    9_007_199_254_740_992.0,
    -9_007_199_254_740_991.0,
    4_294_967_299.0,
    -2_147_483_649.0,
    7.0,
    0.0,
];

/// The same case with integers of 64 bits for those of 32.
fn widened(case: &Case) -> Case {
    let wide = |tensor: &TensorDesc| match tensor.dtype {
        DType::I32 => TensorDesc { dtype: DType::I64, ..tensor.clone() },
        _ => tensor.clone(),
    };
    let tensors = case.graph.tensors().iter().map(wide).collect();
    let graph = OperationGraph::new(tensors, case.graph.operations().to_vec()).unwrap();
    assert!(graph.inputs().any(|tensor| tensor.dtype == DType::I64), "{graph}");
    Case { graph, inputs: case.inputs.clone() }
}

/// Lengths, offsets, pages, intervals and seeds; those that are limited may be far out of range.
#[test]
fn attention_takes_integers_of_64_bits() {
    let plain = Attention { statistics: true, ..Attention::new(MatmulMath::F32) };
    let (query_lengths, key_lengths) = (true, true);
    for (name, op) in [
        ("lengths", Attention { query_lengths, key_lengths, intervals: true, ..plain.clone() }),
        ("pages", Attention { paged: true, key_lengths, ..plain.clone() }),
        ("offsets", Attention { queries_max: Some(37), keys_max: Some(55), ..plain.clone() }),
        ("dropout", Attention { dropout: Some(Real::new(0.3)), ..plain.clone() }),
    ] {
        let shape = AttentionShape { keys: if op.paged { 56 } else { 55 }, ..SHAPE };
        let storage = Storage { page: 8, ..Storage::packed(DType::F16) };
        let mut case = widened(&cases::case(op, shape, storage, [true; 4]));
        let ran = cases::check(&case, name);
        assert!(ENGINES.iter().all(|engine| ran.contains(engine)), "{name}: {ran:?}");
        for tensor in case.graph.inputs().filter(|tensor| tensor.dtype == DType::I64) {
            let values = case.inputs.get_mut(&tensor.uid).unwrap();
            for (value, far) in values.iter_mut().zip(WIDE.into_iter().cycle()).skip(1) {
                *value = far;
            }
        }
        // Of a seed, the lower half counts.
        if name == "dropout" {
            for value in case.inputs.values_mut().filter(|values| values.len() == 1) {
                value[0] += 12_884_901_888.0;
            }
        }
        cases::check(&case, &format!("{name} out of range"));
    }
}

/// Heads that no engine of attention takes are products and pointwise operations.
#[test]
fn wide_heads_take_lengths_of_64_bits() {
    let op = Attention {
        query_lengths: true,
        key_lengths: true,
        intervals: true,
        ..Attention::new(MatmulMath::F32)
    };
    let shape = AttentionShape {
        batches: 2,
        heads: 1,
        kv_heads: 1,
        queries: 5,
        keys: 9,
        depth: 1032,
        width: 8,
    };
    let case = widened(&cases::case(op, shape, Storage::packed(DType::F16), [true; 4]));
    harness::check(harness::kiln(), &case.graph, None, &case.inputs, "wide heads");
}

#[test]
fn pointwise_operations_move_compare_and_select() {
    let count = WIDE.len();
    let mut graph = OperationGraph::builder();
    let dims = [count as i64, count as i64];
    let [x, b] = ["x", "b"].map(|name| graph.input(name, &dims, DType::I64));
    let given = graph.input("given", &dims, DType::F64);
    let scalar = graph.scalar("scalar", 2, DType::I64);
    let mut output = |op: Mode, operands: &[i64], name: &str, dtype: DType| {
        let y = graph.pointwise(Pointwise::new(op), operands).unwrap();
        graph.output(y, name, dtype);
    };
    output(Mode::Identity, &[x], "same", DType::I64);
    output(Mode::Identity, &[x], "narrow", DType::I32);
    output(Mode::Identity, &[x], "wide", DType::F64);
    output(Mode::Identity, &[x], "single", DType::F32);
    output(Mode::Identity, &[given], "rounded", DType::I64);
    output(Mode::CmpLt, &[x, b], "less", DType::Bool);
    output(Mode::CmpGe, &[x, given], "not_less", DType::Bool);
    output(Mode::CmpEq, &[x, scalar], "equal", DType::Bool);
    output(Mode::BinarySelect, &[x, b, b], "chosen", DType::I64);
    let graph = graph.build().unwrap();
    let at = |side: usize| -> Vec<f64> {
        (0..count * count).map(|at| WIDE[[at / count, at % count][side]]).collect()
    };
    let doubles = [f64::NAN, 1e300, -1e300, 2.5, -3.5, 4_294_967_298.5];
    let doubles: Vec<f64> = (0..count * count).map(|at| doubles[at % 6]).collect();
    let scalars = vec![4_294_967_299.0];
    let inputs =
        Values::from([(x, at(0)), (b, at(1)), (given, doubles.clone()), (scalar, scalars)]);
    for kiln in harness::dialects() {
        for name in ["pointwise", "pointwise_general"] {
            let target = kiln.device().target();
            let config = engine::supported(name, graph.canonical(), target).unwrap().heuristic();
            let values = harness::run(kiln, &graph, Some(&config), &inputs).unwrap();
            harness::compare(&graph, &inputs, &values, name);
            let of = |name: &str| &values[&graph.tensor_named(name).unwrap().uid];
            assert_eq!(*of("same"), at(0));
            assert_eq!(*of("wide"), at(0));
            let ends = [0.0, i64::MAX as f64, i64::MIN as f64, 2.0, -4.0, 4_294_967_298.0];
            assert_eq!(of("rounded")[..6], ends);
            assert_eq!(
                of("narrow")[..13].iter().step_by(6).copied().collect::<Vec<_>>(),
                [f64::from(i32::MAX), f64::from(i32::MIN), f64::from(i32::MAX)]
            );
        }
    }
}

#[test]
fn arithmetic_of_64_bits_is_refused() {
    let fails = |build: fn(&mut kiln::graph::GraphBuilder, i64) -> kiln::Result<i64>| {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[4, 4], DType::I64);
        let y = build(&mut graph, x).unwrap();
        graph.output(y, "y", DType::I64);
        let error = graph.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        error.to_string()
    };
    let add = fails(|graph, x| graph.pointwise(Pointwise::new(Mode::Add), &[x, x]));
    assert_eq!(add, "add: `x` is i64, which is moved, compared and selected alone");
    let sum = fails(|graph, x| graph.reduction(Reduction::new(ReductionOp::Add), x, &[4, 1]));
    assert_eq!(sum, "reduction: `x` is i64, which is moved, compared and selected alone");
}

/// Files hold integers of 64 bits exactly, or it is said which they would not.
#[test]
fn files_hold_integers_of_64_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("values.safetensors");
    let desc = TensorDesc::packed(1, "offsets", &[6], DType::I64);
    let values = Values::from([(1, WIDE.to_vec())]);
    write_values(&path, [&desc].into_iter(), &values).unwrap();
    assert_eq!(read_values(&path, [&desc].into_iter()).unwrap(), values);
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 16..end - 8].copy_from_slice(&((1_i64 << 53) + 1).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let error = read_values(&path, [&desc].into_iter()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadParam);
    let text = "tensor `offsets`: element 4 is 9007199254740993, beyond 2^53, up to which all \
                integers are exact";
    assert!(error.to_string().ends_with(text), "{error}");
}
