//! Classic attention layers on the device: against the oracle, and graph by graph against the
//! reference.

#![expect(unsafe_code, reason = "memory is given by address, streams are another library's")]

use std::collections::HashMap;

use cudarc::driver::{CudaContext, sys};
use kiln::attention::{
    AttentionDescriptor, AttentionExtent, AttentionLayer, AttentionPlace, AttentionRole,
    AttentionSettings, AttentionSizes,
};
use kiln::device::Buffer;
use kiln::layers::{AttentionForward, MultiHeadAttention};
use kiln::plan::{DeviceMemory, Memory};
use kiln::{Config, DType, Error, ErrorKind, Kiln};

use crate::mha_vectors::{Case, Described, TOLERANCE, cases, positions};
use crate::{allocations, harness};

/// How far f32 may be from the oracle in units of 2^-24: queries and keys of at most 6 elements'
/// sums are each off by 6, so scores, half a product of two, by 40; weights by twice that part of
/// themselves, results below 6 by 500, outputs, sums of 6 of them, by 3000 and their own rounding.
const TOLERANCE_F32: f64 = 4000.0 / (1 << 24) as f64;

/// A case's tensors on a device.
struct Bound {
    layer: AttentionLayer,
    described: Described,
    buffers: HashMap<AttentionRole, Buffer>,
    workspace: Buffer,
}

/// Values as bytes of a type.
pub fn encoded(dtype: DType, values: &[f64]) -> Vec<u8> {
    let size = dtype.bytes();
    let mut bytes = vec![0; values.len() * size];
    for (at, value) in values.iter().enumerate() {
        dtype.write(*value, &mut bytes[at * size..]);
    }
    bytes
}

pub fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(dtype.bytes()).map(|element| dtype.read(element)).collect()
}

impl Bound {
    fn new(kiln: &Kiln, case: &Case, descriptor: &AttentionDescriptor) -> Bound {
        let layer = descriptor.layer(case.extent(descriptor)).expect("it is valid");
        let mut buffers = HashMap::new();
        for (role, values) in case.memory(&layer) {
            if !role.is_intermediate() {
                let (dtype, _) = layer.tensor(role).expect("it is small");
                let buffer = kiln.device().upload(&encoded(dtype, &values));
                buffers.insert(role, buffer.expect("there is memory"));
            }
        }
        let bytes = descriptor.buffers(false).expect("they are small").workspace_bytes;
        let poison = vec![0xff; bytes as usize];
        let workspace = kiln.device().upload(&poison).expect("there is memory");
        Bound { described: case.described(descriptor), layer, buffers, workspace }
    }

    fn call<'a>(&'a self, case: &'a Case) -> AttentionForward<'a> {
        let buffer = |role| Memory::from(&self.buffers[&role]);
        let [q_desc, k_desc, v_desc, o_desc] = &self.described;
        AttentionForward {
            curr_idx: case.step,
            lo_win_idx: &case.low,
            hi_win_idx: &case.high,
            seq_lengths_qo: buffer(AttentionRole::QueryLengths),
            seq_lengths_kv: buffer(AttentionRole::KeyLengths),
            q_desc,
            queries: buffer(AttentionRole::Queries),
            residuals: case.residuals.then(|| buffer(AttentionRole::Residuals)),
            k_desc,
            keys: buffer(AttentionRole::Keys),
            v_desc,
            values: buffer(AttentionRole::Values),
            o_desc,
            out: buffer(AttentionRole::Output),
            weights: buffer(AttentionRole::Weights),
            workspace: Some((&self.workspace).into()),
            reserve: None,
        }
    }

    fn output(&self) -> Vec<f64> {
        let bytes = self.buffers[&AttentionRole::Output].to_vec().expect("it can be read");
        decoded(self.layer.descriptor.get().data_type, &bytes)
    }

