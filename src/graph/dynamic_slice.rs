//! Slices of tensors at positions that the device knows.

use std::fmt;
use std::sync::LazyLock;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::norm::one_element;
use crate::graph::semantics::Semantics;
use crate::graph::slots::Slots;
use crate::graph::views::check_moved;
use crate::tensor::TensorDesc;

/// A copy between a tensor and a slice of another. The slice begins at a position along an axis,
/// an i32 tensor of one element, and has all of the other dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SliceCopy {
    /// `y = x[.., position .. position + size, ..]` (XLA's `DynamicSlice`): a position before the
    /// first or behind the last one is taken as that.
    Read {
        /// The axis.
        axis: i64,
        /// Extent of `y` along the axis, at most that of `x`.
        size: i64,
        /// Whether the position is the distance of the slice's end from the end of `x`.
        reverse: bool,
    },
    /// `y` is `before`, in whose memory it is, but for `x` in place of the slice (XLA's
    /// `DynamicUpdateSlice`): where the slice is not all in `y`, nothing is written.
    Write {
        /// The axis.
        axis: i64,
        /// Whether the position is the distance of the slice's end from the end of `y`.
        reverse: bool,
    },
}

/// Copies between tensors and slices of others, independent of each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DynamicSlice {
    /// The copies, 1 to [`DynamicSlice::COPIES_MAX`].
    pub copies: Vec<SliceCopy>,
}

/// Names of the tensors of each copy.
struct Names {
    position: String,
    x: String,
    before: String,
    y: String,
}

static NAMES: LazyLock<Vec<Names>> = LazyLock::new(|| {
    let names = |at: usize| Names {
        position: format!("position{at}"),
        x: format!("x{at}"),
        before: format!("before{at}"),
        y: format!("y{at}"),
    };
    (0..DynamicSlice::COPIES_MAX).map(names).collect()
});

/// The tensors of one copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied<T> {
    pub(crate) copy: SliceCopy,
    pub(crate) position: T,
    pub(crate) x: T,
    /// Of a slice that is written.
    pub(crate) before: Option<T>,
    pub(crate) y: T,
}

impl SliceCopy {
    /// The axis.
    pub fn axis(self) -> i64 {
        let (SliceCopy::Read { axis, .. } | SliceCopy::Write { axis, .. }) = self;
        axis
    }

    /// Whether positions are counted from the end.
    pub fn is_reverse(self) -> bool {
        let (SliceCopy::Read { reverse, .. } | SliceCopy::Write { reverse, .. }) = self;
        reverse
    }

    /// Where a slice begins, given the extents of the tensor that it is of and of the slice; `None`
    /// where nothing is copied.
    pub(crate) fn first(self, position: i64, extent: i64, size: i64) -> Option<i64> {
        let last = extent - size;
        let first = if self.is_reverse() { last - position } else { position };
        match self {
            SliceCopy::Read { .. } => Some(first.clamp(0, last)),
            SliceCopy::Write { .. } => (0..=last).contains(&first).then_some(first),
        }
    }
}

impl DynamicSlice {
    /// The most copies of one operation.
    pub const COPIES_MAX: usize = 64;

    /// Whether some of the copies write slices.
    pub(crate) fn writes(&self) -> bool {
        self.copies.iter().any(|copy| matches!(copy, SliceCopy::Write { .. }))
    }

