//! Training of classic attention layers: types, dropout, what becomes of gradients in memory, and
//! what misused reserve spaces are refused with.

use std::collections::HashMap;

use kiln::attention::{AttentionExtent, AttentionPass, AttentionRole};
use kiln::device::Buffer;
use kiln::engine::{self, Selection};
use kiln::layers::{
    AttentionBackwardData, AttentionBackwardWeights, AttentionForward, MultiHeadAttention,
    WeightGradientMode,
};
use kiln::plan::Memory;
use kiln::target::Target;
use kiln::{DType, Error, ErrorKind};

use crate::mha_forward::encoded;
use crate::mha_gradients::{Bound, GRADIENTS, PASSES, Trained, named, trained};
use crate::mha_vectors::evaluate;
use crate::{allocations, harness};

/// A case with heads of 32 elements and both dropouts.
fn wide() -> Trained {
    let of = named("batch_beam_time");
    Trained { case: of.case.wide(), drops: [(0.25, 1), (0.5, 2)], ..of }
}

#[test]
fn gradients_of_other_types_are_within_the_bounds_of_the_reference() {
    for (at, dtype) in [DType::F16, DType::Bf16, DType::F32].into_iter().enumerate() {
        let small = ["time_beam_batch", "projections_none", "projections_kv"];
        for kiln in harness::dialects_by_turns(at) {
            trained(kiln, &named(small[at]), dtype);
            trained(kiln, &wide(), dtype);
        }
    }
}

/// What the roles hold after all passes.
fn results(bound: &Bound) -> Vec<Vec<u64>> {
    let bits = |role| bound.values(role).into_iter().map(f64::to_bits).collect();
    GRADIENTS.into_iter().chain([AttentionRole::Output]).map(bits).collect()
}

#[test]
fn passes_from_the_same_positions_give_the_same_bits() {
    let (kiln, of) = (harness::kiln(), wide());
    let mut bound = Bound::new(kiln, &of, DType::F16);
    let mut pass = |positions: Option<[i32; 2]>| {
        if let Some(positions) = positions {
            bound.states().restore(&positions).expect("there are two");
        }
        PASSES.into_iter().for_each(|pass| bound.run(kiln, &of.case, pass));
        (results(&bound), bound.states().positions().expect("they can be read"))
    };
    let (first, positions) = pass(None);
    assert_eq!(positions, [2, 3]);
    let (second, positions) = pass(None);
    assert_eq!(positions, [4, 5]);
    assert!(first.iter().zip(&second).all(|(first, second)| first != second));
    assert_eq!(pass(Some([0, 1])), (first, vec![2, 3]));
    assert_eq!(pass(None), (second, vec![4, 5]));
    let error = bound.states().restore(&[1]).expect_err("one is missing");
    let text = "dropout states: 1 positions of 2 dropouts";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, text));
}

/// The backward passes draw what the forward pass with their reserve space drew, not what came
/// after it.
#[test]
fn reserve_spaces_remember_what_was_dropped() {
    let (kiln, of) = (harness::kiln(), named("three_heads"));
    let mut bound = Bound::new(kiln, &of, DType::F64);
    PASSES.into_iter().for_each(|pass| bound.run(kiln, &of.case, pass));
    let first = results(&bound);
    bound.states().restore(&[0, 1]).expect("there are two");
    bound.run(kiln, &of.case, AttentionPass::Forward);
    let output = bound.values(AttentionRole::Output);
    let own = bound.change_reserve(kiln);
    bound.run(kiln, &of.case, AttentionPass::Forward);
    assert_ne!(bound.values(AttentionRole::Output), output);
    bound.reserve = own;
    bound.run(kiln, &of.case, AttentionPass::BackwardData);
    bound.run(kiln, &of.case, AttentionPass::BackwardWeights);
    assert_eq!(results(&bound)[..4], first[..4]);
}

