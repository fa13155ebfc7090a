//! A convolution as a GEMM, one of whose operands is read through a window.
//!
//! | pass | rows | columns | K | read through a window |
//! |---|---|---|---|---|
//! | forward | images, responses | `k` | taps, `c` | `x` |
//! | backward data | images, elements | `c` | taps, `k` | `dy`; `w`, whose `k` are apart |
//! | backward filter | `k` | taps, `c` | images, responses | `x` |
//!
//! Each group of channels is a batch, and so is each image where results step evenly over the
//! pixels of one but not over those of all, as in `[N, C, H, W]` packed in this order. Where every
//! tensor steps evenly over rows or K, as over the pixels of a filter of one tap, there is no
//! window, and the GEMM is one like any other.

use crate::engine::access::{ceil_div, volume};
use crate::engine::gemm::axes::{Axes, stride};
use crate::engine::gemm::epilogue_reduction::EpilogueReduction;
use crate::engine::gemm::fusion::Fusion;
use crate::engine::gemm::phases::{Phases, Property, period, taps_of};
use crate::engine::gemm::problem::{
    Layout, Operand, Problem, check_multiplications, k_major, writes_columns,
};
use crate::engine::gemm::window::{Along, Counted, Reach, Window};
use crate::engine::program::{GraphProgram, Source};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Convolution, ConvolutionPass, ConvolutionShape, Matmul};
use crate::tensor::TensorDesc;

/// A convolution's tensors as matrices.
struct Matrices {
    /// Windows of A and of B.
    windows: [Window; 2],
    /// Where rows and columns are in the result.
    result: Window,
    batches: Vec<BatchAxes>,
    /// Parts of a strided image whose gradients are GEMMs of their own.
    phases: Option<Phases>,
    /// The dimensions of the result that make up rows and columns, the innermost last.
    rows: Vec<usize>,
    columns: Vec<usize>,
}

/// A dimension of batches: images, groups or phases.
struct BatchAxes {
    extent: i64,
    /// The dimensions of A, of B and of the result that it is.
    axes: [Option<usize>; 3],
}

/// The fewest pixels of an image that is a batch on Hopper: as few rows or columns as tiles have.
const PIXELS_MIN: i64 = 32;

/// Rows or columns of the tiles of most products.
const TILE: i64 = 128;

impl<'a> Layout<'_, 'a> {
    /// The GEMM of a convolution.
    ///
    /// # Errors
    /// `NotSupported` with the rule that the graph breaks.
    pub(super) fn convolution(
        self,
        op: &Convolution,
        capability: u16,
        vector_bytes: Option<i64>,
    ) -> Result<Problem<'a>> {
        let reduced = self.reduced();
        let Layout { graph, tensors, programs, epilogue, reductions, sums, finish, .. } = self;
        if let Some((_, [operand, _])) = sums.first() {
            let name = &graph.tensors[*operand].name;
            let text = format!("`{name}` is reduced, an operand of a convolution");
            return Err(Error::not_supported(text));
        }
        let [first, second, c] = tensors;
        let roles = op.pass.roles([first, second], c).map(|at| &graph.tensors[at]);
        let (shape, group_axis) = (op.shape(roles)?, op.has_group_axis(roles[0]));
        let mut epilogue = Fusion { axes: Axes::default(), program: epilogue, reduced };
        let dims = &graph.tensors[c].dims;
        let operands = [roles[0], roles[1]];
        let filled = vector_bytes.and_then(|bytes| filled(op, &shape, operands, bytes));
        let of_images = |apart: bool| Matrices::of(op, &shape, group_axis, apart, filled);
        let mut matrices = of_images(false)?;
        epilogue.axes = matrices.result_axes(dims);
        let mut is_even = check_epilogue(graph, &epilogue, c, matrices.phases.is_some());
        if matrices.images_may_be_batches(op, &shape, capability) && !matches!(is_even, Ok(true)) {
            let apart = of_images(true)?;
            let own = Fusion { axes: apart.result_axes(dims), ..epilogue.clone() };
            let is_reduced = |of| EpilogueReduction::new(graph, of, &own.axes, false).is_ok();
            let is_reduced = reductions.iter().all(|of| is_reduced(*of));
            if is_reduced && check_epilogue(graph, &own, c, false).is_ok_and(|is_even| is_even) {
                (matrices, epilogue, is_even) = (apart, own, Ok(true));
            }
        }
        let Matrices { windows: [window_a, window_b], result, batches, phases, .. } = matrices;
        let (m, n, k) = (window_a.row_count(), window_b.row_count(), window_a.k());
        let batch_axes =
            |of: usize| batches.iter().map(|batch| batch.axes[of].into_iter().collect()).collect();
        let batches: Vec<i64> = batches.iter().map(|batch| batch.extent).collect();
        check_multiplications(batches.iter().copied().chain([m, n, k]))?;
        let mut result = (!is_even?).then_some(result);
        let [program_first, program_second] = programs;
        let mut own = [(first, program_first), (second, program_second)];
        // A gradient has the convolution's second operand for its A.
        if op.pass != ConvolutionPass::Forward {
            own.reverse();
        }
        let [own_a, own_b] = own;
        let keeps = result.is_some();
        let a = operand(graph, own_a, (window_a, keeps), (m, batch_axes(0)))?;
        let b = operand(graph, own_b, (window_b, keeps), (n, batch_axes(1)))?;
        let transposed = phases.is_none() && writes_columns(graph, &epilogue);
        if transposed {
            let Axes { rows, columns, .. } = &mut epilogue.axes;
            std::mem::swap(rows, columns);
            result = result.map(Window::transposed);
        }
        let scatters = result.as_ref().is_some_and(|of| scatters(graph, &epilogue, c, of));
        let (a, b) = if transposed { (b, a) } else { (a, b) };
        let (m, n) = if transposed { (n, m) } else { (m, n) };
        let reductions = reductions.iter().map(|reduction| {
            EpilogueReduction::new(graph, *reduction, &epilogue.axes, phases.is_some())
        });
        Ok(Problem {
            graph: self.decomposed.clone(),
            matmul: Matmul::new(op.math),
            batches,
            m,
            n,
            k,
            a,
            b,
            c,
            dual: None,
            reductions: reductions.collect::<Result<_>>()?,
            finish: Fusion { axes: epilogue.axes.clone(), program: finish, reduced: Vec::new() },
            epilogue,
            result,
            scatters,
            phases,
            overrides: [None; 3],
        })
    }
}

