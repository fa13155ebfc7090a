//! What the lowerings of all passes share: graphs under construction, and where their tensors are.
//!
//! Intermediate tensors are packed as `[batch, beam, time, head, element]`, whatever the layout of
//! the caller's vectors; the GEMMs and copies at both ends convert between the two. Vectors that
//! are not projected are copied for each head, as `[head, batch, beam, time, element]`.

use crate::attention::data::SequenceAxis;
use crate::attention::layer::{AttentionLayer, AttentionPlace, AttentionStage};
use crate::attention::role::AttentionRole;
use crate::attention::weights::{AttentionWeightKind, AttentionWeightSlice};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::GraphBuilder;
use crate::tensor::TensorDesc;

/// Alignment of the caller's tensors in bytes (`mcdnnGetMultiHeadAttnBuffers`, 6.2.1.15).
const ALIGNMENT: i64 = 16;

/// Vectors of `elements`, one per `[batch, beam, time]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vectors {
    pub(super) role: AttentionRole,
    pub(super) dims: [i64; 3],
    /// Strides of the vectors, in elements.
    pub(super) strides: [i64; 3],
    pub(super) elements: i64,
}

/// Vectors of an intermediate tensor.
pub(super) fn inner(role: AttentionRole, dims: [i64; 3], elements: i64) -> Vectors {
    let [_, beams, steps] = dims;
    let strides = [beams * steps * elements, steps * elements, elements];
    Vectors { role, dims, strides, elements }
}

/// Common dimensions of vectors, and the strides of each, with axes merged that are contiguous in
/// all of them.
pub(super) fn merged<const N: usize>(of: [&Vectors; N]) -> (Vec<i64>, [Vec<i64>; N]) {
    let mut dims: Vec<i64> = Vec::new();
    let mut strides: [Vec<i64>; N] = [const { Vec::new() }; N];
    let extents = of[0].dims;
    for axis in (0..3).filter(|axis| extents[*axis] > 1) {
        let follows = |(own, vectors): (&Vec<i64>, &&Vectors)| {
            own.last() == Some(&(vectors.strides[axis] * extents[axis]))
        };
        match strides.iter().zip(&of).all(follows) {
            true => *dims.last_mut().expect("an axis is before") *= extents[axis],
            false => {
                dims.push(extents[axis]);
                strides.iter_mut().for_each(|own| own.push(0));
            }
        }
        for (own, vectors) in strides.iter_mut().zip(&of) {
            *own.last_mut().expect("the axis is there") = vectors.strides[axis];
        }
    }
    match dims.is_empty() {
        true => (vec![1], of.map(|vectors| vec![vectors.elements])),
        false => (dims, strides),
    }
}

/// One of the three inputs of a layer and what becomes of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input {
    pub(super) role: AttentionRole,
    pub(super) gradient: AttentionRole,
    /// Elements of a vector.
    pub(super) size: i64,
    /// Batch, beams, steps.
    pub(super) dims: [i64; 3],
    pub(super) lengths: AttentionRole,
    /// Weights and biases of the projection.
    pub(super) kinds: [AttentionWeightKind; 2],
    pub(super) projected: AttentionRole,
    pub(super) projected_gradient: AttentionRole,
    /// Heads after the projection, or copies without one.
    pub(super) heads: i64,
    /// Elements of a head.
    pub(super) elements: i64,
}

impl AttentionLayer {
    /// The inputs of the layer: queries, keys, values.
    pub(super) fn inputs(&self) -> [Input; 3] {
        use AttentionWeightKind::{KBiases, KWeights, QBiases, QWeights, VBiases, VWeights};
        let AttentionLayer { descriptor, extent, .. } = self;
        let settings = descriptor.get();
        let (heads, kv_heads) = (descriptor.heads(), self.kv_heads());
        let (depth, width) = (descriptor.depth(), descriptor.width());
        let kv_dims = [extent.batch, self.kv_beams(), extent.keys];
        let queries = Input {
            role: AttentionRole::Queries,
            gradient: AttentionRole::QueryGradients,
            size: i64::from(settings.q_size),
            dims: [extent.batch, extent.beams, extent.steps()],
            lengths: AttentionRole::QueryLengths,
            kinds: [QWeights, QBiases],
            projected: AttentionRole::ProjectedQueries,
            projected_gradient: AttentionRole::ProjectedQueryGradients,
            heads,
            elements: depth,
        };
        let keys = Input {
            role: AttentionRole::Keys,
            gradient: AttentionRole::KeyGradients,
            size: i64::from(settings.k_size),
            dims: kv_dims,
            lengths: AttentionRole::KeyLengths,
            kinds: [KWeights, KBiases],
            projected: AttentionRole::ProjectedKeys,
            projected_gradient: AttentionRole::ProjectedKeyGradients,
            heads: kv_heads,
            elements: depth,
        };
        let values = Input {
            role: AttentionRole::Values,
            gradient: AttentionRole::ValueGradients,
            size: i64::from(settings.v_size),
            kinds: [VWeights, VBiases],
            projected: AttentionRole::ProjectedValues,
            projected_gradient: AttentionRole::ProjectedValueGradients,
            elements: width,
            ..keys
        };
        [queries, keys, values]
    }
}

/// A graph under construction.
#[derive(Default)]
pub(super) struct Stage {
    pub(super) graph: GraphBuilder,
    places: Vec<AttentionPlace>,
}

