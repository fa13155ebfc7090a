//! Normalisations and statistics with their tensors (sections 8.2.2.15, 8.2.2.17 and 8.2.2.18).

use kiln::expr::Math;
use kiln::graph::{
    BnBackwardWeights, BnFinalize, GenStats, NormBackward, NormForward, NormMode as Mode, Op, Phase,
};
use kiln::tensor::TensorDesc;

use crate::backend::names::AttributeName as N;
use crate::backend::node::Node;
use crate::backend::operators::math;
use crate::backend::product::Product;
use crate::backend::products::{Tensors, floating, made, unable};
use crate::backend::values::{BnFinalizeStatsMode, NormFwdPhase, NormMode};
use crate::status::{Outcome, bad};

/// Tensors of attributes that must be there.
fn all<const K: usize>(node: &Node, names: [N; K]) -> Outcome<Tensors> {
    names.into_iter().map(|name| node.tensor(name)).collect()
}

/// Tensors of attributes, all or none of which must be there.
fn together<const K: usize>(node: &Node, names: [N; K]) -> Outcome<Option<Tensors>> {
    let found = names.map(|name| node.optional_tensor(name));
    let given = found.iter().filter(|of| matches!(of, Ok(Some(_)))).count();
    if given != 0 && given != K {
        let missing = names.iter().zip(&found).find(|(_, of)| !matches!(of, Ok(Some(_))));
        let name = missing.map_or(String::new(), |(name, _)| name.shown());
        return bad(format!("{name} is not set, although others like it are"));
    }
    let tensors = found.into_iter().collect::<Outcome<Vec<_>>>()?;
    Ok(tensors.into_iter().collect::<Option<Tensors>>().filter(|of| !of.is_empty()))
}

/// The elements that a norm takes together; the groups of a group norm are those of its statistics.
fn mode(node: &Node, name: N, statistics: Option<&TensorDesc>) -> Option<Mode> {
    Some(match NormMode(node.integer(name) as i32) {
        NormMode::LAYER_NORM => Mode::Layer,
        NormMode::INSTANCE_NORM => Mode::Instance,
        NormMode::BATCH_NORM => Mode::Batch,
        _ => Mode::Group(*statistics?.dims.get(1)?),
    })
}

/// The precision of a norm: that of its operand, at least f32.
fn precision(x: &TensorDesc) -> Math {
    match Math::of(x.dtype) {
        Math::F64 => Math::F64,
        _ => Math::F32,
    }
}

const NO_GROUPS: &str = "a group norm says its groups by the dimensions of its mean";

/// A normalisation.
pub fn norm_forward(node: &Node) -> Outcome<Product> {
    let phase = match NormFwdPhase(node.integer(N::OPERATION_NORM_FWD_PHASE) as i32) {
        NormFwdPhase::TRAINING => Phase::Training,
        _ => Phase::Inference,
    };
    let names = [N::OPERATION_NORM_FWD_MEAN_DESC, N::OPERATION_NORM_FWD_INV_VARIANCE_DESC];
    let statistics = together(node, names)?;
    let updated = together(
        node,
        [
            N::OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC,
            N::OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
            N::OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
            N::OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
            N::OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC,
        ],
    )?;
    let mut inputs = all(
        node,
        [
            N::OPERATION_NORM_FWD_XDESC,
            N::OPERATION_NORM_FWD_SCALE_DESC,
            N::OPERATION_NORM_FWD_BIAS_DESC,
            N::OPERATION_NORM_FWD_EPSILON_DESC,
        ],
    )?;
    let mut outputs = vec![node.tensor(N::OPERATION_NORM_FWD_YDESC)?];
    let first = statistics.as_ref().map(|all| &*all[0]);
    let mode = mode(node, N::OPERATION_NORM_FWD_MODE, first);
    let math = precision(&inputs[0]);
    let op = mode.map(|mode| NormForward {
        mode,
        phase,
        math,
        bias: true,
        statistics: statistics.is_some(),
        running: updated.is_some(),
    });
    let side = if phase == Phase::Training { &mut outputs } else { &mut inputs };
    side.extend(statistics.into_iter().flatten());
    for (at, tensor) in updated.into_iter().flatten().enumerate() {
        let side = if at < 3 { &mut inputs } else { &mut outputs };
        side.push(tensor);
    }
    let peers = node.tensors(N::OPERATION_NORM_FWD_PEER_STAT_DESCS)?;
    match op {
        Some(_) if !peers.is_empty() => {
            let reason = "statistics of peers are not exchanged".to_owned();
            Ok(unable("norm_forward", reason, (inputs, outputs)))
        }
        Some(op) => made("norm_forward", Op::NormForward(op), inputs, outputs),
        None => Ok(unable("norm_forward", NO_GROUPS.to_owned(), (inputs, outputs))),
    }
}