impl Matrices {
    /// The matrices with rows of all images, or of one image each, which is a batch; `filled` are
    /// elements of K that the channels of a tap take, if more than they are.
    ///
    /// # Errors
    /// `NotSupported` where an image has too many phases.
    fn of(
        op: &Convolution,
        shape: &ConvolutionShape,
        group_axis: bool,
        images_are_batches: bool,
        filled: Option<i64>,
    ) -> Result<Matrices> {
        let ConvolutionShape { groups, c, k, image, filter, response, .. } = shape;
        let n = if images_are_batches { &1 } else { &shape.n };
        let strides = &op.window.filter_strides;
        let is_strided = strides.iter().any(|stride| *stride != 1);
        let phases = match op.pass == ConvolutionPass::BackwardData && is_strided {
            true => Some(Phases::of(op, shape, usize::from(*groups != 1))?),
            false => None,
        };
        let spatial = image.len();
        // From a response and a tap to the element of the image.
        let image_of = |response: fn(usize) -> Along, tap: fn(usize) -> Along, at: usize| {
            let (origin, step) = taps_of(op, shape, at);
            Reach::new(vec![(response(at), strides[at]), (tap(at), step)], origin, image[at])
        };
        let counted = |along: fn(usize) -> Along, extents: &[i64]| {
            let one = |(at, extent): (usize, &i64)| Reach::counted(along(at), *extent);
            extents.iter().enumerate().map(one).collect::<Vec<_>>()
        };
        let group: Vec<Reach> =
            group_axis.then(|| Reach::new(Vec::new(), 0, 1)).into_iter().collect();
        let images = |n: Reach, channel: Reach, spatial: Vec<Reach>| {
            [vec![n], group.clone(), vec![channel], spatial].concat()
        };
        let filters =
            |k: Reach, c: Reach, spatial: Vec<Reach>| [group.clone(), vec![k, c], spatial].concat();
        let channels = if group_axis { 2 } else { 1 };
        let pixels = (channels + 1)..(channels + 1 + spatial);
        let first = |extent: i64| Reach::counted(Along::Row(0), extent);
        let column = |extent: i64| Reach::counted(Along::K(0), extent);
        let last_k = |extent: i64| Reach::counted(Along::K(spatial), extent);
        let (windows, result) = match op.pass {
            ConvolutionPass::Forward => {
                let rows = [&[*n], &response[..]].concat();
                let ks = [filter, &[filled.unwrap_or(*c)][..]].concat();
                let channel = || match filled {
                    Some(_) => last_k(*c).inside(),
                    None => last_k(*c),
                };
                let spatial_of_x = (0..spatial).map(|at| image_of(inner_row, k_of, at)).collect();
                let x = images(first(*n), channel(), spatial_of_x);
                let w = filters(first(*k), channel(), counted(k_of, filter));
                let y = images(first(*n), column(*k), counted(inner_row, response));
                let result = Window::new(rows.clone(), vec![*k], y);
                let windows = [Window::new(rows, ks.clone(), x), Window::new(vec![*k], ks, w)];
                (windows.map(|window| window.filled(filled.map(|_| *c))), result)
            }
            ConvolutionPass::BackwardData => {
                let of_image = Gradient { op, shape, phases: phases.as_ref() };
                let rows: Vec<i64> =
                    std::iter::once(*n).chain(of_image.numbers(Property::Extent)).collect();
                let ks: Vec<i64> =
                    of_image.numbers(Property::Taps).chain(std::iter::once(*k)).collect();
                let all = 0..spatial;
                let responses = all.clone().map(|at| of_image.response(at)).collect();
                let dy = images(first(*n), last_k(*k), responses);
                let taps = all.clone().map(|at| of_image.tap(at)).collect();
                let w = filters(last_k(*k), first(*c), taps);
                let elements = all.map(|at| of_image.element(at)).collect();
                let dx = images(first(*n), column(*c), elements);
                let of_rows = || of_image.own(Property::Extent, inner_row);
                let of_ks = || of_image.own(Property::Taps, k_of);
                let dy = Window::new(rows.clone(), ks.clone(), dy).with(of_rows().chain(of_ks()));
                let w = Window::new(vec![*c], ks, w).with(of_ks());
                ([dy, w], Window::new(rows, vec![*c], dx).with(of_rows()))
            }
            ConvolutionPass::BackwardFilter => {
                let ks = [&[*n], &response[..]].concat();
                let columns = [filter, &[*c][..]].concat();
                let of_images = || Reach::counted(Along::K(0), *n);
                let dy = images(of_images(), first(*k), counted(inner_k, response));
                let spatial_of_x = (0..spatial).map(|at| image_of(inner_k, row_of, at)).collect();
                let x = Reach::counted(Along::Row(spatial), *c);
                let x = images(of_images(), x, spatial_of_x);
                let dw = filters(first(*k), last_k(*c), counted(k_of, filter));
                let dw = Window::new(vec![*k], columns.clone(), dw);
                ([Window::new(vec![*k], ks.clone(), dy), Window::new(columns, ks, x)], dw)
            }
        };
        let (rows, columns) = match op.pass {
            ConvolutionPass::BackwardFilter => {
                (vec![channels - 1], pixels.chain([channels]).collect())
            }
            _ if images_are_batches => (pixels.collect(), vec![channels]),
            _ => ([0].into_iter().chain(pixels).collect(), vec![channels]),
        };
        let batch = |extent: i64, axes: [Option<usize>; 3]| BatchAxes { extent, axes };
        let images = images_are_batches.then(|| batch(shape.n, [Some(0), None, Some(0)]));
        // In front of the channels of images and responses, the first dimension of filters.
        let of_groups = match op.pass {
            ConvolutionPass::BackwardFilter => [1, 1, 0],
            _ => [1, 0, 1],
        };
        let groups = (*groups != 1).then(|| batch(*groups, of_groups.map(Some)));
        // No tensor has a dimension of phases.
        let of_phases = phases.as_ref().map(|phases| batch(phases.count(), [None; 3]));
        let batches = images.into_iter().chain(groups).chain(of_phases).collect();
        Ok(Matrices { windows, result, batches, phases, rows, columns })
    }

