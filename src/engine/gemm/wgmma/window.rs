//! Tiles of operands that are read through a window, as TMA copies them: boxes where one coordinate
//! moves along the lines of a tile, else pixels (im2col mode).

use crate::engine::access::{ceil_div, volume};
use crate::engine::dimensions::coordinates;
use crate::engine::gemm::axes::Axes;
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::window::{Along, Reach, Window};
use crate::engine::tma::{Dimension, PixelDimension, STEP_MAX, TmaTensor, line_elements};
use crate::error::{Error, Result};
use crate::tensor::TensorDesc;

/// K of a convolution whose operands are read tap by tap: taps, then channels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Depth {
    taps: Vec<i64>,
    channels: i64,
    /// Channels in whole stages: those that are not there read as 0.
    padded: i64,
}

/// Where a tile is, as C++.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Tiles {
    /// Names and values.
    pub(super) constants: Vec<(String, i64)>,
    /// Coordinates, then offsets of pixels.
    pub(super) arguments: Vec<String>,
    /// The row where the last copy starts, where rows count taps: those beyond the end have none.
    pub(super) last_row: Option<i64>,
}

/// A dimension of batches of a tensor, which a convolution's groups and images are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct BatchDimension {
    /// The batch coordinate.
    pub(super) at: usize,
    pub(super) dimension: Dimension,
}

impl BatchDimension {
    /// Those of a tensor that has these axes, the innermost first.
    pub(super) fn all(problem: &Problem<'_>, axes: &Axes, tensor: &TensorDesc) -> Vec<Self> {
        let view = axes.view(tensor);
        let own = (0..view.batches.len()).rev().filter(|at| view.batches[*at] != 0);
        let dimension = |at: usize| (problem.batches[at], view.batches[at]);
        own.map(|at| BatchDimension { at, dimension: dimension(at) }).collect()
    }

    /// The coordinate as a C++ argument.
    pub(super) fn argument(&self) -> String {
        format!("int(batch.i{})", self.at)
    }
}

impl Depth {
    /// K of a problem; `None` where it is of pixels, or nothing is read through a window along it.
    pub(super) fn of(problem: &Problem<'_>, cta_k: i64) -> Option<Depth> {
        let along_k = |operand: &&Operand| operand.k_major && operand.window.is_some();
        let operand = [&problem.a, &problem.b].into_iter().find(along_k)?;
        let (channels, taps) = operand.window.as_ref()?.ks.split_last()?;
        let padded = ceil_div(*channels, cta_k) * cta_k;
        Some(Depth { taps: taps.to_vec(), channels: *channels, padded })
    }

    /// Elements of K, those that pad channels too.
    pub(super) fn k(&self) -> i64 {
        volume(&self.taps) * self.padded
    }

    /// Extents of the coordinates of K.
    fn extents(&self) -> Vec<i64> {
        [&self.taps[..], &[self.padded]].concat()
    }

    /// Tiles of an operand that steps over rows and K evenly, by these strides; `None` where taps
    /// need not be told apart.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn even(
        &self,
        (at, tensor): (usize, &TensorDesc),
        (rows, row): (i64, i64),
        (k_major, column): (bool, i64),
        batches: &[BatchDimension],
    ) -> Result<Option<(TmaTensor, Tiles)>> {
        let taps = volume(&self.taps);
        if self.padded == self.channels || taps == 1 {
            return Ok(None);
        }
        let ks = Side::new(&[taps, self.padded], "k", "K", false);
        let [tap, channel] = [0, 1].map(|at| ks.expressions[at].clone());
        let (channels, rows) = ((self.channels, column), (rows, row));
        let taps = (taps, column.saturating_mul(self.channels));
        let (matrix, arguments) = match k_major {
            true => ([channels, rows], [channel, "row".to_owned(), tap]),
            false => ([rows, channels], [AT_ROW.to_owned(), channel, tap]),
        };
        let dims: Vec<Dimension> =
            [taps].into_iter().chain(batches.iter().map(|batch| batch.dimension)).collect();
        let tensor = TmaTensor::of(at, tensor, matrix, &dims)?;
        let arguments = arguments.into_iter().chain(batches.iter().map(BatchDimension::argument));
        let (constants, arguments) = (ks.constants, arguments.collect());
        Ok(Some((tensor, Tiles { constants, arguments, last_row: None })))
    }
}

/// The first row of an atom of an M-major tile.
const AT_ROW: &str = "at_row";

/// Expressions for the coordinates of rows or of K.
struct Side {
    expressions: Vec<String>,
    constants: Vec<(String, i64)>,
}