    /// What the device holds of a role.
    fn whole(&self, role: AttentionRole, intermediates: &[u8]) -> Vec<f64> {
        let (dtype, count) = self.layer.tensor(role).expect("it is small");
        match role.is_intermediate() {
            false => decoded(dtype, &self.buffers[&role].to_vec().expect("it can be read")),
            true => {
                let first = self.layer.intermediate_offset(role).expect("it is small") as usize;
                decoded(dtype, &intermediates[first..first + count as usize * dtype.bytes()])
            }
        }
    }

    /// Panics unless what each graph gave is what the reference makes of what it was given.
    fn check(&self, case: &Case, intermediates: &Buffer, what: &str) {
        let intermediates = intermediates.to_vec().expect("it can be read");
        for stage in &self.layer.stages {
            let values = |place: &AttentionPlace| -> Vec<f64> {
                let tensor = stage.graph.tensor(place.uid).expect("a place is of the graph");
                let whole = self.whole(place.role, &intermediates);
                let at = positions(&self.layer, tensor, place, case.step);
                at.into_iter().map(|at| whole[at]).collect()
            };
            let actual: HashMap<i64, Vec<f64>> =
                stage.places.iter().map(|place| (place.uid, values(place))).collect();
            let mut inputs = actual.clone();
            inputs.retain(|uid, _| stage.graph.inputs().any(|tensor| tensor.uid == *uid));
            harness::compare(&stage.graph, &inputs, &actual, &format!("{}: {what}", case.name));
        }
    }
}

fn built(kiln: &Kiln, descriptor: &AttentionDescriptor) -> MultiHeadAttention {
    kiln.multi_head_attention(descriptor).expect("there is memory")
}

fn run(kiln: &Kiln, case: &Case, dtype: DType) -> Bound {
    let descriptor = case.descriptor(dtype);
    let bound = Bound::new(kiln, case, &descriptor);
    let stream = kiln.stream();
    let ran = built(kiln, &descriptor).forward(&stream, &bound.call(case));
    ran.unwrap_or_else(|error| panic!("{}: {dtype}: {error:?}", case.name));
    stream.synchronize().unwrap_or_else(|error| panic!("{}: {dtype}: {error:?}", case.name));
    bound.check(case, &bound.workspace, &dtype.to_string());
    bound
}

#[test]
fn layers_give_what_the_oracle_gives() {
    for case in cases() {
        let bound = run(harness::kiln(), &case, DType::F64);
        case.check(&bound.output(), TOLERANCE, "device");
    }
}

#[test]
fn layers_of_other_types_are_within_the_bounds_of_the_reference() {
    for case in cases().iter().filter(|case| case.name.contains("_to_one")) {
        run(harness::kiln(), case, DType::F16);
        let bound = run(harness::kiln(), case, DType::F32);
        case.check(&bound.output(), TOLERANCE_F32, "f32");
    }
    let case = cases().swap_remove(0);
    run(harness::kiln(), &case, DType::Bf16);
}

#[test]
fn wide_layers_of_half_precision_run_in_both_dialects() {
    for case in cases().into_iter().filter(|case| case.name.starts_with("batch_time_beam_all")) {
        let case = case.wide();
        for kiln in harness::dialects() {
            for dtype in [DType::F16, DType::Bf16] {
                run(kiln, &case, dtype);
            }
        }
    }
}

fn named(name: &str) -> Case {
    let found = cases().into_iter().find(|case| case.name == name);
    found.expect("there is such a case")
}

#[test]
fn other_windows_and_lengths_and_steps_need_no_other_plan() {
    // Its own, so that its counts are of this test alone.
    let config = Config { sanitize: Some(true), ..harness::config() };
    let kiln = &Kiln::open(config).expect("the device opens");
    let asked = || kiln.metrics().kernels.values().sum::<u64>();
    let names = ["window_full", "window_causal", "window_sliding", "window_full"];
    let mut layer = built(kiln, &named(names[0]).descriptor(DType::F64));
    let stream = kiln.stream();
    for (at, name) in names.into_iter().enumerate() {
        let case = named(name);
        let bound = Bound::new(kiln, &case, layer.descriptor());
        let before = asked();
        layer.forward(&stream, &bound.call(&case)).expect("it runs");
        stream.synchronize().expect("it ran");
        case.check(&bound.output(), TOLERANCE, "other windows");
        assert!(at == 0 || asked() == before, "{name} asked for a kernel");
    }
}

