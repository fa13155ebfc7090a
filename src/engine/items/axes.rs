//! The dimensions of a tensor in one order, whether or not groups of channels are a dimension of
//! their own: outer, group, inner, then the spatial ones.

use crate::error::{Error, Result};
use crate::tensor::TensorDesc;

/// Elements between neighbours along outer, group, inner and spatial dimensions; 0 where a tensor
/// is broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct Strides {
    pub(in crate::engine) outer: i64,
    pub(in crate::engine) group: i64,
    pub(in crate::engine) inner: i64,
    pub(in crate::engine) spatial: Vec<i64>,
}

/// A dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Axis {
    Outer,
    Group,
    Inner,
    /// Groups and the channels of each, in one dimension of a tensor: those of the inner dimension,
    /// or of a filter's outer one.
    Channels,
    Spatial(usize),
}

/// The dimensions of an operation's tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct Axes {
    pub(in crate::engine) outer: i64,
    pub(in crate::engine) groups: i64,
    pub(in crate::engine) inner: i64,
    pub(in crate::engine) spatial: Vec<i64>,
    /// What each dimension of the tensor is.
    pub(in crate::engine) of_tensor: Vec<Axis>,
    /// Whether groups are joined with the outer dimension, not with the inner one.
    pub(in crate::engine) joins_outer: bool,
    /// Name of the number of channels of a group in a dimension of both.
    pub(in crate::engine) channels: &'static str,
    /// The dimensions as the tensor has them.
    pub(in crate::engine) dims: Vec<i64>,
    /// What the tensor belongs to, in messages.
    pub(in crate::engine) operation: &'static str,
}

impl Axes {
    /// Channels of a group in a dimension of groups and channels.
    fn joined(&self) -> i64 {
        if self.joins_outer { self.outer } else { self.inner }
    }

    /// How a tensor that broadcasts to this one lies along its dimensions.
    ///
    /// # Errors
    /// `NotSupported` where it does not broadcast.
    pub(in crate::engine) fn strides(&self, tensor: &TensorDesc) -> Result<Strides> {
        let fits = |(own, dim): (&i64, &i64)| own == dim || *dim == 1;
        let (dims, own) = (&tensor.dims, &self.dims);
        if dims.len() != own.len() || !own.iter().zip(dims).all(fits) {
            return Err(Error::not_supported(format!(
                "`{}` is {dims:?}, next to a tensor of the {} that is {own:?}",
                tensor.name, self.operation
            )));
        }
        let mut strides =
            Strides { outer: 0, group: 0, inner: 0, spatial: vec![0; self.spatial.len()] };
        for (axis, (dim, stride)) in self.of_tensor.iter().zip(dims.iter().zip(&tensor.strides)) {
            let stride = if *dim == 1 { 0 } else { *stride };
            match axis {
                Axis::Outer => strides.outer = stride,
                Axis::Group => strides.group = stride,
                Axis::Inner => strides.inner = stride,
                Axis::Spatial(at) => strides.spatial[*at] = stride,
                Axis::Channels => {
                    strides.group = stride.saturating_mul(self.joined());
                    let own =
                        if self.joins_outer { &mut strides.outer } else { &mut strides.inner };
                    *own = stride;
                }
            }
        }
        Ok(strides)
    }
}
