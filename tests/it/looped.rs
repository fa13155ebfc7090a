//! Networks with loops under test: built in few words, run on the device between guards, compared
//! with the interpreter of lazy sequences.

use std::collections::HashMap;

use kiln::expr::{Math, Mode, Pointwise};
use kiln::layers::LoopsPlan;
use kiln::loops::{Loop, LoopOutput, Network, NetworkBuilder, TripLimit};
use kiln::reference::{self, Expected};
use kiln::{DType, Kiln, Result, VariantPack};

use crate::harness::{self, Layout, Values};

/// Values by name.
pub type Named<'a> = &'a [(&'a str, &'a [f64])];

/// A builder with short names for what tests use most.
#[derive(Default)]
pub struct Net {
    pub builder: NetworkBuilder,
}

impl Net {
    pub fn input(&mut self, name: &str, dims: &[i64], dtype: DType) -> i64 {
        self.builder.graph().input(name, dims, dtype)
    }

    pub fn f32(&mut self, name: &str, dims: &[i64]) -> i64 {
        self.input(name, dims, DType::F32)
    }

    /// A count, given from outside.
    pub fn count(&mut self, name: &str) -> i64 {
        self.input(name, &[1], DType::I32)
    }

    pub fn op(&mut self, mode: Mode, inputs: &[i64]) -> i64 {
        let graph = self.builder.graph();
        let is_double = |uid: &i64| graph.descriptor(*uid).is_some_and(|of| of.dtype == DType::F64);
        let math = if inputs.iter().any(is_double) { Math::F64 } else { Math::Default };
        graph.pointwise(Pointwise { math, ..Pointwise::new(mode) }, inputs).unwrap()
    }

    /// A comparison, with a `bool` result.
    pub fn compare(&mut self, mode: Mode, inputs: &[i64], name: &str) -> i64 {
        let uid = self.op(mode, inputs);
        self.builder.graph().name(uid, name, DType::Bool);
        uid
    }

    pub fn named(&mut self, uid: i64, name: &str, dtype: DType) -> i64 {
        self.builder.graph().name(uid, name, dtype);
        uid
    }

    pub fn output(&mut self, uid: i64, name: &str, dtype: DType) {
        self.builder.graph().output(uid, name, dtype);
    }

    /// A loop with a count.
    pub fn counted(&mut self, name: &str, count: i64) -> Loop {
        let of = self.builder.add_loop(name);
        self.builder.trip_limit(of, TripLimit::Count, count);
        of
    }

    pub fn iterator(&mut self, of: Loop, x: i64, axis: usize, reverse: bool) -> i64 {
        self.builder.iterator(of, x, axis, reverse).unwrap()
    }

    pub fn recurrence(&mut self, of: Loop, initial: i64) -> i64 {
        self.builder.recurrence(of, initial).unwrap()
    }

    pub fn next(&mut self, recurrence: i64, next: i64) {
        self.builder.set_next(recurrence, next).unwrap();
    }

    pub fn last(&mut self, of: Loop, x: i64) -> i64 {
        self.builder.loop_output(of, LoopOutput::LastValue, x).unwrap()
    }

    pub fn stack(&mut self, of: Loop, x: i64, axis: usize, length: i64) -> i64 {
        self.builder.loop_output(of, LoopOutput::Concatenate { axis, length }, x).unwrap()
    }

    pub fn turned(&mut self, of: Loop, x: i64, axis: usize, length: i64) -> i64 {
        self.builder.loop_output(of, LoopOutput::Reverse { axis, length }, x).unwrap()
    }

