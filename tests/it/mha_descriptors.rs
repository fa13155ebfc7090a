//! mcDNN's descriptors of attention layers: every documented refusal, and the buffers.

use kiln::attention::{
    AttentionDescriptor, AttentionExtent, AttentionPass, AttentionSettings, AttentionSizes,
    AttentionWeightKind, AttentionWeights, QueryMap, SequenceAxis, SequenceDataDescriptor,
    SequenceDataSettings, SequenceExtents,
};
use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::layers::DropoutStates;
use kiln::rnn::MathType;
use kiln::{DType, Error, ErrorKind};

fn settings() -> AttentionSettings {
    AttentionSettings::new(AttentionSizes { heads: 4, size: 32, batch: 2, steps: 8 })
}

fn expect(error: &Error, kind: ErrorKind, text: &str) {
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
}

#[test]
fn attention_settings_come_back_as_they_were() {
    let settings = AttentionSettings {
        query_map: QueryMap::OneToOne,
        proj_biases: true,
        sm_scaler: Real::new(0.0),
        attn_dropout: DropoutDescriptor::set(Real::new(0.25), 3).expect("valid"),
        v_proj_size: 0,
        o_proj_size: 0,
        max_beam_size: 3,
        ..settings()
    };
    let descriptor = AttentionDescriptor::set(settings).expect("valid");
    assert_eq!(descriptor.get(), &settings);
    assert_eq!((descriptor.depth(), descriptor.width(), descriptor.output_size()), (8, 32, 128));
}

#[test]
fn bad_attention_settings_are_refused_by_the_documents_rules() {
    let cases = [
        (
            AttentionSettings { num_heads: 0, ..settings() },
            "the number of heads is 0, expected at least 1",
        ),
        (
            AttentionSettings { q_size: -1, ..settings() },
            "the query size is -1, expected at least 1",
        ),
        (AttentionSettings { k_size: 0, ..settings() }, "the key size is 0, expected at least 1"),
        (AttentionSettings { v_size: 0, ..settings() }, "the value size is 0, expected at least 1"),
        (
            AttentionSettings { qo_max_seq_length: 0, ..settings() },
            "the maximal length of queries is 0, expected at least 1",
        ),
        (
            AttentionSettings { kv_max_seq_length: -8, ..settings() },
            "the maximal length of keys is -8, expected at least 1",
        ),
        (
            AttentionSettings { max_batch_size: 0, ..settings() },
            "the maximal batch size is 0, expected at least 1",
        ),
        (
            AttentionSettings { max_beam_size: 0, ..settings() },
            "the maximal beam size is 0, expected at least 1",
        ),
        (
            AttentionSettings { v_proj_size: -1, ..settings() },
            "the projection of values is -1, expected at least 0",
        ),
        (
            AttentionSettings { k_proj_size: 16, ..settings() },
            "after their projections queries have 8 elements, keys 16",
        ),
        (
            AttentionSettings { q_proj_size: 0, ..settings() },
            "after their projections queries have 32 elements, keys 8",
        ),
        (
            AttentionSettings { sm_scaler: Real::new(-0.5), ..settings() },
            "the softmax scaler is -0.5, expected at least 0",
        ),
        (
            AttentionSettings { sm_scaler: Real::new(f64::NAN), ..settings() },
            "the softmax scaler is NaN, expected at least 0",
        ),
        (
            AttentionSettings { data_type: DType::I32, ..settings() },
            "data of i32, expected f16, bf16, f32 or f64",
        ),
        (
            AttentionSettings { compute_prec: DType::F64, ..settings() },
            "precision f64 of data of f32",
        ),
        (AttentionSettings { data_type: DType::F64, ..settings() }, "precision f32 of data of f64"),
        (
            AttentionSettings { math_type: MathType::TensorOp, ..settings() },
            "math type TensorOp of data of f32",
        ),
    ];
    for (settings, rule) in cases {
        let error = AttentionDescriptor::set(settings).expect_err(rule);
        expect(&error, ErrorKind::BadParam, &format!("attention descriptor: {rule}"));
    }
}

