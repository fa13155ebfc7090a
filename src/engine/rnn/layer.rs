//! A recurrent layer as engines see it: tensors by slot, GEMMs per step, sizes.

use crate::dtype::DType;
use crate::engine::access::stored;
use crate::error::{Error, Result};
use crate::expr::Identifiers;
use crate::graph::{CanonicalGraph, Op, Quantization, Recurrence, RowLayout, Semantics};
use crate::tensor::TensorDesc;

/// The recurrence of a graph, which is its only operation.
#[derive(Debug, Clone)]
pub(super) struct Layer<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a Recurrence,
    /// Canonical uid of each slot's tensor.
    slots: Vec<(&'static str, usize)>,
    dtype: DType,
    output_size: i64,
    pub(super) gemms: Vec<GemmShape>,
}

/// A GEMM that runs at every step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GemmShape {
    /// The stage that it begins; `None` for the projection.
    pub(super) stage: Option<usize>,
    /// Gates that it computes, each of `rows` values.
    pub(super) gates: i64,
    /// Vectors of the operand.
    pub(super) operands: i64,
    /// Whether the weights are transposed: their blocks of rows are those of the operand.
    pub(super) transposed: bool,
    /// Values of a gate: the hidden size, or the output size for the projection.
    pub(super) rows: i64,
    /// K: elements of the operand.
    pub(super) k: i64,
    /// Index of its first block of weight rows, of a gate or of a vector of the operand.
    pub(super) first_block: i64,
}

impl GemmShape {
    /// Whether the operand is h rather than a result of an earlier stage.
    pub(super) fn is_of_state(&self) -> bool {
        self.stage == Some(0)
    }
}

impl<'a> Layer<'a> {
    /// # Errors
    /// `NotSupported` for any other graph, and for tensors with strided rows.
    pub(super) fn of(graph: CanonicalGraph<'a>) -> Result<Layer<'a>> {
        let [operation] = graph.operations else {
            return Err(Error::not_supported("a recurrent layer stands alone"));
        };
        let Op::Recurrence(op) = &operation.op else {
            return Err(Error::not_supported("the operation is not a recurrent layer"));
        };
        let names = op.slots();
        let inputs = names.inputs.into_iter().zip(&operation.inputs);
        let outputs = names.outputs.into_iter().zip(&operation.outputs);
        let slots = inputs.chain(outputs).map(|(slot, uid)| (slot, *uid as usize)).collect();
        let y = &graph.tensors[operation.outputs[0] as usize];
        let apart = if op.apart { 1 } else { op.direction.count() };
        let (dtype, output_size) = (y.dtype, y.dims[2] / apart);
        for (_, tensor) in stored(graph) {
            let (width, stride) = (tensor.dims[2], tensor.strides[2]);
            if width > 1 && stride != 1 {
                return Err(Error::not_supported(format!(
                    "the last dimension of `{}` is not packed: strides {:?}",
                    tensor.name, tensor.strides
                )));
            }
        }
        if let Some(tensor) = graph.tensors.iter().find(|tensor| tensor.by_value) {
            let text = format!("`{}` is passed by value", tensor.name);
            return Err(Error::not_supported(text));
        }
        let mut layer = Layer { graph, op, slots, dtype, output_size, gemms: Vec::new() };
        layer.gemms = layer.find_gemms();
        Ok(layer)
    }

    fn find_gemms(&self) -> Vec<GemmShape> {
        let (hidden_size, output_size) = (self.hidden_size(), self.output_size());
        let cell = &self.op.cell;
        let own = cell.gemms().map(|(stage, gemm)| GemmShape {
            stage: Some(stage),
            gates: gemm.gates.len() as i64,
            operands: gemm.operands.len() as i64,
            transposed: gemm.transposed,
            rows: hidden_size,
            k: if gemm.transposed { hidden_size * gemm.operands.len() as i64 } else { output_size },
            first_block: cell.first_block(stage) as i64,
        });
        let projection = cell.projected.then_some(GemmShape {
            stage: None,
            gates: 1,
            operands: 1,
            transposed: false,
            rows: output_size,
            k: hidden_size,
            first_block: 0,
        });
        own.chain(projection).collect()
    }

    /// The cell name for kernel names, with unusual characters replaced.
    pub(super) fn cell_word(&self) -> String {
        Identifiers::base(&self.op.cell.name)
    }

    /// The GEMM of a stage, or of the projection.
    pub(super) fn gemm(&self, stage: Option<usize>) -> Option<&GemmShape> {
        self.gemms.iter().find(|of| of.stage == stage)
    }

    /// Canonical uid of a slot's tensor.
    pub(super) fn uid(&self, slot: &str) -> Option<usize> {
        self.slots.iter().find(|(name, _)| *name == slot).map(|(_, uid)| *uid)
    }

    pub(super) fn tensor(&self, slot: &str) -> Option<&'a TensorDesc> {
        self.uid(slot).map(|uid| &self.graph.tensors[uid])
    }

    /// Slots and their tensors, operands first.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.slots.iter().copied()
    }

    pub(super) fn y(&self) -> &'a TensorDesc {
        self.tensor("y").expect("a layer has a result")
    }

    /// Maximum number of layer norms of a stage.
    pub(super) fn layer_norms_max(&self) -> i64 {
        let stages = self.op.cell.stages.iter();
        stages.map(|stage| stage.statistics.len() as i64).max().unwrap_or(0)
    }

    /// Whether blocks can exchange partial sums: of all units, from the units of each.
    pub(super) fn is_reducible(&self) -> bool {
        let sums = |of: &GemmShape| of.is_of_state() && of.transposed && of.gates == 1;
        self.gemms.len() == 1 && self.gemms.iter().all(sums) && self.layer_norms_max() == 0
    }

    /// Storage type of h.
    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Storage type of the weights.
    pub(super) fn weights_dtype(&self) -> DType {
        if self.quantization().is_some() { DType::I8 } else { self.dtype }
    }

    /// C++ type of accumulators.
    pub(super) fn accumulator(&self) -> &'static str {
        if self.quantization().is_some() { "int" } else { "Math" }
    }

    /// What h stands for, if it is quantised.
    pub(super) fn quantization(&self) -> Option<Quantization> {
        self.op.quantization
    }

    /// Whether GEMMs with h less its shift are GEMMs with h, less a compensation for each row of
    /// weights.
    pub(super) fn is_compensated(&self) -> bool {
        self.quantization().is_some_and(|of| of.shift != 0)
    }

    pub(super) fn hidden_size(&self) -> i64 {
        self.op.hidden_size
    }

    /// Elements of the output: the hidden size for each output of the cell, or that of the
    /// projection.
    pub(super) fn output_size(&self) -> i64 {
        self.output_size
    }

    /// Number of states that make up the output.
    pub(super) fn outputs(&self) -> i64 {
        self.op.cell.outputs() as i64
    }

    /// Elements of a row that blocks share: hidden units, or columns of the projection.
    pub(super) fn units(&self) -> i64 {
        self.hidden_size().max(self.output_size / self.outputs())
    }

    pub(super) fn rows(&self) -> i64 {
        self.y().dims[1]
    }

    /// Maximum number of steps of a sequence, as far as the tensors tell.
    pub(super) fn steps_max(&self) -> i64 {
        if self.op.layout == RowLayout::Packed { self.rows() } else { self.steps() }
    }

    /// Steps of the longest sequence; the average for packed rows.
    pub(super) fn steps(&self) -> i64 {
        self.rows() / self.op.batch
    }
}
