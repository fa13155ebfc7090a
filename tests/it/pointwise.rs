//! Pointwise graphs beyond `tests/cases/pointwise.toml`: every mode has a case; the generic engine
//! has one kernel for all shapes; plans in place, far apart, empty, and of several threads.

use std::collections::{BTreeMap, BTreeSet};

use kiln::engine::{self, EngineConfig};
use kiln::expr::{Mode, Pointwise};
use kiln::{Config, DType, Kiln, OperationGraph, TensorDesc, VariantPack};

use crate::cases::{File, Instance};
use crate::harness::{self, Values};

/// Every so many instances of a case of `tests/cases/pointwise.toml`.
fn instances(name: &str, step: usize) -> Vec<Instance> {
    let file = File::read("pointwise");
    let case = file.cases.iter().find(|case| case.name == name).unwrap();
    file.instances_of(case, step)
}

#[test]
fn every_mode_is_in_a_case() {
    let mut tested = BTreeSet::new();
    for instance in instances("modes", 1) {
        let operations = instance.graph.operations().iter();
        tested.extend(operations.map(|of| of.as_pointwise().unwrap().mode.name()));
    }
    let missing: Vec<_> =
        Mode::ALL.into_iter().filter(|mode| !tested.contains(mode.name())).collect();
    assert_eq!(missing, []);
}

/// The generic engine's setting for a graph, and the source of its kernel.
fn generic(graph: &OperationGraph) -> (EngineConfig, String) {
    let target = harness::kiln().device().target();
    let supported = engine::supported("pointwise_general", graph.canonical(), target).unwrap();
    let config = supported.heuristic();
    let source = harness::kiln().sources(graph, &config).unwrap().remove(0).text;
    (config, source)
}

/// Whatever the shape, the layout, and what is broadcast: one kernel for the operations and types.
#[test]
fn one_generic_kernel_for_every_shape() {
    let mut kernels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Instance { graph, .. } in instances("modes", 5) {
        let of = format!("{:?} of {}", graph.operations(), graph.tensors()[0].dtype);
        kernels.entry(of).or_default().insert(generic(&graph).1);
    }
    // Eight groups of modes in four types.
    assert_eq!(kernels.len(), 32);
    for (of, sources) in kernels {
        assert_eq!(sources.len(), 1, "{of}");
    }
}

#[test]
fn one_generic_kernel_for_one_to_four_dimensions() {
    let mut kernels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for instance in instances("ranks", 1) {
        let (config, source) = generic(&instance.graph);
        kernels.entry(config.to_string()).or_default().insert(source);
    }
    let kernels: Vec<_> =
        kernels.iter().map(|(config, sources)| (config.as_str(), sources.len())).collect();
    let [four, five] =
        ["pointwise_general{index=32, rank=4}", "pointwise_general{index=32, rank=8}"];
    assert_eq!(kernels, [(four, 1), (five, 1)]);
}

/// Operations that are ready together are ordered by what they are, not by their shape.
#[test]
fn the_order_of_operations_is_not_the_shapes() {
    let chain = |columns: [i64; 2]| {
        let mut graph = OperationGraph::builder();
        let inputs: Vec<i64> = (0..6)
            .map(|at| graph.input(&format!("x{at}"), &[4, columns[at % 2]], DType::F32))
            .collect();
        let modes = [Mode::Exp, Mode::Neg, Mode::TanhFwd, Mode::Abs, Mode::Floor, Mode::Sqrt];
        let mut sum = graph.input("x", &[4, columns[0].max(columns[1])], DType::F32);
        for (mode, input) in modes.into_iter().zip(inputs) {
            let term = graph.pointwise(Pointwise::new(mode), &[input]).unwrap();
            sum = graph.pointwise(Pointwise::new(Mode::Add), &[sum, term]).unwrap();
        }
        graph.output(sum, "y", DType::F32);
        graph.build().unwrap()
    };
    let first = generic(&chain([5, 1])).1;
    for columns in [[1, 5], [33, 33], [1, 1000], [77, 1]] {
        assert_eq!(generic(&chain(columns)).1, first, "{columns:?}");
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

/// Values of every sign, exponent and leading seven bits, infinities and NaNs among them, and
/// those between, where functions have the largest error that hardware may make.
#[test]
fn gelu_is_as_near_everywhere() {
    let fronts = (0..=u16::MAX).map(|bits| f32::from_bits(u32::from(bits) << 16));
    let within = (-(1 << 16)..1 << 16).map(|at| at as f32 * 9.1e-5);
    let values: Vec<f64> = fronts.chain(within).map(f64::from).collect();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[values.len() as i64], DType::F32);
    let dy = graph.input("dy", &[1], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[x]).unwrap();
    let dx = graph.pointwise(Pointwise::new(Mode::GeluBwd), &[x, dy]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.output(dx, "dx", DType::F32);
    let graph = graph.build().unwrap();
    let inputs = Values::from([(x, values), (dy, vec![1.0])]);
    let worst = Config { sim_worst: Some(true), ..harness::checked(None) };
    let worst = Kiln::open(worst).unwrap();
    for kiln in harness::dialects().into_iter().chain([&worst]) {
        harness::check(kiln, &graph, None, &inputs, "gelu");
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
                    let mut graph = OperationGraph::builder();
                    let x = graph.input("x", &[333], DType::F32);
                    let tanh =
                        Pointwise::new(Mode::TanhFwd).alphas(1.0 + (round as f64) / 4.0, 1.0);
                    let y = graph.pointwise(tanh, &[x]).unwrap();
                    graph.output(y, "y", DType::F16);
                    let graph = graph.build().unwrap();
                    let x = graph.tensor(x).unwrap();
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

/// `y = -x`, where `x` lies along the second dimension and `y` along the last.
pub fn transposed(dtype: DType, dims: [i64; 3]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = TensorDesc::packed(1, "x", &dims, dtype);
    let x = graph.tensor(TensorDesc { strides: vec![dims[1] * dims[2], 1, dims[1]], ..x });
    let y = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).unwrap();
    graph.output(y, "y", dtype);
    graph.build().unwrap()
}

/// The square of a channels-last operand, and which of its elements are above a scalar.
pub fn strided() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = TensorDesc::packed(1, "x", &[2, 3, 35], DType::F32);
    let x = graph.tensor(TensorDesc { strides: vec![105, 1, 3], ..x });
    let scale = graph.scalar("scale", 3, DType::F32);
    let square = graph.pointwise(Pointwise::new(Mode::Mul), &[x, x]).unwrap();
    let over = graph.pointwise(Pointwise::new(Mode::CmpGt), &[square, scale]).unwrap();
    graph.output(square, "square", DType::F32);
    graph.output(over, "over", DType::Bool);
    graph.build().unwrap()
}
