//! oneDNN's RNN primitive through the front-end of that name: what oneDNN's own library computes,
//! every type against the reference, and every layout against the plain one.

use std::collections::{BTreeMap, HashMap};

use kiln::graph::Op;
use kiln::onednn::{
    Arg, FormatTag, Home, MemoryDesc, Primitive, PrimitiveAttr, PropKind, RnnDesc, Step, Tensor,
};
use kiln::plan::Memory;
use kiln::reference::{self, Expected};
use kiln::{DType, Kiln, TensorDesc};

use crate::harness::{self, Values};
use crate::onednn_cases::{Arguments, Case, Format, cases, plain, tensor_of};

/// What memory holds where a test has written nothing.
const POISON: u8 = 0x7f;

impl Case {
    /// Torch's gradient of an argument (`tests/data/onednn/augru_gradients.py`).
    fn of_torch(&self, arg: Arg) -> Option<Vec<f64>> {
        let (Arg::Of(tensor) | Arg::Diff(tensor)) = arg else { return None };
        let (name, dims) = (arg.name().replace("augru_attention", "attention"), self.dims(tensor)?);
        Some(self.tensor_in("augru.safetensors", &name, &dims, DType::F64)?.values)
    }

    /// Values of what a primitive reads, each rounded to its type.
    fn given(&self, primitive: &Primitive) -> Arguments {
        let own = primitive.descs().iter().filter_map(|(arg, desc)| {
            let values = self.of_arg(*arg)?;
            Some((*arg, values.iter().map(|value| desc.dtype().round(*value)).collect()))
        });
        own.collect()
    }
}

/// Whether a primitive writes an argument.
pub fn is_written(primitive: &Primitive, arg: Arg) -> bool {
    let written = |step: &Step| {
        let outputs: Vec<i64> = step.graph.outputs().map(|tensor| tensor.uid).collect();
        let is = |home: &Home| matches!(home, Home::Argument(own, _) if *own == arg);
        step.homes.iter().any(|(uid, home)| is(home) && outputs.contains(uid))
    };
    primitive.steps().iter().any(written)
}

