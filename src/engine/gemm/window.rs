//! Operands that are read through a window: a row and an element of K meet in an element of the
//! tensor, or in none, in the padding around it.

use serde::Serialize;

use crate::engine::access::volume;
use crate::engine::gemm::phases::Number;

/// Bytes of a K step that a thread reads through a window: 192 take up to 0.37 s to compile.
pub(super) const WINDOWED_BYTES_MAX: i64 = 160;

/// How rows and K of an operand are found in a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Window {
    /// Extents of the coordinates of a row, the innermost last.
    pub(super) rows: Vec<i64>,
    /// Extents of the coordinates of an element of K, the innermost last.
    pub(super) ks: Vec<i64>,
    /// Where each dimension of the tensor is met.
    pub(super) dims: Vec<Reach>,
    /// What says extents that each phase has of its own; `rows` and `ks` have the largest.
    own: Vec<(Along, String)>,
    /// How many of the innermost coordinate of K are in the tensor, if not all: the others are
    /// zeros that fill a vector.
    filled: Option<i64>,
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
    /// The position where all coordinates are 0; the least of those that phases have.
    pub(super) origin: i64,
    /// The dimension's extent.
    pub(super) extent: i64,
    /// The origin that each phase has of its own.
    pub(super) own: Option<OwnOrigin>,
    /// Whether every position is inside the tensor, though its parts may add up to more.
    is_inside: bool,
}

/// An origin that each phase has of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OwnOrigin {
    /// What says it in C++.
    pub(super) text: String,
    /// The largest.
    pub(super) most: i64,
}

/// A coordinate of a row or of an element of K.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Along {
    Row(usize),
    K(usize),
}

/// The extent of a coordinate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extent {
    /// What says it in C++; nothing does of the outermost, where phases have none of their own.
    pub(super) name: String,
    /// The most of all phases.
    pub(super) most: i64,
    /// Whether it is a phase's own.
    pub(super) is_own: bool,
}

/// A window as templates see it (`gemm/place.cuh`).
#[derive(Debug, Clone, Serialize)]
pub(super) struct WindowParameters {
    /// What it is of, and the second coordinate.
    about: &'static str,
    second: &'static str,
    /// Whether some number is a phase's.
    pub(super) takes_batch: bool,
    constants: Vec<Constant>,
    /// The positions along dimensions that are not always 0.
    dims: Vec<Position>,
    /// How the innermost coordinate of K counts what is in the tensor and zeros that fill vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    filled: Option<Filled>,
    /// Whether positions may be outside of the tensor, and which are inside of an operand.
    leaves: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<Vec<Inside>>,
    /// What says so in a word, where it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    taps: Option<Taps>,
    /// Whether rows and elements of K are found apart, so that no place says what is inside
    /// (`gemm/walk.cuh`, `gemm/scattered.cuh`).
    #[serde(skip_serializing_if = "Option::is_none")]
    apart: Option<bool>,
}

/// The names of the extent of the innermost coordinate of K and of how many are in the tensor.
#[derive(Debug, Clone, Serialize)]
struct Filled {
    extent: String,
    count: String,
}

/// A dimension along which positions may lie outside the tensor.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Inside {
    pub(super) dimension: String,
    /// The name of its extent.
    pub(super) extent: String,
}

/// A bit for each tap of each dimension along which positions may lie outside the tensor.
#[derive(Debug, Clone, Serialize)]
struct Taps {
    /// Whether elements of K count taps, else rows do.
    of_k: bool,
    dims: Vec<TapsAlong>,
}

#[derive(Debug, Clone, Serialize)]
struct TapsAlong {
    dimension: String,
    extent: String,
    /// The first of the bits, and how many there are.
    first: i64,
    count: i64,
    /// How far neighbouring taps are apart.
    step: i64,
}

/// Bits of a word that taps may take; two others say what is of the matrix.
const TAPS_MAX: i64 = 30;

