//! The forward pass of a layer as operation graphs.

use crate::attention::layer::{AttentionLayer, AttentionStage};
use crate::attention::lowering::{Lowering, Stage, Vectors, inner, merged};
use crate::attention::role::AttentionRole;
use crate::attention::weights::AttentionWeightKind;
use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Matmul, Op};
use crate::tensor::TensorDesc;

/// The graphs of the forward pass in execution order.
pub(super) fn forward(layer: &AttentionLayer) -> Result<Vec<AttentionStage>> {
    let lowering = Lowering { layer };
    let mut stages = Vec::new();
    for input in layer.inputs() {
        let from = lowering.outer(input.role, input.dims, input.size);
        let elements = match layer.has(input.kinds[0]) {
            true => input.heads * input.elements,
            false => input.elements,
        };
        let to = inner(input.projected, input.dims, elements);
        stages.push(match layer.has(input.kinds[0]) {
            true => lowering.product(from, to, input.kinds)?,
            false => lowering.copies(from, to, input.heads)?,
        });
    }
    stages.push(lowering.windows()?);
    if layer.drops() {
        stages.extend(lowering.draws()?);
    }
    stages.push(lowering.attention()?);
    stages.push(lowering.outputs()?);
    Ok(stages)
}

impl Lowering<'_> {
    /// Multiplies vectors by weights and adds biases; of the outputs, drops elements and adds
    /// residuals.
    fn product(
        &self,
        from: Vectors,
        to: Vectors,
        [weights, biases]: [AttentionWeightKind; 2],
    ) -> Result<AttentionStage> {
        let descriptor = &self.layer.descriptor;
        let mut stage = Stage::default();
        let (dims, [from_strides, to_strides]) = merged([&from, &to]);
        let rank = dims.len() + 1;
        let a = (&from, 0, from.elements);
        let a = self.vectors(&mut stage, from.role.name(), a, (&dims, &from_strides));
        let [b, biases] = [weights, biases]
            .map(|kind| self.weights(&mut stage, AttentionRole::Weights, kind, rank));
        let b = b.expect("the layer has the weights");
        let product = Op::Matmul(Matmul::new(descriptor.matmul_math()));
        let mut chain = Chain::of(a).then(&mut stage, product, &[b])?;
        if let Some(biases) = biases {
            let add = Op::Pointwise(Pointwise::new(Mode::Add).math(descriptor.math()));
            chain = chain.then(&mut stage, add, &[biases])?;
        }
        if to.role == AttentionRole::Output {
            chain = self.completed(&mut stage, chain, (&dims, &to_strides))?;
        }
        let output = (&to, 0, to.elements);
        let output = self.vectors(&mut stage, to.role.name(), output, (&dims, &to_strides));
        chain.end(&mut stage, output);
        stage.finish()
    }

    /// Drops elements of outputs and adds residuals, as far as the call does.
    fn completed(
        &self,
        stage: &mut Stage,
        mut chain: Chain,
        (dims, strides): (&[i64], &[i64]),
    ) -> Result<Chain> {
        let descriptor = &self.layer.descriptor;
        let elements = descriptor.output_size();
        if let Some(dropout) = self.layer.post_dropout() {
            let dims = [dims, &[elements]].concat();
            let (op, keep) = self.keep(stage, &dims, dropout)?;
            chain = chain.then(stage, Op::Pointwise(op), &[keep])?;
        }
        if self.layer.extent.residuals {
            let AttentionLayer { extent, .. } = self.layer;
            let vectors = [extent.batch, extent.beams, extent.steps()];
            let of = self.outer(AttentionRole::Residuals, vectors, elements);
            let whole = (&of, 0, elements);
            let residuals = self.vectors(stage, of.role.name(), whole, (dims, strides));
            let add = Op::Pointwise(Pointwise::new(Mode::Add).math(descriptor.math()));
            chain = chain.then(stage, add, &[residuals])?;
        }
        Ok(chain)
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
        let [low, high] = [LowWindow, HighWindow].map(|role| add(role, of_steps));
        let [begin, end] = [KeyBegin, KeyEnd].map(|role| add(role, of_queries));
        let step = extent.one_step.then(|| add(Steps, of_steps));
        // f32 cannot represent every step.
        let exact = |mode| Pointwise::new(mode).math(Math::F64);
        let steps = match step {
            Some(step) => step,
            None => stage.graph.pointwise(exact(Mode::GenIndex).axis(2), &[low])?,
        };
        let within = stage.graph.pointwise(exact(Mode::CmpLt), &[steps, lengths])?;
        stage.graph.pointwise_into(exact(Mode::Mul), &[within, low], begin);
        stage.graph.pointwise_into(exact(Mode::Mul), &[within, high], end);
        stage.finish()
    }

    /// Projects or concatenates the heads' results, drops elements and adds residuals.
    fn outputs(&self) -> Result<AttentionStage> {
        use AttentionRole::{Attended, Output};
        use AttentionWeightKind::{OBiases, OWeights};
        let AttentionLayer { descriptor, extent, .. } = self.layer;
        let dims = [extent.batch, extent.beams, extent.steps()];
        let from = inner(Attended, dims, descriptor.heads() * descriptor.width());
        let to = self.outer(Output, dims, descriptor.output_size());
        if self.layer.has(OWeights) {
            return self.product(from, to, [OWeights, OBiases]);
        }
        let mut stage = Stage::default();
        let (dims, [from_strides, to_strides]) = merged([&from, &to]);
        let x = (&from, 0, from.elements);
        let x = self.vectors(&mut stage, from.role.name(), x, (&dims, &from_strides));
        let chain = self.completed(&mut stage, Chain::of(x), (&dims, &to_strides))?;
        let chain = match chain.last.is_some() {
            true => chain,
            false => {
                let copy = Pointwise::new(Mode::Identity).math(descriptor.math());
                chain.then(&mut stage, Op::Pointwise(copy), &[])?
            }
        };
        let output = (&to, 0, to.elements);
        let output = self.vectors(&mut stage, to.role.name(), output, (&dims, &to_strides));
        chain.end(&mut stage, output);
        stage.finish()
    }
}

/// Operations on vectors, the last of which writes a tensor in memory.
struct Chain {
    value: i64,
    /// The operation that has no result yet, and its operands.
    last: Option<(Op, Vec<i64>)>,
}

impl Chain {
    fn of(value: i64) -> Chain {
        Chain { value, last: None }
    }

    /// Applies an operation to the chain's value and others.
    fn then(self, stage: &mut Stage, op: Op, others: &[i64]) -> Result<Chain> {
        let value = match self.last {
            Some((op, inputs)) => stage.graph.operation(op, &inputs)?[0],
            None => self.value,
        };
        Ok(Chain { value, last: Some((op, [&[value], others].concat())) })
    }

    /// Writes the value.
    fn end(self, stage: &mut Stage, output: i64) {
        let (op, inputs) = self.last.expect("the chain has an operation");
        stage.graph.operation_into(op, &inputs, &[output]);
    }
}