#[test]
fn padding_of_keys_and_values_takes_no_part() {
    let case = cases().swap_remove(0);
    let kiln = harness::kiln();
    for dtype in [DType::F16, DType::F32, DType::F64] {
        let descriptor = case.descriptor(dtype);
        let bound = Bound::new(kiln, &case, &descriptor);
        let stream = kiln.stream();
        let mut layer = built(kiln, &descriptor);
        layer.forward(&stream, &bound.call(&case)).expect("it runs");
        stream.synchronize().expect("it ran");
        let clean = bound.output();
        // Time is outermost: of 4 steps of 2 sequences, the second has only 2.
        let [_, k_desc, ..] = &bound.described;
        assert_eq!(k_desc.get().seq_lengths, [4, 2]);
        for role in [AttentionRole::Keys, AttentionRole::Values] {
            let bytes = bound.buffers[&role].bytes();
            let vector = bytes / 8;
            for step in [2, 3] {
                let nan = vec![0xff; vector as usize];
                bound.buffers[&role].write((2 * step + 1) * vector, &nan).expect("it fits");
            }
        }
        layer.forward(&stream, &bound.call(&case)).expect("it runs");
        stream.synchronize().expect("it ran");
        assert_eq!(bound.output(), clean, "{dtype}");
    }
}

#[test]
fn bad_calls_are_refused_with_the_reason() {
    let (case, kiln) = (cases().swap_remove(0), harness::kiln());
    let descriptor = case.descriptor(DType::F64);
    let bound = Bound::new(kiln, &case, &descriptor);
    let mut layer = built(kiln, &descriptor);
    let stream = kiln.stream();
    let good = bound.call(&case);
    let small = kiln.device().alloc(16).expect("there is memory");
    let buffers = descriptor.buffers(false).expect("they are small");
    let plans = layer.plans(bound.layer.extent).expect("it is supported");
    let plans = plans.iter().map(|plan| plan.workspace_bytes()).max().expect("there are some");
    let kept = bound.layer.intermediate_bytes().expect("they are small");
    // Behind the intermediate tensors are starts and ends of the windows of a piece of 64 steps.
    let needed = kept + 2 * 64 * 4 + plans;
    assert!(needed <= buffers.workspace_bytes, "{needed} {buffers:?}");
    let refused = |layer: &mut MultiHeadAttention, call: AttentionForward<'_>, rule: &str| {
        let error: Error = layer.forward(&stream, &call).expect_err(rule);
        let text = format!("attention forward: {rule}");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::BadParam, text));
    };
    let call = AttentionForward { reserve: Some((&small).into()), ..good };
    let error = layer.forward(&stream, &call).expect_err("beams in training");
    let text = "attention layer: 2 beam candidates in training, expected 1";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::NotSupported, text));
    let mut bad = |call, rule: &str| refused(&mut layer, call, rule);
    bad(AttentionForward { curr_idx: 3, ..good }, "step 3 of 3 steps");
    let rule = "step 1 alone with a reserve space, which is for training";
    bad(AttentionForward { curr_idx: 1, reserve: Some((&small).into()), ..good }, rule);
    let rule = "2 low window indices, step 2 has none";
    bad(AttentionForward { lo_win_idx: &[0, 0], ..good }, rule);
    let rule = "1 high window indices, step 2 has none";
    bad(AttentionForward { curr_idx: 2, hi_win_idx: &[4], ..good }, rule);
    let rule = "the window of step 1 is 3 to 2";
    bad(AttentionForward { lo_win_idx: &[0, 3, 0], hi_win_idx: &[0, 2, 0], ..good }, rule);
    let rule = format!("the layer needs a workspace of {needed} bytes, there is none");
    bad(AttentionForward { workspace: None, ..good }, &rule);
    let rule = format!("the workspace has 16 bytes, the layer needs {needed}");
    bad(AttentionForward { workspace: Some((&small).into()), ..good }, &rule);
    let rule = format!("`weights` has 16 bytes, the layer needs {}", buffers.weight_bytes);
    bad(AttentionForward { weights: (&small).into(), ..good }, &rule);
    // 2 beams of 2 candidates, 3 steps, 4 elements.
    bad(
        AttentionForward { out: (&small).into(), ..good },
        "`output` has 16 bytes, the layer needs 384",
    );
    bad(
        AttentionForward { queries: (&small).into(), ..good },
        "`queries` has 16 bytes, the layer needs 384",
    );
    let few = kiln.device().alloc(4).expect("there is memory");
    let rule = "`query_lengths` has 4 bytes, the layer needs 16";
    bad(AttentionForward { seq_lengths_qo: (&few).into(), ..good }, rule);
    let rule = "`key_lengths` has 4 bytes, the layer needs 8";
    bad(AttentionForward { seq_lengths_kv: (&few).into(), ..good }, rule);
}

