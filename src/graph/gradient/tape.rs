//! The operations of the backward graph behind those of the forward one, and what was contributed
//! to the gradient of each tensor.

use std::collections::{BTreeSet, HashMap};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::builder::GraphBuilder;
use crate::graph::operation::{Op, Operation};
use crate::graph::{OperationGraph, Reduction, ReductionOp, Slice};
use crate::tensor::TensorDesc;

/// A contribution to the gradient of a tensor.
#[derive(Debug, Clone)]
pub(super) enum Contribution {
    /// To all of it; its dimensions of extent 1 are broadcast.
    Whole(i64),
    /// To what a slice reads.
    Piece(Slice, i64),
}

/// The forward graph with the operations of the backward one behind it.
pub(super) struct Tape<'a> {
    pub(super) forward: &'a OperationGraph,
    pub(super) builder: GraphBuilder,
    /// Tensors that depend on an input whose gradient is wanted.
    active: BTreeSet<i64>,
    pub(super) contributions: HashMap<i64, Vec<Contribution>>,
    /// Outputs of the forward graph that are there for the backward graph alone.
    pub(super) added: BTreeSet<i64>,
    pub(super) output_gradients: Vec<i64>,
    pub(super) input_gradients: Vec<i64>,
    /// Sums of values, by value and dimensions: several biases have one gradient.
    sums: HashMap<(i64, Vec<i64>), i64>,
}

