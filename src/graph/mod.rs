//! The operation graph: a computation, independent of how it is executed.
//!
//! An [`OperationGraph`] is a set of tensors and the operations on them, valid by construction:
//! [`GraphBuilder::build`] performs all checks of the backend document's finalisation. Every graph
//! provides its [canonical form](OperationGraph::canonical), which is identical for graphs that
//! differ only in uids and insertion order.
//!
//! ```
//! use kiln::expr::{Mode, Pointwise};
//! use kiln::graph::OperationGraph;
//! use kiln::DType;
//!
//! let mut graph = OperationGraph::builder();
//! let x = graph.input("x", &[64, 768], DType::Bf16);
//! let bias = graph.input("bias", &[1, 768], DType::Bf16);
//! let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias])?;
//! let y = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[sum])?;
//! graph.output(y, "y", DType::Bf16);
//! let graph = graph.build()?;
//! assert_eq!(graph.operations().len(), 2);
//! # Ok::<(), kiln::Error>(())
//! ```

mod attention;
mod builder;
mod canonical;
mod cell;
mod convolution;
mod ctc;
mod dynamic_slice;
mod find;
mod fraction;
mod gradient;
mod json;
mod loop_frame;
mod matmul;
mod memory_order;
mod norm;
mod operation;
mod operation_graph;
mod pass_through;
mod pointwise;
mod pointwise_loop;
mod quantization;
mod recurrence;
mod reduction;
mod resample;
mod resident_loop;
mod rng;
mod sampling;
mod scaling;
mod semantics;
mod signal;
mod slots;
mod statistics;
mod subgraph;
mod validate;
mod views;

pub use attention::{
    Attention, AttentionBackward, AttentionShape, Band, CAPTURED_MAX, Diagonal, ScoreInput,
    Softcap, score_inputs,
};
pub use builder::GraphBuilder;
pub use canonical::{CanonicalGraph, GraphDigest};
pub use cell::{Cell, CellValue, LayerNormStatistics, RecurrentGemm, Stage};
pub use convolution::{Convolution, ConvolutionMode, ConvolutionPass, ConvolutionShape, Window};
pub use ctc::{CtcInfinite, CtcInput, CtcLoss};
pub(crate) use dynamic_slice::Copied;
pub use dynamic_slice::{DynamicSlice, SliceCopy};
pub use fraction::Fraction;
pub(crate) use fraction::common_denominator;
pub use gradient::{Saved, Staged, Vjp};
pub(crate) use gradient::{cone, slot, zero_beyond_lengths};
pub(crate) use json::{
    JsonReal, TensorJson, read_operation, read_tensors, reference, referred, write_operation,
    write_tensor,
};
pub use loop_frame::{LOOP_TENSORS_MAX, LoopFrame};
pub use matmul::{Matmul, MatmulMath};
pub use norm::{NormBackward, NormForward, NormMode, Phase};
pub use operation::{Op, Operation};
pub use operation_graph::{InPlace, OperationGraph};
pub use pointwise_loop::PointwiseLoop;
pub use quantization::Quantization;
pub(crate) use quantization::SUMMED_MAX;
pub use recurrence::{Direction, Recurrence, RecurrenceSlots, RowLayout};
pub use reduction::{Reduction, ReductionOp};
pub use resample::{PaddingMode, Resample, ResampleMode, ResamplePass};
pub(crate) use resident_loop::LoopValue;
pub use resident_loop::{LoopFold, LoopStage, LoopView, ResidentLoop};
pub use rng::Rng;
pub use sampling::Sampling;
pub(crate) use semantics::Semantics;
pub use signal::{PassThrough, Signal, SignalMode};
pub use slots::Slots;
pub use statistics::{BnBackwardWeights, BnFinalize, GenStats};
pub(crate) use validate::{check_operation, check_tensors};
pub use views::{CONCATENATED_MAX, Concatenate, Reshape, Slice, Transpose};
