//! What oneDNN's front-end refuses, with the rule and the values.

use kiln::expr::Real;
use kiln::onednn::{
    Activation, Arg, Cell, DataQuantization, FormatTag, MemoryDesc, Primitive, PrimitiveAttr,
    PropKind, RnnDesc, RnnDirection, Tensor, WeightsScales,
};
use kiln::{DType, ErrorKind};

use crate::harness;

const T: i64 = 3;
const N: i64 = 2;
const C: i64 = 4;

fn of(dims: &[i64], dtype: DType) -> MemoryDesc {
    MemoryDesc::new(dims, dtype, FormatTag::Any).unwrap()
}

/// A valid operation of one layer whose channels are all equal.
fn valid(cell: Cell, prop_kind: PropKind, direction: RnnDirection) -> RnnDesc {
    let (d, g, f32) = (direction.count(), cell.gates(), DType::F32);
    let width = if direction == RnnDirection::BidirectionalConcat { 2 * C } else { C };
    let mut desc = RnnDesc::new(cell, prop_kind, direction);
    let weights = [1, d, C, g, C];
    for (tensor, dims) in [
        (Tensor::SrcLayer, &[T, N, C][..]),
        (Tensor::SrcIter, &[1, d, N, C]),
        (Tensor::WeightsLayer, &weights),
        (Tensor::WeightsIter, &weights),
        (Tensor::Bias, &[1, d, cell.biases(), C]),
        (Tensor::DstLayer, &[T, N, width]),
        (Tensor::DstIter, &[1, d, N, C]),
    ] {
        desc = desc.with(tensor, of(dims, f32));
    }
    if cell.has(Tensor::AugruAttention) {
        desc = desc.with(Tensor::AugruAttention, of(&[T, N, 1], f32));
    }
    if prop_kind == PropKind::Backward {
        for (arg, own) in desc.descs.clone() {
            if let Arg::Of(tensor) = arg {
                desc = desc.with_diff(tensor, own);
            }
        }
    }
    desc
}

fn lstm() -> RnnDesc {
    valid(Cell::Lstm, PropKind::ForwardInference, RnnDirection::LeftToRight)
}

/// An LSTM of 8-bit integers.
fn int8() -> RnnDesc {
    let mut desc = lstm();
    for (arg, own) in &mut desc.descs {
        *own = match arg {
            Arg::Of(Tensor::Bias) => own.clone(),
            Arg::Of(tensor) if tensor.is_weights() => of(own.dims(), DType::I8),
            _ => of(own.dims(), DType::U8),
        };
    }
    desc
}

fn without(mut desc: RnnDesc, arg: Arg) -> RnnDesc {
    desc.descs.remove(&arg);
    desc
}

fn scaled(mask: i32, scales: &[f64]) -> RnnDesc {
    let scales = scales.iter().map(|scale| Real::new(*scale)).collect();
    let attr =
        PrimitiveAttr { weights: Some(WeightsScales { mask, scales }), ..PrimitiveAttr::default() };
    RnnDesc { attr, ..int8() }
}

fn shifted(scale: f64, shift: f64) -> PrimitiveAttr {
    let data = DataQuantization { scale: Real::new(scale), shift: Real::new(shift) };
    PrimitiveAttr { data: Some(data), ..PrimitiveAttr::default() }
}

