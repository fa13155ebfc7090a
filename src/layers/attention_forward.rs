//! The forward pass of multi-head attention (`mcdnnMultiHeadAttnForward`, section 6.2.1.35), with
//! its checks.

use crate::attention::{AttentionExtent, AttentionPass, AttentionRole, SequenceDataDescriptor};
use crate::device::Stream;
use crate::error::Result;
use crate::layers::attention::{Arguments, MultiHeadAttention, bad};
use crate::layers::reserves::Phase;
use crate::plan::Memory;

/// Arguments of `mcdnnMultiHeadAttnForward`; `None` is the document's NULL.
#[derive(Debug, Clone, Copy)]
pub struct AttentionForward<'a> {
    /// The time step to compute; negative: all.
    pub curr_idx: i32,
    /// First key of each step's window. With one step, only its element is read.
    pub lo_win_idx: &'a [i32],
    /// End of each step's window, exclusive; an end beyond the sequence means the end of the
    /// sequence.
    pub hi_win_idx: &'a [i32],
    /// The lengths of `q_desc` in device memory, `i32`. They are not compared with `q_desc`.
    pub seq_lengths_qo: Memory<'a>,
    /// The lengths of `k_desc` in device memory, `i32`. They are not compared with `k_desc`.
    pub seq_lengths_kv: Memory<'a>,
    /// Descriptor of `queries` and `residuals`.
    pub q_desc: &'a SequenceDataDescriptor,
    /// The queries.
    pub queries: Memory<'a>,
    /// Residuals, which are added to the outputs.
    pub residuals: Option<Memory<'a>>,
    /// Descriptor of `keys`.
    pub k_desc: &'a SequenceDataDescriptor,
    /// The keys.
    pub keys: Memory<'a>,
    /// Descriptor of `values`.
    pub v_desc: &'a SequenceDataDescriptor,
    /// The values.
    pub values: Memory<'a>,
    /// Descriptor of `out`.
    pub o_desc: &'a SequenceDataDescriptor,
    /// The outputs. Those of steps beyond the end of a sequence, which the document leaves
    /// undefined, are bias, some of it dropped, plus residual; with one step, all other steps are
    /// left unchanged.
    pub out: Memory<'a>,
    /// The weight buffer.
    pub weights: Memory<'a>,
    /// The workspace; `None` if its size is 0.
    pub workspace: Option<Memory<'a>>,
    /// The reserve space; a call with one is a training call.
    pub reserve: Option<Memory<'a>>,
}

impl MultiHeadAttention {
    /// Launches a forward pass on a stream, and waits for nothing. The windows of a call for all
    /// steps are written to the workspace first, 64 of them by a launch. A call in training with
    /// dropout draws at the positions of [`MultiHeadAttention::dropout_states`] and moves them on.
    ///
    /// # Errors
    /// As [`AttentionDescriptor::extent`] and [`AttentionDescriptor::layer`]; `BadParam` for a step
    /// out of range, windows that are missing or end before they start, one step with a reserve
    /// space, a buffer that is too small, and inference without a workspace; as [`Kiln::plan`] and
    /// [`ExecutionPlan::execute`].
    ///
    /// [`AttentionDescriptor::extent`]: crate::attention::AttentionDescriptor::extent
    /// [`AttentionDescriptor::layer`]: crate::attention::AttentionDescriptor::layer
    /// [`Kiln::plan`]: crate::Kiln::plan
    /// [`ExecutionPlan::execute`]: crate::ExecutionPlan::execute
    pub fn forward(&mut self, stream: &Stream, call: &AttentionForward<'_>) -> Result<()> {
        let AttentionForward { q_desc, k_desc, v_desc, o_desc, .. } = *call;
        let extent = self.descriptor().extent(q_desc, k_desc, v_desc, o_desc)?;
        self.forward_within(stream, extent, call)
    }

    /// As [`MultiHeadAttention::forward`], where the call's descriptors were seen to be of this
    /// extent by [`AttentionDescriptor::extent`], and are not looked at again.
    ///
    /// # Errors
    /// As [`MultiHeadAttention::forward`], of anything but the descriptors.
    ///
    /// [`AttentionDescriptor::extent`]: crate::attention::AttentionDescriptor::extent
    pub fn forward_within(
        &mut self,
        stream: &Stream,
        extent: AttentionExtent,
        call: &AttentionForward<'_>,
    ) -> Result<()> {
        let extent = forward_extent(extent, call)?;
        let arguments = Arguments {
            step: call.curr_idx,
            low: call.lo_win_idx,
            high: call.hi_win_idx,
            workspace: call.workspace,
            reserve: call.reserve,
            ..Arguments::default()
        };
        let arguments = arguments
            .with(AttentionRole::Queries, call.queries)
            .with(AttentionRole::Keys, call.keys)
            .with(AttentionRole::Values, call.values)
            .with(AttentionRole::Weights, call.weights)
            .with(AttentionRole::QueryLengths, call.seq_lengths_qo)
            .with(AttentionRole::KeyLengths, call.seq_lengths_kv)
            .with(AttentionRole::Output, call.out);
        let arguments = match call.residuals {
            Some(residuals) => arguments.with(AttentionRole::Residuals, residuals),
            None => arguments,
        };
        self.run(stream, AttentionPass::Forward, extent, &arguments)?;
        if let Some(reserve) = call.reserve {
            self.record(reserve, extent, Phase::Forward);
        }
        Ok(())
    }
}

/// Checks a call and returns its extent, given that of its data.
fn forward_extent(extent: AttentionExtent, call: &AttentionForward<'_>) -> Result<AttentionExtent> {
    let AttentionForward { curr_idx, reserve, .. } = *call;
    let bad = |rule: String| bad(AttentionPass::Forward, rule);
    let one_step = curr_idx >= 0;
    if i64::from(curr_idx) >= extent.queries {
        return bad(format!("step {curr_idx} of {} steps", extent.queries));
    }
    if one_step && reserve.is_some() {
        return bad(format!("step {curr_idx} alone with a reserve space, which is for training"));
    }
    for step in steps(curr_idx, extent) {
        let windows = [("low", call.lo_win_idx), ("high", call.hi_win_idx)];
        for (name, indices) in windows {
            if indices.len() <= step {
                let count = indices.len();
                return bad(format!("{count} {name} window indices, step {step} has none"));
            }
        }
        let (low, high) = (call.lo_win_idx[step], call.hi_win_idx[step]);
        if low > high {
            return bad(format!("the window of step {step} is {low} to {high}"));
        }
    }
    let residuals = call.residuals.is_some();
    Ok(AttentionExtent { residuals, one_step, training: reserve.is_some(), ..extent })
}

/// The time steps that a call computes.
fn steps(curr_idx: i32, extent: AttentionExtent) -> std::ops::Range<usize> {
    match usize::try_from(curr_idx) {
        Ok(step) => step..step + 1,
        Err(_) => 0..extent.queries as usize,
    }
}
