//! A convolution as a GEMM, one of whose operands is read through a window.
//!
//! | pass | rows | columns | K | read through a window |
//! |---|---|---|---|---|
//! | forward | images, responses | `k` | taps, `c` | `x` |
//! | backward data | images, elements | `c` | taps, `k` | `dy`; `w`, whose `k` are apart |
//! | backward filter | `k` | taps, `c` | images, responses | `x` |
//!
//! Where every tensor steps evenly over rows or K, as over the pixels of a filter of one tap, there
//! is no window, and the GEMM is one like any other.

use crate::engine::access::volume;
use crate::engine::gemm::axes::{Axes, stride};
use crate::engine::gemm::epilogue_reduction::EpilogueReduction;
use crate::engine::gemm::problem::{
    Fusion, Layout, Operand, Problem, check_multiplications, k_major, writes_columns,
};
use crate::engine::gemm::window::{Along, Counted, Reach, Window};
use crate::engine::program::{GraphProgram, Source};
use crate::error::{Error, Result};
use crate::graph::{
    CanonicalGraph, Convolution, ConvolutionMode, ConvolutionPass, ConvolutionShape, Matmul,
};

/// A convolution's tensors as matrices.
struct Matrices {
    /// Windows of A and of B.
    windows: [Window; 2],
    /// The dimensions of the result that make up rows and columns, the innermost last.
    rows: Vec<usize>,
    columns: Vec<usize>,
}

impl<'a> Layout<'_, 'a> {
    /// The GEMM of a convolution.
    ///
    /// # Errors
    /// `NotSupported` with the rule that the graph breaks.
    pub(super) fn convolution(self, op: &Convolution) -> Result<Problem<'a>> {
        let Layout { graph, tensors, programs, epilogue, reductions, .. } = self;
        let [first, second, c] = tensors;
        let roles = op.pass.roles([first, second], c).map(|at| &graph.tensors[at]);
        let shape = op.shape(roles)?;
        let matrices = Matrices::of(op, &shape, op.has_group_axis(roles[0]))?;
        let extent = |axes: &[usize]| {
            volume(&axes.iter().map(|axis| graph.tensors[c].dims[*axis]).collect::<Vec<_>>())
        };
        let (m, n) = (extent(&matrices.rows), extent(&matrices.columns));
        let k = matrices.windows[0].k();
        check_multiplications([m, n, k])?;
        let reduced: Vec<usize> = reductions.iter().map(|(_, [_, result])| *result).collect();
        let counts = |axis: &usize| graph.tensors[c].dims[*axis] != 1;
        let [rows, columns] = [matrices.rows, matrices.columns]
            .map(|axes| axes.into_iter().filter(counts).collect::<Vec<_>>());
        let axes = Axes { batches: Vec::new(), rows, columns };
        let mut epilogue = Fusion { axes, program: epilogue, reduced };
        check_even(graph, &epilogue, c)?;
        let [program_first, program_second] = programs;
        let mut own = [(first, program_first), (second, program_second)];
        // A gradient has the convolution's second operand for its A.
        if op.pass != ConvolutionPass::Forward {
            own.reverse();
        }
        let [own_a, own_b] = own;
        let [window_a, window_b] = matrices.windows;
        let a = operand(graph, own_a, window_a, m)?;
        let b = operand(graph, own_b, window_b, n)?;
        let transposed = writes_columns(graph, &epilogue);
        if transposed {
            let Axes { rows, columns, .. } = &mut epilogue.axes;
            std::mem::swap(rows, columns);
        }
        let (a, b) = if transposed { (b, a) } else { (a, b) };
        let (m, n) = if transposed { (n, m) } else { (m, n) };
        let reductions = reductions
            .iter()
            .map(|reduction| EpilogueReduction::new(graph, *reduction, &epilogue.axes));
        Ok(Problem {
            graph: self.decomposed.clone(),
            matmul: Matmul::new(op.math),
            batches: Vec::new(),
            m,
            n,
            k,
            a,
            b,
            c,
            dual: None,
            reductions: reductions.collect::<Result<_>>()?,
            epilogue,
            overrides: [None; 3],
        })
    }
}