#[test]
fn inference_drops_nothing() {
    let (kiln, of) = (harness::kiln(), named("three_heads"));
    let plain = Trained { drops: [(0.0, 0); 2], ..named("three_heads") };
    let [dropping, plain] = [&of, &plain].map(|of| {
        let mut bound = Bound::new(kiln, of, DType::F64);
        let bytes = of.descriptor(DType::F64).buffers(false).expect("small").workspace_bytes;
        let workspace = kiln.device().alloc(bytes).expect("there is memory");
        let mut layer = bound.layer.take().expect("it is there");
        let call = AttentionForward {
            workspace: Some((&workspace).into()),
            reserve: None,
            ..bound.forward(&of.case)
        };
        layer.forward(&kiln.stream(), &call).expect("it runs");
        assert_eq!(layer.dropout_states().positions().expect("they can be read"), [0, 1]);
        bound.values(AttentionRole::Output)
    });
    let numbers = |of: Vec<f64>| of.into_iter().map(f64::to_bits).collect::<Vec<u64>>();
    assert_eq!(numbers(dropping), numbers(plain));
}

#[test]
fn gradients_of_weights_are_added_or_set() {
    let (kiln, of) = (harness::kiln(), named("time_batch_beam"));
    let mut bound = trained(kiln, &of, DType::F64);
    let role = AttentionRole::WeightGradients;
    let gradients = bound.values(role);
    let before: Vec<f64> = (0..gradients.len()).map(|at| at as f64 / 8.0).collect();
    bound.buffers[&role].write(0, &encoded(DType::F64, &before)).expect("it fits");
    let stream = kiln.stream();
    let mut layer = bound.layer.take().expect("it is there");
    let mut sum = before;
    for _ in 0..2 {
        let call = bound.weights(WeightGradientMode::Add);
        layer.backward_weights(&stream, &call).expect("it runs");
        stream.synchronize().expect("it ran");
        sum.iter_mut().zip(&gradients).for_each(|(sum, gradient)| *sum += gradient);
        assert_eq!(bound.values(role), sum);
    }
    let set = bound.weights(WeightGradientMode::Set);
    layer.backward_weights(&stream, &set).expect("it runs");
    stream.synchronize().expect("it ran");
    assert_eq!(bound.values(role), gradients);
}

/// The slope of the sum of outputs times their gradient along a direction, by the reference: of the
/// backward passes' graphs, and by a central difference. The loss is below 1e3 and third
/// derivatives below 1e4: a difference of 2e-5 is off by 1e-6 and by some 1e-8 of rounding.
#[test]
fn gradients_are_slopes() {
    const STEP: f64 = 1e-5;
    for name in ["time_beam_batch", "projections_none", "empty_sequences", "empty_windows"] {
        let of = named(name);
        let descriptor = of.descriptor(DType::F64);
        let extent = AttentionExtent { training: true, ..of.case.extent(&descriptor) };
        let layers = PASSES.map(|pass| descriptor.lowered(pass, extent).expect("valid"));
        let mut memory = of.case.memory(&layers[0]);
        memory.insert(AttentionRole::DropoutSeeds, of.drops.map(|(_, seed)| seed as f64).to_vec());
        let beyond = of.beyond(AttentionRole::Output, &descriptor);
        let forward = |memory: &mut HashMap<AttentionRole, Vec<f64>>| -> f64 {
            memory.insert(AttentionRole::DropoutPositions, vec![0.0, 1.0]);
            memory.insert(AttentionRole::DropoutCount, vec![2.0]);
            evaluate(&layers[0], memory, -1);
            let outputs = memory[&AttentionRole::Output].iter().enumerate();
            let inside = outputs.filter(|(at, _)| !beyond.contains(at));
            inside.map(|(at, y)| y * memory[&AttentionRole::OutputGradient][at]).sum()
        };
        forward(&mut memory);
        layers[1..].iter().for_each(|layer| evaluate(layer, &mut memory, -1));
        let inputs = [
            AttentionRole::Queries,
            AttentionRole::Keys,
            AttentionRole::Values,
            AttentionRole::Weights,
        ];
        for (role, gradient) in inputs.into_iter().zip(GRADIENTS) {
            let direction = |at: usize| (at as f64 * 1.7).sin();
            let gradients = memory[&gradient].iter().enumerate();
            let slope: f64 = gradients.map(|(at, gradient)| gradient * direction(at)).sum();
            let [above, below] = [STEP, -STEP].map(|step| {
                let mut moved = memory.clone();
                let values = moved.get_mut(&role).expect("it is there").iter_mut().enumerate();
                values.for_each(|(at, value)| *value += step * direction(at));
                forward(&mut moved)
            });
            let difference = (above - below) / (2.0 * STEP);
            let off = (slope - difference).abs();
            assert!(off <= 2e-6, "{name}: {}: {slope}, not {difference}", role.name());
        }
    }
}

