//! What the mode matrix does not reach: integer types, casts, NaN and infinities, in-place and
//! concurrent execution, offsets beyond 32 bits, random graphs.

use kiln::expr::{Math, Mode, NanPropagation, Pointwise};
use kiln::{DType, OperationGraph, TensorDesc, VariantPack};
use proptest::prelude::*;

use crate::harness::{self, Values};

fn unary(op: Pointwise, from: DType, to: DType, values: Vec<f64>) -> (OperationGraph, Values) {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[values.len() as i64], from);
    let y = graph.pointwise(op, &[x]).unwrap();
    graph.output(y, "y", to);
    (graph.build().unwrap(), Values::from([(x, values)]))
}

/// Values at which conversions round, saturate, overflow or vanish.
const EDGES: &[f64] = &[
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.49999997,
    126.5,
    127.5,
    -128.5,
    255.5,
    256.0,
    1.0039062,
    65504.0,
    65520.0,
    1e-7,
    6e-8,
    2e-8,
    3.3895314e38,
    3.4e38,
    1e39,
    -1e39,
    1e-40,
    16777217.0,
    2147483647.0,
    2147483648.0,
    -2147483649.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1.0000000596046448,
    1.001953125,
    1.0009765625,
    1.00390625,
    1.0039062500001,
    1.01171875,
];

#[test]
fn every_cast_rounds_as_the_reference_says() {
    for kiln in harness::dialects().into_iter().chain(harness::oldest()) {
        for from in DType::ALL.into_iter().filter(|dtype| !dtype.is_f8()) {
            for to in DType::ALL.into_iter().filter(|dtype| !dtype.is_f8()) {
                for math in [Math::F32, Math::F64] {
                    let cast = Pointwise::new(Mode::Identity).math(math);
                    let values = EDGES.iter().map(|value| from.round(*value)).collect();
                    let (graph, values) = unary(cast, from, to, values);
                    harness::check(kiln, &graph, None, &values, &format!("{from} to {to}"));
                }
            }
        }
    }
}

#[test]
fn integer_and_bool_tensors_compute() {
    use Mode::*;
    for kiln in harness::dialects() {
        for dtype in [DType::I32, DType::I8, DType::U8, DType::Bool] {
            let mut graph = OperationGraph::builder();
            let x = graph.input("x", &[3, 67], dtype);
            let b = graph.input("b", &[3, 67], dtype);
            let modes = [Add, Sub, Mul, Max, Min, CmpLt, LogicalAnd, AddSquare];
            for (index, mode) in modes.into_iter().enumerate() {
                let y = graph.pointwise(Pointwise::new(mode), &[x, b]).unwrap();
                graph.output(y, &format!("y{index}"), dtype);
            }
            for (index, mode) in [Abs, Neg, LogicalNot, Sqrt].into_iter().enumerate() {
                let y = graph.pointwise(Pointwise::new(mode), &[x]).unwrap();
                graph.output(y, &format!("z{index}"), dtype);
            }
            let graph = graph.build().unwrap();
            let span = if dtype == DType::I32 { 3e9 } else { 200.0 };
            let fill = |tensor: &TensorDesc| harness::fill(tensor, tensor.uid as u64, span);
            let values = graph.inputs().map(|tensor| (tensor.uid, fill(tensor))).collect();
            harness::check(kiln, &graph, None, &values, dtype.name());
        }
    }
}