#[test]
fn dropouts_have_a_probability_and_a_seed() {
    for probability in [1.0, -0.1, f64::NAN] {
        let error = DropoutDescriptor::set(Real::new(probability), 0).expect_err("refused");
        let probability = Real::new(probability);
        let text =
            format!("dropout descriptor: probability {probability}, expected 0 to less than 1");
        expect(&error, ErrorKind::BadParam, &text);
    }
    let seed = (1 << 53) + 1;
    let error = DropoutDescriptor::set(Real::new(0.5), -seed).expect_err("refused");
    let text = format!("dropout descriptor: seed -{seed}, expected at most 2^53 in magnitude");
    expect(&error, ErrorKind::BadParam, &text);
    let half = DropoutDescriptor::set(Real::new(0.5), -7).expect("valid");
    assert_eq!((half.probability(), half.seed()), (Real::new(0.5), -7));
    assert_eq!((half.kept(), half.scale(), half.is_none()), (0.5, 2.0, false));
    assert_eq!(DropoutDescriptor::default(), DropoutDescriptor::NONE);
    assert!(DropoutDescriptor::set(Real::new(0.0), 1).expect("valid").is_none());
    assert_eq!(DropoutStates::bytes_of(2), 24);
}

#[test]
fn the_documented_types_are_taken() {
    use MathType::{Default, TensorOp, TensorOpAllowConversion};
    let cases = [
        (DType::F64, DType::F64, Default),
        (DType::F32, DType::F32, Default),
        (DType::F32, DType::F32, TensorOpAllowConversion),
        (DType::F16, DType::F16, Default),
        (DType::F16, DType::F32, TensorOp),
        (DType::F16, DType::F16, TensorOpAllowConversion),
    ];
    for (data_type, compute_prec, math_type) in cases {
        let settings = AttentionSettings { data_type, compute_prec, math_type, ..settings() };
        AttentionDescriptor::set(settings).expect("the document lists it");
    }
}

/// Sequence data of these extents: batch, beam, time, vector.
fn extents([batch, beam, time, vector]: [i32; 4]) -> SequenceDataSettings {
    SequenceDataSettings::new(SequenceExtents { batch, beam, time, vector })
}

fn data() -> SequenceDataSettings {
    extents([3, 2, 4, 5])
}

#[test]
fn sequence_data_settings_come_back_whole_or_in_part() {
    use SequenceAxis::{Batch, Beam, Time, Vector};
    // The example of section 6.2.1.53.
    let settings = SequenceDataSettings {
        axes: vec![Time, Batch, Beam, Vector],
        seq_lengths: vec![4, 0, 1, 2, 3, 4],
        ..data()
    };
    let descriptor = SequenceDataDescriptor::set(settings.clone()).expect("valid");
    assert_eq!(descriptor.get(), &settings);
    assert_eq!(settings.dims, [4, 3, 2, 5]);
    let view = descriptor.view(4, 6).expect("valid");
    assert_eq!((view.nb_dims, view.dims, view.axes), (4, &[4, 3, 2, 5][..], &settings.axes[..]));
    assert_eq!((view.seq_length_count, view.seq_lengths), (6, &[4, 0, 1, 2, 3, 4][..]));
    assert_eq!((view.data_type, view.padding_fill), (DType::F32, None));
    let part = descriptor.view(2, 3).expect("valid");
    assert_eq!((part.nb_dims, part.dims, part.axes), (4, &[4, 3][..], &[Time, Batch][..]));
    assert_eq!((part.seq_length_count, part.seq_lengths), (6, &[4, 0, 1][..]));
    assert_eq!(descriptor.view(99, 99).expect("valid"), view);
    let none = descriptor.view(0, 0).expect("valid");
    assert_eq!((none.dims.len(), none.axes.len(), none.seq_lengths.len()), (0, 0, 0));
    let text = "sequence data descriptor: -1 dimensions are requested";
    expect(&descriptor.view(-1, 0).expect_err("refused"), ErrorKind::BadParam, text);
}

