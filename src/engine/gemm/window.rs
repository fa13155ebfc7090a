//! Operands that are read through a window: a row and an element of K meet in an element of the
//! tensor, or in none, in the padding around it.

use serde::Serialize;

use crate::engine::access::volume;
use crate::engine::dimensions::coordinates;

/// How rows and K of an operand are found in a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Window {
    /// Extents of the coordinates of a row, the innermost last.
    pub(super) rows: Vec<i64>,
    /// Extents of the coordinates of an element of K, the innermost last.
    pub(super) ks: Vec<i64>,
    /// Where each dimension of the tensor is met.
    pub(super) dims: Vec<Reach>,
}

/// A dimension of a tensor that one coordinate counts alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Counted {
    pub(super) axis: usize,
    pub(super) extent: i64,
}

/// The position along a dimension of a tensor: a sum of coordinates times steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Reach {
    pub(super) terms: Vec<(Along, i64)>,
    /// The position where all coordinates are 0.
    pub(super) origin: i64,
    /// The dimension's extent.
    pub(super) extent: i64,
}

/// A coordinate of a row or of an element of K.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Along {
    Row(usize),
    K(usize),
}

/// A window as templates see it (`gemm/operand.cuh`).
#[derive(Debug, Clone, Serialize)]
pub(super) struct WindowParameters {
    constants: Vec<Constant>,
    /// The position along each dimension.
    dims: Vec<String>,
    /// Whether a position is inside the tensor; empty where it always is.
    inside: String,
}

#[derive(Debug, Clone, Serialize)]
struct Constant {
    name: String,
    value: i64,
}

impl Reach {
    /// A dimension that one coordinate counts.
    pub(super) fn counted(along: Along, extent: i64) -> Reach {
        Reach { terms: vec![(along, 1)], origin: 0, extent }
    }

    /// The coordinate that counts the dimension alone.
    pub(super) fn counted_by(&self) -> Option<Along> {
        match self.terms[..] {
            [(along, 1)] if self.origin == 0 => Some(along),
            _ => None,
        }
    }

    /// Whether the position is 0 always.
    pub(super) fn is_origin(&self) -> bool {
        self.terms.is_empty() && self.origin == 0
    }
}

impl Window {
    /// A window with these coordinates of rows and of K; those of extent 1 move nothing.
    pub(super) fn new(rows: Vec<i64>, ks: Vec<i64>, dims: Vec<Reach>) -> Window {
        let mut window = Window { rows, ks, dims: Vec::new() };
        let moving = |reach: Reach| {
            let terms = reach.terms.into_iter().filter(|(along, _)| window.extent(*along) != 1);
            Reach { terms: terms.collect(), ..reach }
        };
        let dims = dims.into_iter().map(moving).collect();
        window.dims = dims;
        window
    }

    /// Elements of K.
    pub(super) fn k(&self) -> i64 {
        volume(&self.ks)
    }

    pub(super) fn extent(&self, along: Along) -> i64 {
        match along {
            Along::Row(at) => self.rows[at],
            Along::K(at) => self.ks[at],
        }
    }

    /// Whether positions along a dimension may lie outside the tensor.
    fn leaves(&self, reach: &Reach) -> bool {
        let far =
            |(along, step): &(Along, i64)| step.saturating_mul((self.extent(*along) - 1).max(0));
        let steps: Vec<i64> = reach.terms.iter().map(far).collect();
        let end = |ends: &dyn Fn(i64) -> i64| {
            steps.iter().fold(reach.origin, |sum, step| sum.saturating_add(ends(*step)))
        };
        end(&|step| step.min(0)) < 0 || end(&|step| step.max(0)) >= reach.extent
    }

    /// Whether some rows and elements of K meet in no element.
    pub(super) fn is_padded(&self) -> bool {
        self.dims.iter().any(|reach| self.leaves(reach))
    }

    /// The dimension that a coordinate counts alone.
    fn counts(&self, along: Along) -> Option<Counted> {
        let axis = self.dims.iter().position(|reach| reach.counted_by() == Some(along))?;
        Some(Counted { axis, extent: self.extent(along) })
    }

    /// The dimensions that coordinates count alone, the innermost last: of rows, then of K; none
    /// where some dimension is met otherwise.
    pub(super) fn counted(&self) -> Option<[Vec<Counted>; 2]> {
        let of = |extents: &[i64], along: fn(usize) -> Along| {
            let moving = (0..extents.len()).filter(|at| extents[*at] != 1);
            moving.map(|at| self.counts(along(at))).collect::<Option<Vec<_>>>()
        };
        let [rows, ks] = [of(&self.rows, Along::Row)?, of(&self.ks, Along::K)?];
        let moving = self.dims.iter().filter(|reach| !reach.is_origin());
        (rows.len() + ks.len() == moving.count()).then_some([rows, ks])
    }

    /// The dimensions that the innermost coordinates of rows and of K count, where they do so
    /// alone.
    pub(super) fn innermost(&self) -> [Option<usize>; 2] {
        let of = |along| self.counts(along).map(|counted| counted.axis);
        [of(Along::Row(self.rows.len() - 1)), of(Along::K(self.ks.len() - 1))]
    }

    /// Whether so many neighbours along K, or along rows, lie behind each other.
    pub(super) fn holds(&self, vector: i64, along_k: bool) -> bool {
        let coordinates = if along_k { &self.ks } else { &self.rows };
        let (inner, others) = coordinates.split_last().expect("there is a coordinate");
        inner % vector == 0 || others.iter().all(|extent| *extent == 1)
    }

    /// The largest position and extent, for the type that holds them.
    pub(super) fn reach_max(&self) -> i64 {
        let far = |reach: &Reach| {
            let steps = reach
                .terms
                .iter()
                .map(|(along, step)| step.abs().saturating_mul(self.extent(*along)));
            steps.fold(reach.origin.abs().max(reach.extent), i64::saturating_add)
        };
        self.dims.iter().map(far).max().unwrap_or(0)
    }

    pub(super) fn parameters(&self) -> WindowParameters {
        let mut constants = Vec::new();
        let mut name = |name: String, value: i64| {
            constants.push(Constant { name: name.clone(), value });
            name
        };
        for (prefix, extents) in [("ROW", &self.rows), ("K", &self.ks)] {
            for (at, extent) in extents.iter().enumerate().skip(1) {
                name(format!("{prefix}{at}"), *extent);
            }
        }
        let rows = coordinates(self.rows.len(), "row", "ROW");
        let ks = coordinates(self.ks.len(), "k", "K");
        let mut inside = Vec::new();
        let mut dims = Vec::new();
        for (at, reach) in self.dims.iter().enumerate() {
            let mut sum = Vec::new();
            for (along, step) in &reach.terms {
                let (value, which) = match along {
                    Along::Row(at) => (&rows[*at], "ROW"),
                    Along::K(at) => (&ks[*at], "K"),
                };
                sum.push(match step {
                    1 => format!("coord_t({value})"),
                    step => {
                        let step = name(format!("{which}_STEP{at}"), *step);
                        format!("coord_t({value}) * {step}")
                    }
                });
            }
            if reach.origin != 0 {
                sum.push(name(format!("ORIGIN{at}"), reach.origin));
            }
            dims.push(if sum.is_empty() { "0".to_owned() } else { sum.join(" + ") });
            if self.leaves(reach) {
                let extent = name(format!("EXTENT{at}"), reach.extent);
                inside.push(format!("d{at} >= 0 && d{at} < {extent}"));
            }
        }
        WindowParameters { constants, dims, inside: inside.join(" && ") }
    }
}
