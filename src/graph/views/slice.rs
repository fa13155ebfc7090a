//! Slices: some elements along each dimension.

use std::fmt;

use crate::error::{Error, Result};
use crate::graph::views::{Moving, check_moved};
use crate::progression::Progression;
use crate::tensor::TensorDesc;

/// The elements from `begin` to before `end`, `stride` apart, along each dimension of `x`: `y[i] =
/// x[begin + i * stride]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slice {
    /// First index along each dimension.
    pub begin: Vec<i64>,
    /// Index behind the last along each dimension, at most the extent.
    pub end: Vec<i64>,
    /// Distance of neighbours along each dimension, from 1.
    pub stride: Vec<i64>,
}

impl Progression for Slice {
    fn term(first: &Slice, second: &Slice, at: i64) -> Option<Slice> {
        let begin = Vec::term(&first.begin, &second.begin, at)?;
        let end = Vec::term(&first.end, &second.end, at)?;
        Some(Slice { begin, end, stride: first.stride.clone() })
    }
}

impl Slice {
    /// All of a tensor of these dimensions but along one axis, of which it is `[begin, end)`.
    pub fn along(dims: &[i64], axis: usize, begin: i64, end: i64) -> Slice {
        let [mut first, mut last] = [vec![0; dims.len()], dims.to_vec()];
        (first[axis], last[axis]) = (begin, end);
        Slice { begin: first, end: last, stride: vec![1; dims.len()] }
    }

    /// Extents of the result.
    pub(super) fn dims(&self) -> Vec<i64> {
        let bounds = self.begin.iter().zip(&self.end).zip(&self.stride);
        let count = |((begin, end), stride): ((&i64, &i64), &i64)| {
            let length = end - begin;
            length / stride + i64::from(length % stride != 0)
        };
        bounds.map(count).collect()
    }
}

impl Moving for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        let Slice { begin, end, stride } = self;
        let (name, dims) = (&inputs[0].name, &inputs[0].dims);
        let fail = |rule: String| Err(Error::bad_param(format!("{self}: {rule}")));
        for (what, of) in [("begin", begin), ("end", end), ("stride", stride)] {
            if of.len() != dims.len() {
                let (count, rank) = (of.len(), dims.len());
                return fail(format!("{what} has {count} values, `{name}` has {rank} dimensions"));
            }
        }
        for axis in 0..dims.len() {
            let (first, last, extent) = (begin[axis], end[axis], dims[axis]);
            if !(0 <= first && first <= last && last <= extent) {
                return fail(format!(
                    "[{first}, {last}) along axis {axis} is not within the extent {extent} of \
                     `{name}`"
                ));
            }
            if stride[axis] < 1 {
                return fail(format!("stride {} along axis {axis} is not positive", stride[axis]));
            }
        }
        Ok(Some(vec![self.dims()]))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        self.infer(inputs)?;
        check_moved(self, inputs[0], outputs[0], &self.dims())
    }

    /// The end is that of the last element, so that equal slices compare equal.
    fn normalise(&mut self) {
        let dims = self.dims();
        for (axis, dim) in dims.into_iter().enumerate() {
            if dim <= 1 {
                self.stride[axis] = 1;
            }
            self.end[axis] = self.begin[axis] + (dim - 1).max(0) * self.stride[axis] + dim.min(1);
        }
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds = self.begin.iter().zip(&self.end).zip(&self.stride);
        let text = bounds.map(|((begin, end), stride)| match stride {
            1 => format!("{begin}:{end}"),
            _ => format!("{begin}:{end}:{stride}"),
        });
        write!(f, "slice[{}]", text.collect::<Vec<_>>().join(", "))
    }
}