#[test]
fn nan_and_infinity_go_where_the_reference_sends_them() {
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e30, -1e30, 1.0];
    let count = values.len();
    let pairs: Vec<(f64, f64)> =
        (0..count * count).map(|at| (values[at / count], values[at % count])).collect();
    for kiln in harness::dialects() {
        for nan in [NanPropagation::NotPropagate, NanPropagation::Propagate] {
            // Functions of huge arguments: the f64 reference is as far off as f32 is.
            let skipped = [Mode::Sin, Mode::Cos, Mode::Tan, Mode::Mod];
            for mode in Mode::ALL.into_iter().filter(|mode| !skipped.contains(mode)) {
                let mut graph = OperationGraph::builder();
                let dims = [pairs.len() as i64];
                let x = graph.input("x", &dims, DType::F32);
                let b = graph.input("b", &dims, DType::F32);
                let op = Pointwise::new(mode).nan(nan).axis(0);
                let operands = [x, b, b];
                let y = graph.pointwise(op, &operands[..mode.arity()]).unwrap();
                let z = graph.pointwise(Pointwise::new(Mode::Identity), &[b]).unwrap();
                let w = graph.pointwise(Pointwise::new(Mode::CmpEq), &[y, z]).unwrap();
                graph.output(y, "y", DType::F32);
                graph.output(w, "w", DType::Bool);
                let graph = graph.build().unwrap();
                let inputs = Values::from([
                    (x, pairs.iter().map(|pair| DType::F32.round(pair.0)).collect()),
                    (b, pairs.iter().map(|pair| DType::F32.round(pair.1)).collect()),
                ]);
                harness::check(kiln, &graph, None, &inputs, &format!("{mode} {nan:?}"));
            }
        }
    }
}

#[test]
fn tails_of_activations_neither_overflow_nor_vanish() {
    let values: Vec<f64> = (0..240).map(|at| f64::from(at) - 120.0).collect();
    for kiln in harness::dialects() {
        for op in [
            Pointwise::new(Mode::SigmoidFwd),
            Pointwise::new(Mode::SwishFwd),
            Pointwise::new(Mode::SwishFwd).shape(1.7),
            Pointwise::new(Mode::SoftplusFwd),
            Pointwise::new(Mode::TanhFwd),
            Pointwise::new(Mode::EluFwd),
        ] {
            for math in [Math::F32, Math::F64] {
                let dtype = math.dtype();
                let (graph, inputs) = unary(op.math(math), dtype, dtype, values.clone());
                harness::check(kiln, &graph, None, &inputs, &format!("{op} {dtype}"));
            }
        }
    }
}

#[test]
fn scaled_operands_and_parameters_are_rounded_before_anything_is_decided() {
    let huge = [3e38, -3e38, 1e30, 2.0, f64::INFINITY, f64::NEG_INFINITY];
    for kiln in harness::dialects() {
        for mode in [Mode::Log, Mode::Sqrt, Mode::Rsqrt, Mode::GeluFwd, Mode::Floor, Mode::SwishFwd]
        {
            let op = Pointwise::new(mode).alphas(1.7, 1.0);
            let values = huge.iter().map(|value| DType::F32.round(*value)).collect();
            let (graph, inputs) = unary(op, DType::F32, DType::F32, values);
            harness::check(kiln, &graph, None, &inputs, mode.name());
        }
        // A clip beyond f32 is no clip in f32; a slope below f32 is none.
        for op in [
            Pointwise::new(Mode::ReluFwd).relu(0.0, 1e300, 0.0),
            Pointwise::new(Mode::ReluFwd).relu(0.0, f64::INFINITY, 1e-50),
        ] {
            let (graph, inputs) = unary(op, DType::F32, DType::F32, huge.to_vec());
            harness::check(kiln, &graph, None, &inputs, &op.to_string());
        }
        let mut graph = OperationGraph::builder();
        let (x, dy) = (graph.input("x", &[6], DType::F32), graph.input("dy", &[6], DType::F32));
        let op = Pointwise::new(Mode::ReluBwd).relu(0.0, 1e300, 0.0);
        let dx = graph.pointwise(op, &[x, dy]).unwrap();
        graph.output(dx, "dx", DType::F32);
        let inputs = Values::from([(x, huge.to_vec()), (dy, vec![3.0; 6])]);
        harness::check(kiln, &graph.build().unwrap(), None, &inputs, "relu_bwd");
    }
}

