//! Convolutions as data: the parameters of `tests/cases/convolution.toml`, which the README beside
//! it lists.

use kiln::expr::{Mode, Pointwise, Real};
use kiln::graph::{
    Convolution, ConvolutionMode, ConvolutionPass, GenStats, GraphBuilder, MatmulMath, Op, Window,
};
use kiln::{DType, OperationGraph, TensorDesc};
use serde::Deserialize;

use crate::harness::{self, Values};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvolutionData {
    pass: Pass,
    #[serde(default = "f32")]
    math: String,
    /// Of both operands, and of the result.
    dtype: DType,
    result: Option<DType>,
    n: i64,
    #[serde(default = "one")]
    groups: i64,
    /// Channels of a group of the image, and of the response.
    c: i64,
    k: i64,
    image: Vec<i64>,
    filter: Vec<i64>,
    strides: Option<Vec<i64>>,
    dilations: Option<Vec<i64>>,
    pre: Option<Vec<i64>>,
    post: Option<Vec<i64>>,
    #[serde(default)]
    reversed: bool,
    #[serde(default = "unit")]
    alpha: f64,
    #[serde(default)]
    beta: f64,
    /// Whether groups are a dimension of their own.
    #[serde(default)]
    group_axis: bool,
    #[serde(default)]
    lay: Lay,
    #[serde(default)]
    fused: Fused,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Pass {
    Forward,
    BackwardData,
    BackwardFilter,
}

/// How tensors lie in memory.
#[derive(Deserialize, Clone, Copy, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Lay {
    #[default]
    ChannelsFirst,
    ChannelsLast,
    /// Channels last, with gaps behind them, aligned to one element.
    Odd,
    /// Channels first, with gaps behind rows, aligned to one element.
    OddRows,
}

impl Lay {
    /// A tensor with so many spatial dimensions, and its channels where this has them.
    pub fn tensor(
        self,
        spatial: usize,
        uid: i64,
        name: &str,
        dims: &[i64],
        dtype: DType,
    ) -> TensorDesc {
        let desc = TensorDesc::packed(uid, name, dims, dtype);
        let outer = dims.len() - spatial;
        // From the innermost: channels, then the spatial dimensions from the last, then the others.
        let order: Vec<usize> = match self {
            Lay::ChannelsFirst => return desc,
            Lay::OddRows => (0..dims.len()).rev().collect(),
            Lay::ChannelsLast | Lay::Odd => {
                let channels = [outer - 1].into_iter();
                channels.chain((outer..dims.len()).rev()).chain((0..outer - 1).rev()).collect()
            }
        };
        let odd = matches!(self, Lay::Odd | Lay::OddRows);
        let mut strides = vec![1; dims.len()];
        let mut step = 1;
        for (at, axis) in order.into_iter().enumerate() {
            strides[axis] = step;
            step *= dims[axis].max(1);
            step += if odd && at == 0 { 3 } else { 0 };
        }
        let alignment = if odd { dtype.bytes() } else { 16 };
        TensorDesc { strides, alignment, ..desc }
    }
}

/// What is in front of the convolution and behind it.
#[derive(Deserialize, Clone, Copy, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Fused {
    #[default]
    Nothing,
    /// `relu(result + bias)`, as ConvBiasAct has it; a bias for each of the dimension of channels.
    BiasRelu,
    /// The first operand is `relu(scale * operand + shift)`, which padding is not: it is 0.
    /// ConvScaleBiasAct.
    ScaleBiasRelu,
    /// Both operands are computed; the result is stored, and again with an index added.
    Rich,
    /// Sums and sums of squares of the result's channels.
    Statistics,
    /// The same of a normalised operand, as ConvBNfprop has it.
    NormalisedStatistics,
}

fn f32() -> String {
    "f32".to_owned()
}

fn one() -> i64 {
    1
}

fn unit() -> f64 {
    1.0
}

impl ConvolutionData {
    fn op(&self) -> Convolution {
        let pass = match self.pass {
            Pass::Forward => ConvolutionPass::Forward,
            Pass::BackwardData => ConvolutionPass::BackwardData,
            Pass::BackwardFilter => ConvolutionPass::BackwardFilter,
        };
        let math = MatmulMath::ALL.into_iter().find(|math| math.name() == self.math);
        let unit = Window::unit(self.image.len());
        let window = Window {
            filter_strides: self.strides.clone().unwrap_or(unit.filter_strides),
            dilations: self.dilations.clone().unwrap_or(unit.dilations),
            pre_paddings: self.pre.clone().unwrap_or(unit.pre_paddings),
            post_paddings: self.post.clone().unwrap_or(unit.post_paddings),
        };
        let mode = match self.reversed {
            true => ConvolutionMode::Convolution,
            false => ConvolutionMode::CrossCorrelation,
        };
        let [alpha, beta] = [self.alpha, self.beta].map(Real::new);
        Convolution { mode, alpha, beta, ..Convolution::new(pass, math.expect("a math"), window) }
    }

