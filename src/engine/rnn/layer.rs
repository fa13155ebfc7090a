//! A recurrent layer as engines see it: tensors by slot, GEMMs per step, sizes.

use crate::dtype::DType;
use crate::engine::access::stored;
use crate::error::{Error, Result};
use crate::expr::Identifiers;
use crate::graph::{CanonicalGraph, Op, Recurrence, RowLayout, Semantics};
use crate::tensor::TensorDesc;

/// The recurrence of a graph, which is its only operation.
#[derive(Debug, Clone)]
pub(super) struct Layer<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a Recurrence,
    /// Canonical uid of each slot's tensor.
    slots: Vec<(&'static str, usize)>,
    dtype: DType,
    size: i64,
    pub(super) products: Vec<ProductShape>,
}

/// A GEMM that runs at every step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProductShape {
    /// The stage that it begins; `None` for the projection.
    pub(super) stage: Option<usize>,
    /// Weight rows per hidden unit.
    pub(super) gates: i64,
    /// Hidden units that have a result.
    pub(super) units: i64,
    /// K: elements of the operand.
    pub(super) depth: i64,
    /// First weight row, in gates.
    pub(super) row: i64,
}

impl ProductShape {
    /// Whether the operand is the first state rather than a result of an earlier stage.
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
        let (dtype, size) = (y.dtype, y.dims[2] / apart);
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
        let mut layer = Layer { graph, op, slots, dtype, size, products: Vec::new() };
        layer.products = layer.find_products();
        Ok(layer)
    }

    fn find_products(&self) -> Vec<ProductShape> {
        let (units, size) = (self.op.units, self.size());
        let cell = &self.op.cell;
        let own = cell.products().map(|(stage, product)| ProductShape {
            stage: Some(stage),
            gates: product.gates.len() as i64,
            units,
            depth: size,
            row: cell.first_row(stage) as i64,
        });
        let projection = cell.projected.then_some(ProductShape {
            stage: None,
            gates: 1,
            units: size,
            depth: units,
            row: 0,
        });
        own.chain(projection).collect()
    }

    /// The cell name for kernel names, with unusual characters replaced.
    pub(super) fn cell_word(&self) -> String {
        Identifiers::base(&self.op.cell.name)
    }

    /// The GEMM of a stage, or of the projection.
    pub(super) fn product(&self, stage: Option<usize>) -> Option<&ProductShape> {
        self.products.iter().find(|of| of.stage == stage)
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

    /// Maximum number of layer-norm statistics per stage.
    pub(super) fn moments(&self) -> i64 {
        let stages = self.op.cell.stages.iter();
        stages.map(|stage| stage.moments.len() as i64).max().unwrap_or(0)
    }

    /// Storage type of the weights.
    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements of the first state (h).
    pub(super) fn size(&self) -> i64 {
        self.size
    }

    pub(super) fn rows(&self) -> i64 {
        self.y().dims[1]
    }

    /// Maximum number of steps of a sequence, as far as the tensors tell.
    pub(super) fn longest(&self) -> i64 {
        if self.op.layout == RowLayout::Packed { self.rows() } else { self.steps() }
    }

    /// Steps of the longest sequence; the average for packed rows.
    pub(super) fn steps(&self) -> i64 {
        self.rows() / self.op.batch
    }
}
