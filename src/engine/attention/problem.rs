//! A graph of one attention as extents, tensors by slot and programs, common to all engines.

use crate::engine::access::{access_bytes, ceil_div};
use crate::engine::attention::score::{Score, score};
use crate::engine::signature::refuse_older;
use crate::error::{Error, Result};
use crate::graph::{
    Attention, AttentionBackward, AttentionShape, Band, CanonicalGraph, Diagonal, MatmulMath, Op,
    Operation, Slots,
};
use crate::tensor::TensorDesc;

/// Minimum compute capability of the templates.
const CAPABILITY_MIN: u16 = 75;

/// Maximum extent: positions of queries and keys plus windows are 32-bit numbers.
const EXTENT_MAX: i64 = 1 << 30;

/// Number of query tiles that [`Problem::tiles`] samples.
const SAMPLES: i64 = 256;

/// The one attention of a graph, or the one whose gradients it computes: extents, tensors by slot,
/// programs over scores.
#[derive(Debug)]
pub(super) struct Problem<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a Attention,
    pub(super) shape: AttentionShape,
    operation: &'a Operation,
    slots: Slots,
    /// Modification and masking of scores.
    pub(super) score: Score,
}

impl<'a> Problem<'a> {
    /// # Errors
    /// `NotSupported` if the graph is not exactly one attention, or exceeds a limit of the kernels.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        refuse_older(capability, CAPABILITY_MIN)?;
        let unsupported = |text: String| Err(Error::not_supported(text));
        let [operation] = graph.operations else {
            let other = graph.operations.iter().find(|of| !matches!(of.op, Op::Attention(_)));
            return match other {
                Some(other) => unsupported(format!("{} is no attention", other.op)),
                None => unsupported("the graph has more than one attention".to_owned()),
            };
        };
        let Op::Attention(op) = &operation.op else {
            return unsupported(format!("{} is no attention", operation.op));
        };
        Problem::new(graph, operation, op)
    }

    /// The problem of gradients, and which there are.
    ///
    /// # Errors
    /// As [`Problem::of`], if the graph is not exactly the gradients of one attention.
    pub(super) fn backward(
        graph: CanonicalGraph<'a>,
        capability: u16,
    ) -> Result<(Problem<'a>, &'a AttentionBackward)> {
        refuse_older(capability, CAPABILITY_MIN)?;
        let [operation] = graph.operations else {
            let text = "the graph is not the gradients of one attention";
            return Err(Error::not_supported(text));
        };
        let Op::AttentionBackward(op) = &operation.op else {
            let text = format!("{} is no gradient of attention", operation.op);
            return Err(Error::not_supported(text));
        };
        Ok((Problem::new(graph, operation, &op.forward)?, op))
    }

    /// # Errors
    /// `NotSupported` where the operation exceeds a limit of the kernels.
    fn new(
        graph: CanonicalGraph<'a>,
        operation: &'a Operation,
        op: &'a Attention,
    ) -> Result<Problem<'a>> {
        let unsupported = |text: String| Err(Error::not_supported(text));
        let inputs: Vec<&TensorDesc> =
            operation.inputs.iter().map(|at| &graph.tensors[*at as usize]).collect();
        let shape = op.shape(&inputs)?;
        let AttentionShape { batches, heads, queries, keys, .. } = shape;
        let [all_queries, all_keys] = [inputs[0].dims[2], inputs[1].dims[2]];
        for (name, extent) in [("queries", queries.max(all_queries)), ("keys", keys.max(all_keys))]
        {
            if extent > EXTENT_MAX {
                return unsupported(format!("{extent} {name}, more than 2^30"));
            }
        }
        if batches.saturating_mul(heads) > EXTENT_MAX {
            return unsupported(format!("{heads} heads of {batches} sequences, more than 2^30"));
        }
        if let Some(tensor) = inputs[..3].iter().find(|tensor| tensor.by_value) {
            return unsupported(format!("`{}` is passed by value", tensor.name));
        }
        let slots = operation.op.slots();
        let score = score(op, &shape, &slots, &inputs);
        Ok(Problem { graph, op, shape, operation, slots, score })
    }

    /// Canonical position of the tensor in a slot.
    pub(super) fn at(&self, slot: &str) -> Option<usize> {
        let input = self.slots.inputs.iter().position(|name| *name == slot);
        let output = || self.slots.outputs.iter().position(|name| *name == slot);
        let uid = match input {
            Some(at) => self.operation.inputs[at],
            None => self.operation.outputs[output()?],
        };
        Some(uid as usize)
    }

    /// The tensor in a slot, which must exist.
    pub(super) fn tensor(&self, slot: &str) -> &'a TensorDesc {
        &self.graph.tensors[self.at(slot).expect("the operation has the slot")]
    }

    /// Slots and canonical positions of all tensors.
    pub(super) fn passed(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let slots = self.slots.inputs.iter().chain(&self.slots.outputs);
        slots.map(|slot| (*slot, self.at(slot).expect("slots have tensors")))
    }

    /// Whether all results are empty.
    pub(super) fn is_empty(&self) -> bool {
        let AttentionShape { batches, heads, queries, .. } = self.shape;
        batches == 0 || heads == 0 || queries == 0
    }

    /// Whether there is a score program or dropout.
    pub(super) fn is_modified(&self) -> bool {
        self.score.is_modified() || self.op.dropout.is_some()
    }

    /// Bytes per access to the tensor of a slot, for vectors of this many elements.
    pub(super) fn access(&self, slot: &str, vector: i64) -> i64 {
        let tensor = self.tensor(slot);
        match tensor.strides[3] == 1 || tensor.dims[3] == 1 {
            true => access_bytes(tensor, &tensor.strides[..3], &tensor.dims[..3], vector),
            false => tensor.dtype.bytes() as i64,
        }
    }

    /// Whether accumulators are f64.
    pub(super) fn is_double(&self) -> bool {
        self.op.math == MatmulMath::F64
    }

    /// Number of query tiles in all heads.
    pub(super) fn blocks(&self, cta_q: i64) -> i64 {
        let AttentionShape { batches, heads, queries, .. } = self.shape;
        batches.saturating_mul(heads).saturating_mul(ceil_div(queries, cta_q))
    }

    /// The first kv step of queries from the first to the last, and behind the last one, as far as
    /// known without the data.
    pub(super) fn steps(&self, [first, last]: [i64; 2], cta_k: i64) -> [i64; 2] {
        let AttentionShape { queries, keys, .. } = self.shape;
        let Band { diagonal, left, right } = self.op.band;
        let offset = if diagonal == Diagonal::BottomRight { keys - queries } else { 0 };
        let begin = left.map_or(0, |left| (first + offset).saturating_sub(left).max(0));
        let end = right.map_or(keys, |right| (last + offset + 1).saturating_add(right).min(keys));
        if begin < end { [begin / cta_k, ceil_div(end, cta_k)] } else { [0, 0] }
    }

    /// Whether data limits the queries or keys of a sequence.
    pub(super) fn has_lengths(&self) -> bool {
        let op = self.op;
        op.query_lengths || op.key_lengths || op.paged || op.queries_max.or(op.keys_max).is_some()
    }

    /// Number of score tiles per head that are not skipped, as far as known without the data.
    pub(super) fn tiles(&self, cta_q: i64, cta_k: i64) -> f64 {
        let queries = self.shape.queries;
        let rows = ceil_div(queries, cta_q);
        let of_row = |row: i64| {
            let rows = [row * cta_q, ((row + 1) * cta_q).min(queries) - 1];
            let [begin, end] = self.steps(rows, cta_k);
            end - begin
        };
        let samples = rows.min(SAMPLES);
        let sum: i64 = (0..samples).map(|at| of_row(at * rows / samples.max(1))).sum();
        sum as f64 * rows as f64 / samples.max(1) as f64
    }
}