    pub fn build(self) -> Network {
        self.builder.build().unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Values of a network's inputs by uid.
pub fn by_uid(network: &Network, named: Named) -> Values {
    let uid = |name: &str| network.inputs().find(|of| of.name == name).map(|of| of.uid);
    named.iter().filter_map(|(name, of)| Some((uid(name)?, of.to_vec()))).collect()
}

/// Executes a network on its device and reads its outputs.
pub fn run_plan(kiln: &Kiln, plan: &LoopsPlan, inputs: &Values) -> Result<Values> {
    let network = plan.network();
    let mut pack = VariantPack::new();
    let mut buffers = HashMap::new();
    for tensor in network.inputs().chain(network.outputs()) {
        let values = inputs.get(&tensor.uid).map_or(&[][..], Vec::as_slice);
        if tensor.by_value {
            pack.set_value(tensor.uid, values[0]);
            continue;
        }
        let bytes = Layout::of(tensor).encode(tensor, values);
        let buffer = kiln.device().upload(&bytes)?;
        let start = buffer.address() + Layout::of(tensor).start() as u64;
        harness::place(&mut pack, tensor.uid, start, tensor.span_bytes()?);
        buffers.insert(tensor.uid, (buffer, bytes));
    }
    let workspace = kiln.device().upload(&vec![0xff; plan.workspace_bytes() as usize])?;
    let stream = kiln.stream();
    let ran = plan.execute(&stream, &pack.with_workspace(&workspace));
    stream.synchronize()?;
    let mut outputs = Values::new();
    for tensor in network.outputs() {
        let bytes = buffers[&tensor.uid].0.to_vec()?;
        // Of a failed run too: nothing is written outside of elements.
        outputs.insert(tensor.uid, Layout::of(tensor).decode(tensor, bytes));
    }
    for tensor in network.inputs().filter(|tensor| !tensor.by_value) {
        let (buffer, bytes) = &buffers[&tensor.uid];
        assert_eq!(buffer.to_vec()?, *bytes, "{tensor} was written");
    }
    ran.map(|()| outputs)
}

/// Compares outputs with the interpreter's.
pub fn compare(network: &Network, expected: &HashMap<i64, Expected>, actual: &Values, what: &str) {
    for tensor in network.outputs() {
        let (expected, actual) = (&expected[&tensor.uid], &actual[&tensor.uid]);
        if let Some(worst) = expected.worst(actual) {
            let name = &tensor.name;
            assert!(worst.ratio <= 1.0, "{what}: `{name}`: {worst:?}\n{expected:?}\n{actual:?}");
        }
    }
}

/// Runs a network on the device under test and the interpreter; returns an output's values on the
/// device.
#[track_caller]
pub fn check(network: &Network, named: Named, output: &str) -> Vec<f64> {
    let inputs = by_uid(network, named);
    let expected = reference::evaluate_network(network, &inputs).unwrap();
    let kiln = harness::kiln();
    let run = |plan: Result<LoopsPlan>| {
        let actual = plan.and_then(|plan| run_plan(kiln, &plan, &inputs));
        let actual = actual.unwrap_or_else(|error| panic!("{error}"));
        compare(network, &expected, &actual, output);
        actual
    };
    run(kiln.build_launched_loops(network));
    run(kiln.build_launched_loops(&network.clone().on_device()));
    let actual = run(kiln.build_loops(network));
    let uid = network.outputs().find(|of| of.name == output).unwrap().uid;
    actual[&uid].clone()
}

/// The error that a run gives, on the device and by the interpreter.
#[track_caller]
pub fn fails(network: &Network, named: Named, text: &str) {
    let inputs = by_uid(network, named);
    let error = reference::evaluate_network(network, &inputs).expect_err("the interpreter refuses");
    assert_eq!(error.to_string(), text);
    let kiln = harness::kiln();
    let on_device = network.clone().on_device();
    for plan in [
        kiln.build_launched_loops(network),
        kiln.build_launched_loops(&on_device),
        kiln.build_loops(network),
    ] {
        let plan = plan.unwrap_or_else(|error| panic!("{error}"));
        let error = run_plan(kiln, &plan, &inputs).expect_err("the run refuses");
        assert_eq!(error.to_string(), text);
        assert_eq!(error.kind(), kiln::ErrorKind::BadParam);
    }
}