#[test]
fn a_buffer_may_be_input_and_output() {
    let kiln = harness::kiln();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[1000], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let plan = kiln.plan(&graph.build().unwrap()).unwrap();
    let bytes: Vec<u8> = (0..1000).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let buffer = kiln.device().upload(&bytes).unwrap();
    let pack = VariantPack::new().with(x, &buffer).with(y, &buffer);
    plan.execute(&kiln.stream(), &pack).unwrap();
    let after = buffer.to_vec().unwrap();
    for (at, element) in after.chunks_exact(4).enumerate() {
        assert_eq!(DType::F32.read(element), -(at as f64));
    }
}

#[test]
fn offsets_beyond_32_bits_are_reached() {
    // Two rows 2^32 elements apart: 4 GiB of addresses, of which two pages are touched.
    let kiln = harness::kiln();
    let row = 1i64 << 32;
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[2, 16], DType::I8);
    let far = TensorDesc::packed(9, "y", &[2, 16], DType::I8);
    let y = graph.tensor(TensorDesc { strides: vec![row, 1], ..far });
    graph.pointwise_into(Pointwise::new(Mode::Neg), &[x], y);
    let graph = graph.build().unwrap();
    let plan = kiln.plan(&graph).unwrap();
    assert!(
        kiln.sources(&graph, plan.kernels()[0].config()).unwrap()[0]
            .text
            .contains("index_t = long long")
    );
    let from = kiln.device().upload(&(0..32).collect::<Vec<u8>>()).unwrap();
    let to = kiln.device().alloc(row as u64 + 16).unwrap();
    plan.execute(&kiln.stream(), &VariantPack::new().with(x, &from).with(y, &to)).unwrap();
    for (start, first) in [(0, 0i8), (row as u64, 16)] {
        let mut bytes = [0; 16];
        to.read(start, &mut bytes).unwrap();
        let expected: Vec<u8> = (0..16).map(|at| -(first + at) as u8).collect();
        assert_eq!(bytes[..], expected);
    }
}

#[test]
fn more_than_2_to_the_31_elements_are_planned() {
    let kiln = harness::kiln();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[3, 1 << 31], DType::I8);
    let y = graph.pointwise(Pointwise::new(Mode::Abs), &[x]).unwrap();
    graph.output(y, "y", DType::I8);
    let graph = graph.build().unwrap();
    let plan = kiln.plan(&graph).unwrap();
    let source = kiln.sources(&graph, plan.kernels()[0].config()).unwrap().remove(0).text;
    assert!(source.contains("index_t = long long"), "{source}");
    let items = plan.kernels()[0].config().knob("items").unwrap() as u64;
    let covered = u64::from(plan.kernels()[0].launch().grid)
        * u64::from(plan.kernels()[0].launch().threads)
        * items
        * 16;
    assert!(covered >= 3 << 31, "{:?}", plan.kernels()[0].launch());
}

#[test]
fn empty_tensors_launch_nothing() {
    let kiln = harness::kiln();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[0, 5], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Abs), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();
    let plan = kiln.plan(&graph).unwrap();
    assert_eq!((plan.kernels()[0].launch().grid, plan.workspace_bytes()), (0, 0));
    let empty = kiln.device().alloc(0).unwrap();
    let pack = VariantPack::new().with(x, &empty).with(y, &empty);
    plan.execute(&kiln.stream(), &pack).unwrap();
}

#[test]
fn threads_and_streams_share_one_kiln() {
    fn shared<T: Send + Sync>() {}
    shared::<kiln::Kiln>();
    shared::<kiln::ExecutionPlan>();
    shared::<VariantPack>();
    shared::<kiln::device::Stream>();
    shared::<kiln::device::Buffer>();
    let kiln = harness::kiln();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                for round in 0..4u64 {
                    let (graph, _) = unary(
                        Pointwise::new(Mode::TanhFwd).alphas(1.0 + (round as f64) / 4.0, 1.0),
                        DType::F32,
                        DType::F16,
                        vec![0.0; 333],
                    );
                    let x = graph.inputs().next().unwrap();
                    let inputs = Values::from([(x.uid, harness::fill(x, thread, 3.0))]);
                    let plan = kiln.plan(&graph).unwrap();
                    let bound = harness::bind(kiln, &graph, &inputs).unwrap();
                    let stream = kiln.device().stream().unwrap();
                    plan.execute(&stream, &bound.pack).unwrap();
                    stream.synchronize().unwrap();
                    let actual = harness::run_plan(kiln, &plan, &inputs).unwrap();
                    harness::compare(&graph, &inputs, &actual, "shared");
                }
            });
        }
    });
}