impl Matrices {
    /// # Errors
    /// `NotSupported` for several groups, and for gradients of strided images.
    fn of(op: &Convolution, shape: &ConvolutionShape, group_axis: bool) -> Result<Matrices> {
        let ConvolutionShape { n, groups, c, k, image, filter, response } = shape;
        if *groups != 1 {
            return Err(Error::not_supported(format!("a GEMM has no {groups} groups of channels")));
        }
        let strides = &op.window.filter_strides;
        if op.pass == ConvolutionPass::BackwardData && strides.iter().any(|stride| *stride != 1) {
            return Err(Error::not_supported(format!(
                "a gradient of an image of strides {strides:?} has taps of its own for each phase"
            )));
        }
        let spatial = image.len();
        // From a response and a tap to the element of the image.
        let image_of = |response: fn(usize) -> Along, tap: fn(usize) -> Along, at: usize| {
            let dilation = op.window.dilations[at];
            let (step, origin) = match op.mode {
                ConvolutionMode::CrossCorrelation => (dilation, 0),
                ConvolutionMode::Convolution => (-dilation, dilation * (filter[at] - 1)),
            };
            let origin = origin - op.window.pre_paddings[at];
            Reach {
                terms: vec![(response(at), strides[at]), (tap(at), step)],
                origin,
                extent: image[at],
            }
        };
        // Back from an element of the image, where neighbouring responses are apart by 1.
        let response_of = |at: usize| {
            let Reach { terms, origin, .. } = image_of(inner_row, k_of, at);
            let (tap, step) = terms[1];
            Reach {
                terms: vec![(inner_row(at), 1), (tap, -step)],
                origin: -origin,
                extent: response[at],
            }
        };
        let counted = |along: fn(usize) -> Along, extents: &[i64]| {
            let one = |(at, extent): (usize, &i64)| Reach::counted(along(at), *extent);
            extents.iter().enumerate().map(one).collect::<Vec<_>>()
        };
        let group = Reach { terms: Vec::new(), origin: 0, extent: 1 };
        let group: Vec<Reach> = group_axis.then_some(group).into_iter().collect();
        let images = |n: Reach, channel: Reach, spatial: Vec<Reach>| {
            [vec![n], group.clone(), vec![channel], spatial].concat()
        };
        let filters =
            |k: Reach, c: Reach, spatial: Vec<Reach>| [group.clone(), vec![k, c], spatial].concat();
        let channels = if group_axis { 2 } else { 1 };
        let pixels = (channels + 1)..(channels + 1 + spatial);
        let windows = match op.pass {
            ConvolutionPass::Forward => {
                let ks = [filter, &[*c][..]].concat();
                let x = Window::new(
                    [&[*n], &response[..]].concat(),
                    ks.clone(),
                    images(
                        Reach::counted(Along::Row(0), *n),
                        Reach::counted(Along::K(spatial), *c),
                        (0..spatial).map(|at| image_of(inner_row, k_of, at)).collect(),
                    ),
                );
                let w = Window::new(
                    vec![*k],
                    ks,
                    filters(
                        Reach::counted(Along::Row(0), *k),
                        Reach::counted(Along::K(spatial), *c),
                        counted(k_of, filter),
                    ),
                );
                [x, w]
            }
            ConvolutionPass::BackwardData => {
                let ks = [filter, &[*k][..]].concat();
                let dy = Window::new(
                    [&[*n], &image[..]].concat(),
                    ks.clone(),
                    images(
                        Reach::counted(Along::Row(0), *n),
                        Reach::counted(Along::K(spatial), *k),
                        (0..spatial).map(response_of).collect(),
                    ),
                );
                let w = Window::new(
                    vec![*c],
                    ks,
                    filters(
                        Reach::counted(Along::K(spatial), *k),
                        Reach::counted(Along::Row(0), *c),
                        counted(k_of, filter),
                    ),
                );
                [dy, w]
            }
            ConvolutionPass::BackwardFilter => {
                let ks = [&[*n], &response[..]].concat();
                let dy = Window::new(
                    vec![*k],
                    ks.clone(),
                    images(
                        Reach::counted(Along::K(0), *n),
                        Reach::counted(Along::Row(0), *k),
                        counted(inner_k, response),
                    ),
                );
                let x = Window::new(
                    [filter, &[*c][..]].concat(),
                    ks,
                    images(
                        Reach::counted(Along::K(0), *n),
                        Reach::counted(Along::Row(spatial), *c),
                        (0..spatial).map(|at| image_of(inner_k, row_of, at)).collect(),
                    ),
                );
                [dy, x]
            }
        };
        let (rows, columns) = match op.pass {
            ConvolutionPass::BackwardFilter => {
                (vec![channels - 1], pixels.chain([channels]).collect())
            }
            _ => ([0].into_iter().chain(pixels).collect(), vec![channels]),
        };
        Ok(Matrices { windows, rows, columns })
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

/// An operand; without its window where every tensor steps over rows and K evenly.
fn operand(
    graph: CanonicalGraph<'_>,
    (tensor, program): (usize, GraphProgram),
    window: Window,
    extent: i64,
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
        !window.is_padded() && read.iter().all(even)
    });
    let innermost = match &even {
        Some(counted) => counted.each_ref().map(|of| of.last().map(|last| last.axis)),
        None => window.innermost(),
    };
    let [rows, columns] = innermost.map(|axis| axis.into_iter().collect());
    prologue.axes = Axes { batches: Vec::new(), rows, columns };
    let k_major = k_major(graph, &prologue);
    let window = even.is_none().then_some(window);
    Ok(Operand { tensor, extent, prologue, k_major, window })
}

/// Checks that everything behind the GEMM steps over its rows and columns evenly, and counts along
/// neither of several dimensions.
fn check_even(graph: CanonicalGraph<'_>, epilogue: &Fusion, c: usize) -> Result<()> {
    let dims = &graph.tensors[c].dims;
    let tensors = epilogue.inputs().chain(epilogue.program.outputs.iter().copied());
    let tensors = stored(graph, tensors.chain(epilogue.reduced.iter().copied()));
    for axes in [&epilogue.axes.rows, &epilogue.axes.columns] {
        let counted = |axis: &usize| Counted { axis: *axis, extent: dims[*axis] };
        let dimensions: Vec<Counted> = axes.iter().map(counted).collect();
        for at in tensors.iter().copied() {
            if !is_even(graph, at, &dimensions) {
                let tensor = &graph.tensors[at];
                return Err(Error::not_supported(format!(
                    "a GEMM does not step evenly over the pixels of `{}`: dimensions {:?}, \
                     strides {:?}",
                    tensor.name, tensor.dims, tensor.strides
                )));
            }
        }
        let counted =
            |axis: &usize| epilogue.program.sources.contains(&Source::Coordinate(Some(*axis)));
        if axes.len() > 1 && axes.iter().any(counted) {
            let text = "an index along one of several dimensions that are rows of a GEMM";
            return Err(Error::not_supported(text));
        }
    }
    Ok(())
}