impl Side {
    /// The coordinates of an index; with `open` the first one counts on beyond the end.
    fn new(extents: &[i64], index: &str, name: &str, open: bool) -> Side {
        let moves = |at: &usize| extents[*at] != 1 || open && *at == 0;
        let moving: Vec<usize> = (0..extents.len()).filter(moves).collect();
        let mut expressions = vec!["0".to_owned(); extents.len()];
        for (at, expression) in moving.iter().zip(coordinates(moving.len(), index, name)) {
            expressions[*at] = expression;
        }
        let constant = |(number, at): (usize, &usize)| (format!("{name}{number}"), extents[*at]);
        let constants = moving.iter().enumerate().skip(1).map(constant).collect();
        Side { expressions, constants }
    }
}

/// An operand that is read through a window.
struct Windowed<'a> {
    at: usize,
    tensor: &'a TensorDesc,
    window: &'a Window,
    k_major: bool,
    /// Extents of the coordinates of K; whether they are taps and channels, not pixels.
    ks: Vec<i64>,
    ks_are_taps: bool,
    batches: Vec<BatchDimension>,
}

/// Rows and K of an operand.
struct Sides<'a> {
    window: &'a Window,
    rows: Side,
    ks: Side,
}

impl Sides<'_> {
    fn expression(&self, along: Along) -> String {
        match along {
            Along::Row(at) => self.rows.expressions[at].clone(),
            Along::K(at) => self.ks.expressions[at].clone(),
        }
    }

    /// The expression of the coordinate that counts a dimension alone.
    fn counted(&self, at: Option<usize>) -> String {
        let along = at.and_then(|at| self.window.dims[at].counted_by());
        along.map_or_else(|| "0".to_owned(), |along| self.expression(along))
    }

    fn constants(&self) -> Vec<(String, i64)> {
        [&self.rows, &self.ks].into_iter().flat_map(|side| side.constants.clone()).collect()
    }
}

/// The tiles of an operand that is read through a window.
///
/// # Errors
/// `NotSupported` with the rule that refused.
pub(super) fn tiles(
    problem: &Problem<'_>,
    operand: &Operand,
    window: &Window,
    depth: Option<&Depth>,
) -> Result<(TmaTensor, Tiles)> {
    let (tensor, window) = &strides_apart(&problem.graph.tensors[operand.tensor], window);
    let ks = depth.map_or_else(|| window.ks.clone(), Depth::extents);
    let windowed = Windowed {
        at: operand.tensor,
        tensor,
        window,
        k_major: operand.k_major,
        ks,
        ks_are_taps: depth.is_some(),
        batches: BatchDimension::all(problem, &operand.prologue.axes, tensor),
    };
    let channel = windowed.channel()?;
    let moves = |at: &usize| *at != channel && window.moves(*at);
    let others: Vec<usize> = (0..window.dims.len()).filter(moves).collect();
    match windowed.boxes(channel, &others) {
        Some(tiles) => tiles,
        None => windowed.pixels(channel, &others),
    }
}

/// A tensor and its window with two dimensions for each along which rows are further apart than TMA
/// steps, and taps do not reach from one into the next: of rows, and of taps.
fn strides_apart(tensor: &TensorDesc, window: &Window) -> (TensorDesc, Window) {
    let (mut tensor, mut window) = (tensor.clone(), window.clone());
    for axis in (0..window.dims.len()).rev() {
        let reach = &window.dims[axis];
        let [mut outer, mut inner] = reach.terms[..] else { continue };
        if outer.1 < inner.1 {
            (outer, inner) = (inner, outer);
        }
        let ((along, stride), (tap, step)) = (outer, inner);
        let taps = window.extent(tap);
        let is_apart = stride > STEP_MAX && step == 1 && taps <= stride;
        if !is_apart || reach.origin != 0 || reach.own.is_some() || window.inside(axis).is_some() {
            continue;
        }
        let rows = window.extent(along);
        let dims = [Reach::counted(along, rows), Reach::counted(tap, taps)];
        window.dims.splice(axis..=axis, dims);
        let element = tensor.strides[axis];
        tensor.dims.splice(axis..=axis, [rows, taps]);
        tensor.strides.splice(axis..=axis, [element.saturating_mul(stride), element]);
    }
    (tensor, window)
}

