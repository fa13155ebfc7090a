//! Attributes of a primitive: the quantization of 8-bit LSTMs and of reorders to and from their
//! integers.

use crate::expr::Real;

/// `set_rnn_data_qparams`: an 8-bit element of data is `value * scale + shift`, rounded to nearest
/// even and saturated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DataQuantization {
    /// Factor.
    pub scale: Real,
    /// Added to the product.
    pub shift: Real,
}

/// `set_rnn_weights_qparams`, `set_rnn_weights_projection_qparams`: 8-bit weights are
/// `value * scale`, rounded to nearest even and saturated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightsScales {
    /// Bits of the dimensions along which scales differ: none, or all output channels.
    pub mask: i32,
    /// One factor, or one for each output channel.
    pub scales: Vec<Real>,
}

/// `dnnl::primitive_attr`, as far as RNN primitives and reorders use it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PrimitiveAttr {
    /// Of data; factor 1 and shift 0 if absent.
    pub data: Option<DataQuantization>,
    /// Of the weights of inputs and states; factor 1 if absent.
    pub weights: Option<WeightsScales>,
    /// Of the projection.
    pub projection: Option<WeightsScales>,
}

/// Dimensions of the output channels of weights.
pub(super) const WEIGHTS_CHANNELS: [usize; 2] = [3, 4];
/// Dimension of the output channels of a projection.
pub(super) const PROJECTION_CHANNELS: [usize; 1] = [3];

impl Default for DataQuantization {
    fn default() -> DataQuantization {
        DataQuantization { scale: Real::new(1.0), shift: Real::new(0.0) }
    }
}

impl Default for WeightsScales {
    fn default() -> WeightsScales {
        WeightsScales { mask: 0, scales: vec![Real::new(1.0)] }
    }
}

impl DataQuantization {
    /// The rule that it breaks.
    pub(super) fn broken_rule(self) -> Option<String> {
        let (scale, shift) = (self.scale.get(), self.shift.get());
        let is_kept = is_factor(scale) && (shift as f32).is_finite();
        (!is_kept).then(|| format!("data quantization by scale {scale} and shift {shift}"))
    }
}

impl WeightsScales {
    /// The rule that scales of a tensor break, whose output channels are these axes.
    pub(super) fn broken_rule(&self, name: &str, dims: &[i64], axes: &[usize]) -> Option<String> {
        let WeightsScales { mask, scales } = self;
        let all: i32 = axes.iter().map(|axis| 1 << axis).sum();
        let extent = |axis: &usize| dims.get(*axis).map_or(0, |dim| *dim as usize);
        let wanted = match *mask {
            0 => 1,
            mask if mask == all => axes.iter().map(extent).product(),
            mask => return Some(format!("{name} scales of mask {mask}, expected 0 or {all}")),
        };
        let is = scales.len();
        if is != wanted {
            return Some(format!("{is} {name} scales of mask {mask}, expected {wanted}"));
        }
        let broken = scales.iter().find(|scale| !is_factor(scale.get()));
        broken.map(|scale| format!("{name} scale {scale}"))
    }
}

/// Whether a number and its reciprocal are numbers in f32.
fn is_factor(scale: f64) -> bool {
    (scale as f32).is_normal() && ((1.0 / scale) as f32).is_normal()
}
