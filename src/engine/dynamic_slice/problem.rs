//! A graph of one dynamic slice: its copies as loops over merged dimensions.

use crate::engine::access::{ACCESS_BYTES_MAX, PARAMETERS_MAX, span_elements, stored, volume};
use crate::engine::alone::alone;
use crate::engine::signature::{distinct, refuse_older};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Copied, Op, SliceCopy};
use crate::tensor::TensorDesc;

/// Minimum compute capability of the template.
const CAPABILITY_MIN: u16 = 75;

/// A copy between a slice and a tensor.
#[derive(Debug, Clone)]
pub(super) struct Moved {
    pub(super) copy: SliceCopy,
    /// Positions of its tensors in the graph.
    pub(super) position: usize,
    pub(super) x: usize,
    pub(super) y: usize,
    /// The last position at which the slice is in its tensor, and the distance of neighbours.
    pub(super) last: i64,
    pub(super) stride: i64,
    /// Extents of the slice, merged, and strides of the tensor that is read and that is written.
    pub(super) extents: Vec<i64>,
    pub(super) strides: [Vec<i64>; 2],
    /// Neighbours of one access.
    pub(super) vector: i64,
}

impl Moved {
    /// Accesses of all threads.
    pub(super) fn accesses(&self) -> i64 {
        volume(&self.extents) / self.vector
    }
}

/// The one dynamic slice of a graph.
#[derive(Debug, Clone)]
pub(super) struct Problem<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a Op,
    pub(super) copies: Vec<Moved>,
}

impl<'a> Problem<'a> {
    /// # Errors
    /// `NotSupported` if the graph is not exactly one dynamic slice of tensors in memory.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        refuse_older(capability, CAPABILITY_MIN)?;
        let own = |op: &'a Op| match op {
            Op::DynamicSlice(slices) => Some(slices),
            _ => None,
        };
        let (operation, slices) = alone(graph, own, "dynamic slice")?;
        let moved = |of: Copied<i64>| moved(graph, of);
        let copies = slices.copied(&operation.inputs, &operation.outputs).map(moved).collect();
        let problem = Problem { graph, op: &operation.op, copies };
        match problem.passed().len() {
            passed if passed > PARAMETERS_MAX => {
                let text = format!("{passed} tensors exceed the {PARAMETERS_MAX} of a kernel");
                Err(Error::not_supported(text))
            }
            _ => Ok(problem),
        }
    }

    pub(super) fn tensor(&self, at: usize) -> &'a TensorDesc {
        &self.graph.tensors[at]
    }

    /// The tensors that the kernel takes.
    pub(super) fn passed(&self) -> Vec<usize> {
        distinct(self.copies.iter().flat_map(|of| [of.position, of.x, of.y]))
    }

    /// Copies of slices that have elements.
    pub(super) fn copied(&self) -> impl Iterator<Item = &Moved> {
        self.copies.iter().filter(|of| of.accesses() > 0)
    }

    /// Accesses of the copy that has the most.
    pub(super) fn widest(&self) -> i64 {
        self.copies.iter().map(Moved::accesses).max().unwrap_or(0)
    }

    pub(super) fn accesses(&self) -> f64 {
        self.copies.iter().map(|of| of.accesses() as f64).sum()
    }

    /// Bytes that are read and written.
    pub(super) fn bytes(&self) -> f64 {
        let bytes =
            |of: &Moved| 2.0 * volume(&of.extents) as f64 * self.tensor(of.x).dtype.bytes() as f64;
        self.copies.iter().map(bytes).sum()
    }

    /// Whether the offset of an element needs 64 bits.
    pub(super) fn is_wide(&self) -> bool {
        let spans = stored(self.graph).map(|(_, tensor): (_, &TensorDesc)| span_elements(tensor));
        spans.max().unwrap_or(0) > i64::from(i32::MAX) / 2
    }
}

fn moved(graph: CanonicalGraph<'_>, of: Copied<i64>) -> Moved {
    let Copied { copy, position, x, y, .. } = of;
    let [position, x, y] = [position, x, y].map(|at| at as usize);
    let [from, to] = [x, y].map(|at| &graph.tensors[at]);
    let axis = copy.axis() as usize;
    let (slice, whole) = match copy {
        SliceCopy::Read { .. } => (to, from),
        SliceCopy::Write { .. } => (from, to),
    };
    let (last, stride) = (whole.dims[axis] - slice.dims[axis], whole.strides[axis]);
    let mut axes: Vec<usize> = (0..slice.dims.len()).filter(|at| slice.dims[*at] != 1).collect();
    // Neighbours in what is written are copied by neighbouring threads.
    axes.sort_by_key(|at| std::cmp::Reverse(to.strides[*at]));
    let (mut extents, mut strides) = (Vec::<i64>::new(), [Vec::<i64>::new(), Vec::new()]);
    for at in axes {
        let (extent, own) = (slice.dims[at], [from.strides[at], to.strides[at]]);
        let is_inside = |(outer, inner): (&Vec<i64>, i64)| {
            outer.last().is_some_and(|outer| *outer == inner.saturating_mul(extent))
        };
        if strides.iter().zip(own).all(is_inside) {
            *extents.last_mut().expect("strides have a last one") *= extent;
            strides.iter_mut().zip(own).for_each(|(all, own)| *all.last_mut().expect("so") = own);
        } else {
            extents.push(extent);
            strides.iter_mut().zip(own).for_each(|(all, own)| all.push(own));
        }
    }
    if extents.is_empty() {
        (extents, strides) = (vec![1], [vec![1], vec![1]]);
    }
    let size = from.dtype.bytes() as i64;
    let alignment = from.alignment.min(to.alignment) as i64;
    let inner = extents.len() - 1;
    let fits = |vector: &i64| {
        let whole_vectors = |stride: &i64| stride % vector == 0;
        let aligned = alignment % (vector * size) == 0 && vector * size <= ACCESS_BYTES_MAX;
        let apart = (last > 0).then_some(&stride);
        let outer = strides.iter().flat_map(|all| &all[..inner]).chain(apart);
        let dense = strides.iter().all(|all| all[inner] == 1) && extents[inner] % vector == 0;
        aligned && dense && outer.into_iter().all(whole_vectors)
    };
    let vector = [16, 8, 4, 2].into_iter().find(fits).unwrap_or(1);
    Moved { copy, position, x, y, last, stride, extents, strides, vector }
}
