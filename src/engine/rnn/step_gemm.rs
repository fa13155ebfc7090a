//! The GEMMs of `rnn_step`, of all batch rows at once, on the GEMM engines.

use crate::engine::refine::{Candidate, refined};
use crate::engine::rnn::layer::{GemmShape, Layer};
use crate::engine::rnn::step_buffers::Buffer;
use crate::engine::{Engine, EngineConfig, Notes, Supported};
use crate::error::Result;
use crate::graph::{Matmul, MatmulMath, Op, OperationGraph};
use crate::kernel::{Argument, KernelPlan, Mapped};
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Uids of the tensors of a GEMM's graph.
const A: i64 = 1;
const B: i64 = 2;
const C: i64 = 3;

/// A GEMM as an engine supports it.
pub(super) struct SupportedGemm<'a> {
    pub(super) own: &'a dyn Supported,
    /// Uids of the graph by canonical uid.
    uids: &'a [i64],
}

impl Layer<'_> {
    /// Calls `then` with the GEMM of all batch rows, as an engine supports it.
    pub(super) fn with_gemm<T>(
        &self,
        gemm: &GemmShape,
        (engine, target): (&dyn Engine, &Target),
        then: impl FnOnce(SupportedGemm<'_>) -> Result<T>,
    ) -> Result<T> {
        let (op, dtype) = (self.op, self.weights_dtype());
        let weights = self.tensor(gemm.slot()).expect("the GEMM has weights");
        // K and the columns of the result: all blocks of rows of the weights.
        let [k, columns] = if gemm.transposed { [1, 2] } else { [2, 1] };
        let strides = [0, k, columns].map(|axis| weights.strides[axis]);
        let [directions, k, columns] = [0, k, columns].map(|axis| weights.dims[axis]);
        let mut graph = OperationGraph::builder();
        graph.tensor(TensorDesc::packed(A, "a", &[directions, op.batch, k], self.dtype()));
        graph.tensor(TensorDesc {
            strides: strides.to_vec(),
            alignment: weights.alignment,
            ..TensorDesc::packed(B, "b", &[directions, k, columns], dtype)
        });
        let results = [directions, op.batch, columns];
        let math = if self.quantization().is_some() { MatmulMath::I32 } else { op.math };
        graph.tensor(TensorDesc::packed(C, "c", &results, math.dtype()));
        let matmul = Op::Matmul(Matmul::new(math));
        graph.operation_into(matmul, &[A, B], &[C]);
        let graph = graph.build()?;
        let canonical = graph.canonical();
        let own = engine.support(canonical, target)?;
        then(SupportedGemm { own: &*own, uids: canonical.uids })
    }

    /// The kernels of the GEMM of all batch rows; their scratch buffers follow those in `scratch`.
    pub(super) fn gemm_kernels(
        &self,
        (gemm, config): (&GemmShape, &EngineConfig),
        on: (&dyn Engine, &Target),
        scratch: &mut Vec<u64>,
    ) -> Result<Vec<KernelPlan>> {
        let first = scratch.len();
        self.with_gemm(gemm, on, |SupportedGemm { own, uids }| {
            let lowered = own.lower(config)?;
            scratch.extend(&lowered.scratch);
            let weights = self.uid(gemm.slot()).expect("it has weights") as i64;
            let memory = |of: Mapped| match of {
                Mapped::Tensor(at) => match uids[at as usize] {
                    A => Mapped::Scratch(gemm.operand() as usize),
                    B => Mapped::Tensor(weights),
                    _ => Mapped::Scratch(gemm.results() as usize),
                },
                Mapped::Scratch(at) => Mapped::Scratch(first + at),
            };
            let place = |argument: &Argument| match *argument {
                Argument::Address(at) => memory(Mapped::Tensor(at)).into(),
                Argument::Scratch(at) => memory(Mapped::Scratch(at)).into(),
                other => other,
            };
            let placed = |mut kernel: KernelPlan| {
                kernel.launch.arguments = kernel.launch.arguments.iter().map(place).collect();
                kernel.launch.maps.iter_mut().for_each(|map| map.memory = memory(map.memory));
                kernel
            };
            Ok(lowered.kernels.into_iter().map(placed).collect())
        })
    }
}

impl SupportedGemm<'_> {
    /// The setting that its rules choose, or that the cost model sees much to gain in.
    pub(super) fn config(&self, target: &Target) -> EngineConfig {
        let own = Candidate { supported: self.own, config: self.own.heuristic() };
        let better = refined(std::slice::from_ref(&own), target, &Notes::default());
        better.map_or(own.config, |(_, config)| config)
    }
}

impl GemmShape {
    /// Slot of its weights.
    pub(super) fn slot(&self) -> &'static str {
        if self.stage.is_some() { "r" } else { "projection" }
    }

    pub(super) fn results(&self) -> Buffer {
        if self.stage.is_some() { Buffer::Gates } else { Buffer::Projected }
    }

    pub(super) fn operand(&self) -> Buffer {
        if self.is_of_state() { Buffer::Hidden } else { Buffer::Operand }
    }
}