/// Runs a primitive on a device. What is not given is poison before; bytes that are no element's
/// stay as they are.
pub fn run(kiln: &Kiln, primitive: &Primitive, given: &Arguments) -> Arguments {
    let mut planned = kiln.onednn_primitive(primitive).unwrap_or_else(|error| panic!("{error}"));
    let mut buffers = BTreeMap::new();
    for (arg, desc) in primitive.descs() {
        let (tensor, size) = (tensor_of(desc), desc.dtype().bytes());
        let mut bytes = vec![POISON; desc.bytes() as usize];
        if let Some(values) = given.get(arg) {
            for (value, at) in values.iter().zip(tensor.offsets()) {
                desc.dtype().write(*value, &mut bytes[at * size..]);
            }
        }
        buffers.insert(*arg, (kiln.device().upload(&bytes).unwrap(), bytes));
    }
    let arguments: Vec<(Arg, Memory<'_>)> =
        buffers.iter().map(|(arg, (buffer, _))| (*arg, buffer.into())).collect();
    planned.execute(&kiln.stream(), &arguments).unwrap_or_else(|error| panic!("{error}"));
    kiln.stream().synchronize().unwrap();
    let mut results = given.clone();
    for (arg, (buffer, before)) in &buffers {
        let desc = primitive.desc(*arg).unwrap();
        let size = desc.dtype().bytes();
        let mut bytes = vec![0; before.len()];
        buffer.read(0, &mut bytes).unwrap();
        let element = |at: usize| desc.dtype().read(&bytes[at * size..]);
        results.insert(*arg, tensor_of(desc).offsets().map(element).collect());
        let is_kept = *arg == Arg::Workspace || !is_written(primitive, *arg);
        let elements: Vec<usize> =
            if is_kept { Vec::new() } else { tensor_of(desc).offsets().collect() };
        let mut after = bytes;
        for at in elements.iter().map(|at| at * size) {
            after[at..at + size].copy_from_slice(&before[at..at + size]);
        }
        let untouched = *arg == Arg::Workspace || after == *before;
        assert!(untouched, "{} is written where it has no element", arg.name());
    }
    results
}

/// Where a byte lies: in an argument or in the primitive's memory.
type Place = (Option<Arg>, u64);

/// Where the elements of an argument lie.
fn places(arg: Arg, desc: &MemoryDesc) -> Vec<Place> {
    let size = desc.dtype().bytes();
    tensor_of(desc).offsets().map(|at| (Some(arg), (at * size) as u64)).collect()
}

/// What a primitive computes, with bounds of the errors: its steps by the reference, of which those
/// that move elements pass bounds on.
fn expected(primitive: &Primitive, given: &Arguments) -> BTreeMap<Arg, Expected> {
    let mut memory: HashMap<Place, (f64, f64)> = HashMap::new();
    for (arg, values) in given {
        let desc = primitive.desc(*arg).expect("arguments are the primitive's");
        let at = places(*arg, desc).into_iter();
        memory.extend(at.zip(values).map(|(at, value)| (at, (*value, 0.0))));
    }
    for step in primitive.steps() {
        let homes = |tensor: &TensorDesc| -> Vec<Place> {
            let home = step.homes.iter().find(|(uid, _)| *uid == tensor.uid).expect("a home").1;
            let (base, start) = match home {
                Home::Argument(arg, start) => (Some(arg), start),
                Home::Scratch(start) => (None, start),
            };
            let size = tensor.dtype.bytes() as u64;
            tensor.offsets().map(|at| (base, start + at as u64 * size)).collect()
        };
        let held = |tensor: &TensorDesc| -> Vec<(f64, f64)> {
            homes(tensor).iter().map(|at| saved(&memory, given, *at, tensor.dtype)).collect()
        };
        let values: Values = step
            .graph
            .inputs()
            .map(|tensor| (tensor.uid, held(tensor).iter().map(|of| of.0).collect()))
            .collect();
        let results = reference::evaluate(&step.graph, &values).expect("inputs fit");
        let is_moving =
            matches!(step.graph.operations(), [only] if matches!(only.op, Op::Pointwise(_)));
        let mut written = Vec::new();
        for tensor in step.graph.outputs() {
            let own = &results[&tensor.uid];
            let mut bounds = own.bounds.clone();
            if is_moving {
                for input in step.graph.inputs() {
                    bounds.iter_mut().zip(held(input)).for_each(|(bound, of)| *bound += of.1);
                }
            }
            let of = own.values.iter().copied().zip(bounds);
            written.extend(homes(tensor).into_iter().zip(of));
        }
        memory.extend(written);
    }
    let mut all = BTreeMap::new();
    for (arg, desc) in primitive.descs().iter().filter(|(arg, _)| **arg != Arg::Workspace) {
        let (values, bounds) = places(*arg, desc).iter().map(|at| memory[at]).unzip();
        all.insert(*arg, Expected { values, bounds });
    }
    all
}

/// An element in memory; in the workspace, of the bytes that the forward pass has written.
fn saved(
    memory: &HashMap<Place, (f64, f64)>,
    given: &Arguments,
    (base, at): Place,
    dtype: DType,
) -> (f64, f64) {
    if base != Some(Arg::Workspace) {
        return memory[&(base, at)];
    }
    let bytes = &given[&Arg::Workspace][at as usize..][..dtype.bytes()];
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    (dtype.read(&bytes), 0.0)
}

fn compare(what: &str, actual: &[f64], expected: &Expected) {
    if let Some(worst) = expected.worst(actual) {
        assert!(worst.ratio <= 1.0, "{what}: {worst:?}");
    }
}

/// Each of oneDNN's cells and directions in inference, with one and with two layers.
#[test]
fn inference_is_that_of_onednn() {
    for (at, case) in cases().iter().enumerate() {
        let primitive = case.primitive(PropKind::ForwardInference, &plain(DType::F32));
        assert_eq!(primitive.steps().len(), 1, "{}: nothing is reordered", case.name);
        let mut given = case.given(&primitive);
        let results: Arguments =
            given.extract_if(.., |arg, _| is_written(&primitive, *arg)).collect();
        let expected = expected(&primitive, &given);
        for kiln in harness::dialects_by_turns(at) {
            let actual = run(kiln, &primitive, &given);
            for (arg, theirs) in &results {
                let what = format!("{}: {}", case.name, arg.name());
                compare(&what, &actual[arg], &expected[arg]);
                compare(&format!("{what} of oneDNN"), theirs, &expected[arg]);
            }
        }
    }
}

/// The forward pass in training and the backward pass on a device: what each computes from what it
/// is given.
fn trained(kiln: &Kiln, case: &Case, format: Format<'_>) -> Arguments {
    let forward = case.primitive(PropKind::ForwardTraining, format);
    let backward = case.primitive(PropKind::Backward, format);
    assert_eq!(forward.desc(Arg::Workspace), backward.desc(Arg::Workspace));
    let mut given = case.given(&forward);
    given.retain(|arg, _| !is_written(&forward, *arg));
    let check = |primitive: &Primitive, given: &Arguments| {
        let actual = run(kiln, primitive, given);
        let expected = expected(primitive, given);
        for (arg, expected) in expected.iter().filter(|(arg, _)| is_written(primitive, **arg)) {
            compare(&format!("{}: {}", case.name, arg.name()), &actual[arg], expected);
        }
        actual
    };
    let mut all = check(&forward, &given);
    for (arg, values) in case.given(&backward) {
        all.entry(arg).or_insert(values);
    }
    all.retain(|arg, _| !is_written(&backward, *arg));
    let gradients = check(&backward, &all);
    let is_gradient = |(arg, _): &(Arg, Vec<f64>)| matches!(arg, Arg::Diff(_));
    gradients.into_iter().filter(is_gradient).collect()
}

/// Gradients of everything. Those of AUGRU are torch's: oneDNN 3.2's are not the derivatives of its
/// own forward pass.
#[test]
fn gradients_are_those_of_onednn() {
    for (at, case) in harness::sampled(cases(), 2).iter().enumerate() {
        let gradients: Vec<Arguments> = harness::dialects_by_turns(at)
            .into_iter()
            .map(|kiln| trained(kiln, case, &plain(DType::F32)))
            .collect();
        let expected = case.expected();
        let is_torchs = case.cell.ends_with("augru");
        for (arg, expected) in expected.iter().filter(|(arg, _)| matches!(arg, Arg::Diff(_))) {
            let what = format!("{}: {}", case.name, arg.name());
            let (whose, theirs) = match is_torchs {
                true => ("torch", case.of_torch(*arg)),
                false => ("oneDNN", case.of_arg(*arg)),
            };
            let theirs = theirs.unwrap_or_else(|| panic!("{what} of {whose} is missing"));
            compare(&format!("{what} of {whose}"), &theirs, expected);
            for own in &gradients {
                compare(&what, &own[arg], expected);
            }
        }
    }
}

/// One case of each cell; its two directions are joined in one way or the other.
fn one_of_each() -> Vec<Case> {
    let mut cases = cases();
    let ways = ["bidirectional_sum", "bidirectional_concat", "left2right", "right2left"];
    let rank = |case: &Case| ways.iter().position(|way| *way == case.direction);
    cases.sort_by_key(|case| (rank(case), -case.layers));
    let mut each: Vec<Case> = Vec::new();
    for case in cases {
        if each.iter().all(|known| known.cell != case.cell) {
            each.push(case);
        }
    }
    each
}

/// The document's types, and those of the oldest architecture, which has no bf16.
#[test]
fn types_of_the_document_are_within_the_bounds() {
    let each = one_of_each();
    assert_eq!(each.len(), 11);
    for (at, case) in each.iter().enumerate() {
        for data in [DType::F16, DType::Bf16] {
            for kiln in harness::dialects_by_turns(at) {
                trained(kiln, case, &plain(data));
            }
        }
    }
    let lstm = each.iter().find(|case| case.cell == "lstm_peephole").unwrap();
    for kiln in harness::oldest() {
        trained(kiln, lstm, &plain(DType::Bf16));
    }
}

/// Without them, states and biases are 0, and final states are not written.
#[test]
fn absent_states_and_biases_are_zeros() {
    let is_absent = |arg: &Arg| {
        let Arg::Of(tensor) = arg else { return false };
        let states = matches!(tensor, Tensor::SrcIter | Tensor::SrcIterC | Tensor::Bias);
        states || matches!(tensor, Tensor::DstIter | Tensor::DstIterC)
    };
    for case in one_of_each() {
        let whole = case.desc(PropKind::ForwardInference, &plain(DType::F32));
        let mut lacking = whole.clone();
        lacking.descs.retain(|arg, _| !is_absent(arg));
        let [whole, lacking] = [whole, lacking].map(|desc| Primitive::rnn(&desc).unwrap());
        let mut given = case.given(&whole);
        given.retain(|arg, _| !is_written(&whole, *arg));
        for (_, values) in given.iter_mut().filter(|(arg, _)| is_absent(arg)) {
            values.fill(0.0);
        }
        let expected = expected(&whole, &given);
        given.retain(|arg, _| !is_absent(arg));
        let actual = run(harness::kiln(), &lacking, &given);
        assert_eq!(actual.len(), lacking.descs().len());
        compare(&case.name, &actual[&Arg::TO], &expected[&Arg::TO]);
    }
}

/// The same results, bit by bit, from other orders of dimensions, padding, and gates apart.
#[test]
fn layouts_do_not_change_results() {
    let turned = |arg: Arg, dims: &[i64]| {
        let tag = match (arg, dims.len()) {
            (_, 3) => FormatTag::Ntc,
            (_, 5) => FormatTag::Ldigo,
            (Arg::Of(Tensor::WeightsProjection) | Arg::Diff(Tensor::WeightsProjection), _) => {
                FormatTag::Ldio
            }
            (Arg::Of(Tensor::Bias) | Arg::Diff(Tensor::Bias), _) => FormatTag::Ldgo,
            _ => FormatTag::Ldnc,
        };
        MemoryDesc::new(dims, DType::F32, tag).unwrap()
    };
    // Two elements behind each row, in whatever order the axes are.
    let padded = |order: fn(usize) -> Vec<usize>| {
        move |_: Arg, dims: &[i64]| {
            let (mut strides, mut next) = (vec![0; dims.len()], 1);
            for axis in order(dims.len()) {
                strides[axis] = next;
                next = next * dims[axis] + 2;
            }
            MemoryDesc::strided(dims, DType::F32, &strides).unwrap()
        }
    };
    let rows = padded(|rank| (0..rank).rev().collect());
    let columns = padded(|rank| (0..rank).collect());
    let formats: [Format<'_>; 3] = [&turned, &rows, &columns];
    let kiln = harness::kiln();
    for (at, case) in one_of_each().into_iter().enumerate() {
        let plain = plain(DType::F32);
        let inference = |format: Format<'_>| {
            let primitive = case.primitive(PropKind::ForwardInference, format);
            let mut given = case.given(&primitive);
            given.retain(|arg, _| !is_written(&primitive, *arg));
            run(kiln, &primitive, &given)
        };
        let (outputs, gradients) = (inference(&plain), trained(kiln, &case, &plain));
        // By turns, but where all are wanted.
        let is_chosen = |of: &usize| harness::all_are_wanted() || *of == at % formats.len();
        for at in (0..formats.len()).filter(is_chosen) {
            let format = formats[at];
            assert!(inference(format) == outputs, "{}: format {at}", case.name);
            assert!(trained(kiln, &case, format) == gradients, "{}: format {at}", case.name);
        }
    }
}

/// A view of sequence-major memory is read and written where it is.
#[test]
fn views_are_not_reordered() {
    let case = &cases()[0];
    let steps = |data: &dyn Fn(&[i64]) -> MemoryDesc| {
        let format = |arg: Arg, dims: &[i64]| match dims.len() {
            3 => data(dims),
            _ => plain(DType::F32)(arg, dims),
        };
        case.primitive(PropKind::ForwardInference, &format).steps().len()
    };
    let of_tag =
        |tag: FormatTag| move |dims: &[i64]| MemoryDesc::new(dims, DType::F32, tag).unwrap();
    assert_eq!(steps(&of_tag(FormatTag::Ntc)), 1);
    let batch = case.batch;
    let wider = |dims: &[i64]| {
        let row = dims[2] + 4;
        MemoryDesc::strided(dims, DType::F32, &[batch * row, row, 1]).unwrap()
    };
    assert_eq!(steps(&wider), 1);
    let apart = |dims: &[i64]| {
        MemoryDesc::strided(dims, DType::F32, &[batch * dims[2] + 4, dims[2], 1]).unwrap()
    };
    assert_eq!(steps(&apart), 3);
}

/// Gradients of weights are added to those in memory, unless they are to overwrite them.
#[test]
fn gradients_of_weights_are_added_to_what_is_in_memory() {
    let kiln = harness::kiln();
    let each = one_of_each();
    let case = each.iter().find(|case| case.cell == "lbr_gru").unwrap();
    let format = plain(DType::F32);
    let gradients = trained(kiln, case, &format);
    let forward = case.primitive(PropKind::ForwardTraining, &format);
    let desc = case.desc(PropKind::Backward, &format);
    let adding = Primitive::rnn(&RnnDesc { diff_weights_overwrite: false, ..desc }).unwrap();
    let mut given = case.given(&forward);
    given.retain(|arg, _| !is_written(&forward, *arg));
    let mut all = run(kiln, &forward, &given);
    let is_weights = |arg: Arg| matches!(arg, Arg::Diff(tensor) if tensor.is_weights());
    let before = |arg: Arg| if is_weights(arg) { 8.0 } else { 0.0 };
    for (arg, values) in case.given(&adding) {
        let filled = values.iter().map(|value| if is_weights(arg) { before(arg) } else { *value });
        let filled = filled.collect();
        all.entry(arg).or_insert(filled);
    }
    let actual = run(kiln, &adding, &all);
    for (arg, own) in &gradients {
        let sums: Vec<f64> =
            own.iter().map(|value| DType::F32.round(value + before(*arg))).collect();
        assert_eq!(actual[arg], sums, "{}", arg.name());
    }
}

/// A reorder is what a program does once for a format that the primitive prefers.
#[test]
fn reorders_change_format_and_type() {
    let dims = [2, 2, 3, 4, 5];
    let of = |dtype, tag| MemoryDesc::new(&dims, dtype, tag).unwrap();
    let values: Vec<f64> = (0..240).map(|at| f64::from(at) / 64.0 - 1.7).collect();
    for (from, to) in [
        (of(DType::F32, FormatTag::Ldigo), of(DType::F32, FormatTag::Ldgoi)),
        (of(DType::F32, FormatTag::Ldgoi), of(DType::Bf16, FormatTag::Ldigo)),
        (of(DType::F16, FormatTag::Ldigo), of(DType::F32, FormatTag::Ldgoi)),
    ] {
        let reorder = Primitive::reorder(&from, &to, &PrimitiveAttr::default()).unwrap();
        let given = values.iter().map(|value| from.dtype().round(*value)).collect();
        let actual = run(harness::kiln(), &reorder, &BTreeMap::from([(Arg::FROM, given)]));
        let rounded: Vec<f64> =
            actual[&Arg::FROM].iter().map(|value| to.dtype().round(*value)).collect();
        assert_eq!(actual[&Arg::TO], rounded);
    }
}