#[test]
fn biases_and_residuals_are_added_where_the_products_are() {
    let kiln = harness::kiln();
    let settings = AttentionSettings {
        proj_biases: true,
        data_type: DType::F16,
        max_beam_size: 2,
        ..AttentionSettings::new(AttentionSizes { heads: 4, size: 256, batch: 2, steps: 64 })
    };
    let descriptor = AttentionDescriptor::set(settings).expect("valid");
    let mut layer = built(kiln, &descriptor);
    for one_step in [false, true] {
        let extent = AttentionExtent { residuals: true, one_step, ..descriptor.extent_max() };
        let plans = layer.plans(extent).expect("it is supported");
        // Queries, keys, values, windows, attention, outputs: each is one part of a graph.
        let parts: Vec<usize> = plans.iter().map(|plan| plan.parts().len()).collect();
        assert_eq!(parts, [1; 6], "one step: {one_step}");
    }
}

#[test]
fn a_step_after_the_first_allocates_nothing() {
    let kiln = allocations::null();
    let case = named("batch_beam_time_one_to_one_step_1");
    let descriptor = case.descriptor(DType::F64);
    let bound = Bound::new(&kiln, &case, &descriptor);
    let mut layer = built(&kiln, &descriptor);
    let stream = kiln.stream();
    for curr_idx in [1, -1] {
        let call = AttentionForward { curr_idx, ..bound.call(&case) };
        layer.forward(&stream, &call).expect("it is planned");
    }
    for curr_idx in [2, -1] {
        let call = AttentionForward { curr_idx, ..bound.call(&case) };
        let (result, count) = allocations::allocations_of(|| layer.forward(&stream, &call));
        result.expect("it runs");
        assert_eq!(count, 0, "step {curr_idx}");
    }
}

/// Memory by address, as of another library, is computed in like buffers.
#[test]
fn memory_may_be_another_librarys() {
    let (case, kiln) = (named("window_sliding"), harness::kiln());
    let descriptor = case.descriptor(DType::F64);
    let bound = Bound::new(kiln, &case, &descriptor);
    let foreign = |memory: Memory<'_>| {
        let (address, bytes) = (memory.address(), memory.bytes());
        // SAFETY: the buffers outlive the call, which is waited for.
        unsafe { Memory::foreign(DeviceMemory { address, bytes }) }
    };
    let call = bound.call(&case);
    let call = AttentionForward {
        seq_lengths_qo: foreign(call.seq_lengths_qo),
        seq_lengths_kv: foreign(call.seq_lengths_kv),
        queries: foreign(call.queries),
        keys: foreign(call.keys),
        values: foreign(call.values),
        weights: foreign(call.weights),
        out: foreign(call.out),
        workspace: call.workspace.map(foreign),
        ..call
    };
    let stream = kiln.stream();
    built(kiln, &descriptor).forward(&stream, &call).expect("it runs");
    stream.synchronize().expect("it ran");
    case.check(&bound.output(), TOLERANCE, "foreign memory");
}