#[test]
fn bad_sequence_data_settings_are_refused_by_the_documents_rules() {
    use ErrorKind::{BadParam, NotSupported};
    use SequenceAxis::{Batch, Beam, Time, Vector};
    let cases = [
        (SequenceDataSettings { nb_dims: 0, ..data() }, BadParam, "0 dimensions, expected 4"),
        (SequenceDataSettings { nb_dims: -4, ..data() }, BadParam, "-4 dimensions, expected 4"),
        (SequenceDataSettings { nb_dims: 3, ..data() }, NotSupported, "3 dimensions, expected 4"),
        (
            SequenceDataSettings { dims: vec![4, 3], ..data() },
            BadParam,
            "2 extents and 4 axes of 4 dimensions",
        ),
        (
            SequenceDataSettings { data_type: DType::I8, ..data() },
            NotSupported,
            "data of i8, expected f16, bf16, f32 or f64",
        ),
        (
            SequenceDataSettings { dims: vec![4, 3, 0, 5], ..data() },
            BadParam,
            "the beam extent is 0, expected at least 1",
        ),
        (
            SequenceDataSettings { dims: vec![4, 1 << 16, 1 << 16, 5], ..data() },
            BadParam,
            "65536 beams of 65536 candidates, more than 2^31 - 1",
        ),
        (
            SequenceDataSettings { axes: vec![Time, Beam, Time, Vector], ..data() },
            BadParam,
            "duplicate axis time",
        ),
        (
            SequenceDataSettings { axes: vec![Vector, Batch, Beam, Time], ..data() },
            BadParam,
            "the innermost axis is time, expected vector",
        ),
        (
            SequenceDataSettings { seq_lengths: vec![4; 5], ..data() },
            BadParam,
            "5 lengths of 6 sequences",
        ),
        (
            SequenceDataSettings { seq_lengths: vec![4, 4, -1, 4, 4, 4], ..data() },
            BadParam,
            "length -1 of sequence 2, expected 0 to 4",
        ),
        (
            SequenceDataSettings { seq_lengths: vec![4, 4, 4, 4, 4, 5], ..data() },
            BadParam,
            "length 5 of sequence 5, expected 0 to 4",
        ),
        (
            SequenceDataSettings { padding_fill: Some(Real::new(0.0)), ..data() },
            NotSupported,
            "padding is filled with 0, expected no fill",
        ),
    ];
    for (settings, kind, rule) in cases {
        let error = SequenceDataDescriptor::set(settings).expect_err(rule);
        expect(&error, kind, &format!("sequence data descriptor: {rule}"));
    }
}

#[test]
fn weights_that_the_layer_does_not_have_are_said_to_be_absent() {
    let bare = AttentionSettings { q_proj_size: 0, k_proj_size: 0, ..settings() };
    let descriptor = AttentionDescriptor::set(bare).expect("valid");
    let weights = AttentionWeights::new(&descriptor).expect("they are small");
    // 4 heads of 8 values from 32, and back; no biases.
    assert_eq!(weights.elements(), 2 * 4 * 8 * 32);
    let given = AttentionWeightKind::ALL
        .map(|kind| weights.get(kind, weights.bytes()).expect("the buffer is whole").is_some());
    assert_eq!(given, [false, false, true, true, false, false, false, false]);
    let error = weights.get(AttentionWeightKind::QWeights, 8191).expect_err("it is too small");
    let text = "attention weights: the buffer has 8191 bytes, the layer needs 8192";
    expect(&error, ErrorKind::BadParam, text);
}

#[test]
fn buffers_hold_what_the_largest_call_needs() {
    let descriptor = AttentionDescriptor::set(settings()).expect("valid");
    let inference = descriptor.buffers(false).expect("they are small");
    // 16 vectors of 4 heads of 8 elements: queries, keys, values and results; two bounds each.
    let kept = 4 * (16 * 32 * 4) + 2 * 256;
    // Starts and ends of windows, and the results of up to 64 splits.
    let (windows, partials) = (2 * 64 * 4, 64 * (16 * 32 * 4));
    let workspace = kept + windows + partials;
    assert_eq!((inference.workspace_bytes, inference.reserve_bytes), (workspace, 0));
    assert_eq!(inference.weight_bytes, 4 * (4 * 8 * 32) * 4);
    let training = descriptor.buffers(true).expect("they are small");
    // A logarithm of a sum for each head of each vector; gradients of what is projected and of the
    // outputs. The gradients of the weights are more than those of the heads' results.
    let reserve = kept + 256 + 4 * (16 * 32 * 4);
    let weights = inference.weight_bytes;
    assert_eq!((training.workspace_bytes, training.reserve_bytes), (65 * weights, reserve));
    let attn_dropout = DropoutDescriptor::set(Real::new(0.5), 1).expect("valid");
    let dropping = AttentionSettings { attn_dropout, max_beam_size: 4, ..settings() };
    let dropping = AttentionDescriptor::set(dropping).expect("valid");
    // Seeds and positions; training is without beams.
    let training = dropping.buffers(true).expect("they are small");
    assert_eq!(training.reserve_bytes, reserve + 2 * 256);
    let few = AttentionSettings { q_size: 8, k_size: 8, v_size: 8, o_proj_size: 8, ..settings() };
    let few = AttentionDescriptor::set(few).expect("valid").buffers(true).expect("they are small");
    // Fewer than the gradients of the heads' results and, in a tile of 128 by 64 and two sums for
    // each head, those of the queries.
    let tiles = 2 * 4 * 128 * (64 + 2) * 4;
    let workspace = 16 * 32 * 4 + tiles + 64 * (16 * 32 * 4);
    assert_eq!((few.weight_bytes, few.workspace_bytes), (4 * (4 * 8 * 8) * 4, workspace));
    let most = i32::MAX;
    let huge = AttentionSettings { qo_max_seq_length: most, max_batch_size: most, ..settings() };
    let huge = AttentionDescriptor::set(huge).expect("valid");
    let error = huge.buffers(false).expect_err("no memory is as large");
    expect(&error, ErrorKind::BadParam, "attention layer: `queries` exceeds 2^62 bytes");
    let huge = AttentionSettings { num_heads: most, q_size: most, o_proj_size: most, ..settings() };
    let huge = AttentionDescriptor::set(huge).expect("valid");
    let error = AttentionWeights::new(&huge).expect_err("no memory is as large");
    expect(&error, ErrorKind::BadParam, "attention descriptor: the weights exceed 2^62 bytes");
}

