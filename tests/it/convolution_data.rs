//! Convolutions as data: the parameters of `tests/cases/convolution.toml`, which the README beside
//! it lists.

use kiln::expr::{Mode, Pointwise, Real};
use kiln::graph::{
    BnBackwardWeights, BnFinalize, Convolution, ConvolutionMode, ConvolutionPass, GenStats,
    GraphBuilder, MatmulMath, Op, Phase, Window,
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
    /// Operands channels last, what is stored channels first.
    ResultFirst,
    /// Filters channels last, images and responses channels first.
    FilterLast,
    /// Channels last, with gaps behind them that fill vectors of 16 bytes.
    Vectors,
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
            Lay::ChannelsFirst | Lay::ResultFirst | Lay::FilterLast => return desc,
            Lay::OddRows => (0..dims.len()).rev().collect(),
            Lay::ChannelsLast | Lay::Odd | Lay::Vectors => {
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
            if self == Lay::Vectors && at == 0 {
                step = (step as usize).next_multiple_of(16 / dtype.bytes()) as i64;
            }
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
    /// The statistics as scale and shift of a normalisation, with running averages.
    FinalisedStatistics,
    /// The gradient of a ReLU behind a batch normalisation, and those of the latter's parameters,
    /// as DgradDreluBNBwdWeight has it.
    NormGradient,
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
        let is_operand = uid <= 2;
        let lay = match self.lay {
            Lay::ResultFirst if is_operand => Lay::ChannelsLast,
            Lay::FilterLast if ["w", "dw"].contains(&name) => Lay::ChannelsLast,
            lay => lay,
        };
        lay.tensor(self.image.len(), uid, name, dims, dtype)
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
        if self.fused == Fused::NormGradient {
            norm_gradient(&mut graph, op, &inputs, stored);
            return graph.build().unwrap();
        }
        if self.fused != Fused::BiasRelu && self.fused != Fused::Rich {
            graph.operation_into(Op::Convolution(op), &inputs, &[stored]);
            if self.fused == Fused::FinalisedStatistics {
                finalised(&mut graph, stored);
            }
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
}

/// Values of a graph's inputs; variances, counts and factors are positive.
pub fn values(graph: &OperationGraph) -> Values {
    let values = |tensor: &TensorDesc| {
        let values = harness::fill(tensor, 5, 2.0);
        match tensor.name.starts_with("positive") {
            true => values.iter().map(|value| value.abs() + 0.5).collect(),
            false => values,
        }
    };
    graph.inputs().map(|tensor| (tensor.uid, values(tensor))).collect()
}

/// One element for each channel of a tensor with these dimensions.
fn channels(dims: &[i64]) -> Vec<i64> {
    (0..dims.len()).map(|axis| if axis == 1 { dims[1] } else { 1 }).collect()
}

/// What a batch normalisation makes of the statistics of `y`, which are stored nowhere.
fn finalised(graph: &mut GraphBuilder, y: i64) {
    let dims = channels(&graph.descriptor(y).unwrap().dims);
    let ones = vec![1; dims.len()];
    let sums = graph.operation(Op::GenStats(GenStats::default()), &[y]).unwrap();
    let op = BnFinalize { running: true, ..BnFinalize::new(Phase::Training) };
    let op = Op::BnFinalize(op);
    let slots = op.slots();
    let inputs: Vec<i64> = slots
        .inputs
        .iter()
        .map(|slot| match *slot {
            "sum" => sums[0],
            "sq_sum" => sums[1],
            "epsilon" | "accum_count" | "exp_avg_factor" => {
                graph.input(&format!("positive_{slot}"), &ones, DType::F32)
            }
            "prev_running_var" => graph.input("positive_variance", &dims, DType::F32),
            slot => graph.input(slot, &dims, DType::F32),
        })
        .collect();
    let results = graph.operation(op, &inputs).unwrap();
    for (slot, uid) in slots.outputs.iter().zip(results) {
        graph.output(uid, &format!("out_{slot}"), DType::F32);
    }
}

/// `stored = relu_bwd(convolution, norm(saved))`, with the sums that the gradients of the norm's
/// parameters are, and what the gradient of its operand needs of them.
fn norm_gradient(graph: &mut GraphBuilder, op: Convolution, inputs: &[i64], stored: i64) {
    let result = graph.descriptor(stored).unwrap().clone();
    let dims = channels(&result.dims);
    let product = TensorDesc { uid: 30, name: String::new(), is_virtual: true, ..result.clone() };
    let product = graph.tensor(TensorDesc { dtype: DType::F32, ..product });
    graph.operation_into(Op::Convolution(op), inputs, &[product]);
    let saved = graph.tensor(TensorDesc { uid: 31, name: "saved".to_owned(), ..result });
    let [mean, inverse, scale, shift] = ["mean", "positive_inverse", "scale", "shift"]
        .map(|name| graph.input(name, &dims, DType::F32));
    let mut binary =
        |mode: Mode, operands: [i64; 2]| graph.pointwise(Pointwise::new(mode), &operands).unwrap();
    let deviation = binary(Mode::Sub, [saved, mean]);
    let normal = binary(Mode::Mul, [deviation, inverse]);
    let scaled = binary(Mode::Mul, [normal, scale]);
    let shifted = binary(Mode::Add, [scaled, shift]);
    graph.pointwise_into(Pointwise::new(Mode::ReluBwd), &[shifted, product], stored);
    let op = Op::BnBackwardWeights(BnBackwardWeights::default());
    let slots = op.slots();
    let results = graph.operation(op, &[saved, stored, mean, inverse, scale]).unwrap();
    for (slot, uid) in slots.outputs.iter().zip(results) {
        graph.output(uid, slot, DType::F32);
    }
}
