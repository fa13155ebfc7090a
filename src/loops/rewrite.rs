//! A network whose layers are changed: by what is computed before a loop, or an operation in its
//! place.

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::Pointwise;
use crate::graph::{Concatenate, Op, Operation, Reshape, Slice, Transpose};
use crate::loops::body::Refused;
use crate::loops::layer::{Layer, Loop, LoopOutput};
use crate::loops::network::Network;
use crate::tensor::TensorDesc;

/// The layers of a network, and what is added to them.
pub(super) struct Rewrite<'a> {
    network: &'a Network,
    layers: Vec<Layer>,
    tensors: Vec<TensorDesc>,
    fresh: i64,
}

impl<'a> Rewrite<'a> {
    /// All layers of a network.
    pub(super) fn of(network: &'a Network) -> Rewrite<'a> {
        let (layers, tensors) = (network.layers().to_vec(), network.tensors().to_vec());
        let fresh = tensors.last().map_or(0, |tensor| tensor.uid.max(0)) + 1;
        Rewrite { network, layers, tensors, fresh }
    }

    /// Takes out a loop with all that is in it.
    pub(super) fn without(network: &'a Network, of: Loop) -> Rewrite<'a> {
        let inside = |layer: &Layer| {
            layer.of_loop() == Some(of)
                || layer.outputs().iter().any(|uid| network.nest(*uid).contains(&of))
        };
        let mut rewrite = Rewrite::of(network);
        rewrite.layers.retain(|layer| !inside(layer));
        rewrite
    }

    /// The network, whose loops have the numbers that they had.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub(super) fn network(self) -> Result<Network> {
        let loops = self.network.loops().map(|of| self.network.descriptor(of).clone()).collect();
        Network::new(self.tensors, self.layers, loops)
    }

    /// A tensor of the network, or one that was added.
    pub(super) fn desc(&self, uid: i64) -> &TensorDesc {
        let found = self.tensors.iter().find(|tensor| tensor.uid == uid);
        found.expect("layers name tensors of the network")
    }

    pub(super) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Puts a layer in the place of another one of the network.
    pub(super) fn replace(&mut self, at: usize, layer: Layer) {
        self.layers[at] = layer;
    }

    /// A tensor that only exists in graphs.
    pub(super) fn tensor(&mut self, dims: &[i64], dtype: DType) -> i64 {
        let packed = TensorDesc::packed(self.fresh, "", dims, dtype);
        self.tensors.push(TensorDesc { is_virtual: true, ..packed });
        self.fresh += 1;
        self.fresh - 1
    }

    pub(super) fn add(&mut self, op: Op, inputs: Vec<i64>, outputs: Vec<i64>) {
        self.layers.push(Layer::Operation(Operation { op, inputs, outputs }));
    }

    /// The result of an operation, with the type of its first operand.
    pub(super) fn made(&mut self, op: Op, inputs: &[i64], dims: &[i64]) -> i64 {
        let dtype = self.desc(inputs[0]).dtype;
        let uid = self.tensor(dims, dtype);
        self.add(op, inputs.to_vec(), vec![uid]);
        uid
    }

    pub(super) fn pointwise(&mut self, op: Pointwise, inputs: &[i64], dims: &[i64]) -> i64 {
        self.made(Op::Pointwise(op), inputs, dims)
    }

    pub(super) fn reshaped(&mut self, uid: i64, dims: &[i64]) -> i64 {
        match self.desc(uid).dims == dims {
            true => uid,
            false => self.made(Op::Reshape(Reshape), &[uid], dims),
        }
    }

    /// A tensor of other dimensions whose elements are those of a tensor that is to be written.
    pub(super) fn reshaped_to(&mut self, y: i64, dims: &[i64]) -> i64 {
        if self.desc(y).dims == dims {
            return y;
        }
        let uid = self.tensor(dims, self.desc(y).dtype);
        self.add(Op::Reshape(Reshape), vec![uid], vec![y]);
        uid
    }

    /// Some elements along an axis.
    pub(super) fn part(&mut self, uid: i64, axis: usize, first: i64, count: i64) -> i64 {
        let mut dims = self.desc(uid).dims.clone();
        if dims[axis] == count {
            return uid;
        }
        let slice = Slice::along(&dims, axis, first, first + count);
        dims[axis] = count;
        self.made(Op::Slice(slice), &[uid], &dims)
    }

    /// Some tensors behind each other.
    ///
    /// # Errors
    /// A reason where they differ in type.
    pub(super) fn joined(&mut self, parts: &[i64], axis: usize) -> Refused<i64> {
        if let [only] = parts {
            return Ok(*only);
        }
        let mut dims = self.desc(parts[0]).dims.clone();
        dims[axis] = parts.iter().map(|part| self.desc(*part).dims[axis]).sum();
        let [first, others @ ..] = parts else { unreachable!("there are two at least") };
        let dtype = self.desc(*first).dtype;
        if let Some(other) = others.iter().find(|part| self.desc(**part).dtype != dtype) {
            let other = self.desc(*other).dtype;
            return Err(format!("tensors that belong together are of {other} and {dtype}"));
        }
        let op = Op::Concatenate(Concatenate::new(axis as i64, parts.len()));
        Ok(self.made(op, parts, &dims))
    }

    /// A tensor with an axis in front of all others.
    pub(super) fn led_by(&mut self, uid: i64, axis: usize) -> i64 {
        if axis == 0 {
            return uid;
        }
        let dims = &self.desc(uid).dims;
        let rest = (0..dims.len()).filter(|other| *other != axis);
        let permutation: Vec<usize> = std::iter::once(axis).chain(rest).collect();
        let dims: Vec<i64> = permutation.iter().map(|at| dims[*at]).collect();
        self.made(Op::Transpose(Transpose { permutation }), &[uid], &dims)
    }

    /// The tensor that an operation writes for a loop output, whose trips come first in it.
    pub(super) fn stacked(&mut self, y: i64, output: LoopOutput) -> i64 {
        let Some((axis, length)) = output.concatenated().filter(|(axis, _)| *axis > 0) else {
            return y;
        };
        let mut rest = self.desc(y).dims.clone();
        rest.remove(axis);
        let dims: Vec<i64> = std::iter::once(length).chain(rest).collect();
        let led = self.tensor(&dims, self.desc(y).dtype);
        let mut permutation: Vec<usize> = (1..dims.len()).collect();
        permutation.insert(axis, 0);
        self.add(Op::Transpose(Transpose { permutation }), vec![led], vec![y]);
        led
    }
}
