//! Operations of random graphs that move elements.

use kiln::graph::{Concatenate, DynamicSlice, Op, Slice, SliceCopy, Transpose};
use kiln::{DType, TensorDesc};

use super::{Grown, Value};

impl Grown<'_> {
    /// An operation that moves elements; reshapes keep the number of dimensions.
    pub(super) fn moved(&mut self, x: i64, dims: &[i64]) -> Vec<Vec<i64>> {
        let rank = self.rank;
        match self.random.below(4) {
            0 => {
                let mut slice = Slice::along(dims, 0, 0, dims[0]);
                let mut shape = dims.to_vec();
                let axis = self.random.below(rank);
                let begin = self.random.pick(&[0, 1, 2, 7, dims[axis] / 2]).min(dims[axis]);
                let stride = self.random.pick(&[1, 1, 2, 3]);
                (slice.begin[axis], slice.stride[axis]) = (begin, stride);
                shape[axis] = (dims[axis] - begin + stride - 1) / stride;
                self.operation(Op::Slice(slice), &[x], vec![shape])
            }
            1 => {
                let mut permutation: Vec<usize> = (0..rank).collect();
                let (a, b) = (self.random.below(rank), self.random.below(rank));
                permutation.swap(a, b);
                let shape = permutation.iter().map(|axis| dims[*axis]).collect();
                self.operation(Op::Transpose(Transpose { permutation }), &[x], vec![shape])
            }
            2 => {
                let (from, to) = (self.random.below(rank), self.random.below(rank));
                let factor = self.random.pick(&[1, 2, 3, dims[from].max(1)]);
                let mut shape = dims.to_vec();
                if factor > 0 && dims[from] % factor == 0 {
                    shape[from] /= factor;
                    shape[to] = shape[to].saturating_mul(factor);
                }
                match self.graph.reshape(x, &shape).is_ok() {
                    true => vec![shape],
                    false => Vec::new(),
                }
            }
            _ => {
                let axis = self.random.below(rank);
                let mut other = dims.to_vec();
                other[axis] = self.random.pick(self.menu.extents);
                let Some(dtype) = self.dtype(x) else { return Vec::new() };
                let uid = self.fresh();
                let name = format!("in{uid}");
                self.graph.tensor(TensorDesc::packed(uid, name, &other, dtype));
                let mut shape = dims.to_vec();
                shape[axis] = shape[axis].saturating_add(other[axis]);
                let op = Op::Concatenate(Concatenate::new(axis as i64, 2));
                let operands = if self.chance(2) { [x, uid] } else { [uid, x] };
                let results = self.operation(op, &operands, vec![shape]);
                let read = !results.is_empty();
                self.values.push(Value { uid, dims: other, written: false, read });
                results
            }
        }
    }

    /// A slice at a position that an operand has, read of `x`, or written with it.
    pub(super) fn sliced(&mut self, x: i64, dims: &[i64]) -> Vec<Vec<i64>> {
        let Some(desc) = self.graph.descriptor(x).filter(|x| !x.by_value).cloned() else {
            return Vec::new();
        };
        let (axis, reverse) = (self.random.below(self.rank), self.chance(3));
        let (uid, by_value) = (self.fresh(), self.chance(4));
        let ones = vec![1; if self.chance(2) { 1 } else { self.rank }];
        let position = TensorDesc::packed(uid, format!("p{uid}"), &ones, DType::I32);
        let position = self.graph.tensor(TensorDesc { by_value, ..position });
        self.typed.push(x);
        let (mut operands, mut shape) = (vec![position, x], dims.to_vec());
        let copy = match self.chance(2) {
            true => {
                shape[axis] = self.random.pick(&[0, 1, 1, 2, dims[axis]]).min(dims[axis]);
                SliceCopy::Read { axis: axis as i64, size: shape[axis], reverse }
            }
            false => {
                shape[axis] = shape[axis].saturating_add(self.random.pick(&[0, 1, 5]));
                let uid = self.fresh();
                let before = TensorDesc::packed(uid, format!("b{uid}"), &shape, desc.dtype);
                operands.push(self.graph.tensor(before));
                SliceCopy::Write { axis: axis as i64, reverse }
            }
        };
        let uid = self.uid + 1;
        self.typed.push(uid);
        let y = TensorDesc::packed(uid, format!("y{uid}"), &shape, desc.dtype);
        self.graph.tensor(match copy {
            SliceCopy::Write { .. } => y,
            SliceCopy::Read { .. } => TensorDesc { name: String::new(), is_virtual: true, ..y },
        });
        let op = DynamicSlice { copies: vec![copy] };
        self.graph.operation_into(Op::DynamicSlice(op), &operands, &[uid]);
        vec![shape]
    }
}
