//! The data types of an operation, and the attributes that go with them.

use crate::dtype::DType;
use crate::error::{ErrorKind, Result};
use crate::onednn::argument::{Arg, Tensor};
use crate::onednn::attr::{DataQuantization, PROJECTION_CHANNELS, WEIGHTS_CHANNELS};
use crate::onednn::description::{Cell, PropKind, RnnDesc};

/// Checks the types of an operation's tensors and its attributes.
///
/// | data and states | weights | bias | peepholes | cell state | gradients |
/// |---|---|---|---|---|---|
/// | f32 | f32 | f32 | f32 | f32 | f32 |
/// | bf16 | bf16 | f32, bf16 | f32, bf16 | f32 | f32 |
/// | f16 | f16 | f32, f16 | f32, f16 | f32 | f32 |
/// | u8, s8; outputs and states f32 as well | s8 | f32 | none | f32 | none |
///
/// # Errors
/// `BadParam` for a type that is not in the row of `src_layer`'s, for attributes of other types
/// than 8-bit ones, and for scales that are none or not as many as their mask asks for;
/// `NotSupported` for inputs of another type, and for 8-bit ones in other than inference by a
/// plain LSTM.
pub(super) fn check(of: &RnnDesc) -> Result<()> {
    let Some(data) = of.desc(Tensor::SrcLayer).map(|desc| desc.dtype()) else { return Ok(()) };
    let is_integer = match data {
        DType::F32 | DType::Bf16 | DType::F16 => false,
        DType::U8 | DType::I8 => true,
        other => {
            let rule = format!("src_layer of {other}, expected f32, bf16, f16, u8 or i8");
            return Err(of.error(ErrorKind::NotSupported, &rule));
        }
    };
    if is_integer {
        let plain = !of.has(Tensor::WeightsPeephole) && !of.has(Tensor::WeightsProjection);
        if of.cell != Cell::Lstm || !plain || of.prop_kind != PropKind::ForwardInference {
            let rule = format!("src_layer of {data}, which only inference by a plain lstm has");
            return Err(of.error(ErrorKind::NotSupported, &rule));
        }
    }
    for (arg, desc) in &of.descs {
        let known: &[DType] = match arg {
            Arg::Diff(_) | Arg::Of(Tensor::SrcIterC | Tensor::DstIterC) => &[DType::F32],
            Arg::Of(Tensor::Bias) if is_integer => &[DType::F32],
            Arg::Of(Tensor::Bias | Tensor::WeightsPeephole) => &[data, DType::F32],
            Arg::Of(Tensor::DstLayer | Tensor::SrcIter | Tensor::DstIter) if is_integer => {
                &[data, DType::F32]
            }
            Arg::Of(tensor) if is_integer && tensor.is_weights() => &[DType::I8],
            Arg::Of(_) | Arg::Workspace => &[data],
        };
        let is = desc.dtype();
        if !known.contains(&is) {
            let [wanted, name] = [known[0].name().to_owned(), arg.name()];
            let rule = format!("{name} is of {is}, expected {wanted} (src_layer of {data})");
            return Err(of.error(ErrorKind::BadParam, &rule));
        }
    }
    attributes(of, data, is_integer)
}

fn attributes(of: &RnnDesc, data: DType, is_integer: bool) -> Result<()> {
    let fail = |rule: String| Err(of.error(ErrorKind::BadParam, &rule));
    let attr = &of.attr;
    if !is_integer && *attr != Default::default() {
        return fail(format!("quantization of data of {data}, expected u8 or i8"));
    }
    if let Some(rule) = attr.data.and_then(DataQuantization::broken_rule) {
        return fail(rule);
    }
    let weights = ("weights", &attr.weights, Tensor::WeightsLayer, &WEIGHTS_CHANNELS[..]);
    let projection =
        ("projection", &attr.projection, Tensor::WeightsProjection, &PROJECTION_CHANNELS[..]);
    for (name, scales, tensor, axes) in [weights, projection] {
        let dims = of.desc(tensor).map_or(&[][..], |desc| desc.dims());
        let rule = scales.as_ref().and_then(|scales| scales.broken_rule(name, dims, axes));
        if let Some(rule) = rule {
            return fail(rule);
        }
    }
    Ok(())
}