    /// The axes of the result, which has these extents.
    fn result_axes(&self, dims: &[i64]) -> Axes {
        let counts =
            |axes: &[usize]| axes.iter().copied().filter(|axis| dims[*axis] != 1).collect();
        let batches = self.batches.iter().map(|batch| batch.axes[2].into_iter().collect());
        Axes {
            batches: batches.collect(),
            rows: counts(&self.rows),
            columns: counts(&self.columns),
        }
    }

    /// Whether there are several images, whose pixels are rows that fill tiles well enough: on
    /// Hopper, where `wgmma` stores tiles alone, else if operands are read by rows, or tiles are
    /// nearly full.
    fn images_may_be_batches(
        &self,
        op: &Convolution,
        shape: &ConvolutionShape,
        capability: u16,
    ) -> bool {
        let pixels = volume(match op.pass {
            ConvolutionPass::Forward => &shape.response,
            ConvolutionPass::BackwardData => &shape.image,
            ConvolutionPass::BackwardFilter => return false,
        });
        let has_one_tap = self.windows[0].counted().is_some();
        let in_tiles = ceil_div(pixels, TILE).saturating_mul(TILE);
        let fills = match capability {
            90 => pixels >= PIXELS_MIN,
            _ => {
                has_one_tap && pixels >= TILE
                    || pixels.saturating_mul(10) >= in_tiles.saturating_mul(9)
            }
        };
        self.phases.is_none() && shape.n > 1 && fills
    }
}