#[derive(Debug, Clone, Serialize)]
struct Constant {
    name: String,
    value: i64,
}

#[derive(Debug, Clone, Serialize)]
struct Position {
    name: String,
    value: String,
}

impl Reach {
    pub(super) fn new(terms: Vec<(Along, i64)>, origin: i64, extent: i64) -> Reach {
        Reach { terms, origin, extent, own: None, is_inside: false }
    }

    /// The same, known to be inside the tensor.
    #[must_use]
    pub(super) fn inside(self) -> Reach {
        Reach { is_inside: true, ..self }
    }

    /// The same with the origins of phases.
    #[must_use]
    pub(super) fn from(self, origin: Number) -> Reach {
        let Number { least, most, text } = origin;
        Reach { origin: least, own: text.map(|text| OwnOrigin { text, most }), ..self }
    }

    /// The position where all coordinates are 0 that is furthest behind.
    fn origin_max(&self) -> i64 {
        self.own.as_ref().map_or(self.origin, |own| own.most)
    }

    /// A dimension that one coordinate counts.
    pub(super) fn counted(along: Along, extent: i64) -> Reach {
        Reach::new(vec![(along, 1)], 0, extent)
    }

    /// The coordinate that counts the dimension alone.
    pub(super) fn counted_by(&self) -> Option<Along> {
        match self.terms[..] {
            [(along, 1)] if self.origin == 0 && self.own.is_none() => Some(along),
            _ => None,
        }
    }
}

impl Window {
    /// A window with these coordinates of rows and of K; those of extent 1 move nothing.
    pub(super) fn new(rows: Vec<i64>, ks: Vec<i64>, dims: Vec<Reach>) -> Window {
        let mut window = Window { rows, ks, dims: Vec::new(), own: Vec::new(), filled: None };
        let moving = |reach: Reach| {
            let terms = reach.terms.into_iter().filter(|(along, _)| window.extent(*along) != 1);
            Reach { terms: terms.collect(), ..reach }
        };
        let dims = dims.into_iter().map(moving).collect();
        window.dims = dims;
        window
    }

    /// The same with extents that phases have of their own.
    #[must_use]
    pub(super) fn with(self, own: impl Iterator<Item = (Along, String)>) -> Window {
        Window { own: own.collect(), ..self }
    }

    /// The same with zeros behind so many of the innermost coordinate of K.
    #[must_use]
    pub(super) fn filled(self, filled: Option<i64>) -> Window {
        Window { filled, ..self }
    }

    /// The same with rows in the place of K; it has no zeros to fill vectors.
    #[must_use]
    pub(super) fn transposed(self) -> Window {
        let other = |along: Along| match along {
            Along::Row(at) => Along::K(at),
            Along::K(at) => Along::Row(at),
        };
        let Window { rows, ks, dims, own, .. } = self;
        let reach = |reach: Reach| {
            let terms = reach.terms.into_iter().map(|(along, step)| (other(along), step));
            Reach { terms: terms.collect(), ..reach }
        };
        Window {
            rows: ks,
            ks: rows,
            dims: dims.into_iter().map(reach).collect(),
            own: own.into_iter().map(|(along, text)| (other(along), text)).collect(),
            filled: None,
        }
    }

    /// Rows; the most of a phase.
    pub(super) fn row_count(&self) -> i64 {
        volume(&self.rows)
    }