    /// Tensors by copy; there are as many as the slots.
    pub(crate) fn copied<'a, T: Copy>(
        &'a self,
        inputs: &'a [T],
        outputs: &'a [T],
    ) -> impl Iterator<Item = Copied<T>> + 'a {
        let mut inputs = inputs.iter().copied();
        let mut next = move || inputs.next().expect("there is a tensor for each slot");
        self.copies.iter().zip(outputs).map(move |(copy, y)| {
            let (position, x) = (next(), next());
            let before = matches!(copy, SliceCopy::Write { .. }).then(&mut next);
            Copied { copy: *copy, position, x, before, y: *y }
        })
    }

    fn fail<T>(&self, rule: impl fmt::Display) -> Result<T> {
        Err(Error::bad_param(format!("{self}: {rule}")))
    }

    /// The axis of a copy in a tensor.
    fn axis(&self, copy: SliceCopy, of: &TensorDesc) -> Result<usize> {
        let (axis, rank) = (copy.axis(), of.dims.len());
        match usize::try_from(axis).ok().filter(|axis| *axis < rank) {
            Some(axis) => Ok(axis),
            None => self.fail(format_args!(
                "axis {axis} of `{}` is not in [0, {}]",
                of.name,
                rank as i64 - 1
            )),
        }
    }

    fn check_count(&self) -> Result<()> {
        let (count, most) = (self.copies.len(), DynamicSlice::COPIES_MAX);
        match (1..=most).contains(&count) {
            true => Ok(()),
            false => {
                let text = format!("dynamic_slice: {count} copies, expected 1 to {most}");
                Err(Error::bad_param(text))
            }
        }
    }

    /// Dimensions of a copy's result.
    fn result(&self, of: Copied<&TensorDesc>) -> Result<Vec<i64>> {
        let SliceCopy::Read { size, .. } = of.copy else {
            return Ok(of.before.expect("a slice that is written has it").dims.clone());
        };
        let axis = self.axis(of.copy, of.x)?;
        let (extent, mut dims) = (of.x.dims[axis], of.x.dims.clone());
        if !(0..=extent).contains(&size) {
            let name = &of.x.name;
            return self.fail(format_args!("size {size} of `{name}` is not in [0, {extent}]"));
        }
        dims[axis] = size;
        Ok(dims)
    }

    /// Checks a slice that is written.
    fn check_written(&self, of: Copied<&TensorDesc>, before: &TensorDesc) -> Result<()> {
        let (axis, Copied { x, y, .. }) = (self.axis(of.copy, of.y)?, of);
        let fits = |at: usize| {
            if at == axis { x.dims[at] <= y.dims[at] } else { x.dims[at] == y.dims[at] }
        };
        if x.dims.len() != y.dims.len() || !(0..x.dims.len()).all(fits) {
            return self.fail(format_args!(
                "`{}` is {:?}, no slice along axis {axis} of `{}`, which is {:?}",
                x.name, x.dims, y.name, y.dims
            ));
        }
        check_moved(self, x, y, &y.dims)?;
        check_moved(self, before, y, &before.dims)?;
        if [before, y].iter().any(|of| of.is_virtual || of.by_value) || before.strides != y.strides
        {
            return self.fail(format_args!(
                "`{}` and `{}` must be in the same memory, with the same strides",
                before.name, y.name
            ));
        }
        Ok(())
    }
}

impl Semantics for DynamicSlice {
    fn name(&self) -> &'static str {
        "dynamic_slice"
    }

    fn slots(&self) -> Slots {
        let mut slots = Slots::new(&[], &[]);
        for (names, copy) in NAMES.iter().zip(&self.copies) {
            slots.inputs.extend([names.position.as_str(), &names.x]);
            if let SliceCopy::Write { .. } = copy {
                slots.inputs.push(&names.before);
            }
            slots.outputs.push(&names.y);
        }
        slots
    }

    fn math(&self) -> DType {
        DType::I32
    }

    fn result_type(&self, operands: &[DType]) -> DType {
        operands.get(1).copied().unwrap_or(DType::I32)
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        self.check_count()?;
        // Results are not looked at.
        let none = vec![inputs[0]; self.copies.len()];
        self.copied(inputs, &none).map(|of| self.result(of)).collect::<Result<_>>().map(Some)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        self.check_count()?;
        for of in self.copied(inputs, outputs) {
            let TensorDesc { name, dtype, .. } = of.position;
            one_element(self, "position", of.position)?;
            if *dtype != DType::I32 {
                return self.fail(format_args!("position `{name}` is {dtype}, expected i32"));
            }
            if of.x.by_value {
                return self.fail(format_args!("`{}` is by value: it has no slices", of.x.name));
            }
            match of.before {
                Some(before) => self.check_written(of, before)?,
                None => check_moved(self, of.x, of.y, &self.result(of)?)?,
            }
        }
        Ok(())
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {}
}

impl fmt::Display for DynamicSlice {
    /// Formats as `dynamic_slice[read 1 of axis 0, write axis 1 reverse]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dynamic_slice[")?;
        for (at, copy) in self.copies.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            match copy {
                SliceCopy::Read { axis, size, .. } => write!(f, "read {size} of axis {axis}")?,
                SliceCopy::Write { axis, .. } => write!(f, "write axis {axis}")?,
            }
            f.write_str(if copy.is_reverse() { " reverse" } else { "" })?;
        }
        f.write_str("]")
    }
}
