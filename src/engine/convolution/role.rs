//! What tensors are to a convolution, and the coordinates of their elements in a kernel.

use crate::engine::items::{Axes, Axis};
use crate::graph::{Convolution, ConvolutionPass, ConvolutionShape};
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

    /// Name of a spatial coordinate.
    fn spatial_name(self) -> &'static str {
        match self {
            Role::Filter => "tap",
            role => role.name(),
        }
    }

    /// The dimensions of a tensor of this role.
    pub(super) fn axes(
        self,
        op: &Convolution,
        shape: &ConvolutionShape,
        tensor: &TensorDesc,
    ) -> Axes {
        let ConvolutionShape { n, groups, c, k, image, filter, response } = shape;
        let (outer, inner, spatial) = match self {
            Role::Image => (*n, *c, image),
            Role::Filter => (*k, *c, filter),
            Role::Response => (*n, *k, response),
        };
        let joins_outer = self == Role::Filter;
        let first = match (op.has_group_axis(tensor), joins_outer) {
            (true, false) => vec![Axis::Outer, Axis::Group, Axis::Inner],
            (true, true) => vec![Axis::Group, Axis::Outer, Axis::Inner],
            (false, false) => vec![Axis::Outer, Axis::Channels],
            (false, true) => vec![Axis::Channels, Axis::Inner],
        };
        Axes {
            outer,
            groups: *groups,
            inner,
            spatial: spatial.clone(),
            of_tensor: first.into_iter().chain((0..spatial.len()).map(Axis::Spatial)).collect(),
            joins_outer,
            channels: if self == Role::Image { "C" } else { "K" },
            dims: tensor.dims.clone(),
            operation: "convolution",
        }
    }

    /// Names of an element's coordinates along outer, group, inner and so many spatial dimensions.
    /// Those of the result are a thread's own; of an operand one is summed over.
    pub(super) fn coordinates(self, pass: ConvolutionPass, spatial: usize) -> Vec<String> {
        let outer = match (pass, self) {
            (ConvolutionPass::Forward, Role::Image) => ["p.outer", "p.group", "r"],
            (ConvolutionPass::Forward, Role::Filter) => ["p.inner", "p.group", "r"],
            (ConvolutionPass::BackwardData, Role::Filter) => ["r", "p.group", "p.inner"],
            (ConvolutionPass::BackwardData, Role::Response) => ["p.outer", "p.group", "r"],
            (ConvolutionPass::BackwardFilter, Role::Image) => ["r", "p.group", "p.inner"],
            (ConvolutionPass::BackwardFilter, Role::Response) => ["r", "p.group", "p.outer"],
            _ => {
                let own = (0..spatial).map(|at| format!("p.s{at}"));
                return ["p.outer", "p.group", "p.inner"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain(own)
                    .collect();
            }
        };
        let own = (0..spatial).map(|at| format!("m.{}{at}", self.spatial_name()));
        outer.map(str::to_owned).into_iter().chain(own).collect()
    }
}
