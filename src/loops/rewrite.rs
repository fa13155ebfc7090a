//! A network in which an operation takes the place of a loop.

use crate::error::Result;
use crate::expr::Pointwise;
use crate::graph::{Concatenate, Op, Operation, Reshape, Slice, Transpose};
use crate::loops::layer::{Layer, Loop, LoopOutput};
use crate::loops::network::Network;
use crate::tensor::TensorDesc;

/// Why a loop is not run in some way.
pub(super) type Refused<T> = std::result::Result<T, String>;

/// The layers of a network without those of a loop, and what is added for it.
pub(super) struct Rewrite<'a> {
    network: &'a Network,
    layers: Vec<Layer>,
    tensors: Vec<TensorDesc>,
    fresh: i64,
}

impl<'a> Rewrite<'a> {
    /// Takes out a loop with all that is in it.
    pub(super) fn without(network: &'a Network, of: Loop) -> Rewrite<'a> {
        let inside = |layer: &Layer| {
            layer.of_loop() == Some(of)
                || layer.outputs().iter().any(|uid| network.nest(*uid).contains(&of))
        };
        let layers = network.layers().iter().filter(|layer| !inside(layer)).cloned().collect();
        let tensors = network.tensors().to_vec();
        let fresh = tensors.last().map_or(0, |tensor| tensor.uid.max(0)) + 1;
        Rewrite { network, layers, tensors, fresh }
    }

    /// The network.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub(super) fn network(self) -> Result<Network> {
        let loops = self.network.loops().map(|of| self.network.descriptor(of).clone()).collect();
        Network::new(self.tensors, self.layers, loops)
    }

    pub(super) fn desc(&self, uid: i64) -> Refused<&TensorDesc> {
        let found = self.tensors.iter().find(|tensor| tensor.uid == uid);
        found.ok_or_else(|| format!("tensor #{uid} is unknown"))
    }

    /// A tensor that only exists in graphs.
    pub(super) fn tensor(&mut self, dims: &[i64], like: &TensorDesc) -> i64 {
        let packed = TensorDesc::packed(self.fresh, "", dims, like.dtype);
        self.tensors.push(TensorDesc { is_virtual: true, ..packed });
        self.fresh += 1;
        self.fresh - 1
    }

    pub(super) fn add(&mut self, op: Op, inputs: Vec<i64>, outputs: Vec<i64>) {
        self.layers.push(Layer::Operation(Operation { op, inputs, outputs }));
    }

    /// The result of an operation, with the type of its first operand.
    pub(super) fn made(&mut self, op: Op, inputs: &[i64], dims: &[i64]) -> Refused<i64> {
        let like = self.desc(inputs[0])?.clone();
        let uid = self.tensor(dims, &like);
        self.add(op, inputs.to_vec(), vec![uid]);
        Ok(uid)
    }

    pub(super) fn pointwise(
        &mut self,
        op: Pointwise,
        inputs: &[i64],
        dims: &[i64],
    ) -> Refused<i64> {
        self.made(Op::Pointwise(op), inputs, dims)
    }

    pub(super) fn reshaped(&mut self, uid: i64, dims: &[i64]) -> Refused<i64> {
        match self.desc(uid)?.dims == dims {
            true => Ok(uid),
            false => self.made(Op::Reshape(Reshape), &[uid], dims),
        }
    }

    /// A tensor of other dimensions whose elements are those of a tensor that is to be written.
    pub(super) fn reshaped_to(&mut self, y: i64, dims: &[i64]) -> Refused<i64> {
        let like = self.desc(y)?.clone();
        if like.dims == dims {
            return Ok(y);
        }
        let uid = self.tensor(dims, &like);
        self.add(Op::Reshape(Reshape), vec![uid], vec![y]);
        Ok(uid)
    }

    /// The first elements along an axis.
    pub(super) fn first(&mut self, uid: i64, axis: usize, count: i64) -> Refused<i64> {
        self.part(uid, axis, 0, count)
    }

    /// Some elements along an axis.
    pub(super) fn part(&mut self, uid: i64, axis: usize, first: i64, count: i64) -> Refused<i64> {
        let mut dims = self.desc(uid)?.dims.clone();
        if dims[axis] == count {
            return Ok(uid);
        }
        let slice = Slice::along(&dims, axis, first, first + count);
        dims[axis] = count;
        self.made(Op::Slice(slice), &[uid], &dims)
    }

    /// Some tensors behind each other.
    pub(super) fn joined(&mut self, parts: &[i64], axis: usize) -> Refused<i64> {
        if let [only] = parts {
            return Ok(*only);
        }
        let mut whole = self.desc(*parts.first().ok_or("nothing is joined")?)?.clone();
        let mut extent = 0;
        for part in parts {
            let part = self.desc(*part)?;
            extent += part.dims[axis];
            if part.dtype != whole.dtype {
                let [a, b] = [part.dtype, whole.dtype];
                return Err(format!("tensors that belong together are of {a} and {b}"));
            }
        }
        whole.dims[axis] = extent;
        let op = Op::Concatenate(Concatenate::new(axis as i64, parts.len()));
        self.made(op, parts, &whole.dims)
    }

    /// A tensor with an axis in front of all others.
    pub(super) fn led_by(&mut self, uid: i64, axis: usize) -> Refused<i64> {
        if axis == 0 {
            return Ok(uid);
        }
        let dims = self.desc(uid)?.dims.clone();
        let rest = (0..dims.len()).filter(|other| *other != axis);
        let permutation: Vec<usize> = std::iter::once(axis).chain(rest).collect();
        let dims: Vec<i64> = permutation.iter().map(|at| dims[*at]).collect();
        self.made(Op::Transpose(Transpose { permutation }), &[uid], &dims)
    }

    /// The tensor that an operation writes for a loop output, whose trips come first in it.
    pub(super) fn stacked(&mut self, y: i64, output: LoopOutput) -> Refused<i64> {
        let Some((axis, length)) = output.concatenated().filter(|(axis, _)| *axis > 0) else {
            return Ok(y);
        };
        let like = self.desc(y)?.clone();
        let mut rest = like.dims.clone();
        rest.remove(axis);
        let dims: Vec<i64> = std::iter::once(length).chain(rest).collect();
        let led = self.tensor(&dims, &like);
        let mut permutation: Vec<usize> = (1..dims.len()).collect();
        permutation.insert(axis, 0);
        self.add(Op::Transpose(Transpose { permutation }), vec![led], vec![y]);
        Ok(led)
    }
}

/// The least extent that a loop iterates over, and the least length of its outputs.
pub(super) fn room(network: &Network, of: Loop) -> (i64, i64) {
    let (mut extent, mut least) = (i64::MAX, i64::MAX);
    for layer in network.boundaries(of) {
        match layer {
            Layer::Iterator { x, axis, .. } => {
                let own = network.tensor(*x).map_or(0, |x| x.dims[*axis]);
                extent = extent.min(own);
            }
            Layer::LoopOutput { output, .. } => {
                least = output.concatenated().map_or(least, |(_, length)| least.min(length));
            }
            _ => {}
        }
    }
    (extent, least)
}