/// Elements of K that the channels of a tap take, where they end within a vector of so many bytes
/// and pixels and taps begin with one; `None` where they take as many as they are, or need not.
fn filled(
    op: &Convolution,
    shape: &ConvolutionShape,
    operands: [&TensorDesc; 2],
    vector_bytes: i64,
) -> Option<i64> {
    let begins = |of: &TensorDesc| {
        let whole = vector_bytes / of.dtype.bytes() as i64;
        let channels = of.dims.len() - shape.filter.len() - 1;
        let is_whole = |axis: usize| of.dims[axis] == 1 || of.strides[axis] % whole == 0;
        let is_stored = !of.is_virtual && !of.by_value && of.alignment as i64 >= vector_bytes;
        is_stored
            && of.strides[channels] == 1
            && (0..of.dims.len()).all(|axis| axis == channels || is_whole(axis))
    };
    let [x, w] = operands;
    let whole = vector_bytes / x.dtype.bytes() as i64;
    // Wider types may be narrower in shared memory.
    let ends_within = x.dtype == w.dtype
        && x.dtype.bytes() <= 4
        && shape.c % whole != 0
        && volume(&shape.filter) > 1
        && op.pass == ConvolutionPass::Forward
        && operands.into_iter().all(begins);
    ends_within.then(|| ceil_div(shape.c, whole).saturating_mul(whole))
}

/// The gradient of an image, whose phases may be GEMMs of their own.
struct Gradient<'a> {
    op: &'a Convolution,
    shape: &'a ConvolutionShape,
    phases: Option<&'a Phases>,
}

impl Gradient<'_> {
    /// Elements of the image, or taps, along each dimension; the most of a phase.
    fn numbers(&self, of: Property) -> impl Iterator<Item = i64> {
        let whole = if of == Property::Taps { &self.shape.filter } else { &self.shape.image };
        let number = move |at: usize| match self.phases {
            Some(phases) => phases.number(of, at).most,
            None => whole[at],
        };
        (0..whole.len()).map(number)
    }

    /// Those that each phase has of its own.
    fn own(
        &self,
        of: Property,
        along: fn(usize) -> Along,
    ) -> impl Iterator<Item = (Along, String)> {
        let all = 0..self.shape.image.len();
        let text = move |at: usize| self.phases.and_then(|phases| phases.number(of, at).text);
        all.filter_map(move |at| text(at).map(|text| (along(at), text)))
    }

    /// From an element of the image and a tap to the response, which is one further where the
    /// element is a stride further.
    fn response(&self, at: usize) -> Reach {
        let (first, step) = taps_of(self.op, self.shape, at);
        let stride = self.op.window.filter_strides[at];
        let back = step * period(self.op, at) / stride;
        let terms = vec![(inner_row(at), 1), (k_of(at), -back)];
        let reach = Reach::new(terms, -first, self.shape.response[at]);
        match self.phases {
            Some(phases) => reach.from(phases.number(Property::Response, at)),
            None => reach,
        }
    }

    /// The tap.
    fn tap(&self, at: usize) -> Reach {
        let reach = Reach::new(vec![(k_of(at), period(self.op, at))], 0, self.shape.filter[at]);
        match self.phases {
            Some(phases) => reach.from(phases.number(Property::Tap, at)).inside(),
            None => reach,
        }
    }

    /// The element of the image.
    fn element(&self, at: usize) -> Reach {
        let stride = self.op.window.filter_strides[at];
        let reach = Reach::new(vec![(inner_row(at), stride)], 0, self.shape.image[at]);
        match self.phases {
            Some(phases) => reach.from(phases.number(Property::Origin, at)).inside(),
            None => reach,
        }
    }
}

fn row_of(at: usize) -> Along {
    Along::Row(at)
}

fn k_of(at: usize) -> Along {
    Along::K(at)
}

/// Behind the coordinate of images.
fn inner_row(at: usize) -> Along {
    Along::Row(1 + at)
}

fn inner_k(at: usize) -> Along {
    Along::K(1 + at)
}

/// Whether a tensor steps over these dimensions as over one.
fn is_even(graph: CanonicalGraph<'_>, at: usize, dimensions: &[Counted]) -> bool {
    let tensor = &graph.tensors[at];
    dimensions.windows(2).all(|pair| {
        let [outer, inner] = [pair[0], pair[1]].map(|of| stride(tensor, of.axis));
        inner.checked_mul(pair[1].extent) == Some(outer)
    })
}