impl<'a> Tape<'a> {
    /// The forward graph alone; `active` tensors have gradients.
    pub(super) fn new(forward: &'a OperationGraph, active: BTreeSet<i64>) -> Tape<'a> {
        Tape {
            forward,
            builder: GraphBuilder::of(forward),
            active,
            contributions: HashMap::new(),
            added: BTreeSet::new(),
            output_gradients: Vec::new(),
            input_gradients: Vec::new(),
            sums: HashMap::new(),
        }
    }

    /// The descriptor of a tensor's gradient, in memory like it.
    pub(super) fn named(&self, uid: i64) -> Result<TensorDesc> {
        let tensor = self.forward.tensor(uid)?;
        let mut name = format!("d_{}", tensor.name);
        while self.builder.tensors().iter().any(|other| other.name == name) {
            name.push('_');
        }
        Ok(TensorDesc { uid: self.builder.fresh_uid(), name, by_value: false, ..tensor.clone() })
    }

    /// Whether a gradient of this tensor is wanted.
    pub(super) fn is_active(&self, uid: i64) -> bool {
        self.active.contains(&uid)
    }

    pub(super) fn contribute(&mut self, uid: i64, contribution: Contribution) {
        if self.is_active(uid) {
            self.contributions.entry(uid).or_default().push(contribution);
        }
    }

    /// A contribution to a whole tensor, which may have been broadcast.
    pub(super) fn contribute_sum(&mut self, uid: i64, gradient: i64) -> Result<()> {
        if !self.is_active(uid) {
            return Ok(());
        }
        let gradient = self.summed(gradient, &self.forward.tensor(uid)?.dims.clone())?;
        self.contribute(uid, Contribution::Whole(gradient));
        Ok(())
    }

    /// Whether something was contributed to a tensor's gradient.
    pub(super) fn has_gradient(&self, uid: i64) -> bool {
        self.contributions.contains_key(&uid)
    }

    /// Stores a gradient of a tensor in memory like the tensor: the value itself, where an
    /// operation of the backward graph writes it and it is no other's.
    pub(super) fn stored(&mut self, gradient: i64, of: i64) -> Result<i64> {
        let named = self.named(of)?;
        let own = self.desc(gradient);
        let computed = own.is_virtual && self.forward.tensor(gradient).is_err();
        if computed && own.dtype == named.dtype {
            self.builder.replace(TensorDesc { uid: gradient, ..named });
            return Ok(gradient);
        }
        let uid = self.builder.tensor(named);
        self.builder.pointwise_into(Pointwise::new(Mode::Identity), &[gradient], uid);
        Ok(uid)
    }

    /// Makes a gradient that nothing asks for an output, since an operation writes it.
    pub(super) fn keep(&mut self, gradient: i64, of: i64) -> Result<()> {
        let TensorDesc { name, dtype, .. } = self.named(of)?;
        self.builder.output(gradient, &name, dtype);
        Ok(())
    }

    pub(super) fn desc(&self, uid: i64) -> &TensorDesc {
        self.builder.descriptor(uid).expect("tensors of the tape are known")
    }

    /// A value in a type.
    pub(super) fn cast(&mut self, value: i64, dtype: DType) -> Result<i64> {
        if self.desc(value).dtype == dtype {
            return Ok(value);
        }
        let cast = self.builder.pointwise(Pointwise::new(Mode::Identity), &[value])?;
        self.builder.name(cast, "", dtype);
        Ok(cast)
    }

    /// The gradient of a product as the products of its operands multiply it: where both are of one
    /// 16-bit type in that type, as in torch and JAX, since no tensor core multiplies it as f32.
    pub(super) fn multiplied(&mut self, gradient: i64, operands: [i64; 2]) -> Result<i64> {
        let [dtype, other] = operands.map(|uid| self.desc(uid).dtype);
        if dtype != other || !matches!(dtype, DType::F16 | DType::Bf16) {
            return Ok(gradient);
        }
        // It may have been one of that type.
        let copies = |operation: &&Operation| {
            operation.outputs.contains(&gradient)
                && operation.as_pointwise().is_some_and(Pointwise::is_copy)
        };
        let from = self.builder.operations().iter().find(copies).map(|copy| copy.inputs[0]);
        match from.filter(|from| self.desc(*from).dtype == dtype) {
            Some(from) => Ok(from),
            None => self.cast(gradient, dtype),
        }
    }

    /// The sum of two values, which may be broadcast.
    pub(super) fn sum(&mut self, a: i64, b: i64) -> Result<i64> {
        let wide = [a, b].iter().any(|uid| self.desc(*uid).dtype == DType::F64);
        let math = if wide { Math::F64 } else { Math::F32 };
        self.builder.pointwise(Pointwise::new(Mode::Add).math(math), &[a, b])
    }

    /// A value summed along the dimensions that are 1 in `dims`.
    pub(super) fn summed(&mut self, value: i64, dims: &[i64]) -> Result<i64> {
        let own = self.desc(value).dims.clone();
        let fits = |(own, dim): (&i64, &i64)| *dim == 1 && *own != 1;
        if !own.iter().zip(dims).any(fits) {
            return Ok(value);
        }
        let to: Vec<i64> =
            own.iter().zip(dims).map(|(own, dim)| if *dim == 1 { 1 } else { *own }).collect();
        if let Some(sum) = self.sums.get(&(value, to.clone())) {
            return Ok(*sum);
        }
        let sum = match own[..] {
            // Of two matrices, as of the directions of a recurrent layer: their elements lie a
            // number of rows apart, on which the kernel of a sum need not depend.
            [2, _, _, ..] if own[1..] == to[1..] => {
                let half = |at: i64| Op::Slice(Slice::along(&own, 0, at, at + 1));
                let [first, second] = [half(0), half(1)];
                let first = self.apply(first, &[value])?;
                let second = self.apply(second, &[value])?;
                self.sum(first, second)?
            }
            _ => {
                let math = Math::of(self.desc(value).dtype);
                self.builder.reduction(Reduction { op: ReductionOp::Add, math }, value, &to)?
            }
        };
        self.sums.insert((value, to), sum);
        Ok(sum)
    }

    /// A value with all dimensions of a tensor of the forward graph.
    pub(super) fn filled(&mut self, value: i64, like: i64) -> Result<i64> {
        if self.desc(value).dims == self.desc(like).dims {
            return Ok(value);
        }
        let dtype = self.desc(value).dtype;
        let zero = self.zeros(like)?;
        let filled = self.sum(value, zero)?;
        self.cast(filled, dtype)
    }

    /// Zeros of a tensor's dimensions, whose values are not read.
    pub(super) fn zeros(&mut self, like: i64) -> Result<i64> {
        let index = Pointwise::new(Mode::GenIndex).axis(0);
        let index = self.builder.pointwise(index, &[like])?;
        let zero = Pointwise::new(Mode::Identity).alphas(0.0, 1.0);
        self.builder.pointwise(zero, &[index])
    }

    /// An operation that has one result.
    pub(super) fn apply(&mut self, op: Op, inputs: &[i64]) -> Result<i64> {
        Ok(self.builder.operation(op, inputs)?[0])
    }

    /// The error for an operation that has no gradient.
    pub(super) fn refuse<T>(&self, operation: &Operation) -> Result<T> {
        let name = operation.op.name();
        let result = self.forward.reference(operation.outputs[0]);
        Err(Error::not_supported(format!(
            "vjp: {name}, which writes `{result}`, has no gradient as operations of a graph"
        )))
    }
}

/// The tensors of floating-point type that depend on `inputs`, and these.
pub(super) fn active(forward: &OperationGraph, inputs: &[i64]) -> BTreeSet<i64> {
    let mut active: BTreeSet<i64> = inputs.iter().copied().collect();
    for operation in forward.operations() {
        if operation.inputs.iter().any(|uid| active.contains(uid)) {
            let is_float = |uid: &i64| forward.tensor(*uid).is_ok_and(|of| of.dtype.is_float());
            active.extend(operation.outputs.iter().copied().filter(is_float));
        }
    }
    active
}