impl Windowed<'_> {
    /// The dimension that is contiguous.
    fn channel(&self) -> Result<usize> {
        let Windowed { tensor, window, .. } = self;
        let inner = match self.k_major {
            true => Along::K(self.ks.len() - 1),
            false => Along::Row(window.rows.len() - 1),
        };
        let contiguous =
            |at: &usize| window.dims[*at].counted_by() == Some(inner) && tensor.strides[*at] == 1;
        let name = &tensor.name;
        let Some(channel) = (0..window.dims.len()).find(contiguous) else {
            let text = format!("channels of `{name}` are not contiguous, read through a window");
            return Err(Error::not_supported(text));
        };
        let (channels, line) = (window.dims[channel].extent, line_elements(tensor.dtype));
        match self.rows_are_taps() && channels % line != 0 {
            true => Err(Error::not_supported(format!(
                "{channels} channels of `{name}` are no multiple of {line}, so that a copy of rows \
                 would reach from one tap into another"
            ))),
            false => Ok(channel),
        }
    }

    /// Whether rows are taps and channels.
    fn rows_are_taps(&self) -> bool {
        !self.k_major && self.window.rows.iter().filter(|extent| **extent != 1).count() > 1
    }

    fn last_row(&self) -> Option<i64> {
        let rows = self.window.row_count();
        self.rows_are_taps().then(|| rows - line_elements(self.tensor.dtype))
    }

    /// The coordinates; those of pixels count on into images beyond the last one.
    fn sides(&self, pixels: bool) -> Sides<'_> {
        let row = if self.k_major { "row" } else { AT_ROW };
        Sides {
            window: self.window,
            rows: Side::new(&self.window.rows, row, "ROW", pixels && self.k_major),
            ks: Side::new(&self.ks, "k", "K", pixels && !self.k_major),
        }
    }

    /// Whether a coordinate moves along the lines of a tile.
    fn is_line(&self, along: Along) -> bool {
        match along {
            Along::Row(_) => self.k_major,
            Along::K(at) => !self.k_major && (!self.ks_are_taps || at + 1 == self.ks.len()),
        }
    }

    fn dimension(&self, at: usize) -> Dimension {
        (self.window.dims[at].extent, self.tensor.strides[at])
    }

    /// Tiles that are boxes: lines move along one dimension at most, and every dimension is counted
    /// by one coordinate.
    fn boxes(&self, channel: usize, others: &[usize]) -> Option<Result<(TmaTensor, Tiles)>> {
        let along = |at: &usize| self.window.dims[*at].counted_by();
        let is_line = |at: &usize| along(at).is_some_and(|along| self.is_line(along));
        let (lines, taps): (Vec<usize>, Vec<usize>) = others.iter().partition(|at| is_line(at));
        if lines.len() > 1 || !others.iter().all(|at| along(at).is_some()) {
            return None;
        }
        let line = lines.first().copied();
        let matrix = [self.dimension(channel), line.map_or((1, 0), |at| self.dimension(at))];
        let dims = taps.iter().map(|at| self.dimension(*at));
        let dims: Vec<Dimension> =
            dims.chain(self.batches.iter().map(|batch| batch.dimension)).collect();
        let counted = [Some(channel), line].into_iter().chain(taps.into_iter().map(Some));
        let sides = self.sides(false);
        let arguments = counted.map(|at| sides.counted(at));
        let tiles = Tiles {
            constants: sides.constants(),
            arguments: arguments.chain(self.batches.iter().map(BatchDimension::argument)).collect(),
            last_row: self.last_row(),
        };
        Some(TmaTensor::of(self.at, self.tensor, matrix, &dims).map(|tensor| (tensor, tiles)))
    }

    /// Tiles that are pixels: images, and in them positions along every spatial dimension, to which
    /// those of taps are added.
    fn pixels(&self, channel: usize, others: &[usize]) -> Result<(TmaTensor, Tiles)> {
        let first = if self.k_major { Along::Row(0) } else { Along::K(0) };
        let is_image = |at: &usize| self.window.dims[*at].counted_by() == Some(first);
        let image = others.iter().copied().find(is_image);
        let spatial = others.iter().rev().copied().filter(|at| Some(*at) != image);
        let spatial: Vec<usize> = spatial.collect();
        self.check_lines(&spatial)?;
        let sides = self.sides(true);
        let mut constants = sides.constants();
        let walks: Vec<Walk> = spatial
            .iter()
            .enumerate()
            .map(|(number, at)| self.walk(&sides, (number, *at), &mut constants))
            .collect();
        let name = &self.tensor.name;
        let Some((inner, outer)) = spatial.split_first() else {
            let text = format!("`{name}` has no pixels, read through a window");
            return Err(Error::not_supported(text));
        };
        let mut matrix = [channel, *inner].map(|at| self.dimension(at));
        let mut channel = sides.counted(Some(channel));
        // A copy of pixels of K would end in the next image, where its end is not masked.
        let (batched, groups): (Vec<&BatchDimension>, Vec<&BatchDimension>) =
            self.batches.iter().partition(|of| self.k_major && of.dimension.1 > matrix[1].1);
        if groups.len() > 1 || batched.len() + usize::from(image.is_some()) > 1 {
            let text = format!("groups of `{name}` are neither in its pixels nor its images");
            return Err(Error::not_supported(text));
        }
        if let Some(group) = groups.first() {
            matrix[0].0 = self.grouped_channels(matrix, group)?;
            channel = format!("{channel} + {} * GROUP", group.argument());
            constants.push(("GROUP".to_owned(), group.dimension.1));
        }
        let outer = outer.iter().map(|at| self.dimension(*at));
        let of_batch = batched.first().map(|batch| batch.dimension);
        let images = image.map(|at| self.dimension(at)).or(of_batch).unwrap_or((1, 0));
        let outer: Vec<Dimension> = outer.chain([images]).collect();
        // Rows beyond a batch's image are those of the next.
        let image = sides.expression(first);
        let image =
            batched.first().map_or(image.clone(), |of| format!("{} + {image}", of.argument()));
        let tensor = TmaTensor::of(self.at, self.tensor, matrix, &outer)?;
        let dimensions: Vec<PixelDimension> = walks.iter().map(|walk| walk.dimension).collect();
        let positions = walks.iter().map(|walk| walk.position.clone());
        let offsets = walks.iter().map(|walk| walk.offset.clone());
        let arguments = [channel].into_iter().chain(positions);
        let arguments = arguments.chain([image]).chain(offsets);
        let arguments = arguments.collect();
        let last_row = self.last_row();
        Ok((tensor.pixels(name, &dimensions)?, Tiles { constants, arguments, last_row }))
    }

    /// Checks that the lines of tiles count images, then the dimensions of pixels, of which these
    /// are the innermost first, as copies walk: not taps, as those of a filter's gradient may.
    fn check_lines(&self, spatial: &[usize]) -> Result<()> {
        let lines = spatial.iter().filter_map(|at| {
            self.window.dims[*at].terms.iter().find_map(|(along, _)| match along {
                Along::Row(at) if self.k_major => Some(*at),
                Along::K(at) if !self.k_major => Some(*at),
                _ => None,
            })
        });
        let lines: Vec<usize> = lines.collect();
        match lines.windows(2).all(|pair| pair[0] > pair[1]) && !lines.contains(&0) {
            true => Ok(()),
            false => Err(Error::not_supported(format!(
                "pixels of `{}` are contiguous, taps are not, along which a copy would walk",
                self.tensor.name
            ))),
        }
    }

    /// The channels of a pixel with those of all groups: its map has no dimension of groups, so
    /// that a group is where its channels begin.
    ///
    /// # Errors
    /// `NotSupported` where groups are elsewhere, or a copy would reach from one into another.
    fn grouped_channels(
        &self,
        [(channels, _), (_, pixel)]: [Dimension; 2],
        group: &BatchDimension,
    ) -> Result<i64> {
        let (name, line) = (&self.tensor.name, line_elements(self.tensor.dtype));
        let (groups, stride) = group.dimension;
        let all = stride.saturating_mul(groups - 1).saturating_add(channels);
        if channels % line != 0 {
            return Err(Error::not_supported(format!(
                "{channels} channels of a group of `{name}` are no multiple of {line}, so that a \
                 copy would reach into another group"
            )));
        }
        if all > pixel {
            let text = format!("groups of `{name}` are not beside each other in its pixels");
            return Err(Error::not_supported(text));
        }
        Ok(all)
    }

    /// How pixels move along a spatial dimension.
    fn walk(
        &self,
        sides: &Sides<'_>,
        (number, at): (usize, usize),
        constants: &mut Vec<(String, i64)>,
    ) -> Walk {
        let reach = &self.window.dims[at];
        let mut name = |name: &str, value: i64| {
            constants.push((format!("{name}{number}"), value));
            format!("{name}{number}")
        };
        let (mut position, mut offset) = ("0".to_owned(), "0".to_owned());
        let mut dimension =
            PixelDimension { first: reach.origin, count: 1, step: 1, offset_max: 0 };
        for (along, step) in &reach.terms {
            let (extent, text) = (self.window.extent(*along), sides.expression(*along));
            if self.is_line(*along) {
                (dimension.count, dimension.step) = (extent, *step);
                position = match step {
                    1 => text,
                    _ => format!("{text} * {}", name("STRIDE", *step)),
                };
                continue;
            }
            dimension.offset_max = step.abs() * (extent - 1);
            // Offsets are not negative: where positions fall from tap to tap, from the last one on.
            offset = match *step {
                1 => text,
                -1 => format!("{} - {text}", name("LAST_TAP", extent - 1)),
                step if step > 0 => format!("{text} * {}", name("DILATION", step)),
                step => {
                    let last = name("LAST_TAP", extent - 1);
                    format!("({last} - {text}) * {}", name("DILATION", -step))
                }
            };
            if step.is_negative() {
                dimension.first -= dimension.offset_max;
            }
        }
        if dimension.first != 0 {
            position = format!("{position} + {}", name("FIRST", dimension.first));
        }
        Walk { position, offset, dimension }
    }
}

/// How pixels move along a spatial dimension: expressions for the first pixel of a tile and for a
/// tap's offset.
struct Walk {
    position: String,
    offset: String,
    dimension: PixelDimension,
}
