//! Pointwise operations, matrix multiplications, reductions and convolutions with their tensors
//! (sections 8.2.2.12 to 8.2.2.14, 8.2.2.16, 8.2.2.19 and 8.2.2.20).

use std::sync::Arc;

use kiln::expr::{Math, ModeClass, Real};
use kiln::graph::{
    Convolution, ConvolutionMode, ConvolutionPass, Matmul, Op, OperationGraph, Reduction,
    ReductionOp, Window,
};
use kiln::tensor::TensorDesc;

use crate::backend::names::AttributeName as N;
use crate::backend::node::Node;
use crate::backend::operators::{math, matmul_math, pointwise_of};
use crate::backend::product::{Operation, Product};
use crate::backend::values::DescriptorType as D;
use crate::status::{Outcome, bad};

/// Tensors of an operation.
pub type Tensors = Vec<Arc<TensorDesc>>;

/// An operation with its tensors, which are those that it takes.
pub fn made(name: &'static str, op: Op, inputs: Tensors, outputs: Tensors) -> Outcome<Product> {
    // Alone, nothing is virtual, no result is an operand, and no two operands are one.
    let numbered = inputs.iter().chain(&outputs).enumerate();
    let tensors: Vec<TensorDesc> = numbered
        .map(|(at, tensor)| TensorDesc {
            uid: at as i64,
            name: format!("{}_{at}", tensor.name),
            is_virtual: false,
            ..TensorDesc::clone(tensor)
        })
        .collect();
    let uids: Vec<i64> = tensors.iter().map(|tensor| tensor.uid).collect();
    let (operands, results) = uids.split_at(inputs.len());
    let operation = kiln::graph::Operation {
        op: op.clone(),
        inputs: operands.to_vec(),
        outputs: results.to_vec(),
    };
    OperationGraph::new(tensors, vec![operation])?;
    Ok(Product::Operation(Arc::new(Operation { name, op: Ok(op), inputs, outputs })))
}

/// An operation that no graph can have.
pub fn unable(name: &'static str, reason: String, tensors: (Tensors, Tensors)) -> Product {
    let (inputs, outputs) = tensors;
    Product::Operation(Arc::new(Operation { name, op: Err(reason), inputs, outputs }))
}

/// What the memory of a result held before.
pub fn before(result: &TensorDesc) -> Arc<TensorDesc> {
    let TensorDesc { uid, name, .. } = result;
    // A uid that no program has.
    let uid = i64::MIN.wrapping_add(*uid);
    Arc::new(TensorDesc { uid, name: format!("{name}{BEFORE}"), ..result.clone() })
}

/// How names of such tensors end.
pub const BEFORE: &str = "_before";

/// A pointwise operation.
pub fn pointwise(node: &Node) -> Outcome<Product> {
    let own = pointwise_of(&*node.node(N::OPERATION_POINTWISE_PW_DESCRIPTOR)?)?;
    let real = |name| Real::new(node.float(name));
    let own = kiln::expr::Pointwise {
        alpha1: real(N::OPERATION_POINTWISE_ALPHA1),
        alpha2: real(N::OPERATION_POINTWISE_ALPHA2),
        ..own
    };
    let [x, b, t] =
        [N::OPERATION_POINTWISE_XDESC, N::OPERATION_POINTWISE_BDESC, N::OPERATION_POINTWISE_TDESC];
    let [dx, dy, y] = [
        N::OPERATION_POINTWISE_DXDESC,
        N::OPERATION_POINTWISE_DYDESC,
        N::OPERATION_POINTWISE_YDESC,
    ];
    let (inputs, output) = match own.mode.class() {
        ModeClass::Unary | ModeClass::Index => (vec![x], y),
        ModeClass::Binary => (vec![x, b], y),
        ModeClass::Backward => (vec![x, dy], dx),
        ModeClass::Select => (vec![x, b, t], y),
    };
    let inputs = inputs.into_iter().map(|name| node.tensor(name)).collect::<Outcome<_>>()?;
    made("pointwise", Op::Pointwise(own), inputs, vec![node.tensor(output)?])
}

