//! The weight buffer: layout of a layer's weights and biases (`mcdnnGetMultiHeadAttnWeights`,
//! section 6.2.1.16).
//!
//! Those of W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O that the layer has are contiguous. The input
//! elements of a projection are the slowest dimension, so that the weights of all heads form one
//! row-major matrix: `[size, heads * proj]` for the inputs, `[heads * width, proj]` for the output.
//! This is the layout reported for cuDNN.

use crate::attention::descriptor::AttentionDescriptor;
use crate::error::{Error, Result};

/// `mcdnnMultiHeadAttnWeightKind_t` (section 6.1.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttentionWeightKind {
    /// Projection of queries.
    QWeights,
    /// Projection of keys.
    KWeights,
    /// Projection of values.
    VWeights,
    /// Projection of the output.
    OWeights,
    /// Bias of the query projection.
    QBiases,
    /// Bias of the key projection.
    KBiases,
    /// Bias of the value projection.
    VBiases,
    /// Bias of the output projection.
    OBiases,
}

impl AttentionWeightKind {
    /// All kinds, in the order of the buffer.
    pub const ALL: [AttentionWeightKind; 8] = [
        AttentionWeightKind::QWeights,
        AttentionWeightKind::KWeights,
        AttentionWeightKind::VWeights,
        AttentionWeightKind::OWeights,
        AttentionWeightKind::QBiases,
        AttentionWeightKind::KBiases,
        AttentionWeightKind::VBiases,
        AttentionWeightKind::OBiases,
    ];

    /// Name in messages and problem files.
    pub fn name(self) -> &'static str {
        match self {
            AttentionWeightKind::QWeights => "w_q",
            AttentionWeightKind::KWeights => "w_k",
            AttentionWeightKind::VWeights => "w_v",
            AttentionWeightKind::OWeights => "w_o",
            AttentionWeightKind::QBiases => "b_q",
            AttentionWeightKind::KBiases => "b_k",
            AttentionWeightKind::VBiases => "b_v",
            AttentionWeightKind::OBiases => "b_o",
        }
    }
}

/// A matrix or bias of all heads in a weight buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionWeightSlice {
    /// Offset of the first element, in elements from the start of the buffer.
    pub offset: i64,
    /// Heads, output elements and input elements (1 for a bias). The output bias has one head.
    pub dims: [i64; 3],
    /// Strides of the dimensions, in elements.
    pub strides: [i64; 3],
}

/// Layout of a layer's weights in one buffer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionWeights {
    slices: [Option<AttentionWeightSlice>; 8],
    elements: i64,
    element_bytes: i64,
}

impl AttentionWeights {
    /// Computes the layout for a layer.
    ///
    /// # Errors
    /// `BadParam` if the buffer exceeds 2^62 bytes.
    pub fn new(descriptor: &AttentionDescriptor) -> Result<AttentionWeights> {
        let mut weights = AttentionWeights {
            slices: [None; 8],
            elements: 0,
            element_bytes: descriptor.get().data_type.bytes() as i64,
        };
        for kind in AttentionWeightKind::ALL {
            let Some((dims, strides)) = shape(descriptor, kind) else { continue };
            let offset = weights.elements;
            let count = dims.iter().try_fold(1i64, |count, dim| count.checked_mul(*dim));
            let end = count.and_then(|count| count.checked_add(offset));
            let end = end.filter(|end| *end <= (1 << 62) / weights.element_bytes);
            let text = "attention descriptor: the weights exceed 2^62 bytes";
            weights.elements = end.ok_or_else(|| Error::bad_param(text))?;
            weights.slices[kind as usize] = Some(AttentionWeightSlice { offset, dims, strides });
        }
        Ok(weights)
    }

    /// Size of the buffer in bytes.
    pub fn bytes(&self) -> u64 {
        (self.elements * self.element_bytes) as u64
    }

    /// Size of the buffer in elements.
    pub fn elements(&self) -> i64 {
        self.elements
    }

    /// The slice of a kind in a caller's buffer of `buffer_bytes`; `None` if the layer has none.
    ///
    /// # Errors
    /// `BadParam` if the buffer is too small for the layer's weights.
    pub fn get(
        &self,
        kind: AttentionWeightKind,
        buffer_bytes: u64,
    ) -> Result<Option<AttentionWeightSlice>> {
        let needed = self.bytes();
        match buffer_bytes >= needed {
            true => Ok(self.slice(kind)),
            false => Err(Error::bad_param(format!(
                "attention weights: the buffer has {buffer_bytes} bytes, the layer needs {needed}"
            ))),
        }
    }

    pub(super) fn slice(&self, kind: AttentionWeightKind) -> Option<AttentionWeightSlice> {
        self.slices[kind as usize]
    }
}

/// Dimensions and strides of the weights of a kind; `None` if the layer has none.
fn shape(
    descriptor: &AttentionDescriptor,
    kind: AttentionWeightKind,
) -> Option<([i64; 3], [i64; 3])> {
    use AttentionWeightKind::{
        KBiases, KWeights, OBiases, OWeights, QBiases, QWeights, VBiases, VWeights,
    };
    let settings = descriptor.get();
    let (proj, size) = match kind {
        QWeights | QBiases => (settings.q_proj_size, i64::from(settings.q_size)),
        KWeights | KBiases => (settings.k_proj_size, i64::from(settings.k_size)),
        VWeights | VBiases => (settings.v_proj_size, i64::from(settings.v_size)),
        OWeights | OBiases => (settings.o_proj_size, descriptor.width()),
    };
    let (heads, proj) = (descriptor.heads(), i64::from(proj));
    let is_bias = matches!(kind, QBiases | KBiases | VBiases | OBiases);
    let shape = match kind {
        QWeights | KWeights | VWeights => ([heads, proj, size], [proj, 1, heads * proj]),
        OWeights => ([heads, proj, size], [proj * size, 1, proj]),
        OBiases => ([1, proj, 1], [proj, 1, 1]),
        QBiases | KBiases | VBiases => ([heads, proj, 1], [proj, 1, 1]),
    };
    (proj > 0 && (!is_bias || settings.proj_biases)).then_some(shape)
}