    /// Elements of K; the most of a phase.
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
        let end = |origin: i64, ends: &dyn Fn(i64) -> i64| {
            steps.iter().fold(origin, |sum, step| sum.saturating_add(ends(*step)))
        };
        !reach.is_inside
            && (end(reach.origin, &|step| step.min(0)) < 0
                || end(reach.origin_max(), &|step| step.max(0)) >= reach.extent)
    }

    /// What is inside along a dimension; `None` where every position is.
    pub(super) fn inside(&self, axis: usize) -> Option<Inside> {
        let inside = Inside { dimension: format!("d{axis}"), extent: format!("EXTENT{axis}") };
        self.leaves(&self.dims[axis]).then_some(inside)
    }

    /// Whether some rows and elements of K meet in no element.
    pub(super) fn is_padded(&self) -> bool {
        self.filled.is_some() || self.dims.iter().any(|reach| self.leaves(reach))
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
        let moving = (0..self.dims.len()).filter(|axis| self.moves(*axis)).count();
        (rows.len() + ks.len() == moving).then_some([rows, ks])
    }

    /// Whether zeros fill vectors along K.
    pub(super) fn is_filled(&self) -> bool {
        self.filled.is_some()
    }

    /// The dimensions that the innermost coordinates of rows and of K count, where they do so
    /// alone.
    pub(super) fn innermost(&self) -> [Option<usize>; 2] {
        let of = |along| self.counts(along).map(|counted| counted.axis);
        [of(Along::Row(self.rows.len() - 1)), of(Along::K(self.ks.len() - 1))]
    }

    /// Whether so many neighbours along K, or along rows, lie behind each other, all of them inside
    /// the tensor where the first is.
    pub(super) fn holds(&self, vector: i64, along_k: bool) -> bool {
        let coordinates = if along_k { &self.ks } else { &self.rows };
        let (inner, others) = coordinates.split_last().expect("there is a coordinate");
        let along = if along_k { Along::K(others.len()) } else { Along::Row(others.len()) };
        let leaves = |(axis, reach): (usize, &Reach)| {
            reach.terms.iter().any(|(of, _)| *of == along) && self.inside(axis).is_some()
        };
        (inner % vector == 0 || others.iter().all(|extent| *extent == 1))
            && !self.dims.iter().enumerate().any(leaves)
    }

    /// The extents of the coordinates of K, the innermost last.
    pub(super) fn ks(&self) -> Vec<Extent> {
        let (names, _) = self.extents(Along::K, "K");
        let extents = names.into_iter().zip(&self.ks).enumerate();
        let is_own = |at: usize| self.own.iter().any(|(own, _)| *own == Along::K(at));
        extents.map(|(at, (name, most))| Extent { name, most: *most, is_own: is_own(at) }).collect()
    }

    /// The dimension that a coordinate moves along, and by how much; `Some(None)` where it moves
    /// along none, `None` where along several.
    pub(super) fn step(&self, along: Along) -> Option<Option<(usize, i64)>> {
        let steps = |(axis, reach): (usize, &Reach)| {
            let term = reach.terms.iter().find(|(of, _)| *of == along);
            term.map(|(_, step)| (axis, *step))
        };
        let mut found = self.dims.iter().enumerate().filter_map(steps);
        let first = found.next();
        found.next().is_none().then_some(first)
    }

    /// Whether the position along a dimension may be another than 0.
    pub(super) fn moves(&self, axis: usize) -> bool {
        let reach = &self.dims[axis];
        !reach.terms.is_empty() || reach.origin != 0 || reach.own.is_some()
    }

    /// The largest position and extent, for the type that holds them.
    pub(super) fn reach_max(&self) -> i64 {
        let far = |reach: &Reach| {
            let steps = reach
                .terms
                .iter()
                .map(|(along, step)| step.abs().saturating_mul(self.extent(*along)));
            let origin = reach.origin.abs().max(reach.origin_max().abs());
            steps.fold(origin.max(reach.extent), i64::saturating_add)
        };
        self.dims.iter().map(far).max().unwrap_or(0)
    }

    /// Whether some number is a phase's.
    pub(super) fn takes_batch(&self) -> bool {
        !self.own.is_empty() || self.dims.iter().any(|reach| reach.own.is_some())
    }

    /// As an operand's template sees it.
    pub(super) fn parameters(&self, apart: bool) -> WindowParameters {
        let named = self.named("Where a row and an element of K meet", "k", true);
        WindowParameters { apart: Some(apart), taps: self.taps(), ..named }
    }

    /// The taps of dimensions that positions may leave, of K or of rows; `None` where both have
    /// too many, or there is no such dimension.
    fn taps(&self) -> Option<Taps> {
        let of = |of_k: bool| {
            let mut first = 0;
            let along = |axis: usize| {
                let Inside { dimension, extent } = self.inside(axis)?;
                let mut terms = self.dims[axis].terms.iter();
                let term = terms.find(|(along, _)| matches!(along, Along::K(_)) == of_k);
                let (count, step) = term.map_or((1, 1), |(of, step)| (self.extent(*of), *step));
                first += count;
                Some(TapsAlong { dimension, extent, first: first - count, count, step })
            };
            let dims: Vec<TapsAlong> = (0..self.dims.len()).filter_map(along).collect();
            (first > 0 && first <= TAPS_MAX).then_some(Taps { of_k, dims })
        };
        of(true).or_else(|| of(false))
    }

    /// As the epilogue's template sees it, whose elements are all inside.
    pub(super) fn of_result(&self) -> WindowParameters {
        self.named("The element of a row and a column", "column", false)
    }

    /// The names of the extents of rows, or of K, and the constants that some of them are.
    fn extents(&self, along: fn(usize) -> Along, prefix: &str) -> (Vec<String>, Vec<Constant>) {
        let extents = if along(0) == Along::Row(0) { &self.rows } else { &self.ks };
        let (mut names, mut constants) = (Vec::new(), Vec::new());
        for (at, extent) in extents.iter().enumerate() {
            let own = self.own.iter().find(|(own, _)| *own == along(at));
            let name = own.map_or(format!("{prefix}{at}"), |(_, text)| text.clone());
            if own.is_none() && at > 0 {
                constants.push(Constant { name: name.clone(), value: *extent });
            }
            names.push(name);
        }
        (names, constants)
    }

    fn named(&self, about: &'static str, second: &'static str, leaves: bool) -> WindowParameters {
        let (row_extents, mut constants) = self.extents(Along::Row, "ROW");
        let (k_extents, of_k) = self.extents(Along::K, "K");
        constants.extend(of_k);
        let mut name = |name: String, value: i64| {
            constants.push(Constant { name: name.clone(), value });
            name
        };
        let (rows, ks) = (coordinates("row", &row_extents), coordinates(second, &k_extents));
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
            match &reach.own {
                Some(own) => sum.push(own.text.clone()),
                None if reach.origin != 0 => {
                    sum.push(name(format!("ORIGIN{at}"), reach.origin));
                }
                None => {}
            }
            if !sum.is_empty() {
                dims.push(Position { name: format!("d{at}"), value: sum.join(" + ") });
            }
            if leaves && let Some(dimension) = self.inside(at) {
                name(dimension.extent.clone(), reach.extent);
                inside.push(dimension);
            }
        }
        let extent = k_extents.into_iter().next_back().expect("K has a coordinate");
        let filled = self.filled.filter(|_| leaves).map(|count| {
            let count = name("CHANNELS".to_owned(), count);
            Filled { extent, count }
        });
        WindowParameters {
            about,
            second,
            filled,
            takes_batch: self.takes_batch(),
            constants,
            dims,
            leaves: !inside.is_empty(),
            inside: leaves.then_some(inside),
            taps: None,
            apart: None,
        }
    }
}

/// The coordinates of an index along dimensions of these extents.
pub(super) fn coordinates(index: &str, extents: &[String]) -> Vec<String> {
    let coordinate = |at: usize| {
        let inner = &extents[at + 1..];
        let quotient = match inner {
            [] => index.to_owned(),
            [one] => format!("{index} / {one}"),
            several => format!("{index} / ({})", several.join(" * ")),
        };
        if at == 0 { quotient } else { format!("{quotient} % {}", extents[at]) }
    };
    (0..extents.len()).map(coordinate).collect()
}