fn stored(graph: CanonicalGraph<'_>, tensors: impl Iterator<Item = usize>) -> Vec<usize> {
    tensors.filter(|at| !graph.tensors[*at].is_virtual && !graph.tensors[*at].by_value).collect()
}

/// An operand with so many rows; without its window where every tensor steps over rows and K
/// evenly, unless it keeps it.
fn operand(
    graph: CanonicalGraph<'_>,
    (tensor, program): (usize, GraphProgram),
    (window, keeps): (Window, bool),
    (extent, batches): (i64, Vec<Vec<usize>>),
) -> Result<Operand> {
    let mut prologue = Fusion { axes: Axes::default(), program, reduced: Vec::new() };
    let counts =
        |source: &Source| matches!(source, Source::Coordinate(Some(_)) | Source::Position(_));
    if prologue.program.sources.iter().any(counts) {
        let text = "an operand of a convolution is computed from an index";
        return Err(Error::not_supported(text));
    }
    let read = stored(graph, prologue.inputs());
    let even = window.counted().filter(|[rows, ks]| {
        let even = |at: &usize| is_even(graph, *at, rows) && is_even(graph, *at, ks);
        !keeps && !window.is_padded() && read.iter().all(even)
    });
    if even.is_none() && (extent == 0 || window.k() == 0) {
        let name = &graph.tensors[tensor].name;
        let text = format!("`{name}`, read through a window, has no elements");
        return Err(Error::not_supported(text));
    }
    let innermost = match &even {
        Some(counted) => counted.each_ref().map(|of| of.last().map(|last| last.axis)),
        None => window.innermost(),
    };
    let [rows, columns] = innermost.map(|axis| axis.into_iter().collect());
    prologue.axes = Axes { batches, rows, columns };
    let k_major = k_major(graph, &prologue);
    let window = even.is_none().then_some(window);
    Ok(Operand { tensor, extent, prologue, k_major, window })
}

/// Whether everything behind the GEMM steps over its rows and columns evenly, as it does not over
/// the elements of phases.
///
/// # Errors
/// `NotSupported` where a reduction does not, or an index counts along one of several dimensions.
fn check_epilogue(
    graph: CanonicalGraph<'_>,
    epilogue: &Fusion,
    c: usize,
    has_phases: bool,
) -> Result<bool> {
    let dims = &graph.tensors[c].dims;
    let tensors = epilogue.inputs().chain(epilogue.program.outputs.iter().copied());
    let tensors = stored(graph, tensors);
    let reduced = stored(graph, epilogue.reduced.iter().copied());
    let mut is_all_even = !has_phases;
    for axes in [&epilogue.axes.rows, &epilogue.axes.columns] {
        let counted = |axis: &usize| Counted { axis: *axis, extent: dims[*axis] };
        let dimensions: Vec<Counted> = axes.iter().map(counted).collect();
        let uneven = |at: &&usize| !is_even(graph, **at, &dimensions);
        if let Some(at) = reduced.iter().find(uneven) {
            let tensor = &graph.tensors[*at];
            return Err(Error::not_supported(format!(
                "a GEMM does not step evenly over `{}`, a result of a reduction: dimensions {:?}, \
                 strides {:?}",
                tensor.name, tensor.dims, tensor.strides
            )));
        }
        is_all_even &= tensors.iter().all(|at| is_even(graph, *at, &dimensions));
        let counted =
            |axis: &usize| epilogue.program.sources.contains(&Source::Coordinate(Some(*axis)));
        if (axes.len() > 1 || has_phases) && axes.iter().any(counted) {
            let text = "an index along one of several dimensions that are rows of a GEMM";
            return Err(Error::not_supported(text));
        }
    }
    Ok(is_all_even)
}

/// Columns that an epilogue passes at once, at most.
const EPILOGUE_VECTOR_MAX: i64 = 8;

/// Whether vectors of columns do not lie behind each other where the epilogue's elements are.
fn scatters(graph: CanonicalGraph<'_>, epilogue: &Fusion, c: usize, window: &Window) -> bool {
    let tensors = epilogue.inputs().filter(|at| *at != c);
    let tensors = stored(graph, tensors.chain(epilogue.program.outputs.iter().copied()));
    let apart = |at: &usize| epilogue.axes.view(&graph.tensors[*at]).column > 1;
    !window.holds(EPILOGUE_VECTOR_MAX, true) || tensors.iter().any(apart)
}
