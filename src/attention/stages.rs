//! Lowering of a layer to operation graphs.
//!
//! Intermediate tensors are packed as `[batch, beam, time, head, element]`, whatever the layout of
//! the caller's vectors; the GEMMs and copies at both ends convert between the two. Vectors that
//! are not projected are copied for each head, as `[head, batch, beam, time, element]`.

use crate::attention::data::SequenceAxis;
use crate::attention::descriptor::AttentionDescriptor;
use crate::attention::extent::AttentionExtent;
use crate::attention::layer::{AttentionLayer, AttentionPlace, AttentionStage};
use crate::attention::role::AttentionRole;
use crate::attention::weights::{AttentionWeightKind, AttentionWeightSlice};
use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Attention, GraphBuilder, Matmul, Op};
use crate::tensor::TensorDesc;

/// Alignment of the caller's tensors in bytes (`mcdnnGetMultiHeadAttnBuffers`, 6.2.1.15).
const ALIGNMENT: i64 = 16;

/// Vectors of `elements`, one per `[batch, beam, time]`.
#[derive(Debug, Clone, Copy)]
struct Vectors {
    role: AttentionRole,
    dims: [i64; 3],
    /// Strides of the vectors, in elements.
    strides: [i64; 3],
    elements: i64,
}

impl AttentionDescriptor {
    /// Lowers the layer to graphs for an extent.
    ///
    /// # Errors
    /// `BadParam` for residuals whose size is not that of the outputs, an extent below 1, an order
    /// that lacks an axis, or tensors beyond 2^62 bytes; as
    /// [`OperationGraph::new`](crate::graph::OperationGraph::new).
    pub fn layer(&self, extent: AttentionExtent) -> Result<AttentionLayer> {
        let layer = self.bare_layer(extent)?;
        let stages = all(&layer)?;
        Ok(AttentionLayer { stages, ..layer })
    }
}

/// The graphs of a layer in execution order.
fn all(layer: &AttentionLayer) -> Result<Vec<AttentionStage>> {
    use AttentionRole::{Keys, ProjectedKeys, ProjectedQueries, ProjectedValues, Queries, Values};
    use AttentionWeightKind::{KBiases, KWeights, QBiases, QWeights, VBiases, VWeights};
    let AttentionLayer { descriptor, extent, .. } = layer;
    let settings = descriptor.get();
    let lowering = Lowering { layer };
    let (steps, keys) = (extent.steps(), extent.keys);
    let (heads, kv_heads) = (descriptor.heads(), layer.kv_heads());
    let (depth, width) = (descriptor.depth(), descriptor.width());
    let inputs = [
        (Queries, settings.q_size, ProjectedQueries, heads, depth, [QWeights, QBiases]),
        (Keys, settings.k_size, ProjectedKeys, kv_heads, depth, [KWeights, KBiases]),
        (Values, settings.v_size, ProjectedValues, kv_heads, width, [VWeights, VBiases]),
    ];
    let mut stages = Vec::new();
    for (role, size, projected, heads, elements, kinds) in inputs {
        let (beams, steps) = match role {
            Queries => (extent.beams, steps),
            _ => (layer.kv_beams(), keys),
        };
        let dims = [extent.batch, beams, steps];
        let from = lowering.outer(role, dims, i64::from(size));
        stages.push(match layer.weights.slice(kinds[0]).is_some() {
            true => {
                lowering.product(from, inner(projected, dims, heads * elements), kinds, None)?
            }
            false => lowering.copies(from, inner(projected, dims, elements), heads)?,
        });
    }
    stages.push(lowering.windows()?);
    stages.push(lowering.attention()?);
    stages.push(lowering.outputs()?);
    Ok(stages)
}

/// Vectors of an intermediate tensor.
fn inner(role: AttentionRole, dims: [i64; 3], elements: i64) -> Vectors {
    let [_, beams, steps] = dims;
    let strides = [beams * steps * elements, steps * elements, elements];
    Vectors { role, dims, strides, elements }
}

/// Common dimensions of vectors, and the strides of each, with axes merged that are contiguous in
/// all of them.
fn merged<const N: usize>(of: [&Vectors; N]) -> (Vec<i64>, [Vec<i64>; N]) {
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

/// A graph under construction.
#[derive(Default)]
struct Stage {
    graph: GraphBuilder,
    places: Vec<AttentionPlace>,
}

impl Stage {
    fn finish(mut self) -> Result<AttentionStage> {
        self.places.sort_by_key(|place| place.uid);
        Ok(AttentionStage { graph: self.graph.build()?, places: self.places })
    }
}

struct Lowering<'a> {
    layer: &'a AttentionLayer,
}

