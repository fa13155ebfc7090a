//! The dimensions of images, filters and responses in one order, whether or not groups are a
//! dimension of their own: outer, group, inner, then the spatial ones.

use crate::error::{Error, Result};
use crate::graph::{Convolution, ConvolutionShape};
use crate::tensor::TensorDesc;

/// What a tensor is to a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// `x` or its gradient: images, groups, channels of the image.
    Image,
    /// `w` or its gradient: channels of the response, groups, channels of the image.
    Filter,
    /// `y` or its gradient: images, groups, channels of the response.
    Response,
}

impl Role {
    /// Name in comments and of variables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Image => "image",
            Role::Filter => "filter",
            Role::Response => "response",
        }
    }

    /// Name of a type.
    pub(super) fn type_name(self) -> &'static str {
        match self {
            Role::Image => "Image",
            Role::Filter => "Filter",
            Role::Response => "Response",
        }
    }

    /// Name of the number of channels that a group has in a dimension of groups and channels.
    pub(super) fn channels(self) -> &'static str {
        if self == Role::Image { "C" } else { "K" }
    }

    /// Name of a spatial coordinate.
    pub(super) fn spatial_name(self) -> &'static str {
        match self {
            Role::Filter => "tap",
            role => role.name(),
        }
    }
}

/// Elements between neighbours along outer, group, inner and spatial dimensions; 0 where a tensor
/// is broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strides {
    pub(super) outer: i64,
    pub(super) group: i64,
    pub(super) inner: i64,
    pub(super) spatial: Vec<i64>,
}

/// A dimension of a convolution's tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    Outer,
    Group,
    Inner,
    /// Groups and the channels of each, in one dimension of a tensor: those of the inner dimension,
    /// or of a filter's outer one.
    Channels,
    Spatial(usize),
}

/// The dimensions of one of a convolution's tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Axes {
    pub(super) outer: i64,
    pub(super) groups: i64,
    pub(super) inner: i64,
    pub(super) spatial: Vec<i64>,
    /// What each dimension of the tensor is.
    pub(super) of_tensor: Vec<Axis>,
    is_filter: bool,
    dims: Vec<i64>,
}

impl Axes {
    pub(super) fn of(
        op: &Convolution,
        shape: &ConvolutionShape,
        tensor: &TensorDesc,
        role: Role,
    ) -> Axes {
        let ConvolutionShape { n, groups, c, k, image, filter, response } = shape;
        let (outer, inner, spatial) = match role {
            Role::Image => (*n, *c, image),
            Role::Filter => (*k, *c, filter),
            Role::Response => (*n, *k, response),
        };
        let is_filter = role == Role::Filter;
        let first = match (op.has_group_axis(tensor), is_filter) {
            (true, false) => vec![Axis::Outer, Axis::Group, Axis::Inner],
            (true, true) => vec![Axis::Group, Axis::Outer, Axis::Inner],
            (false, false) => vec![Axis::Outer, Axis::Channels],
            (false, true) => vec![Axis::Channels, Axis::Inner],
        };
        let of_tensor = first.into_iter().chain((0..spatial.len()).map(Axis::Spatial)).collect();
        let (groups, spatial) = (*groups, spatial.clone());
        let dims = tensor.dims.clone();
        Axes { outer, groups, inner, spatial, of_tensor, is_filter, dims }
    }

    /// Channels of a group in a dimension of groups and channels.
    fn joined(&self) -> i64 {
        if self.is_filter { self.outer } else { self.inner }
    }

    /// How a tensor that broadcasts to this one lies along its dimensions.
    ///
    /// # Errors
    /// `NotSupported` where it does not broadcast.
    pub(super) fn strides(&self, tensor: &TensorDesc) -> Result<Strides> {
        let fits = |(own, dim): (&i64, &i64)| own == dim || *dim == 1;
        let (dims, own) = (&tensor.dims, &self.dims);
        if dims.len() != own.len() || !own.iter().zip(dims).all(fits) {
            return Err(Error::not_supported(format!(
                "`{}` is {dims:?}, next to a tensor of the convolution that is {own:?}",
                tensor.name
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
                    let own = if self.is_filter { &mut strides.outer } else { &mut strides.inner };
                    *own = stride;
                }
            }
        }
        Ok(strides)
    }
}