#[test]
fn descriptors_that_break_a_rule_are_refused() {
    use DType::{Bf16, F16, F32, F64, I8, U8};
    use ErrorKind::{BadParam, NotSupported};
    let with = |tensor, dims: &[i64]| lstm().with(tensor, of(dims, F32));
    let in_direction = |direction| valid(Cell::Gru, PropKind::ForwardInference, direction);
    let both = in_direction(RnnDirection::BidirectionalConcat);
    let back = valid(Cell::Lstm, PropKind::Backward, RnnDirection::RightToLeft);
    let augru = valid(Cell::Augru, PropKind::ForwardTraining, RnnDirection::LeftToRight);
    let vanilla = Cell::VanillaRnn(Activation::Relu);
    let vanilla = valid(vanilla, PropKind::ForwardInference, RnnDirection::LeftToRight);
    let two_layers = [
        (Tensor::SrcLayer, vec![T, N, 5]),
        (Tensor::WeightsLayer, vec![2, 1, 5, 4, C]),
        (Tensor::WeightsIter, vec![2, 1, C, 4, C]),
    ];
    let two_layers =
        two_layers.iter().fold(lstm(), |desc, (tensor, dims)| desc.with(*tensor, of(dims, F32)));
    let one_step = with(Tensor::SrcLayer, &[1, N, C])
        .with(Tensor::DstLayer, of(&[1, N, C], F32))
        .with(Tensor::SrcIter, of(&[1, 1, N, 3], F32))
        .with(Tensor::WeightsIter, of(&[1, 1, 3, 4, C], F32));
    let cases = [
        (
            without(lstm(), Arg::Of(Tensor::WeightsIter)),
            BadParam,
            "onednn lstm forward_inference: weights_iter is missing",
        ),
        (
            with(Tensor::SrcLayer, &[T, C]),
            BadParam,
            "onednn lstm forward_inference: src_layer is [3, 4], expected 3 dimensions",
        ),
        (
            vanilla.with(Tensor::SrcIterC, of(&[1, 1, N, C], F32)),
            BadParam,
            "onednn vanilla_rnn forward_inference: src_iter_c of cell vanilla_rnn",
        ),
        (
            without(augru, Arg::Of(Tensor::AugruAttention)),
            BadParam,
            "onednn augru forward_training: augru_attention is missing",
        ),
        (
            both.clone().with(Tensor::WeightsLayer, of(&[1, 1, C, 3, C], F32)),
            BadParam,
            "onednn gru forward_inference: directions(weights_layer) is 1, expected 2 \
             (bidirectional_concat)",
        ),
        (
            with(Tensor::WeightsLayer, &[1, 1, C, 3, C]),
            BadParam,
            "onednn lstm forward_inference: gates(weights_layer) is 3, expected 4 (lstm)",
        ),
        (
            with(Tensor::SrcLayer, &[T, N, 5]),
            BadParam,
            "onednn lstm forward_inference: channels(weights_layer) is 4, expected 5 \
             (channels(src_layer))",
        ),
        (
            with(Tensor::DstLayer, &[T, N, 5]),
            BadParam,
            "onednn lstm forward_inference: channels(dst_layer) is 5, expected 4 \
             (channels(dst_iter))",
        ),
        (
            both.with(Tensor::DstLayer, of(&[T, N, C], F32)),
            BadParam,
            "onednn gru forward_inference: channels(dst_layer) is 4, expected 8 \
             (2 channels(dst_iter))",
        ),
        (
            with(Tensor::WeightsIter, &[1, 1, 3, 4, C]),
            BadParam,
            "onednn lstm forward_inference: channels(src_iter) is 3, expected 4 \
             (channels(dst_iter), T = 3)",
        ),
        (
            two_layers,
            BadParam,
            "onednn lstm forward_inference: channels(src_layer) is 5, expected 4 \
             (channels of a layer's outputs, L = 2)",
        ),
        (
            one_step,
            NotSupported,
            "onednn lstm forward_inference: channels(src_iter) 3 beside channels(dst_iter) 4",
        ),
        (
            with(Tensor::SrcIter, &[1, 1, 3, C]),
            BadParam,
            "onednn lstm forward_inference: src_iter is [1, 1, 3, 4], expected [1, 1, 2, 4]",
        ),
        (
            with(Tensor::DstIterC, &[1, 1, N, 3]),
            BadParam,
            "onednn lstm forward_inference: dst_iter_c is [1, 1, 2, 3], expected [1, 1, 2, 4]",
        ),
        (
            in_direction(RnnDirection::BidirectionalSum).with(Tensor::Bias, of(&[1, 2, 4, C], F32)),
            BadParam,
            "onednn gru forward_inference: bias is [1, 2, 4, 4], expected [1, 2, 3, 4]",
        ),
        (
            with(Tensor::WeightsPeephole, &[1, 1, 4, C]),
            BadParam,
            "onednn lstm forward_inference: weights_peephole is [1, 1, 4, 4], expected \
             [1, 1, 3, 4]",
        ),
        (
            with(Tensor::WeightsProjection, &[1, 1, C, 3]),
            BadParam,
            "onednn lstm forward_inference: channels(dst_layer) is 4, expected 3 \
             (channels(dst_iter))",
        ),
        (
            without(back.clone(), Arg::Diff(Tensor::Bias)),
            BadParam,
            "onednn lstm backward: diff_bias is missing",
        ),
        (
            lstm().with_diff(Tensor::Bias, of(&[1, 1, 4, C], F32)),
            BadParam,
            "onednn lstm forward_inference: diff_bias is not expected",
        ),
        (
            back.clone().with_diff(Tensor::DstIter, of(&[1, 1, N, 3], F32)),
            BadParam,
            "onednn lstm backward: diff_dst_iter is [1, 1, 2, 3], expected [1, 1, 2, 4]",
        ),
        (
            lstm().with(Tensor::SrcLayer, of(&[T, N, C], F64)),
            NotSupported,
            "onednn lstm forward_inference: src_layer of f64, expected f32, bf16, f16, u8 or i8",
        ),
        (
            lstm().with(Tensor::WeightsLayer, of(&[1, 1, C, 4, C], Bf16)),
            BadParam,
            "onednn lstm forward_inference: weights_layer is of bf16, expected f32 \
             (src_layer of f32)",
        ),
        (
            lstm().with(Tensor::SrcIterC, of(&[1, 1, N, C], F16)),
            BadParam,
            "onednn lstm forward_inference: src_iter_c is of f16, expected f32 \
             (src_layer of f32)",
        ),
        (
            back.with_diff(Tensor::DstIter, of(&[1, 1, N, C], F16)),
            BadParam,
            "onednn lstm backward: diff_dst_iter is of f16, expected f32 (src_layer of f32)",
        ),
        (
            RnnDesc { attr: shifted(64.0, 0.0), ..lstm() },
            BadParam,
            "onednn lstm forward_inference: quantization of data of f32, expected u8 or i8",
        ),
        (
            int8().with(Tensor::WeightsIter, of(&[1, 1, C, 4, C], U8)),
            BadParam,
            "onednn lstm forward_inference: weights_iter is of u8, expected i8 \
             (src_layer of u8)",
        ),
        (
            int8().with(Tensor::DstLayer, of(&[T, N, C], I8)),
            BadParam,
            "onednn lstm forward_inference: dst_layer is of i8, expected u8 (src_layer of u8)",
        ),
        (
            RnnDesc { prop_kind: PropKind::ForwardTraining, ..int8() },
            NotSupported,
            "onednn lstm forward_training: src_layer of u8, which only inference by a plain \
             lstm has",
        ),
        (
            RnnDesc { attr: shifted(0.0, 128.0), ..int8() },
            BadParam,
            "onednn lstm forward_inference: data quantization by scale 0 and shift 128",
        ),
        (
            scaled(8, &[1.0]),
            BadParam,
            "onednn lstm forward_inference: weights scales of mask 8, expected 0 or 24",
        ),
        (
            scaled(24, &[1.0]),
            BadParam,
            "onednn lstm forward_inference: 1 weights scales of mask 24, expected 16",
        ),
        (scaled(0, &[f64::NAN]), BadParam, "onednn lstm forward_inference: weights scale NaN"),
        (
            RnnDesc { attr: shifted(64.0, f64::INFINITY), ..int8() },
            BadParam,
            "onednn lstm forward_inference: data quantization by scale 64 and shift inf",
        ),
        (
            RnnDesc { attr: shifted(64.0, 127.5), ..int8() },
            NotSupported,
            "onednn lstm forward_inference: data quantization: the shift 127.5 is not a number \
             of u8",
        ),
        (
            RnnDesc { attr: shifted(64.0, -1.0), ..int8() },
            NotSupported,
            "onednn lstm forward_inference: data quantization: the shift -1 is not a number of u8",
        ),
        (
            RnnDesc { attr: shifted(-64.0, 128.0), ..int8() },
            NotSupported,
            "onednn lstm forward_inference: data quantization: the scale -64 is not a positive \
             number in f32",
        ),
        (
            scaled(0, &[1e-39]),
            BadParam,
            "onednn lstm forward_inference: weights scale \
             0.000000000000000000000000000000000000001",
        ),
        (
            int8().with(Tensor::SrcIter, of(&[1, 1, N, C], F16)),
            BadParam,
            "onednn lstm forward_inference: src_iter is of f16, expected u8 (src_layer of u8)",
        ),
        (
            int8().with(Tensor::WeightsPeephole, of(&[1, 1, 3, C], F32)),
            NotSupported,
            "onednn lstm forward_inference: src_layer of u8, which only inference by a plain \
             lstm has",
        ),
    ];
    for (desc, kind, text) in cases {
        let error = Primitive::rnn(&desc).expect_err(text);
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
    }
}

