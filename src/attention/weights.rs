//! The weight buffer: where each matrix and bias of a layer stands
//! (`mcdnnGetMultiHeadAttnWeights`, section 6.2.1.16).
//!
//! W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O follow each other without gaps, those that the layer has.
//! Elements of the vectors that go into a product stand slowest, so that each matrix of all heads
//! is one, row-major: `[size, heads * proj]` in front of the attention, `[heads * width, proj]`
//! behind it. That is what cuDNN was reported to use.

use crate::attention::descriptor::AttentionDescriptor;
use crate::error::{Error, Result};

/// `mcdnnMultiHeadAttnWeightKind_t` (section 6.1.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttentionWeightKind {
    /// The projection of queries.
    QWeights,
    /// The projection of keys.
    KWeights,
    /// The projection of values.
    VWeights,
    /// The projection of results.
    OWeights,
    /// The biases of projected queries.
    QBiases,
    /// The biases of projected keys.
    KBiases,
    /// The biases of projected values.
    VBiases,
    /// The biases of outputs.
    OBiases,
}

impl AttentionWeightKind {
    /// All of them, in the order of the buffer.
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

    /// The name in texts and problem files.
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

/// A matrix or a bias of all heads in a weight buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionWeightSlice {
    /// Where the first element lies, in elements from the start of the buffer.
    pub offset: i64,
    /// Heads, elements behind the projection, elements before it (1 of a bias). The outputs' bias
    /// is that of all heads: there is one.
    pub dims: [i64; 3],
    /// Elements from one to the next along each dimension.
    pub strides: [i64; 3],
}

/// The places of a layer's weights in one buffer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionWeights {
    slices: [Option<AttentionWeightSlice>; 8],
    elements: i64,
    element_bytes: i64,
}

impl AttentionWeights {
    /// The places of a layer's weights.
    ///
    /// # Errors
    /// `BadParam` for a buffer beyond 2^62 bytes.
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

    /// The size of the buffer.
    pub fn bytes(&self) -> u64 {
        (self.elements * self.element_bytes) as u64
    }

    /// The size of the buffer in elements.
    pub fn elements(&self) -> i64 {
        self.elements
    }

    /// Weights of a kind; `None` where the layer has none. A caller's buffer has `buffer_bytes`.
    ///
    /// # Errors
    /// `BadParam` for a buffer that is too small for the layer's weights.
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

/// Dimensions and strides of weights that the layer has.
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