#[test]
fn passes_plan_for_every_generation() {
    let of = wide();
    for target in ["t4", "a100", "l40s", "h200", "b200", "rtx5090"] {
        let target = Target::named(target).expect("known");
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
            let descriptor = of.descriptor(dtype);
            let extent = AttentionExtent { training: true, ..of.case.extent(&descriptor) };
            let parts = PASSES.map(|pass| {
                let layer = descriptor.lowered(pass, extent).expect("valid");
                let parts = layer.stages.iter().map(|stage| {
                    let parts = engine::partition(&stage.graph, &target, &Selection::default());
                    parts.unwrap_or_else(|error| panic!("{target}: {dtype}: {error:?}")).len()
                });
                parts.collect::<Vec<usize>>()
            });
            // Projections, windows, three of dropout, attention, outputs; a mask of the outputs'
            // gradient, its GEMM, attention, GEMMs; of weights a mask of the vectors, and a GEMM
            // that adds up the gradients of the biases.
            let wanted = [vec![1; 9], vec![1; 6], vec![2, 2, 2, 1]];
            assert_eq!(parts, wanted, "{target}: {dtype}");
        }
    }
}

#[test]
fn passes_after_the_first_allocate_nothing() {
    let kiln = allocations::null();
    let of = named("three_heads");
    let mut bound = Bound::new(&kiln, &of, DType::F64);
    let mut layer = bound.layer.take().expect("it is there");
    let stream = kiln.stream();
    let mut all = || -> kiln::Result<()> {
        layer.forward(&stream, &bound.forward(&of.case))?;
        layer.backward_data(&stream, &bound.data())?;
        layer.backward_weights(&stream, &bound.weights(WeightGradientMode::Add))
    };
    all().expect("it is planned");
    let (result, count) = allocations::allocations_of(all);
    result.expect("it runs");
    assert_eq!(count, 0);
}