/// Outputs may take the place of queries that are their own residuals; nothing else may overlap.
#[test]
fn outputs_may_be_where_queries_and_residuals_are() {
    let kiln = harness::kiln();
    let all = cases();
    let mut squares = all.iter().filter(|case| case.residuals).peekable();
    assert!(squares.peek().is_some());
    for case in squares {
        for dtype in [DType::F64, DType::F16] {
            let descriptor = case.descriptor(dtype);
            let (apart, bound) =
                (Bound::new(kiln, case, &descriptor), Bound::new(kiln, case, &descriptor));
            let (stream, mut layer) = (kiln.stream(), built(kiln, &descriptor));
            let of_residuals = Memory::from(&apart.buffers[&AttentionRole::Residuals]);
            let call = AttentionForward {
                queries: of_residuals,
                residuals: Some(of_residuals),
                ..apart.call(case)
            };
            layer.forward(&stream, &call).expect("it runs");
            let place = &bound.buffers[&AttentionRole::Residuals];
            let both = Memory::from(place);
            let call = bound.call(case);
            let in_place =
                AttentionForward { queries: both, residuals: Some(both), out: both, ..call };
            layer.forward(&stream, &in_place).expect("it runs in place");
            stream.synchronize().expect("they ran");
            let result = decoded(dtype, &place.to_vec().expect("it can be read"));
            if case.step < 0 {
                assert_eq!(result, apart.output(), "{} {dtype}", case.name);
            }
            let mut refused = |call: AttentionForward<'_>, rule: &str| {
                let error = layer.forward(&stream, &call).expect_err(rule);
                let text = format!("attention forward: {rule}");
                assert_eq!((error.kind(), error.to_string()), (ErrorKind::BadParam, text));
            };
            let keys = Memory::from(&bound.buffers[&AttentionRole::Keys]);
            let more = kiln.device().upload(&vec![0; 2 * place.bytes() as usize]).expect("memory");
            let rest = DeviceMemory { address: more.address() + 16, bytes: more.bytes() - 16 };
            // SAFETY: nothing is launched on it.
            let shifted = unsafe { Memory::foreign(rest) };
            let rule = "`output` is written but its memory overlaps `residuals`";
            let residuals = Some(Memory::from(&more));
            refused(AttentionForward { out: shifted, residuals, ..call }, rule);
            let rule = "`output` is written but its memory overlaps `queries`";
            refused(AttentionForward { out: shifted, queries: (&more).into(), ..call }, rule);
            if keys.bytes() >= place.bytes() {
                let rule = "`output` is written but its memory overlaps `keys`";
                refused(AttentionForward { out: keys, ..call }, rule);
            }
        }
    }
}

/// A CUDA graph captures a call, windows and all: nothing waits, nothing allocates.
#[test]
fn calls_are_captured_into_cuda_graphs() {
    let kiln = harness::kiln();
    if kiln.device().kind() != "cuda" {
        eprintln!("skipped: no CUDA graphs without a CUDA driver");
        return;
    }
    let case = named("window_sliding");
    let descriptor = case.descriptor(DType::F64);
    let bound = Bound::new(kiln, &case, &descriptor);
    let mut layer = built(kiln, &descriptor);
    layer.plans(bound.layer.extent).expect("they are built before the capture");
    let others = CudaContext::new(0).unwrap().new_stream().unwrap();
    others.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    // SAFETY: `others` outlives it.
    let stream = unsafe { kiln.device().external_stream(others.cu_stream() as u64) };
    layer.forward(&stream, &bound.call(&case)).expect("it is captured");
    let replayed = others.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
    for _ in 0..2 {
        let bytes = bound.buffers[&AttentionRole::Output].bytes() as usize;
        bound.buffers[&AttentionRole::Output].write(0, &vec![0xff; bytes]).expect("it fits");
        replayed.launch().unwrap();
        stream.synchronize().expect("it ran");
        case.check(&bound.output(), TOLERANCE, "a replay");
    }
}

#[test]
fn so_they_are_on_the_simulated_driver() {
    harness::passes_on_simulated_driver("mha_forward::calls_are_captured_into_cuda_graphs");
}
