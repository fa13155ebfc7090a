//! What a thread's items are.

use crate::engine::access::ceil_div;
use crate::engine::items::axes::Axes;

/// The dimension of a result along which a thread's items are neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Item {
    Group,
    Inner,
    Spatial(usize),
    /// Columns of an image along a spatial dimension, which several items read.
    Columns(usize),
}

impl Item {
    /// Name of the coordinate of a point.
    pub(in crate::engine) fn name(self) -> String {
        match self {
            Item::Group => "group".to_owned(),
            Item::Inner => "inner".to_owned(),
            Item::Spatial(at) | Item::Columns(at) => format!("s{at}"),
        }
    }

    /// The coordinate in expressions.
    pub(in crate::engine) fn coordinate(self) -> String {
        match self {
            Item::Columns(at) => format!("image{at}"),
            item => format!("p.{}", item.name()),
        }
    }

    /// Its position among outer, group, inner and spatial dimensions.
    pub(in crate::engine) fn position(self) -> usize {
        match self {
            Item::Group => 1,
            Item::Inner => 2,
            Item::Spatial(at) | Item::Columns(at) => 3 + at,
        }
    }
}

/// Extents along outer, group, inner and spatial dimensions, items of a thread counted once.
pub(in crate::engine) fn blocks(axes: &Axes, item: Item, items: i64) -> Vec<i64> {
    let mut extents = [&[axes.outer, axes.groups, axes.inner], &axes.spatial[..]].concat();
    extents[item.position()] = ceil_div(extents[item.position()], items);
    extents
}
