//! The backward passes of multi-head attention, with their checks.

use crate::attention::{AttentionExtent, AttentionPass, AttentionRole, SequenceDataDescriptor};
use crate::device::Stream;
use crate::error::Result;
use crate::layers::attention::{Arguments, MultiHeadAttention};
use crate::layers::reserves::Phase;
use crate::layers::weight_sum::WeightGradientMode;
use crate::plan::Memory;

/// Arguments of cuDNN's `cudnnMultiHeadAttnBackwardData`, as far as they are read: of windows,
/// queries, keys and values the reserve space holds what is needed. Lengths are those of the
/// forward pass.
#[derive(Debug, Clone, Copy)]
pub struct AttentionBackwardData<'a> {
    /// The lengths of `q_desc` in device memory, `i32`.
    pub seq_lengths_qo: Memory<'a>,
    /// The lengths of `k_desc` in device memory, `i32`.
    pub seq_lengths_kv: Memory<'a>,
    /// Descriptor of `dout`.
    pub o_desc: &'a SequenceDataDescriptor,
    /// The gradient of the outputs, and of residuals; that of steps beyond the end of a sequence is
    /// ignored.
    pub dout: Memory<'a>,
    /// Descriptor of `dqueries`.
    pub q_desc: &'a SequenceDataDescriptor,
    /// The gradient of the queries, 0 beyond the end of a sequence.
    pub dqueries: Memory<'a>,
    /// Descriptor of `dkeys`.
    pub k_desc: &'a SequenceDataDescriptor,
    /// The gradient of the keys, 0 beyond the end of a sequence.
    pub dkeys: Memory<'a>,
    /// Descriptor of `dvalues`.
    pub v_desc: &'a SequenceDataDescriptor,
    /// The gradient of the values, 0 beyond the end of a sequence.
    pub dvalues: Memory<'a>,
    /// The weight buffer.
    pub weights: Memory<'a>,
    /// The workspace; `None` if its size is 0.
    pub workspace: Option<Memory<'a>>,
    /// The reserve space that the forward pass wrote.
    pub reserve: Memory<'a>,
}

/// Arguments of cuDNN's `cudnnMultiHeadAttnBackwardWeights`, as far as they are read: of weights
/// and the gradient of the outputs the reserve space holds what is needed. Lengths, which cuDNN
/// does not ask for here, are those of the forward pass. Vectors beyond them are not read; all
/// others must be finite, also where no window reaches.
#[derive(Debug, Clone, Copy)]
pub struct AttentionBackwardWeights<'a> {
    /// Whether gradients are added to those in memory: `addGrad`.
    pub mode: WeightGradientMode,
    /// The lengths of `q_desc` in device memory, `i32`.
    pub seq_lengths_qo: Memory<'a>,
    /// The lengths of `k_desc` in device memory, `i32`.
    pub seq_lengths_kv: Memory<'a>,
    /// Descriptor of `queries`.
    pub q_desc: &'a SequenceDataDescriptor,
    /// The queries, as in the forward pass.
    pub queries: Memory<'a>,
    /// Descriptor of `keys`.
    pub k_desc: &'a SequenceDataDescriptor,
    /// The keys, as in the forward pass.
    pub keys: Memory<'a>,
    /// Descriptor of `values`.
    pub v_desc: &'a SequenceDataDescriptor,
    /// The values, as in the forward pass.
    pub values: Memory<'a>,
    /// Descriptor of the gradient of the outputs.
    pub o_desc: &'a SequenceDataDescriptor,
    /// The gradients of weights and biases, in the layout of the weight buffer.
    pub dweights: Memory<'a>,
    /// The workspace; `None` if its size is 0.
    pub workspace: Option<Memory<'a>>,
    /// The reserve space that the backward pass of the data wrote.
    pub reserve: Memory<'a>,
}

impl MultiHeadAttention {
    /// Launches the backward pass of the data on a stream: the gradients of queries, keys and
    /// values from that of the outputs. Those of residuals are those of the outputs.
    ///
    /// # Errors
    /// As [`AttentionDescriptor::extent`] and [`AttentionDescriptor::layer`]; `BadParam` for a
    /// reserve space that no forward pass in training of vectors of this extent has written, and a
    /// buffer that is too small or missing; as [`Kiln::plan`] and [`ExecutionPlan::execute`].
    ///
    /// [`AttentionDescriptor::extent`]: crate::attention::AttentionDescriptor::extent
    /// [`AttentionDescriptor::layer`]: crate::attention::AttentionDescriptor::layer
    /// [`Kiln::plan`]: crate::Kiln::plan
    /// [`ExecutionPlan::execute`]: crate::ExecutionPlan::execute
    pub fn backward_data(
        &mut self,
        stream: &Stream,
        call: &AttentionBackwardData<'_>,
    ) -> Result<()> {
        let described = [call.q_desc, call.k_desc, call.v_desc, call.o_desc];
        let arguments = Arguments {
            workspace: call.workspace,
            reserve: Some(call.reserve),
            ..Arguments::default()
        };
        let arguments = arguments
            .with(AttentionRole::QueryLengths, call.seq_lengths_qo)
            .with(AttentionRole::KeyLengths, call.seq_lengths_kv)
            .with(AttentionRole::OutputGradient, call.dout)
            .with(AttentionRole::QueryGradients, call.dqueries)
            .with(AttentionRole::KeyGradients, call.dkeys)
            .with(AttentionRole::ValueGradients, call.dvalues)
            .with(AttentionRole::Weights, call.weights);
        self.backward(stream, AttentionPass::BackwardData, described, &arguments)
    }

    /// Launches the backward pass of the weights on a stream, after that of the data with the same
    /// reserve space.
    ///
    /// # Errors
    /// As [`MultiHeadAttention::backward_data`]; `BadParam` where that has not run.
    pub fn backward_weights(
        &mut self,
        stream: &Stream,
        call: &AttentionBackwardWeights<'_>,
    ) -> Result<()> {
        let described = [call.q_desc, call.k_desc, call.v_desc, call.o_desc];
        let arguments = Arguments {
            workspace: call.workspace,
            reserve: Some(call.reserve),
            adds: call.mode == WeightGradientMode::Add,
            ..Arguments::default()
        };
        let arguments = arguments
            .with(AttentionRole::QueryLengths, call.seq_lengths_qo)
            .with(AttentionRole::KeyLengths, call.seq_lengths_kv)
            .with(AttentionRole::Queries, call.queries)
            .with(AttentionRole::Keys, call.keys)
            .with(AttentionRole::Values, call.values)
            .with(AttentionRole::WeightGradients, call.dweights);
        self.backward(stream, AttentionPass::BackwardWeights, described, &arguments)
    }

    fn backward(
        &mut self,
        stream: &Stream,
        pass: AttentionPass,
        described: [&SequenceDataDescriptor; 4],
        arguments: &Arguments<'_>,
    ) -> Result<()> {
        let extent: AttentionExtent = self.descriptor().extent_of(pass, described)?;
        let reserve = arguments.reserve.expect("a backward pass has one");
        self.check_reserve(pass, reserve, extent)?;
        self.run(stream, pass, extent, arguments)?;
        self.record(reserve, extent, Phase::Backward);
        Ok(())
    }
}
