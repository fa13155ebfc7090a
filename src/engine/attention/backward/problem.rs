//! A graph of the gradients of one attention, common to all engines.

use crate::engine::access::ceil_div;
use crate::engine::attention::problem::Problem;
use crate::engine::attention::score::Source;
use crate::error::{Error, Result};
use crate::expr::Program;
use crate::graph::{AttentionBackward, AttentionShape, CanonicalGraph};
use crate::tensor::TensorDesc;

/// The gradients of one attention: the problem of that, and which gradients there are.
#[derive(Debug)]
pub(super) struct BackwardProblem<'a> {
    pub(super) forward: Problem<'a>,
    pub(super) op: &'a AttentionBackward,
}

impl<'a> BackwardProblem<'a> {
    /// # Errors
    /// As [`Problem::backward`].
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<BackwardProblem<'a>> {
        let (mut forward, op) = Problem::backward(graph, capability)?;
        let in_memory = ["o", "lse", "do", "dlse"].into_iter().filter_map(|slot| forward.at(slot));
        let by_value = in_memory.map(|at| &graph.tensors[at]).find(|tensor| tensor.by_value);
        if let Some(TensorDesc { name, .. }) = by_value {
            return Err(Error::not_supported(format!("`{name}` is passed by value")));
        }
        let AttentionShape { heads, kv_heads, queries, .. } = &mut forward.shape;
        if *heads == 0 {
            // Keys without a head of queries have gradients of 0, as without a query.
            (*heads, *queries) = (*kv_heads, 0);
        }
        Ok(BackwardProblem { forward, op })
    }

    /// Slots and canonical positions of all tensors but those that `without` names.
    pub(super) fn passed(&self, without: &[&str]) -> Vec<(&'static str, usize)> {
        let all = self.forward.passed();
        all.filter(|(slot, _)| !without.contains(slot)).collect()
    }

    /// The results besides `dq`, `dk` and `dv`.
    pub(super) fn optional_results(&self) -> Vec<&'static str> {
        self.op.optional().map(|(result, _)| result).collect()
    }

    /// Rows of queries of all heads: elements of `delta`.
    pub(super) fn rows(&self) -> i64 {
        let AttentionShape { batches, heads, queries, .. } = self.forward.shape;
        batches.saturating_mul(heads).saturating_mul(queries)
    }

    /// Bytes of an accumulator.
    pub(super) fn accumulator_bytes(&self) -> i64 {
        if self.forward.is_double() { 8 } else { 4 }
    }

    /// Tiles of keys in all KV heads.
    pub(super) fn key_tiles(&self, cta_k: i64) -> i64 {
        let AttentionShape { batches, kv_heads, keys, .. } = self.forward.shape;
        batches.saturating_mul(kv_heads).saturating_mul(ceil_div(keys, cta_k))
    }

    /// The gradient of an input of the score program for that of its result, `d_score`, which is
    /// the last input; `None` where the score is the scaled product.
    pub(super) fn gradient(&self, of: Source) -> Option<Program> {
        let score = &self.forward.score;
        if !score.is_modified() {
            return None;
        }
        let at = score.sources.iter().position(|source| *source == of)?;
        let program = &score.program;
        let result = Program::from_parts(
            program.inputs().to_vec(),
            program.instructions().to_vec(),
            vec![program.outputs()[0]],
        );
        Some(result.vjp(&[at]).expect("the program has the input and a result"))
    }
}