/// Gradients of a normalisation.
pub fn norm_backward(node: &Node) -> Outcome<Product> {
    let names = [N::OPERATION_NORM_BWD_MEAN_DESC, N::OPERATION_NORM_BWD_INV_VARIANCE_DESC];
    let statistics = together(node, names)?;
    let mut inputs = all(
        node,
        [
            N::OPERATION_NORM_BWD_XDESC,
            N::OPERATION_NORM_BWD_DYDESC,
            N::OPERATION_NORM_BWD_SCALE_DESC,
        ],
    )?;
    let outputs = all(
        node,
        [
            N::OPERATION_NORM_BWD_DXDESC,
            N::OPERATION_NORM_BWD_DSCALE_DESC,
            N::OPERATION_NORM_BWD_DBIAS_DESC,
        ],
    )?;
    let first = statistics.as_ref().map(|all| &*all[0]);
    let mode = mode(node, N::OPERATION_NORM_BWD_MODE, first);
    let math = precision(&inputs[0]);
    let has = statistics.is_some();
    match statistics {
        Some(statistics) => inputs.extend(statistics),
        None => inputs.push(node.tensor(N::OPERATION_NORM_BWD_EPSILON_DESC)?),
    }
    if !node.tensors(N::OPERATION_NORM_BWD_PEER_STAT_DESCS)?.is_empty() {
        let reason = "statistics of peers are not exchanged".to_owned();
        return Ok(unable("norm_backward", reason, (inputs, outputs)));
    }
    match mode {
        Some(mode) => {
            let op = NormBackward { mode, math, bias: true, statistics: has };
            made("norm_backward", Op::NormBackward(op), inputs, outputs)
        }
        None => Ok(unable("norm_backward", NO_GROUPS.to_owned(), (inputs, outputs))),
    }
}

/// Sums of channels.
pub fn gen_stats(node: &Node) -> Outcome<Product> {
    let name = N::OPERATION_GENSTATS_MATH_PREC;
    let op = GenStats { math: floating(math(node, name)?, name)? };
    let x = node.tensor(N::OPERATION_GENSTATS_XDESC)?;
    let sums = [N::OPERATION_GENSTATS_SUMDESC, N::OPERATION_GENSTATS_SQSUMDESC];
    made("gen_stats", Op::GenStats(op), vec![x], all(node, sums)?)
}

/// Scale and bias of a batch norm from sums.
pub fn bn_finalize(node: &Node) -> Outcome<Product> {
    let name = N::OPERATION_BN_FINALIZE_MATH_PREC;
    let math = floating(math(node, name)?, name)?;
    let number = node.integer(N::OPERATION_BN_FINALIZE_STATS_MODE) as i32;
    let training = BnFinalizeStatsMode(number) == BnFinalizeStatsMode::TRAINING;
    let phase = if training { Phase::Training } else { Phase::Inference };
    let updated = together(
        node,
        [
            N::OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC,
            N::OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC,
        ],
    )?
    .filter(|_| training);
    let running = updated.is_some();
    let mut inputs = all(
        node,
        [
            N::OPERATION_BN_FINALIZE_SCALE_DESC,
            N::OPERATION_BN_FINALIZE_BIAS_DESC,
            N::OPERATION_BN_FINALIZE_EPSILON_DESC,
        ],
    )?;
    let mut outputs =
        all(node, [N::OPERATION_BN_FINALIZE_EQ_SCALE_DESC, N::OPERATION_BN_FINALIZE_EQ_BIAS_DESC])?;
    if training {
        inputs.extend(all(
            node,
            [
                N::OPERATION_BN_FINALIZE_Y_SUM_DESC,
                N::OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC,
                N::OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC,
            ],
        )?);
        outputs.extend(all(
            node,
            [N::OPERATION_BN_FINALIZE_SAVED_MEAN_DESC, N::OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC],
        )?);
    }
    if !training || running {
        inputs.extend(all(
            node,
            [
                N::OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC,
                N::OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC,
            ],
        )?);
    }
    if let Some(updated) = updated {
        inputs.push(node.tensor(N::OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC)?);
        outputs.extend(updated);
    }
    made("bn_finalize", Op::BnFinalize(BnFinalize { phase, math, running }), inputs, outputs)
}

/// Gradients of the scale and bias of a batch norm.
pub fn bn_backward_weights(node: &Node) -> Outcome<Product> {
    let name = N::OPERATION_BN_BWD_WEIGHTS_MATH_PREC;
    let op = BnBackwardWeights { math: floating(math(node, name)?, name)? };
    let inputs = all(
        node,
        [
            N::OPERATION_BN_BWD_WEIGHTS_X_DESC,
            N::OPERATION_BN_BWD_WEIGHTS_DY_DESC,
            N::OPERATION_BN_BWD_WEIGHTS_MEAN_DESC,
            N::OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC,
            N::OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC,
        ],
    )?;
    let outputs = all(
        node,
        [
            N::OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC,
            N::OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
            N::OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
            N::OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
            N::OPERATION_BN_BWD_WEIGHTS_EQ_BIAS,
        ],
    )?;
    made("bn_backward_weights", Op::BnBackwardWeights(op), inputs, outputs)
}
