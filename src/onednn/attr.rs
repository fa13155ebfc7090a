//! Attributes of a primitive: the quantization of 8-bit LSTMs.

use crate::expr::Real;

/// `set_rnn_data_qparams`: an 8-bit element of data is `value * scale + shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DataQuantization {
    /// Factor.
    pub scale: Real,
    /// Added to the product.
    pub shift: Real,
}

/// `set_rnn_weights_qparams`, `set_rnn_weights_projection_qparams`: 8-bit weights are
/// `value * scale`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightsScales {
    /// Bits of the dimensions along which scales differ: none, or all output channels.
    pub mask: i32,
    /// One factor, or one for each output channel.
    pub scales: Vec<Real>,
}

/// `dnnl::primitive_attr`, as far as RNN primitives use it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PrimitiveAttr {
    /// Of data.
    pub data: Option<DataQuantization>,
    /// Of the weights of inputs and states.
    pub weights: Option<WeightsScales>,
    /// Of the projection.
    pub projection: Option<WeightsScales>,
}