#[test]
fn misused_reserve_spaces_are_refused() {
    let kiln = harness::kiln();
    let stream = kiln.stream();
    let of = named("time_batch_beam");
    let mut bound = Bound::new(kiln, &of, DType::F64);
    let mut layer = bound.layer.take().expect("it is there");
    let expect = |error: Error, rule: &str| {
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, rule));
    };
    let data = |call: AttentionBackwardData<'_>, rule: &str, layer: &mut MultiHeadAttention| {
        let error = layer.backward_data(&stream, &call).expect_err(rule);
        expect(error, &format!("attention backward data: {rule}"));
    };
    let weights =
        |call: AttentionBackwardWeights<'_>, rule: &str, layer: &mut MultiHeadAttention| {
            let error = layer.backward_weights(&stream, &call).expect_err(rule);
            expect(error, &format!("attention backward weights: {rule}"));
        };
    let (good, set) = (bound.data(), bound.weights(WeightGradientMode::Set));
    let rule = "no reserve space has been through a forward pass in training of this problem";
    data(good, rule, &mut layer);
    let rule = "no reserve space has been through attention backward data of this problem";
    weights(set, rule, &mut layer);
    layer.forward(&stream, &bound.forward(&of.case)).expect("it runs");
    let rule = "the reserve space has not been through attention backward data";
    weights(set, rule, &mut layer);
    // Descriptors of the other order, and the first one's memory.
    let other = Bound::new(kiln, &named("batch_time_beam"), DType::F64);
    let rule = "the reserve space is of 2 sequences of 3 queries and 4 keys by time, batch, beam, \
                not of 2 sequences of 3 queries and 4 keys by batch, time, beam";
    data(
        AttentionBackwardData { reserve: (&bound.reserve).into(), ..other.data() },
        rule,
        &mut layer,
    );
    let buffer = kiln.device().alloc(16).expect("there is memory");
    let small = Memory::from(&buffer);
    let buffers = of.descriptor(DType::F64).buffers(true).expect("they are small");
    let needed = buffers.reserve_bytes;
    let rule = format!("the reserve space has 16 bytes, the layer needs {needed}");
    data(AttentionBackwardData { reserve: small, ..good }, &rule, &mut layer);
    // 6 queries of 2 heads of 3 values.
    let extent = AttentionExtent { training: true, ..of.case.extent(layer.descriptor()) };
    let mut needed = |pass: AttentionPass, kept: u64| {
        let plans = layer.plans_of(pass, extent).expect("it is supported");
        let plans = plans.iter().map(|plan| plan.workspace_bytes()).max().expect("there are some");
        kept.next_multiple_of(256) + plans
    };
    let of_data = needed(AttentionPass::BackwardData, 288);
    let of_weights = needed(AttentionPass::BackwardWeights, buffers.weight_bytes);
    let rule = format!("the layer needs a workspace of {of_data} bytes, there is none");
    data(AttentionBackwardData { workspace: None, ..good }, &rule, &mut layer);
    let rule = format!("the workspace has 16 bytes, the layer needs {of_data}");
    data(AttentionBackwardData { workspace: Some(small), ..good }, &rule, &mut layer);
    let of_small =
        |name: &str, needed: u64| format!("`{name}` has 16 bytes, the layer needs {needed}");
    let rule = of_small("output_gradient", 6 * 4 * 8);
    data(AttentionBackwardData { dout: small, ..good }, &rule, &mut layer);
    let rule = of_small("query_gradients", 6 * 4 * 8);
    data(AttentionBackwardData { dqueries: small, ..good }, &rule, &mut layer);
    let rule = of_small("key_gradients", 8 * 3 * 8);
    data(AttentionBackwardData { dkeys: small, ..good }, &rule, &mut layer);
    let rule = of_small("value_gradients", 8 * 5 * 8);
    data(AttentionBackwardData { dvalues: small, ..good }, &rule, &mut layer);
    let rule = of_small("weights", buffers.weight_bytes);
    data(AttentionBackwardData { weights: small, ..good }, &rule, &mut layer);
    let [q_desc, k_desc, ..] = &bound.described;
    let rule = "vectors of v have 3 elements, expected 5";
    data(AttentionBackwardData { v_desc: k_desc, ..good }, rule, &mut layer);
    let rule = "vectors of k have 4 elements, expected 3";
    weights(AttentionBackwardWeights { k_desc: q_desc, ..set }, rule, &mut layer);
    layer.backward_data(&stream, &good).expect("it runs");
    let rule = of_small("weight_gradients", buffers.weight_bytes);
    weights(AttentionBackwardWeights { dweights: small, ..set }, &rule, &mut layer);
    let needed = of_weights;
    let rule = format!("the layer needs a workspace of {needed} bytes, there is none");
    let add = bound.weights(WeightGradientMode::Add);
    weights(AttentionBackwardWeights { workspace: None, ..add }, &rule, &mut layer);
    let rule = format!("the workspace has 16 bytes, the layer needs {needed}");
    weights(AttentionBackwardWeights { workspace: Some(small), ..add }, &rule, &mut layer);
    layer.backward_weights(&stream, &set).expect("it runs");
    stream.synchronize().expect("it ran");
    // Again, from a reserve space that has been through all passes, or is restored elsewhere.
    layer.backward_weights(&stream, &set).expect("it runs");
    let bytes = bound.reserve.to_vec().expect("it can be read");
    let restored: Buffer = kiln.device().upload(&bytes).expect("there is memory");
    let call = AttentionBackwardData { reserve: (&restored).into(), ..good };
    layer.backward_data(&stream, &call).expect("it runs");
    stream.synchronize().expect("it ran");
}

#[test]
fn training_calls_that_do_not_fit_are_refused() {
    let (kiln, of) = (harness::kiln(), named("time_batch_beam"));
    let mut bound = Bound::new(kiln, &of, DType::F64);
    let mut layer = bound.layer.take().expect("it is there");
    let stream = kiln.stream();
    let buffer = kiln.device().alloc(16).expect("there is memory");
    let small = Memory::from(&buffer);
    let good = bound.forward(&of.case);
    let needed = of.descriptor(DType::F64).buffers(true).expect("small").reserve_bytes;
    let call = AttentionForward { reserve: Some(small), ..good };
    let error = layer.forward(&stream, &call).expect_err("it is too small").to_string();
    let rule = format!("the reserve space has 16 bytes, the layer needs {needed}");
    assert_eq!(error, format!("attention forward: {rule}"));
}