/// A random step of a graph: a mode and which earlier tensors it reads.
fn steps() -> impl Strategy<Value = Vec<(usize, usize, usize, usize, usize)>> {
    let any = 0..1000usize;
    prop::collection::vec((any.clone(), any.clone(), any.clone(), any.clone(), any), 1..9)
}

/// Modes that neither leave the range nor jump, so that a chain of them stays comparable.
const TAME: &[Mode] = &[
    Mode::Add,
    Mode::Mul,
    Mode::Max,
    Mode::Min,
    Mode::Sub,
    Mode::Abs,
    Mode::Neg,
    Mode::TanhFwd,
    Mode::SigmoidFwd,
    Mode::GeluFwd,
    Mode::ReluFwd,
    Mode::Identity,
    Mode::Sin,
    Mode::EluFwd,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_agree_with_the_reference(
        steps in steps(),
        shape in prop::collection::vec(1..7i64, 3),
        broadcast in 0..8usize,
        pads in prop::collection::vec(0..3i64, 3),
    ) {
        let dtypes = [DType::F32, DType::Bf16, DType::F16, DType::F64, DType::I8];
        let mut graph = OperationGraph::builder();
        let mut dims = shape.clone();
        (0..3).filter(|axis| broadcast >> axis & 1 == 1).for_each(|axis| dims[axis] = 1);
        // Padded and permuted: the middle dimension is the innermost in memory.
        let strides = [(shape[0] + pads[0]) * (shape[2] + pads[1]), 1, shape[1] + pads[2]];
        let strides = vec![strides[0] * strides[2], strides[1], strides[2]];
        let x = TensorDesc::packed(1, "x", &shape, dtypes[steps[0].3 % 5]);
        let x = graph.tensor(TensorDesc { strides, ..x });
        let b = graph.tensor(TensorDesc::packed(2, "b", &dims, dtypes[steps[0].4 % 5]));
        let mut tensors = vec![x, b];
        for (mode, first, second, dtype, kept) in &steps {
            let op = Pointwise::new(TAME[mode % TAME.len()]);
            // The last result or an input, so that every result is used or kept.
            let pick = |at: &usize| tensors[at % tensors.len()];
            let last = *tensors.last().expect("inputs");
            let operands = [last, if first % 2 == 0 { pick(second) } else { x }];
            let y = graph.pointwise(op, &operands[..op.mode.arity()]).expect("shapes broadcast");
            graph.name(y, &format!("t{}", tensors.len()), dtypes[dtype % 5]);
            if kept % 3 == 0 {
                graph.output(y, &format!("y{}", tensors.len()), dtypes[dtype % 5]);
            }
            tensors.push(y);
        }
        let last = *tensors.last().expect("a step");
        let all = graph.pointwise(Pointwise::new(Mode::Add), &[last, x]).expect("shapes broadcast");
        let all = graph.pointwise(Pointwise::new(Mode::Sub), &[all, b]).expect("shapes broadcast");
        graph.output(all, "all", DType::F32);
        // Results that nothing reads are no valid graph; make them outputs.
        let graph = graph.build().expect("every result feeds the next");
        let json = OperationGraph::from_json(&graph.to_json()).expect("round trip");
        prop_assert_eq!(&json, &graph);
        let values: Values =
            graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 1, 2.0))).collect();
        for kiln in harness::dialects() {
            harness::check(kiln, &graph, None, &values, "random graph");
        }
    }
}
