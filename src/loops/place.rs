//! Where tensors are in memory while a network runs, as far as it does not depend on the trip.

use std::collections::HashMap;

use crate::error::Result;
use crate::loops::layer::Loop;
use crate::loops::sequence;
use crate::tensor::{TensorDesc, packed_strides};

/// Memory in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Region {
    /// Distance from the workspace's address.
    pub(crate) offset: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
}

/// Which of a recurrence's elements is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Moment {
    /// The first one.
    Start,
    /// That of the trip; after the loop, the one behind the last trip.
    Now,
    /// That of the following trip.
    Next,
}

/// The memory of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The caller's memory for an input or output with this uid, or its value.
    Given(i64),
    /// Memory of its own.
    Own(Region),
    /// One of several elements that are kept of a recurrence's sequence.
    Ring {
        /// The loop.
        of: Loop,
        /// Memory of all elements.
        region: Region,
        /// How many are kept.
        slots: i64,
        /// Which one it is.
        moment: Moment,
        /// Whether the next element is moved to where that of the trip is, the first one, behind
        /// each trip; else the places turn.
        carried: bool,
    },
    /// An element of a tensor along an axis.
    Element {
        /// The loop.
        of: Loop,
        /// The tensor.
        whole: i64,
        /// The axis.
        axis: usize,
        /// Whether elements are counted from the end.
        reverse: bool,
    },
    /// An element of what a loop output stacks; elements behind its end are written elsewhere.
    Slice {
        /// The loop.
        of: Loop,
        /// The loop output.
        whole: i64,
        /// The axis.
        axis: usize,
        /// Whether the element of the last trip comes first.
        reverse: bool,
        /// Where elements behind the end are written.
        beyond: Region,
    },
    /// The memory of another tensor.
    Same(i64),
    /// A number that is passed by value.
    Number(i64),
}

/// The places of tensors by uid, and the workspace that they take.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    places: HashMap<i64, Place>,
    /// Bytes of the workspace so far.
    pub(crate) bytes: u64,
}

/// Distance of regions in the workspace, which no kernel wants more alignment than.
const ALIGNMENT: u64 = 256;

impl Places {
    /// Reserves memory.
    pub(super) fn region(&mut self, bytes: u64) -> Region {
        let offset = self.bytes;
        self.bytes += bytes.next_multiple_of(ALIGNMENT);
        Region { offset, bytes }
    }

    pub(super) fn set(&mut self, uid: i64, place: Place) {
        self.places.insert(uid, place);
    }

    pub(crate) fn get(&self, uid: i64) -> Option<Place> {
        self.places.get(&uid).copied()
    }

    /// Tensors that are elements of others, with those and the axis.
    pub(super) fn elements(&self) -> impl Iterator<Item = (i64, i64, usize)> + '_ {
        self.places.iter().filter_map(|(uid, place)| match place {
            Place::Element { whole, axis, .. } | Place::Slice { whole, axis, .. } => {
                Some((*uid, *whole, *axis))
            }
            _ => None,
        })
    }

    /// A tensor as it lies in memory, virtual without a place; `tensor` finds those that others lie
    /// in.
    pub(super) fn desc<'a>(
        &self,
        base: &TensorDesc,
        tensor: &dyn Fn(i64) -> Result<&'a TensorDesc>,
    ) -> Result<TensorDesc> {
        let named = TensorDesc { is_virtual: false, by_value: false, ..base.clone() };
        let packed =
            || TensorDesc { strides: packed_strides(&base.dims), alignment: 16, ..named.clone() };
        let of_other = |of: TensorDesc| {
            let TensorDesc { strides, alignment, by_value, .. } = of;
            TensorDesc { strides, alignment, by_value, ..named.clone() }
        };
        Ok(match self.get(base.uid) {
            None => TensorDesc { is_virtual: true, ..packed() },
            Some(Place::Own(_) | Place::Ring { .. }) => packed(),
            Some(Place::Given(of)) => of_other(tensor(of)?.clone()),
            Some(Place::Number(_)) => TensorDesc { by_value: true, ..packed() },
            Some(Place::Same(of)) => of_other(self.desc(tensor(of)?, tensor)?),
            Some(Place::Element { whole, axis, .. } | Place::Slice { whole, axis, .. }) => {
                let whole = self.desc(tensor(whole)?, tensor)?;
                sequence::view(&whole, axis, base.uid, &base.name)
            }
        })
    }
}

/// Bytes of an element in a ring.
pub(super) fn ring_element(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}
