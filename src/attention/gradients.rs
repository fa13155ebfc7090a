//! The backward passes of a layer as operation graphs.
//!
//! Gradients of vectors beyond the length of a sequence are 0, and what such vectors and the
//! gradients of such outputs hold takes no part: both may be NaN.

use crate::attention::layer::{AttentionLayer, AttentionStage};
use crate::attention::lowering::{Input, Lowering, Stage, Vectors, inner, merged};
use crate::attention::role::AttentionRole;
use crate::attention::weights::AttentionWeightKind;
use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Matmul, Op, Reduction, ReductionOp, Transpose};
use crate::tensor::TensorDesc;

/// f32 represents the integers up to here.
const F32_INTEGERS: i64 = 1 << 24;

/// The graphs of the backward pass of the data, in execution order.
pub(super) fn data(layer: &AttentionLayer) -> Result<Vec<AttentionStage>> {
    use AttentionRole::{AttendedGradient, MaskedOutputGradient};
    let lowering = Lowering { layer };
    let mut stages = vec![lowering.masked_output_gradient()?];
    let of_results = match layer.has(AttentionWeightKind::OWeights) {
        true => {
            let (descriptor, [queries, ..]) = (&layer.descriptor, layer.inputs());
            let from = inner(MaskedOutputGradient, queries.dims, descriptor.output_size());
            let elements = descriptor.heads() * descriptor.width();
            let to = inner(AttendedGradient, queries.dims, elements);
            stages.push(lowering.product_back(from, to, AttentionWeightKind::OWeights)?);
            AttendedGradient
        }
        false => MaskedOutputGradient,
    };
    stages.push(lowering.attention_gradients(of_results)?);
    for input in layer.inputs() {
        let to = lowering.outer(input.gradient, input.dims, input.size);
        stages.push(match layer.has(input.kinds[0]) {
            true => {
                let elements = input.heads * input.elements;
                let from = inner(input.projected_gradient, input.dims, elements);
                lowering.product_back(from, to, input.kinds[0])?
            }
            false => {
                let from = inner(input.projected_gradient, input.dims, input.elements);
                lowering.sum_of_copies(from, to, input.heads)?
            }
        });
    }
    Ok(stages)
}

/// The graphs of the backward pass of the weights, in execution order.
pub(super) fn weights(layer: &AttentionLayer) -> Result<Vec<AttentionStage>> {
    let lowering = Lowering { layer };
    let mut stages = Vec::new();
    for input in layer.inputs().iter().filter(|input| layer.has(input.kinds[0])) {
        stages.push(lowering.input_weights(input)?);
    }
    if layer.has(AttentionWeightKind::OWeights) {
        stages.push(lowering.output_weights()?);
    }
    Ok(stages)
}

