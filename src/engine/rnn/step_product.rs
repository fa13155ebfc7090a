//! The GEMMs of `rnn_step`: all batch rows with the weights of one product, on the GEMM engines.

use crate::engine::rnn::layer::{Layer, ProductShape};
use crate::engine::{Engine, Supported};
use crate::error::Result;
use crate::graph::{Matmul, Op, OperationGraph};
use crate::kernel::{Argument, KernelPlan};
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Uids of the tensors of a GEMM's graph.
const A: i64 = 1;
const B: i64 = 2;
const C: i64 = 3;

/// A GEMM as an engine supports it.
pub(super) struct ProductOn<'a> {
    pub(super) own: &'a dyn Supported,
    /// Uids of the graph by canonical uid.
    uids: &'a [i64],
}

impl Layer<'_> {
    /// Calls `f` with the GEMM of all rows with the weights, as an engine supports it.
    pub(super) fn with_product<T>(
        &self,
        product: &ProductShape,
        (engine, target): (&dyn Engine, &Target),
        then: impl FnOnce(ProductOn<'_>) -> Result<T>,
    ) -> Result<T> {
        let (op, dtype) = (self.op, self.dtype());
        let weights = self.tensor(product.slot()).expect("the product has weights");
        let [directions, columns] = [weights.dims[0], weights.dims[1]];
        let mut graph = OperationGraph::builder();
        graph.tensor(TensorDesc::packed(A, "a", &[directions, op.batch, product.depth], dtype));
        let [direction, row, depth] = [0, 1, 2].map(|axis| weights.strides[axis]);
        graph.tensor(TensorDesc {
            strides: vec![direction, depth, row],
            alignment: weights.alignment,
            ..TensorDesc::packed(B, "b", &[directions, product.depth, columns], dtype)
        });
        let sums = [directions, op.batch, columns];
        graph.tensor(TensorDesc::packed(C, "c", &sums, op.math.dtype()));
        let matmul = Op::Matmul(Matmul::new(op.math));
        graph.operation_into(matmul, &[A, B], &[C]);
        let graph = graph.build()?;
        let canonical = graph.canonical();
        let own = engine.support(canonical, target)?;
        then(ProductOn { own: &*own, uids: canonical.uids })
    }

    /// The kernels of the GEMM of all rows with the weights.
    /// `piece` returns the index of a workspace buffer.
    pub(super) fn product_kernels(
        &self,
        product: &ProductShape,
        on: (&dyn Engine, &Target),
        piece: impl Fn(&str) -> usize,
        scratch: &mut Vec<u64>,
    ) -> Result<Vec<KernelPlan>> {
        let first = scratch.len();
        self.with_product(product, on, |ProductOn { own, uids }| {
            let lowered = own.lower(&own.heuristic())?;
            scratch.extend(&lowered.scratch);
            let weights = self.uid(product.slot()).expect("it has weights") as i64;
            let place = |argument: &Argument| match *argument {
                Argument::Address(at) => match uids[at as usize] {
                    A => Argument::Scratch(piece(product.operand())),
                    B => Argument::Address(weights),
                    _ => Argument::Scratch(piece(product.sums())),
                },
                Argument::Scratch(at) => Argument::Scratch(first + at),
                other => other,
            };
            let placed = |mut kernel: KernelPlan| {
                kernel.launch.arguments = kernel.launch.arguments.iter().map(place).collect();
                kernel
            };
            Ok(lowered.kernels.into_iter().map(placed).collect())
        })
    }
}

impl ProductShape {
    /// Slot of its weights.
    pub(super) fn slot(&self) -> &'static str {
        if self.stage.is_some() { "r" } else { "projection" }
    }

    /// Workspace buffer of its result.
    pub(super) fn sums(&self) -> &'static str {
        if self.stage.is_some() { "sums" } else { "projected" }
    }

    /// Workspace buffer of its operand.
    pub(super) fn operand(&self) -> &'static str {
        if self.is_of_state() { "hidden" } else { "operand" }
    }
}