/// A client allocates for the largest layer, and asks again for a smaller one.
#[test]
fn sizes_do_not_grow_where_a_limit_shrinks() {
    let limits = [1, 2, 3, 7, 64, 65, 1000];
    let mut asked = 0;
    for (training, o_proj_size) in [(false, 0), (false, 48), (true, 48)] {
        let sizes = |[batch, beams, queries, keys]: [i32; 4]| {
            let of = AttentionSettings {
                max_batch_size: batch,
                max_beam_size: beams,
                qo_max_seq_length: queries,
                kv_max_seq_length: keys,
                o_proj_size,
                ..settings()
            };
            let buffers = AttentionDescriptor::set(of).expect("valid").buffers(training);
            let buffers = buffers.expect("they are small");
            [buffers.weight_bytes, buffers.workspace_bytes, buffers.reserve_bytes]
        };
        let of = |at: [usize; 4]| sizes(at.map(|at| limits[at]));
        for number in 0..limits.len().pow(4) {
            let at = [343, 49, 7, 1].map(|of| number / of % limits.len());
            for axis in (0..4).filter(|axis| at[*axis] > 0) {
                let mut smaller = at;
                smaller[axis] -= 1;
                let grown = std::iter::zip(of(smaller), of(at)).any(|(less, more)| less > more);
                assert!(!grown, "{training} {at:?} {axis}");
                asked += 1;
            }
        }
    }
    assert_eq!(asked, 3 * 4 * 6 * 7 * 7 * 7);
}

#[test]
fn training_is_of_all_steps_without_beams() {
    let training = AttentionExtent { training: true, ..AttentionExtent::default() };
    let refused = |settings, extent, kind, rule: &str| {
        let descriptor = AttentionDescriptor::set(settings).expect("valid");
        let error = descriptor.layer(extent).expect_err(rule);
        expect(&error, kind, &format!("attention layer: {rule}"));
    };
    let beams = AttentionExtent { beams: 2, ..training };
    let rule = "2 beam candidates in training, expected 1";
    refused(settings(), beams, ErrorKind::NotSupported, rule);
    let rule = "the query map OneToOne in training, expected AllToOne";
    let own = AttentionSettings { query_map: QueryMap::OneToOne, ..settings() };
    refused(own, training, ErrorKind::NotSupported, rule);
    let error = AttentionDescriptor::set(own).expect("valid").buffers(true).expect_err(rule);
    expect(&error, ErrorKind::NotSupported, &format!("attention layer: {rule}"));
    let rule = "one step in training, expected all";
    refused(settings(), AttentionExtent { one_step: true, ..training }, ErrorKind::BadParam, rule);
    let descriptor = AttentionDescriptor::set(settings()).expect("valid");
    for pass in [AttentionPass::BackwardData, AttentionPass::BackwardWeights] {
        let error = descriptor.lowered(pass, AttentionExtent::default()).expect_err("refused");
        let text = format!("{}: the extent is not of training", pass.name());
        expect(&error, ErrorKind::BadParam, &text);
    }
}