impl Lowering<'_> {
    /// The gradient of what the dropout of the outputs is applied to, 0 beyond the lengths.
    fn masked_output_gradient(&self) -> Result<AttentionStage> {
        let [queries, ..] = self.layer.inputs();
        let size = self.layer.descriptor.output_size();
        let mut stage = Stage::default();
        let mut gradient = self.inside(
            &mut stage,
            self.outer(AttentionRole::OutputGradient, queries.dims, size),
            queries.lengths,
        )?;
        if let Some(dropout) = self.layer.post_dropout() {
            let dims = [&queries.dims[..], &[size]].concat();
            let (op, keep) = self.keep(&mut stage, &dims, dropout)?;
            gradient = stage.graph.pointwise(op, &[gradient, keep])?;
        }
        let to = inner(AttentionRole::MaskedOutputGradient, queries.dims, size);
        let output = self.whole(&mut stage, to);
        let store = Pointwise::new(Mode::Identity).math(self.layer.descriptor.math());
        stage.graph.pointwise_into(store, &[gradient], output);
        stage.finish()
    }

    /// Multiplies gradients by transposed weights.
    fn product_back(
        &self,
        from: Vectors,
        to: Vectors,
        weights: AttentionWeightKind,
    ) -> Result<AttentionStage> {
        let mut stage = Stage::default();
        let (dims, [from_strides, to_strides]) = merged([&from, &to]);
        let rank = dims.len() + 1;
        let a = (&from, 0, from.elements);
        let a = self.vectors(&mut stage, from.role.name(), a, (&dims, &from_strides));
        let b = self.weights(&mut stage, AttentionRole::Weights, weights, rank);
        let b = transposed(&mut stage, b.expect("the layer has the weights"))?;
        let output = (&to, 0, to.elements);
        let output = self.vectors(&mut stage, to.role.name(), output, (&dims, &to_strides));
        let product = Op::Matmul(Matmul::new(self.layer.descriptor.matmul_math()));
        stage.graph.operation_into(product, &[a, b], &[output]);
        stage.finish()
    }

    /// Adds up the gradients of copies, which lie one after another.
    fn sum_of_copies(&self, from: Vectors, to: Vectors, count: i64) -> Result<AttentionStage> {
        let mut stage = Stage::default();
        let (dims, [from_strides, to_strides]) = merged([&from, &to]);
        let all = from.dims.iter().product::<i64>() * from.elements;
        let mut copies = |of: Vectors, copies: i64, strides: &[i64]| {
            let dims = [&[copies], &dims[..]].concat();
            let strides = [&[all], strides].concat();
            let whole = (&of, 0, of.elements);
            self.vectors(&mut stage, of.role.name(), whole, (&dims, &strides))
        };
        let input = copies(from, count, &from_strides);
        let output = copies(to, 1, &to_strides);
        let math = self.layer.descriptor.math();
        let op = match count {
            1 => Op::Pointwise(Pointwise::new(Mode::Identity).math(math)),
            _ => Op::Reduction(Reduction { op: ReductionOp::Add, math }),
        };
        stage.graph.operation_into(op, &[input], &[output]);
        stage.finish()
    }

    /// The gradients of the weights and biases of an input's projection.
    fn input_weights(&self, input: &Input) -> Result<AttentionStage> {
        let mut stage = Stage::default();
        let vectors = self.outer(input.role, input.dims, input.size);
        let vectors = self.inside(&mut stage, vectors, input.lengths)?;
        let vectors = stage.graph.reshape(vectors, &[rows(input.dims), input.size])?;
        let elements = input.heads * input.elements;
        let gradients = self.flat(&mut stage, input.projected_gradient, input.dims, elements);
        self.products_of_rows(stage, vectors, gradients, input.kinds)
    }

    /// The gradients of the weights and biases of the outputs' projection.
    fn output_weights(&self) -> Result<AttentionStage> {
        use AttentionRole::{Attended, MaskedOutputGradient};
        use AttentionWeightKind::{OBiases, OWeights};
        let (descriptor, [queries, ..]) = (&self.layer.descriptor, self.layer.inputs());
        let mut stage = Stage::default();
        let elements = descriptor.heads() * descriptor.width();
        let attended = self.flat(&mut stage, Attended, queries.dims, elements);
        let size = descriptor.output_size();
        let gradients = self.flat(&mut stage, MaskedOutputGradient, queries.dims, size);
        self.products_of_rows(stage, attended, gradients, [OWeights, OBiases])
    }

    /// The transposed vectors times the gradients of their products, and the sum of these.
    fn products_of_rows(
        &self,
        mut stage: Stage,
        vectors: i64,
        gradients: i64,
        [weights, biases]: [AttentionWeightKind; 2],
    ) -> Result<AttentionStage> {
        let descriptor = &self.layer.descriptor;
        let role = AttentionRole::WeightGradients;
        let a = transposed(&mut stage, vectors)?;
        let output = self.weights(&mut stage, role, weights, 2);
        let output = output.expect("the layer has the weights");
        let product = Op::Matmul(Matmul::new(descriptor.matmul_math()));
        stage.graph.operation_into(product, &[a, gradients], &[output]);
        if let Some(output) = self.weights(&mut stage, role, biases, 2) {
            let sum = Reduction { op: ReductionOp::Add, math: descriptor.math() };
            stage.graph.operation_into(Op::Reduction(sum), &[gradients], &[output]);
        }
        stage.finish()
    }

    /// Adds vectors as they lie in memory.
    fn whole(&self, stage: &mut Stage, of: Vectors) -> i64 {
        let all = (&of, 0, of.elements);
        self.vectors(stage, of.role.name(), all, (&of.dims, &of.strides))
    }

    /// Adds the vectors of an intermediate tensor as the rows of one matrix.
    fn flat(&self, stage: &mut Stage, role: AttentionRole, dims: [i64; 3], elements: i64) -> i64 {
        let dims = [rows(dims), elements];
        let tensor = TensorDesc::packed(0, role.name(), &dims, self.dtype());
        self.place(stage, role, 0, tensor)
    }

    /// Adds vectors that are read as 0 beyond the lengths of their sequences.
    fn inside(&self, stage: &mut Stage, of: Vectors, lengths: AttentionRole) -> Result<i64> {
        let [batch, beams, steps] = of.dims;
        let tensor = TensorDesc::packed(0, lengths.name(), &[batch, beams, 1, 1], DType::I32);
        let lengths = self.place(stage, lengths, 0, tensor);
        let vectors = self.whole(stage, of);
        let math = if steps < F32_INTEGERS { Math::F32 } else { Math::F64 };
        let exact = |mode| Pointwise::new(mode).math(math);
        let step = stage.graph.pointwise(exact(Mode::GenIndex).axis(2), &[vectors])?;
        let inside = stage.graph.pointwise(exact(Mode::CmpLt), &[step, lengths])?;
        let none = exact(Mode::Identity).alphas(0.0, 1.0);
        let none = stage.graph.pointwise(none, &[step])?;
        let select = Pointwise::new(Mode::BinarySelect).math(self.layer.descriptor.math());
        let masked = stage.graph.pointwise(select, &[vectors, none, inside])?;
        let name = format!("{}_inside", of.role.name());
        stage.graph.name(masked, &name, self.dtype());
        Ok(masked)
    }
}

/// Vectors of these dimensions.
fn rows(dims: [i64; 3]) -> i64 {
    dims.iter().product()
}

/// The matrices of a tensor, transposed.
fn transposed(stage: &mut Stage, of: i64) -> Result<i64> {
    let rank = stage.graph.descriptor(of).expect("the graph has the tensor").dims.len();
    let mut permutation: Vec<usize> = (0..rank).collect();
    permutation.swap(rank - 2, rank - 1);
    Ok(stage.graph.operation(Op::Transpose(Transpose { permutation }), &[of])?[0])
}