impl Stage {
    pub(super) fn finish(mut self) -> Result<AttentionStage> {
        self.places.sort_by_key(|place| place.uid);
        Ok(AttentionStage { graph: self.graph.build()?, places: self.places })
    }
}

pub(super) struct Lowering<'a> {
    pub(super) layer: &'a AttentionLayer,
}

impl Lowering<'_> {
    pub(super) fn dtype(&self) -> DType {
        self.layer.descriptor.get().data_type
    }

    /// Vectors in the caller's layout; for queries and outputs, of the time steps computed.
    pub(super) fn outer(&self, role: AttentionRole, dims: [i64; 3], elements: i64) -> Vectors {
        let extent = &self.layer.extent;
        let whole = match role {
            AttentionRole::Keys
            | AttentionRole::Values
            | AttentionRole::KeyGradients
            | AttentionRole::ValueGradients => dims,
            _ => [dims[0], dims[1], extent.queries],
        };
        let (mut strides, mut stride) = ([0; 3], elements);
        for axis in extent.order.iter().rev() {
            let at = match axis {
                SequenceAxis::Batch => 0,
                SequenceAxis::Beam => 1,
                _ => 2,
            };
            strides[at] = stride;
            stride *= whole[at];
        }
        Vectors { role, dims, strides, elements }
    }

    /// Adds a tensor at an element offset within a layer tensor.
    pub(super) fn place(
        &self,
        stage: &mut Stage,
        role: AttentionRole,
        offset: i64,
        tensor: TensorDesc,
    ) -> i64 {
        let steps = match role {
            AttentionRole::Queries | AttentionRole::Residuals | AttentionRole::Output
                if self.layer.extent.one_step =>
            {
                self.layer.step_stride(role)
            }
            _ => 0,
        };
        let element = tensor.dtype.bytes();
        let bytes = (offset | steps) * element as i64;
        let alignment = match role.is_intermediate() || tensor.dtype != DType::I32 {
            true => 1 << (bytes | ALIGNMENT).trailing_zeros(),
            // Windows and lengths are arrays of integers.
            false => element,
        };
        let uid = stage.graph.fresh_uid();
        stage.places.push(AttentionPlace { uid, role, offset });
        stage.graph.tensor(TensorDesc { uid, alignment, ..tensor })
    }

    /// Adds vectors, or `elements` of each starting at an offset.
    pub(super) fn vectors(
        &self,
        stage: &mut Stage,
        name: &str,
        (of, first, elements): (&Vectors, i64, i64),
        (dims, strides): (&[i64], &[i64]),
    ) -> i64 {
        let dims = [dims, &[elements]].concat();
        let tensor = TensorDesc::packed(0, name, &dims, self.dtype());
        let tensor = TensorDesc { strides: [strides, &[1]].concat(), ..tensor };
        self.place(stage, of.role, first, tensor)
    }

    /// Adds the weights of all heads, or what lies in memory like them, as one matrix of rank
    /// `rank`.
    pub(super) fn weights(
        &self,
        stage: &mut Stage,
        role: AttentionRole,
        kind: AttentionWeightKind,
        rank: usize,
    ) -> Option<i64> {
        use AttentionWeightKind::{KWeights, OWeights, QWeights, VWeights};
        let AttentionWeightSlice { offset, dims, .. } = self.layer.weights.slice(kind)?;
        let [heads, proj, size] = dims;
        let matrix = match kind {
            QWeights | KWeights | VWeights => [size, heads * proj],
            OWeights => [heads * size, proj],
            _ => [1, heads * proj],
        };
        let dims = [&vec![1; rank - 2][..], &matrix].concat();
        let gradient = if role == AttentionRole::Weights { "" } else { "_gradient" };
        let name = format!("{}{gradient}", kind.name());
        let tensor = TensorDesc::packed(0, name, &dims, self.dtype());
        Some(self.place(stage, role, offset, tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn vectors(dims: [i64; 3], strides: [i64; 3]) -> Vectors {
        Vectors { role: AttentionRole::Queries, dims, strides, elements: 5 }
    }

    #[test]
    fn axes_that_follow_each_other_in_all_tensors_are_one() {
        let dims = [2, 3, 4];
        let packed = vectors(dims, [60, 20, 5]);
        assert_eq!(merged([&packed]), (vec![24], [vec![5]]));
        assert_eq!(merged([&packed, &packed]), (vec![24], [vec![5], vec![5]]));
        // Time outermost.
        let outer = vectors(dims, [15, 5, 30]);
        let expected = (vec![6, 4], [vec![20, 5], vec![5, 30]]);
        assert_eq!(merged([&packed, &outer]), expected);
        // Time between.
        let between = vectors(dims, [60, 5, 15]);
        let expected = (vec![2, 3, 4], [vec![60, 20, 5], vec![60, 5, 15]]);
        assert_eq!(merged([&packed, &between]), expected);
        // One step of many.
        let (one, of_many) = (vectors([2, 3, 1], [15, 5, 5]), vectors([2, 3, 1], [60, 20, 5]));
        assert_eq!(merged([&one, &of_many]), (vec![6], [vec![5], vec![20]]));
        assert_eq!(merged([&vectors([1; 3], [5, 5, 5])]), (vec![1], [vec![5]]));
    }
}
