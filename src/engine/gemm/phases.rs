//! Phases of a strided image: elements a stride apart, which the same taps meet. The gradient of
//! each is a GEMM with rows and K of its own; all of them are batches of one launch.

use serde::Serialize;

use crate::engine::access::volume;
use crate::error::{Error, Result};
use crate::graph::{Convolution, ConvolutionMode, ConvolutionShape};

/// The most phases, whose numbers are tables of the kernel.
const PHASES_MAX: usize = 64;

/// Names of the rows and of K of each phase.
const ROWS: &str = "PHASE_ROWS";
const K: &str = "PHASE_K";

/// The phases of an image, those along its last dimension follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Phases {
    /// Rows and K of the GEMM of each.
    pub(super) rows: Vec<i64>,
    pub(super) ks: Vec<i64>,
    /// Their other numbers along each dimension.
    along: Vec<Vec<Remainder>>,
    /// The batch coordinate that counts phases.
    batch: usize,
}

/// Elements of an image along a dimension with one remainder by the stride.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Remainder {
    /// The first of them, and how many there are.
    origin: i64,
    extent: i64,
    /// The first of the taps that meet them, and how many do.
    tap: i64,
    taps: i64,
    /// The response for which the first tap meets the first element.
    response: i64,
}

/// A number of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Property {
    Origin,
    Extent,
    Tap,
    Taps,
    Response,
}

/// The values of a number over all phases.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Number {
    pub(super) least: i64,
    pub(super) most: i64,
    /// What says a phase's own value in C++, where there are several.
    pub(super) text: Option<String>,
}

/// A table of a number of each phase (`gemm/problem.cuh`).
#[derive(Debug, Clone, Serialize)]
pub(super) struct Table {
    name: String,
    values: Vec<i64>,
    about: &'static str,
}

impl Property {
    const ALL: [Property; 5] =
        [Property::Origin, Property::Extent, Property::Tap, Property::Taps, Property::Response];

    fn of(self, remainder: &Remainder) -> i64 {
        match self {
            Property::Origin => remainder.origin,
            Property::Extent => remainder.extent,
            Property::Tap => remainder.tap,
            Property::Taps => remainder.taps,
            Property::Response => remainder.response,
        }
    }

    fn name(self, axis: usize) -> String {
        let name = match self {
            Property::Origin => "ORIGIN",
            Property::Extent => "EXTENT",
            Property::Tap => "TAP",
            Property::Taps => "TAPS",
            Property::Response => "RESPONSE",
        };
        format!("PHASE_{name}{axis}")
    }

    fn about(self) -> &'static str {
        match self {
            Property::Origin => "first element of the image",
            Property::Extent => "elements of the image",
            Property::Tap => "first tap",
            Property::Taps => "taps",
            Property::Response => "response that the first tap meets the first element for",
        }
    }
}

/// The element of the image that tap 0 meets for response 0, and how far the next tap is.
pub(super) fn taps_of(op: &Convolution, shape: &ConvolutionShape, at: usize) -> (i64, i64) {
    let (dilation, padding) = (op.window.dilations[at], op.window.pre_paddings[at]);
    match op.mode {
        ConvolutionMode::CrossCorrelation => (-padding, dilation),
        ConvolutionMode::Convolution => (dilation * (shape.filter[at] - 1) - padding, -dilation),
    }
}

/// Taps between those that meet one element.
pub(super) fn period(op: &Convolution, at: usize) -> i64 {
    let (stride, dilation) = (op.window.filter_strides[at], op.window.dilations[at]);
    stride / common(stride, dilation)
}

/// The greatest common divisor.
fn common(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { common(b, a % b) }
}

impl Phases {
    /// The phases of a convolution's image, which a batch coordinate counts.
    ///
    /// # Errors
    /// `NotSupported` where there are too many.
    pub(super) fn of(op: &Convolution, shape: &ConvolutionShape, batch: usize) -> Result<Phases> {
        let spatial = shape.image.len();
        let counts: Vec<i64> = (0..spatial)
            .map(|at| op.window.filter_strides[at].min(shape.image[at].max(1)))
            .collect();
        if volume(&counts) > PHASES_MAX as i64 {
            return Err(Error::not_supported(format!(
                "{} phases of an image of strides {:?} exceed {PHASES_MAX}",
                volume(&counts),
                op.window.filter_strides
            )));
        }
        let remainders: Vec<Vec<Remainder>> = (0..spatial)
            .map(|at| (0..counts[at]).map(|origin| remainder(op, shape, at, origin)).collect())
            .collect();
        let mut along = vec![Vec::new()];
        for choices in &remainders {
            let with = |chosen: &Vec<Remainder>| {
                let each = |next: &Remainder| [&chosen[..], &[*next]].concat();
                choices.iter().map(each).collect::<Vec<_>>()
            };
            along = along.iter().flat_map(with).collect();
        }
        let product = |first: i64, of: Property| {
            let count = |phase: &Vec<Remainder>| {
                phase.iter().map(|one| of.of(one)).fold(first, i64::saturating_mul)
            };
            along.iter().map(count).collect::<Vec<i64>>()
        };
        let (rows, ks) = (product(shape.n, Property::Extent), product(shape.k, Property::Taps));
        Ok(Phases { rows, ks, along, batch })
    }