    /// Dimensions of image, filter and response.
    fn dims(&self, window: &Window) -> [Vec<i64>; 3] {
        let Self { n, groups, c, k, image, filter, .. } = self;
        let response: Vec<i64> = (0..image.len())
            .map(|axis| {
                let padded = image[axis] + window.pre_paddings[axis] + window.post_paddings[axis];
                let reach = window.dilations[axis] * (filter[axis] - 1) + 1;
                1 + (padded - reach) / window.filter_strides[axis]
            })
            .collect();
        match self.group_axis {
            true => [
                [&[*n, *groups, *c], &image[..]].concat(),
                [&[*groups, *k, *c], &filter[..]].concat(),
                [&[*n, *groups, *k], &response[..]].concat(),
            ],
            false => [
                [&[*n, groups * c], &image[..]].concat(),
                [&[groups * k, *c], &filter[..]].concat(),
                [&[*n, groups * k], &response[..]].concat(),
            ],
        }
    }

    fn tensor(&self, uid: i64, name: &str, dims: &[i64], dtype: DType) -> TensorDesc {
        self.lay.tensor(self.image.len(), uid, name, dims, dtype)
    }

    pub fn graph(&self) -> OperationGraph {
        let op = self.op();
        let [image, filter, response] = self.dims(&op.window);
        let (names, dims, result) = match self.pass {
            Pass::Forward => (["x", "w", "y"], [image, filter], response),
            Pass::BackwardData => (["w", "dy", "dx"], [filter, response], image),
            Pass::BackwardFilter => (["x", "dy", "dw"], [image, response], filter),
        };
        let mut graph = OperationGraph::builder();
        let own = self.result.unwrap_or(self.dtype);
        let mut inputs: Vec<i64> = (0..2)
            .map(|at| graph.tensor(self.tensor(at as i64 + 1, names[at], &dims[at], self.dtype)))
            .collect();
        let channels = |dims: &[i64]| -> Vec<i64> {
            (0..dims.len()).map(|axis| if axis == 1 { dims[1] } else { 1 }).collect()
        };
        let normalised =
            [Fused::ScaleBiasRelu, Fused::Rich, Fused::NormalisedStatistics].contains(&self.fused);
        if normalised {
            let [scale, shift] =
                ["scale", "shift"].map(|name| graph.input(name, &channels(&dims[0]), DType::F32));
            let mul = |graph: &mut GraphBuilder, of| {
                graph.pointwise(Pointwise::new(Mode::Mul), of).unwrap()
            };
            let scaled = mul(&mut graph, &[inputs[0], scale]);
            let shifted = graph.pointwise(Pointwise::new(Mode::Add), &[scaled, shift]).unwrap();
            inputs[0] = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[shifted]).unwrap();
            graph.name(inputs[0], "activated", self.dtype);
        }
        if self.fused == Fused::Rich {
            inputs[1] = graph.pointwise(Pointwise::new(Mode::TanhFwd), &[inputs[1]]).unwrap();
        }
        if self.beta != 0.0 {
            inputs.push(graph.tensor(self.tensor(20, "before", &result, own)));
        }
        let stored = graph.tensor(self.tensor(21, names[2], &result, own));
        if self.fused != Fused::BiasRelu && self.fused != Fused::Rich {
            graph.operation_into(Op::Convolution(op), &inputs, &[stored]);
            if matches!(self.fused, Fused::Statistics | Fused::NormalisedStatistics) {
                let sum = TensorDesc::packed(23, "sum", &channels(&result), DType::F32);
                let squares = TensorDesc { uid: 24, name: "sq_sum".to_owned(), ..sum.clone() };
                let sums = [sum, squares].map(|sum| graph.tensor(sum));
                graph.operation_into(Op::GenStats(GenStats::default()), &[stored], &sums);
            }
            return graph.build().unwrap();
        }
        let desc = TensorDesc::packed(22, "sum", &result, DType::F32);
        let is_rich = self.fused == Fused::Rich;
        let desc = if is_rich { TensorDesc { dtype: DType::Bf16, ..desc } } else { desc };
        let sum = graph.tensor(TensorDesc { is_virtual: !is_rich, ..desc });
        graph.operation_into(Op::Convolution(op), &inputs, &[sum]);
        let last = match is_rich {
            true => {
                let index = Pointwise::new(Mode::GenIndex).axis(1);
                let index = graph.pointwise(index, &[sum]).unwrap();
                graph.pointwise(Pointwise::new(Mode::Add), &[sum, index]).unwrap()
            }
            false => {
                let bias = graph.input("bias", &channels(&result), self.dtype);
                graph.pointwise(Pointwise::new(Mode::Add), &[sum, bias]).unwrap()
            }
        };
        graph.pointwise_into(Pointwise::new(Mode::ReluFwd), &[last], stored);
        graph.build().unwrap()
    }

    pub fn inputs(&self, graph: &OperationGraph) -> Values {
        graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 5, 2.0))).collect()
    }
}
