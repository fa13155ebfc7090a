//! Where the elements of a tensor are, by their position in row-major order, and what kernels call
//! the numbers in such expressions.

use serde::Serialize;

use crate::tensor::{TensorDesc, packed_strides};

/// A number with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Constant {
    name: String,
    value: i64,
}

/// The numbers of some expressions.
#[derive(Debug, Default)]
pub(super) struct Constants(Vec<Constant>);

impl Constants {
    /// The name of a number.
    pub(super) fn named(&mut self, name: &str, value: i64) -> String {
        let name = name.to_uppercase();
        if self.0.iter().all(|known| known.name != name) {
            self.0.push(Constant { name: name.clone(), value });
        }
        name
    }

    /// A coordinate times a stride.
    pub(super) fn times(&mut self, coordinate: &str, of: &str, stride: i64) -> String {
        match stride {
            1 => coordinate.to_owned(),
            stride => format!("{coordinate} * {}", self.named(of, stride)),
        }
    }

    /// The coordinate along an axis of the element at a position in row-major order.
    pub(super) fn coordinate(
        &mut self,
        position: &str,
        extents: &[i64],
        axis: usize,
        of: &str,
    ) -> String {
        let inner: i64 = extents[axis + 1..].iter().product();
        let is_outer = extents[..axis].iter().all(|extent| *extent == 1);
        let divided = match inner {
            1 => position.to_owned(),
            inner => format!("{position} / {}", self.named(&format!("{of}_INNER"), inner)),
        };
        match is_outer {
            true => divided,
            false => format!("{divided} % {}", self.named(&format!("{of}_EXTENT"), extents[axis])),
        }
    }

    pub(super) fn finish(self) -> Vec<Constant> {
        self.0
    }
}

/// Whether the elements of a tensor, behind its leading dimensions, are behind each other.
pub(super) fn is_packed(desc: &TensorDesc, leading: usize) -> bool {
    let dims = &desc.dims[leading..];
    let packed = packed_strides(dims);
    let axes = dims.iter().zip(packed.iter().zip(&desc.strides[leading..]));
    axes.into_iter().all(|(extent, (packed, own))| *extent == 1 || packed == own)
}

/// The offset of the element at a position.
pub(super) fn located(desc: &TensorDesc, leading: usize, name: &str, position: &str) -> String {
    match is_packed(desc, leading) {
        true => position.to_owned(),
        false => format!("{name}_offset({position})"),
    }
}

/// The offset of the element `at` behind leading dimensions, in row-major order.
pub(super) fn offset(desc: &TensorDesc, leading: usize, constants: &mut Constants) -> String {
    let dims = &desc.dims[leading..];
    let mut terms = Vec::new();
    for (axis, stride) in desc.strides[leading..].iter().enumerate() {
        if dims[axis] == 1 {
            continue;
        }
        let coordinate = constants.coordinate("at", dims, axis, &format!("I{axis}"));
        let coordinate = match coordinate.contains(' ') && *stride != 1 {
            true => format!("({coordinate})"),
            false => coordinate,
        };
        terms.push(constants.times(&coordinate, &format!("I{axis}_STRIDE"), *stride));
    }
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}