impl Lowering<'_> {
    fn dtype(&self) -> DType {
        self.layer.descriptor.get().data_type
    }

    /// Vectors in the caller's layout; for queries and outputs, of the time steps computed.
    fn outer(&self, role: AttentionRole, dims: [i64; 3], elements: i64) -> Vectors {
        let extent = &self.layer.extent;
        let whole = match role {
            AttentionRole::Keys | AttentionRole::Values => dims,
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
    fn place(
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
    fn vectors(
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

    /// Adds the weights of all heads as one matrix of rank `rank`.
    fn weights(&self, stage: &mut Stage, kind: AttentionWeightKind, rank: usize) -> Option<i64> {
        use AttentionWeightKind::{KWeights, OWeights, QWeights, VWeights};
        let AttentionWeightSlice { offset, dims, .. } = self.layer.weights.slice(kind)?;
        let [heads, proj, size] = dims;
        let matrix = match kind {
            QWeights | KWeights | VWeights => [size, heads * proj],
            OWeights => [heads * size, proj],
            _ => [1, heads * proj],
        };
        let dims = [&vec![1; rank - 2][..], &matrix].concat();
        let tensor = TensorDesc::packed(0, kind.name(), &dims, self.dtype());
        Some(self.place(stage, AttentionRole::Weights, offset, tensor))
    }

    /// Multiplies vectors by weights and adds biases and an optional further tensor.
    fn product(
        &self,
        from: Vectors,
        to: Vectors,
        [weights, biases]: [AttentionWeightKind; 2],
        residuals: Option<Vectors>,
    ) -> Result<AttentionStage> {
        let descriptor = &self.layer.descriptor;
        let mut stage = Stage::default();
        let (dims, [from_strides, to_strides]) = merged([&from, &to]);
        let rank = dims.len() + 1;
        let a = (&from, 0, from.elements);
        let a = self.vectors(&mut stage, from.role.name(), a, (&dims, &from_strides));
        let b = self.weights(&mut stage, weights, rank).expect("the layer has the weights");
        let biases = self.weights(&mut stage, biases, rank);
        let residuals = residuals.map(|of| {
            let added = (&of, 0, of.elements);
            self.vectors(&mut stage, of.role.name(), added, (&dims, &to_strides))
        });
        let output = (&to, 0, to.elements);
        let output = self.vectors(&mut stage, to.role.name(), output, (&dims, &to_strides));
        let product = Matmul::new(descriptor.matmul_math());
        let added: Vec<i64> = [biases, residuals].into_iter().flatten().collect();
        let Some((last, before)) = added.split_last() else {
            stage.graph.operation_into(Op::Matmul(product), &[a, b], &[output]);
            return stage.finish();
        };
        let add = Pointwise::new(Mode::Add).math(descriptor.math());
        let mut sum = stage.graph.matmul(product, a, b)?;
        for tensor in before {
            sum = stage.graph.pointwise(add, &[sum, *tensor])?;
        }
        stage.graph.pointwise_into(add, &[sum, *last], output);
        stage.finish()
    }

    /// Copies vectors `count` times, one copy after another.
    fn copies(&self, from: Vectors, to: Vectors, count: i64) -> Result<AttentionStage> {
        let mut stage = Stage::default();
        let (dims, [from_strides, to_strides]) = merged([&from, &to]);
        let input = (&from, 0, from.elements);
        let input = self.vectors(&mut stage, from.role.name(), input, (&dims, &from_strides));
        let copy = Pointwise::new(Mode::Identity).math(self.layer.descriptor.math());
        let all = to.dims.iter().product::<i64>() * to.elements;
        for at in 0..count {
            let name = format!("{}_{at}", to.role.name());
            let part = (&to, at * all, to.elements);
            let output = self.vectors(&mut stage, &name, part, (&dims, &to_strides));
            stage.graph.pointwise_into(copy, &[input], output);
        }
        stage.finish()
    }

    /// Computes the keys of each query: the window of its time step, empty beyond the end of its
    /// sequence.
    fn windows(&self) -> Result<AttentionStage> {
        use AttentionRole::{HighWindow, KeyBegin, KeyEnd, LowWindow, QueryLengths, Steps};
        let extent = &self.layer.extent;
        let mut stage = Stage::default();
        let mut add = |role: AttentionRole, dims: [i64; 4]| {
            let tensor = TensorDesc::packed(0, role.name(), &dims, DType::I32);
            let of_step = matches!(role, Steps | LowWindow | HighWindow);
            let by_value = of_step && extent.one_step;
            self.place(&mut stage, role, 0, TensorDesc { by_value, ..tensor })
        };
        let of_steps = [1, 1, extent.steps(), 1];
        let of_queries = [extent.batch, extent.beams, extent.steps(), 1];
        let lengths = add(QueryLengths, [extent.batch, extent.beams, 1, 1]);
        let [steps, low, high] = [Steps, LowWindow, HighWindow].map(|role| add(role, of_steps));
        let [begin, end] = [KeyBegin, KeyEnd].map(|role| add(role, of_queries));
        // f32 cannot represent every step.
        let exact = |mode| Pointwise::new(mode).math(Math::F64);
        let within = stage.graph.pointwise(exact(Mode::CmpLt), &[steps, lengths])?;
        stage.graph.pointwise_into(exact(Mode::Mul), &[within, low], begin);
        stage.graph.pointwise_into(exact(Mode::Mul), &[within, high], end);
        stage.finish()
    }

    /// Attention of all heads. Beam candidates that share keys are further queries of one sequence.
    fn attention(&self) -> Result<AttentionStage> {
        use AttentionRole::{
            Attended, KeyBegin, KeyEnd, KeyLengths, LogSumExp, ProjectedKeys, ProjectedQueries,
            ProjectedValues,
        };
        use AttentionWeightKind::{KWeights, QWeights, VWeights};
        let AttentionLayer { descriptor, extent, .. } = self.layer;
        let (heads, kv_heads) = (descriptor.heads(), self.layer.kv_heads());
        let (depth, width) = (descriptor.depth(), descriptor.width());
        let sequences = extent.batch * self.layer.kv_beams();
        let queries = extent.beams / self.layer.kv_beams() * extent.steps();
        let mut stage = Stage::default();
        // Heads are interleaved within a row, or outermost.
        let mut of_heads =
            |role: AttentionRole, [heads, rows, elements]: [i64; 3], apart: bool, dtype| {
                let dims = [sequences, heads, rows, elements];
                let strides = match apart {
                    true => [rows * elements, sequences * rows * elements, elements, 1],
                    false => [rows * heads * elements, elements, heads * elements, 1],
                };
                let tensor = TensorDesc::packed(0, role.name(), &dims, dtype);
                self.place(&mut stage, role, 0, TensorDesc { strides: strides.to_vec(), ..tensor })
            };
        let dtype = self.dtype();
        let [q_apart, k_apart, v_apart] =
            [QWeights, KWeights, VWeights].map(|kind| self.layer.weights.slice(kind).is_none());
        let inputs = [
            of_heads(ProjectedQueries, [heads, queries, depth], q_apart, dtype),
            of_heads(ProjectedKeys, [kv_heads, extent.keys, depth], k_apart, dtype),
            of_heads(ProjectedValues, [kv_heads, extent.keys, width], v_apart, dtype),
            of_heads(KeyBegin, [1, queries, 1], false, DType::I32),
            of_heads(KeyEnd, [1, queries, 1], false, DType::I32),
            of_heads(KeyLengths, [1, 1, 1], false, DType::I32),
        ];
        let mut outputs = vec![of_heads(Attended, [heads, queries, width], false, dtype)];
        if extent.training {
            outputs.push(of_heads(
                LogSumExp,
                [heads, queries, 1],
                false,
                descriptor.math().dtype(),
            ));
        }
        let attention = Attention {
            scale: Some(descriptor.get().sm_scaler),
            intervals: true,
            key_lengths: true,
            statistics: extent.training,
            ..Attention::new(descriptor.matmul_math())
        };
        stage.graph.operation_into(Op::Attention(attention), &inputs, &outputs);
        stage.finish()
    }

    /// Projects or concatenates the heads' results and adds residuals.
    fn outputs(&self) -> Result<AttentionStage> {
        use AttentionRole::{Attended, Output, Residuals};
        use AttentionWeightKind::{OBiases, OWeights};
        let AttentionLayer { descriptor, extent, weights, .. } = self.layer;
        let dims = [extent.batch, extent.beams, extent.steps()];
        let from = inner(Attended, dims, descriptor.heads() * descriptor.width());
        let [to, residuals] =
            [Output, Residuals].map(|role| self.outer(role, dims, descriptor.output_size()));
        let residuals = extent.residuals.then_some(residuals);
        if weights.slice(OWeights).is_some() {
            return self.product(from, to, [OWeights, OBiases], residuals);
        }
        let Some(residuals) = residuals else { return self.copies(from, to, 1) };
        let mut stage = Stage::default();
        let (dims, [from_strides, to_strides]) = merged([&from, &to]);
        let [x, added, output] =
            [(&from, &from_strides), (&residuals, &to_strides), (&to, &to_strides)].map(
                |(of, strides)| {
                    let whole = (of, 0, of.elements);
                    self.vectors(&mut stage, of.role.name(), whole, (&dims, strides))
                },
            );
        let add = Pointwise::new(Mode::Add).math(descriptor.math());
        stage.graph.pointwise_into(add, &[x, added], output);
        stage.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(dims: [i64; 3], strides: [i64; 3]) -> Vectors {
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