    /// How many there are.
    pub(super) fn count(&self) -> i64 {
        self.along.len() as i64
    }

    /// A number of each phase along a spatial dimension.
    pub(super) fn number(&self, of: Property, axis: usize) -> Number {
        self.over(&of.name(axis), &self.values(of, axis))
    }

    fn values(&self, of: Property, axis: usize) -> Vec<i64> {
        self.along.iter().map(|phase| of.of(&phase[axis])).collect()
    }

    fn over(&self, name: &str, values: &[i64]) -> Number {
        let ends = (values.iter().min(), values.iter().max());
        let (Some(&least), Some(&most)) = ends else { unreachable!("there is a phase") };
        let text = (least != most).then(|| format!("{name}[batch.i{}]", self.batch));
        Number { least, most, text }
    }

    /// Rows of all phases.
    pub(super) fn all_rows(&self) -> i64 {
        self.rows.iter().fold(0, |all, rows| all.saturating_add(*rows))
    }

    /// Where the rows of a phase end.
    pub(super) fn rows_end(&self) -> Option<String> {
        self.over(ROWS, &self.rows).text
    }

    /// Where the K of a phase ends.
    pub(super) fn k_end(&self) -> Option<String> {
        self.over(K, &self.ks).text
    }

    /// The tables of what differs.
    pub(super) fn tables(&self) -> Vec<Table> {
        let gemm = [self.rows_table(), self.table(K.to_owned(), self.ks.clone(), "K of the GEMM")];
        let axes = 0..self.along[0].len();
        let own = axes.flat_map(|axis| {
            Property::ALL.map(|of| self.table(of.name(axis), self.values(of, axis), of.about()))
        });
        gemm.into_iter().chain(own).flatten().collect()
    }

    /// The table of rows, where phases differ in them.
    pub(super) fn rows_table(&self) -> Option<Table> {
        self.table(ROWS.to_owned(), self.rows.clone(), "rows of the GEMM")
    }

    fn table(&self, name: String, values: Vec<i64>, about: &'static str) -> Option<Table> {
        let differs = self.over(&name, &values).text.is_some();
        differs.then_some(Table { name, values, about })
    }
}

/// What meets the elements `origin`, `origin + stride` and so on.
fn remainder(op: &Convolution, shape: &ConvolutionShape, at: usize, origin: i64) -> Remainder {
    let stride = op.window.filter_strides[at];
    let (first, step) = taps_of(op, shape, at);
    let extent = (shape.image[at] - origin + stride - 1).max(0) / stride;
    let distance = |tap: i64| origin - first - step * tap;
    let mut meeting = (0..shape.filter[at]).filter(|tap| distance(*tap) % stride == 0);
    match meeting.next() {
        None => Remainder { origin, extent, tap: 0, taps: 0, response: 0 },
        Some(tap) => {
            let taps = 1 + meeting.count() as i64;
            Remainder { origin, extent, tap, taps, response: distance(tap) / stride }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{ConvolutionPass, MatmulMath, Window};

    /// Every pair of a tap and a response that meet in an element is met once, in its phase.
    #[test]
    fn phases_meet_what_the_definition_does() {
        for (image, filter, stride, dilation, padding) in
            [(8, 3, 2, 1, 1), (9, 5, 3, 2, 4), (7, 4, 4, 2, 0), (5, 2, 7, 1, 6), (12, 6, 6, 4, 3)]
        {
            for mode in [ConvolutionMode::CrossCorrelation, ConvolutionMode::Convolution] {
                let window = Window {
                    filter_strides: vec![stride],
                    dilations: vec![dilation],
                    pre_paddings: vec![padding],
                    ..Window::unit(1)
                };
                let op = Convolution::new(ConvolutionPass::BackwardData, MatmulMath::F32, window);
                let op = Convolution { mode, ..op };
                let (n, groups, c, k) = (1, 1, 1, 1);
                let [image_dims, filter_dims] = [image, filter].map(|extent| vec![extent]);
                let response = vec![1000];
                let shape = ConvolutionShape {
                    n,
                    groups,
                    c,
                    k,
                    image: image_dims,
                    filter: filter_dims,
                    response,
                };
                let mut expected = Vec::new();
                let (first, step) = taps_of(&op, &shape, 0);
                for element in 0..image {
                    for tap in 0..filter {
                        let distance = element - first - step * tap;
                        if distance % stride == 0 {
                            expected.push((element, tap, distance / stride));
                        }
                    }
                }
                let phases = Phases::of(&op, &shape, 0).expect("they are few");
                let mut found = Vec::new();
                for one in phases.along.iter().map(|phase| phase[0]) {
                    for row in 0..one.extent {
                        for at in 0..one.taps {
                            let tap = one.tap + at * period(&op, 0);
                            let back = step * period(&op, 0) / stride;
                            let response = one.response + row - at * back;
                            found.push((one.origin + row * stride, tap, response));
                        }
                    }
                }
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "{image} {filter} {stride} {dilation} {padding}");
            }
        }
    }
}
