//! The order of virtual tensors in memory, where parts of a graph pass them to each other there: as
//! the tensor that they are computed of lies, channels last for images with channels last. What
//! lies in the memory of another tensor, or is moved, stays in row-major order.
//!
//! Strides that virtual tensors are given do not matter: an engine that computes one and its reader
//! has no memory for it, and graphs that differ in them are one graph.

use std::collections::BTreeMap;

use crate::graph::ConvolutionPass;
use crate::graph::find::find;
use crate::graph::operation::{Op, Operation};
use crate::tensor::TensorDesc;

/// The strides of those virtual tensors that do not lie in row-major order, by uid. Operations are
/// in topological order.
pub(super) fn strides_of_virtual(
    tensors: &[TensorDesc],
    operations: &[Operation],
) -> BTreeMap<i64, Vec<i64>> {
    let known = |uid: i64| find(tensors, uid).expect("operations name known tensors");
    let mut found: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for operation in operations {
        let virtuals = operation.outputs.iter().map(|uid| known(*uid)).filter(|of| of.is_virtual);
        for result in virtuals {
            let Some(source) = source(operation, result, &known) else { continue };
            let strides = match source.is_virtual {
                true => found.get(&source.uid),
                false => Some(&source.strides),
            };
            let order = strides.and_then(|strides| order_of(&source.dims, strides));
            let Some(order) = order.filter(|order| !order.is_sorted()) else { continue };
            found.insert(result.uid, packed_in(&order, &result.dims));
        }
    }
    for operation in operations {
        let bound = operation.inputs.iter().filter(|uid| !takes_any_order(operation, **uid));
        bound.for_each(|uid| _ = found.remove(uid));
    }
    found
}

/// Whether an operation reads a tensor that may lie in any order.
fn takes_any_order(operation: &Operation, uid: i64) -> bool {
    match &operation.op {
        Op::Pointwise(_) | Op::Matmul(_) | Op::Reduction(_) => true,
        Op::NormForward(_) | Op::NormBackward(_) => true,
        Op::GenStats(_) | Op::BnBackwardWeights(_) => true,
        // Behind the operands is what the result is added to, which lies as it does.
        Op::Convolution(_) => operation.inputs[..2].contains(&uid),
        Op::Resample(_) => operation.inputs[0] == uid,
        _ => false,
    }
}

/// The operand that a result lies like.
fn source<'a>(
    operation: &Operation,
    result: &TensorDesc,
    known: &impl Fn(i64) -> &'a TensorDesc,
) -> Option<&'a TensorDesc> {
    let mut operands = operation.inputs.iter().map(|uid| known(*uid));
    let source = match &operation.op {
        Op::Pointwise(_) => operands.find(|of| of.dims == result.dims),
        // What a result is added to lies as it does.
        Op::Convolution(op) if op.reads_result() => None,
        Op::Resample(op) if op.reads_result() => None,
        Op::Convolution(op) if op.pass == ConvolutionPass::BackwardFilter => None,
        Op::Convolution(_) | Op::Resample(_) | Op::Reduction(_) => operands.next(),
        Op::NormForward(_) | Op::NormBackward(_) => operands.next(),
        _ => None,
    };
    source.filter(|of| of.dims.len() == result.dims.len())
}

/// The dimensions from the outermost in memory to the innermost; `None` where elements share an
/// address.
fn order_of(dims: &[i64], strides: &[i64]) -> Option<Vec<usize>> {
    let shares = dims.iter().zip(strides).any(|(extent, stride)| *extent > 1 && *stride == 0);
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|axis| std::cmp::Reverse(strides[*axis]));
    (!shares).then_some(order)
}

/// The strides of packed elements with dimensions in this order.
fn packed_in(order: &[usize], dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![0; dims.len()];
    let mut stride: i64 = 1;
    for axis in order.iter().rev() {
        strides[*axis] = stride;
        stride = stride.saturating_mul(dims[*axis].max(1));
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::expr::{Mode, Pointwise};
    use crate::graph::OperationGraph;

    /// What is between two parts lies as the image in front of them.
    #[test]
    fn virtual_tensors_lie_as_their_operands() {
        let mut graph = OperationGraph::builder();
        let dims = [2, 8, 5, 3];
        let last = vec![120, 1, 24, 8];
        let x = TensorDesc::packed(1, "x", &dims, DType::F16);
        let x = graph.tensor(TensorDesc { strides: last.clone(), ..x });
        let bias = graph.input("bias", &[1, 8, 1, 1], DType::F16);
        let sum = graph.pointwise(Pointwise::new(Mode::Add), &[bias, x]).expect("valid");
        let relu = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[sum]).expect("valid");
        let y = graph.pointwise(Pointwise::new(Mode::Add), &[relu, x]).expect("valid");
        graph.output(y, "y", DType::F16);
        let graph = graph.build().expect("valid");
        let part = graph.subgraph(&[0, 1]).expect("they are connected");
        assert_eq!(part.tensor(relu).expect("it is passed on").strides, last);
        assert_eq!(graph.tensor(y).expect("it is stored").strides, [120, 15, 3, 1]);
    }

    #[test]
    fn strides_of_one_element_break_no_order() {
        // Channels last of 1 x 1 pixels.
        assert_eq!(order_of(&[4, 8, 1, 1], &[8, 1, 8, 8]), Some(vec![0, 2, 3, 1]));
        assert_eq!(order_of(&[4, 8, 1, 1], &[8, 1, 1, 1]), Some(vec![0, 1, 2, 3]));
        assert_eq!(order_of(&[4, 8], &[0, 1]), None);
        assert_eq!(packed_in(&[0, 2, 3, 1], &[4, 8, 5, 3]), [120, 1, 24, 8]);
        assert_eq!(packed_in(&[1, 0], &[0, 8]), [1, 1]);
    }
}