/// A matrix multiplication.
pub fn matmul(node: &Node) -> Outcome<Product> {
    let descriptor = node.node(N::OPERATION_MATMUL_DESC)?;
    let overrides = [
        N::OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
        N::OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
        N::OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC,
    ];
    let mut inputs =
        vec![node.tensor(N::OPERATION_MATMUL_ADESC)?, node.tensor(N::OPERATION_MATMUL_BDESC)?];
    let mut given = [false; 3];
    for (given, name) in given.iter_mut().zip(overrides) {
        let tensor = node.optional_tensor(name)?;
        *given = tensor.is_some();
        inputs.extend(tensor);
    }
    let op = Matmul {
        overrides: given,
        irregular_batches: node.integer(N::OPERATION_MATMUL_IRREGULARLY_STRIDED_BATCH_COUNT),
        ..Matmul::new(matmul_math(&descriptor, N::MATMUL_COMP_TYPE)?)
    };
    let output = node.tensor(N::OPERATION_MATMUL_CDESC)?;
    made("matmul", Op::Matmul(op), inputs, vec![output])
}

/// A reduction.
pub fn reduction(node: &Node) -> Outcome<Product> {
    let descriptor = node.node(N::OPERATION_REDUCTION_DESC)?;
    let number = descriptor.integer(N::REDUCTION_OPERATOR) as usize;
    let op = Reduction {
        op: ReductionOp::ALL[number],
        math: math(&descriptor, N::REDUCTION_COMP_TYPE)?,
    };
    let (x, y) = (node.tensor(N::OPERATION_REDUCTION_XDESC)?, N::OPERATION_REDUCTION_YDESC);
    made("reduction", Op::Reduction(op), vec![x], vec![node.tensor(y)?])
}

/// A convolution or a gradient of one.
pub fn convolution(node: &Node) -> Outcome<Product> {
    let (pass, scales, descriptor, [first, second, result]) = match node.kind {
        D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR => (
            ConvolutionPass::BackwardData,
            [N::OPERATION_CONVOLUTION_BWD_DATA_ALPHA, N::OPERATION_CONVOLUTION_BWD_DATA_BETA],
            N::OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            [
                N::OPERATION_CONVOLUTION_BWD_DATA_W,
                N::OPERATION_CONVOLUTION_BWD_DATA_DY,
                N::OPERATION_CONVOLUTION_BWD_DATA_DX,
            ],
        ),
        D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR => (
            ConvolutionPass::BackwardFilter,
            [N::OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, N::OPERATION_CONVOLUTION_BWD_FILTER_BETA],
            N::OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            [
                N::OPERATION_CONVOLUTION_BWD_FILTER_X,
                N::OPERATION_CONVOLUTION_BWD_FILTER_DY,
                N::OPERATION_CONVOLUTION_BWD_FILTER_DW,
            ],
        ),
        _ => (
            ConvolutionPass::Forward,
            [N::OPERATION_CONVOLUTION_FORWARD_ALPHA, N::OPERATION_CONVOLUTION_FORWARD_BETA],
            N::OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            [
                N::OPERATION_CONVOLUTION_FORWARD_X,
                N::OPERATION_CONVOLUTION_FORWARD_W,
                N::OPERATION_CONVOLUTION_FORWARD_Y,
            ],
        ),
    };
    let descriptor = node.node(descriptor)?;
    let [alpha, beta] = scales.map(|name| node.float(name));
    let window = Window {
        filter_strides: descriptor.integers(N::CONVOLUTION_FILTER_STRIDES),
        dilations: descriptor.integers(N::CONVOLUTION_DILATIONS),
        pre_paddings: descriptor.integers(N::CONVOLUTION_PRE_PADDINGS),
        post_paddings: descriptor.integers(N::CONVOLUTION_POST_PADDINGS),
    };
    let mode = match descriptor.integer(N::CONVOLUTION_CONV_MODE) {
        0 => ConvolutionMode::Convolution,
        _ => ConvolutionMode::CrossCorrelation,
    };
    let math = matmul_math(&descriptor, N::CONVOLUTION_COMP_TYPE)?;
    let (alpha, beta) = (Real::new(alpha), Real::new(beta));
    let op = Convolution { pass, math, mode, window, alpha, beta };
    let output = node.tensor(result)?;
    let mut inputs = vec![node.tensor(first)?, node.tensor(second)?];
    inputs.extend((beta.get() != 0.0).then(|| before(&output)));
    made(pass.name(), Op::Convolution(op), inputs, vec![output])
}

/// Refuses a precision that an operation does not have.
pub fn floating(math: Math, name: N) -> Outcome<Math> {
    match math {
        Math::I32 => bad(format!("{} is of integers", name.shown())),
        math => Ok(math),
    }
}
