//! What each kind of descriptor is finalized to.

use crate::backend::node::Node;
use crate::backend::product::Product;
use crate::backend::values::DescriptorType as D;
use crate::backend::{engine, execute, graph, moves, norms, operators, products, tensor};
use crate::status::{Outcome, bad};

/// Checks a descriptor, and makes of it what it describes.
pub fn finalize(node: &Node) -> Outcome<Product> {
    if matches!(node.kind, D::KNOB_INFO_DESCRIPTOR | D::LAYOUT_INFO_DESCRIPTOR) {
        return bad(format!("a {} is filled by the library", node.kind.shown()));
    }
    node.check_attributes()?;
    match node.kind {
        D::TENSOR_DESCRIPTOR => tensor::finalize(node),
        D::POINTWISE_DESCRIPTOR => operators::pointwise(node),
        D::CONVOLUTION_DESCRIPTOR => operators::convolution(node),
        D::MATMUL_DESCRIPTOR | D::REDUCTION_DESCRIPTOR | D::KNOB_CHOICE_DESCRIPTOR => {
            operators::plain(node)
        }
        D::RESAMPLE_DESCRIPTOR => operators::resample(node),
        D::RNG_DESCRIPTOR => operators::rng(node),
        D::OPERATION_POINTWISE_DESCRIPTOR => products::pointwise(node),
        D::OPERATION_MATMUL_DESCRIPTOR => products::matmul(node),
        D::OPERATION_REDUCTION_DESCRIPTOR => products::reduction(node),
        D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
        | D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
        | D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR => products::convolution(node),
        D::OPERATION_GEN_STATS_DESCRIPTOR => norms::gen_stats(node),
        D::OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR => norms::bn_finalize(node),
        D::OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR => norms::bn_backward_weights(node),
        D::OPERATION_NORM_FORWARD_DESCRIPTOR => norms::norm_forward(node),
        D::OPERATION_NORM_BACKWARD_DESCRIPTOR => norms::norm_backward(node),
        D::OPERATION_RESAMPLE_FWD_DESCRIPTOR | D::OPERATION_RESAMPLE_BWD_DESCRIPTOR => {
            moves::resample(node)
        }
        D::OPERATION_CONCAT_DESCRIPTOR => moves::concat(node),
        D::OPERATION_SIGNAL_DESCRIPTOR => moves::signal(node),
        D::OPERATION_RESHAPE_DESCRIPTOR => moves::reshape(node),
        D::OPERATION_RNG_DESCRIPTOR => moves::rng(node),
        D::OPERATIONGRAPH_DESCRIPTOR => graph::finalize(node),
        D::ENGINE_DESCRIPTOR => engine::finalize(node),
        D::ENGINECFG_DESCRIPTOR => engine::config(node),
        D::ENGINEHEUR_DESCRIPTOR => engine::heuristics(node),
        D::EXECUTION_PLAN_DESCRIPTOR => execute::plan(node),
        D::VARIANT_PACK_DESCRIPTOR => execute::pack(node),
        _ => bad(format!("a {} cannot be finalized", node.kind.shown())),
    }
}