#[test]
fn memory_that_is_none_is_refused() {
    let f32 = DType::F32;
    let cases = [
        (
            MemoryDesc::new(&[3, 0, 4], f32, FormatTag::Tnc),
            "memory [3, 0, 4]: dimension 0, \
                                                            expected at least 1",
        ),
        (MemoryDesc::new(&[3, 2], f32, FormatTag::Ldnc), "memory [3, 2] of format ldnc"),
        (
            MemoryDesc::strided(&[3, 2], f32, &[2]),
            "tensor `memory`: has 2 dimensions but 1 strides",
        ),
        (
            MemoryDesc::strided(&[3, 2], f32, &[0, 1]),
            "tensor `memory`: stride 0 is not positive in [0, 1]",
        ),
    ];
    for (made, text) in cases {
        assert_eq!(made.expect_err(text).to_string(), text);
    }
    let of = |dims: &[i64], dtype, tag| MemoryDesc::new(dims, dtype, tag).unwrap();
    let from = of(&[3, 2, 4], f32, FormatTag::Tnc);
    for (to, text) in [
        (
            of(&[3, 2, 5], f32, FormatTag::Tnc),
            "onednn reorder of f32[3, 2, 4] to f32[3, 2, 5]: the dimensions differ",
        ),
        (
            of(&[3, 2, 4], f32, FormatTag::Any),
            "onednn reorder of f32[3, 2, 4] to f32[3, 2, 4] any: a format is any",
        ),
        (
            of(&[3, 2, 4], DType::I32, FormatTag::Ntc),
            "onednn reorder of f32[3, 2, 4] to i32[3, 2, 4] strides [4, 12, 1]: elements of i32, \
             expected floating-point or 8-bit ones",
        ),
    ] {
        let made = Primitive::reorder(&from, &to, &PrimitiveAttr::default());
        assert_eq!(made.expect_err(text).to_string(), text);
    }
}

