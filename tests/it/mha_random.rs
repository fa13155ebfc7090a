//! The passes of classic attention layers that no one thought of, on devices and by the reference.

use kiln::attention::{
    AttentionCall, AttentionDescriptor, AttentionExtent, AttentionSettings, AttentionSizes,
    SequenceAxis,
};
use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::frontend::FrontEnd;
use kiln::rnn::MathType;
use kiln::{DType, TensorDesc};

use crate::harness::{self, Values};
use crate::random_graphs::Random;

const SIZES: [i32; 5] = [1, 3, 8, 16, 20];
const STEPS: [i32; 5] = [1, 2, 9, 17, 40];
const ORDERS: [[SequenceAxis; 3]; 6] = {
    use SequenceAxis::{Batch, Beam, Time};
    [
        [Batch, Beam, Time],
        [Batch, Time, Beam],
        [Beam, Batch, Time],
        [Beam, Time, Batch],
        [Time, Batch, Beam],
        [Time, Beam, Batch],
    ]
};

/// A layer in training, and its extent.
fn drawn(random: &mut Random) -> (AttentionDescriptor, AttentionExtent) {
    let mut size = |zero: usize| match random.below(zero + 1) {
        0 => random.pick(&SIZES),
        _ => 0,
    };
    // Half of all projections are none.
    let [mut q_size, mut k_size, v_size] = [size(0), size(0), size(0)];
    let [q_proj_size, mut k_proj_size, v_proj_size, o_proj_size] = [1; 4].map(&mut size);
    match (q_proj_size, k_proj_size) {
        (0, 0) => k_size = q_size,
        (0, _) => q_size = k_proj_size,
        (_, 0) => k_size = q_proj_size,
        _ => k_proj_size = q_proj_size,
    }
    let dtype = random.pick(&[DType::F16, DType::Bf16, DType::F32, DType::F64]);
    let tf32 = dtype == DType::F32 && random.below(2) == 0;
    let mut dropout = || match random.below(2) {
        0 => DropoutDescriptor::NONE,
        _ => DropoutDescriptor::set(Real::new(0.25), random.below(5) as i64 - 2).expect("valid"),
    };
    let (attn_dropout, post_dropout) = (dropout(), dropout());
    let sizes = AttentionSizes {
        heads: random.pick(&[1, 2, 3, 5]),
        size: q_size,
        batch: random.pick(&[1, 2, 3]),
        steps: random.pick(&STEPS),
    };
    let settings = AttentionSettings {
        proj_biases: random.below(2) == 0,
        sm_scaler: Real::new(random.pick(&[0.0, 0.25, 1.0])),
        data_type: dtype,
        compute_prec: if dtype == DType::F64 { dtype } else { DType::F32 },
        math_type: if tf32 { MathType::TensorOpAllowConversion } else { MathType::Default },
        attn_dropout,
        post_dropout,
        k_size,
        v_size,
        q_proj_size,
        k_proj_size,
        v_proj_size,
        o_proj_size,
        kv_max_seq_length: random.pick(&STEPS),
        ..AttentionSettings::new(sizes)
    };
    let descriptor = AttentionDescriptor::set(settings).expect("the settings are valid");
    let extent = AttentionExtent {
        order: random.pick(&ORDERS),
        residuals: descriptor.output_size() == i64::from(q_size) && random.below(2) == 0,
        ..descriptor.extent_max()
    };
    (descriptor, extent)
}

/// Random values of the named inputs: lengths from 0, and vectors beyond them NaN.
fn named(call: &AttentionCall, random: &mut Random, seed: u64) -> Values {
    let inputs = call.named_inputs();
    let mut values = call.random_values(seed).expect("they are small");
    let find = |name: &str| inputs.iter().find(|tensor| tensor.name == name).map(|of| of.uid);
    for (name, steps) in
        [("query_lengths", call.layer.extent.queries), ("key_lengths", call.layer.extent.keys)]
    {
        let lengths = values.get_mut(&find(name).expect("it is an input")).expect("it is given");
        for length in lengths {
            if random.below(3) == 0 {
                *length = random.below(steps as usize + 1) as f64;
            }
        }
    }
    for (name, lengths) in [
        ("queries", "query_lengths"),
        ("output_gradient", "query_lengths"),
        ("keys", "key_lengths"),
        ("values", "key_lengths"),
    ] {
        let uid = find(name).expect("it is an input");
        let TensorDesc { dims, .. } =
            inputs.iter().find(|tensor| tensor.uid == uid).expect("it is an input");
        let lengths = values[&find(lengths).expect("it is an input")].clone();
        for (at, value) in values.get_mut(&uid).expect("it is given").iter_mut().enumerate() {
            let (mut rest, mut of) = (at as i64 / dims[3], [0; 3]);
            for (axis, extent) in call.layer.extent.order.into_iter().zip(dims).rev() {
                of[axis as usize] = rest % extent;
                rest /= extent;
            }
            let [step, sequence, _] = of;
            if step as f64 >= lengths[sequence as usize] {
                *value = f64::NAN;
            }
        }
    }
    values
}

#[test]
fn passes_of_random_layers_agree_with_the_reference() {
    let count = if harness::all_are_wanted() { 300 } else { 10 };
    for seed in 0..count {
        let random = &mut Random(3000 + seed);
        let (descriptor, extent) = drawn(random);
        let call = AttentionCall::with_gradients(&descriptor, extent);
        let call = call.unwrap_or_else(|error| panic!("{seed}: {descriptor:?}: {error}"));
        let named = named(&call, random, seed);
        for kiln in harness::dialects_by_turns(seed as usize) {
            let mut state = call.initial_values(named.clone()).expect("they fit");
            for (at, graph) in call.graphs().into_iter().enumerate() {
                let inputs = call.inputs(at, &state);
                let actual = harness::run(kiln, graph, None, &inputs);
                let what = format!("layer {seed}, graph {at}");
                let actual =
                    actual.unwrap_or_else(|error| panic!("{what}: {error:?}: {descriptor:?}"));
                harness::compare(graph, &inputs, &actual, &what);
                call.store(at, &actual, &mut state);
            }
            let values = call.named_values(&state);
            let outputs = call.named_outputs();
            for tensor in outputs.iter().filter(|tensor| tensor.name.contains("gradient")) {
                let finite = values[&tensor.uid].iter().all(|value| value.is_finite());
                assert!(finite, "layer {seed}: {tensor}: {descriptor:?}");
            }
        }
    }
}
