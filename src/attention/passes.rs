//! Lowering of a layer's passes to operation graphs.

use crate::attention::descriptor::AttentionDescriptor;
use crate::attention::extent::AttentionExtent;
use crate::attention::layer::AttentionLayer;
use crate::attention::pass::AttentionPass;
use crate::attention::{gradients, stages};
use crate::error::{Error, Result};

impl AttentionDescriptor {
    /// Lowers the forward pass to graphs for an extent.
    ///
    /// # Errors
    /// `BadParam` for residuals whose size is not that of the outputs, an extent below 1, an order
    /// that lacks an axis, tensors beyond 2^62 bytes, or training of one step; `NotSupported` for
    /// training with beam candidates or with
    /// [`QueryMap::OneToOne`](crate::attention::QueryMap::OneToOne); as
    /// [`OperationGraph::new`](crate::graph::OperationGraph::new).
    pub fn layer(&self, extent: AttentionExtent) -> Result<AttentionLayer> {
        self.lowered(AttentionPass::Forward, extent)
    }

    /// Lowers a pass to graphs for the extent of a call in training. That of the backward passes
    /// has no residuals: the gradient of these is that of the outputs.
    ///
    /// # Errors
    /// As [`AttentionDescriptor::layer`]; `BadParam` for a backward pass of a call that is not in
    /// training.
    pub fn lowered(&self, pass: AttentionPass, extent: AttentionExtent) -> Result<AttentionLayer> {
        if pass != AttentionPass::Forward && !extent.training {
            let text = format!("{}: the extent is not of training", pass.name());
            return Err(Error::bad_param(text));
        }
        let layer = AttentionLayer { pass, ..self.bare_layer(extent)? };
        let stages = match pass {
            AttentionPass::Forward => stages::forward(&layer)?,
            AttentionPass::BackwardData => gradients::data(&layer)?,
            AttentionPass::BackwardWeights => gradients::weights(&layer)?,
        };
        Ok(AttentionLayer { stages, ..layer })
    }
}