#[test]
fn extents_and_residuals_that_do_not_fit_are_refused() {
    let descriptor = AttentionDescriptor::set(settings()).expect("valid");
    let refused = |descriptor: &AttentionDescriptor, extent| {
        let error = descriptor.layer(extent).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::BadParam);
        error.to_string()
    };
    let none = AttentionExtent { keys: 0, ..AttentionExtent::default() };
    let text = "attention layer: the time of keys extent is 0, expected at least 1";
    assert_eq!(refused(&descriptor, none), text);
    let order = [SequenceAxis::Time, SequenceAxis::Beam, SequenceAxis::Time];
    let text = "attention layer: the order [\"time\", \"beam\", \"time\"] lacks batch";
    assert_eq!(refused(&descriptor, AttentionExtent { order, ..AttentionExtent::default() }), text);
    let other = AttentionSettings { o_proj_size: 24, ..settings() };
    let other = AttentionDescriptor::set(other).expect("valid");
    let residuals = AttentionExtent { residuals: true, ..AttentionExtent::default() };
    let text = "attention layer: residuals have 32 elements, outputs 24";
    assert_eq!(refused(&other, residuals), text);
}

#[test]
fn sequence_data_that_does_not_fit_the_layer_is_refused() {
    use SequenceAxis::{Batch, Beam, Time, Vector};
    let limits = AttentionSettings { k_size: 16, max_beam_size: 3, ..settings() };
    let descriptor = AttentionDescriptor::set(limits).expect("valid");
    let one_to_one = AttentionSettings { query_map: QueryMap::OneToOne, ..limits };
    let one_to_one = AttentionDescriptor::set(one_to_one).expect("valid");
    let of = |settings| SequenceDataDescriptor::set(settings).expect("valid");
    let q = extents([2, 3, 8, 32]);
    let k = extents([2, 1, 6, 16]);
    let v = extents([2, 1, 6, 32]);
    let call = |q: &SequenceDataSettings, k: &SequenceDataSettings, v: &SequenceDataSettings, o| {
        descriptor.extent(&of(q.clone()), &of(k.clone()), &of(v.clone()), &of(o))
    };
    let extent = call(&q, &k, &v, q.clone()).expect("they fit");
    assert_eq!((extent.batch, extent.beams, extent.queries, extent.keys), (2, 3, 8, 6));
    let refused = |result: kiln::Result<AttentionExtent>, rule: &str| {
        let text = format!("attention forward: {rule}");
        expect(&result.expect_err(rule), ErrorKind::BadParam, &text);
    };
    let f16 = SequenceDataSettings { data_type: DType::F16, ..k.clone() };
    refused(call(&q, &f16, &v, q.clone()), "k is of f16, the layer of f32");
    let wide = extents([2, 3, 8, 33]);
    refused(call(&q, &k, &v, wide), "vectors of o have 33 elements, expected 32");
    let long = extents([2, 1, 9, 16]);
    refused(call(&q, &long, &v, q.clone()), "the time extent of k is 9, the layer's limit 8");
    let many = extents([3, 3, 8, 32]);
    refused(call(&many, &k, &v, q.clone()), "the batch extent of q is 3, the layer's limit 2");
    let beams = extents([2, 4, 8, 32]);
    refused(call(&beams, &k, &v, q.clone()), "the beam extent of q is 4, the layer's limit 3");
    let other = SequenceDataSettings { axes: vec![Time, Batch, Beam, Vector], ..v.clone() };
    let rule = "the layout of v, [\"time\", \"batch\", \"beam\"], differs from that of q, \
                [\"batch\", \"beam\", \"time\"]";
    refused(call(&q, &k, &other, q.clone()), rule);
    let batch = extents([1, 1, 6, 16]);
    let rule = "the batch extent of k, 1, differs from that of q, 2";
    refused(call(&q, &batch, &v, q.clone()), rule);
    let steps = extents([2, 3, 7, 32]);
    let rule = "the time extent of o, 7, differs from that of q, 8";
    refused(call(&q, &k, &v, steps), rule);
    let two = extents([2, 2, 6, 32]);
    let rule = "the beam extent of v, 2, differs from that of k, 1";
    refused(call(&q, &k, &two, q.clone()), rule);
    let short = SequenceDataSettings { seq_lengths: vec![6, 5], ..v.clone() };
    let rule = "the lengths of v, [6, 5], differs from that of k, [6, 6]";
    refused(call(&q, &k, &short, q.clone()), rule);
    let rule = "beams of keys are 1 wide, those of queries 3: OneToOne wants 3";
    let result = one_to_one.extent(&of(q.clone()), &of(k), &of(v), &of(q));
    refused(result, rule);
}