#[test]
fn quantization_that_a_reorder_does_not_have_is_refused() {
    let of = |dtype| MemoryDesc::new(&[1, 1, 3, 4, 5], dtype, FormatTag::Ldigo).unwrap();
    let [numbers, integers] = [DType::F32, DType::I8].map(of);
    let data = MemoryDesc::new(&[3, 2, 4], DType::F32, FormatTag::Tnc).unwrap();
    let quantised = MemoryDesc::new(&[3, 2, 4], DType::U8, FormatTag::Tnc).unwrap();
    let weights = |mask, count| {
        let scales = WeightsScales { mask, scales: vec![Real::new(2.0); count] };
        PrimitiveAttr { weights: Some(scales), ..PrimitiveAttr::default() }
    };
    let projection =
        PrimitiveAttr { projection: weights(0, 1).weights, ..PrimitiveAttr::default() };
    use ErrorKind::{BadParam, NotSupported};
    for (from, to, attr, kind, rule) in [
        (&numbers, &numbers, weights(0, 1), BadParam, "quantization of neither u8 nor i8"),
        (
            &numbers,
            &integers,
            weights(24, 19),
            BadParam,
            "19 weights scales of mask 24, expected 20",
        ),
        (
            &numbers,
            &integers,
            weights(8, 4),
            BadParam,
            "weights scales of mask 8, expected 0 or 24",
        ),
        (
            &data,
            &quantised,
            shifted(f64::NAN, 0.0),
            BadParam,
            "data quantization by scale NaN and shift 0",
        ),
        (
            &numbers,
            &integers,
            projection,
            NotSupported,
            "scales of a projection, which is not of 8 bits",
        ),
    ] {
        let error = Primitive::reorder(from, to, &attr).expect_err(rule);
        let text = format!("onednn reorder of {from} to {to}: {rule}");
        assert_eq!((error.kind(), error.to_string()), (kind, text));
    }
}

#[test]
fn executions_that_lack_something_are_refused() {
    let kiln = harness::kiln();
    let desc = MemoryDesc::new(&[3, 2, 4], DType::F32, FormatTag::Tnc).unwrap();
    let reorder = Primitive::reorder(&desc, &desc, &PrimitiveAttr::default()).unwrap();
    let mut planned = kiln.onednn_primitive(&reorder).unwrap();
    let memory = kiln.device().upload(&[0; 96]).unwrap();
    let small = kiln.device().upload(&[0; 95]).unwrap();
    let (whole, small) = ((&memory).into(), (&small).into());
    for (arguments, text) in [
        (vec![(Arg::FROM, whole)], "onednn execute: dst_layer is missing"),
        (vec![(Arg::FROM, whole), (Arg::FROM, whole)], "onednn execute: src_layer is given twice"),
        (
            vec![(Arg::FROM, whole), (Arg::TO, small)],
            "onednn execute: dst_layer has 95 bytes, its descriptor 96",
        ),
        (vec![(Arg::Workspace, whole)], "onednn execute: the primitive has no workspace"),
    ] {
        let error = planned.execute(&kiln.stream(), &arguments).expect_err(text);
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn numbers_of_arguments_are_onednns() {
    for (number, name) in [
        (1, "src_layer"),
        (3, "src_iter_c"),
        (4, "augru_attention"),
        (19, "dst_iter_c"),
        (33, "weights_layer"),
        (36, "weights_projection"),
        (41, "bias"),
        (64, "workspace"),
        (129, "diff_src_layer"),
        (132, "diff_augru_attention"),
        (145, "diff_dst_layer"),
        (163, "diff_weights_peephole"),
        (169, "diff_bias"),
    ] {
        assert_eq!(Arg::of_number(number).map(Arg::name).as_deref(), Some(name));
    }
    assert_eq!(Arg::of_number(5), None);
}
