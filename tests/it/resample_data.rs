//! Resamplings as data: the parameters of `tests/cases/resample.toml`, which the README beside it
//! lists.

use kiln::expr::{Math, Mode, NanPropagation, Pointwise, Real};
use kiln::graph::{
    Fraction, GraphBuilder, Op, PaddingMode, Resample, ResampleMode, ResamplePass, Sampling,
};
use kiln::{DType, OperationGraph, TensorDesc};
use serde::Deserialize;
use serde_json::Value;

use crate::convolution_data::Lay;
use crate::harness::{self, Values};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResampleData {
    #[serde(default)]
    backward: bool,
    mode: String,
    #[serde(default = "zero")]
    padding: String,
    #[serde(default)]
    propagate_nan: bool,
    math: Option<String>,
    /// Of `x` or `dy`, and of the result.
    dtype: DType,
    result: Option<DType>,
    /// Of the winners' index; none where there is none.
    index: Option<DType>,
    n: i64,
    c: i64,
    image: Vec<i64>,
    /// Numbers, or texts of fractions; windows of 1 where nothing is said, or of 2 where those are
    /// what the mode has.
    window: Option<Vec<Value>>,
    strides: Option<Vec<Value>>,
    pre: Option<Vec<Value>>,
    post: Option<Vec<Value>>,
    #[serde(default = "unit")]
    alpha: f64,
    #[serde(default)]
    beta: f64,
    #[serde(default)]
    lay: Lay,
    #[serde(default)]
    fused: Fused,
}

/// What is in front of the resampling and behind it.
#[derive(Deserialize, Clone, Copy, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Fused {
    #[default]
    Nothing,
    /// `relu(result + bias)`, a bias for each channel.
    BiasRelu,
    /// The operand is `relu(scale * operand + shift)`, of which padding is none.
    ScaleBiasRelu,
    /// Both; the result is stored before what is behind it too, and an index is added.
    Rich,
}

fn zero() -> String {
    "zero".to_owned()
}

fn unit() -> f64 {
    1.0
}

fn fraction(value: &Value) -> Fraction {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (above, below) = text.split_once('/').unwrap_or((&text, "1"));
    Fraction::new(above.parse().unwrap(), below.parse().unwrap()).unwrap()
}

impl ResampleData {
    fn op(&self) -> Resample {
        let pass = if self.backward { ResamplePass::Backward } else { ResamplePass::Forward };
        let mode = ResampleMode::ALL.into_iter().find(|mode| mode.name() == self.mode).unwrap();
        let padding = PaddingMode::ALL.into_iter().find(|of| of.name() == self.padding).unwrap();
        let window = if mode == ResampleMode::Bilinear { 2 } else { 1 };
        let numbers = |given: &Option<Vec<Value>>, usual: i64| match given {
            None => vec![Fraction::from(usual); self.image.len()],
            Some(given) => given.iter().map(fraction).collect(),
        };
        let sampling = Sampling {
            window_dims: numbers(&self.window, window),
            strides: numbers(&self.strides, 1),
            pre_paddings: numbers(&self.pre, 0),
            post_paddings: numbers(&self.post, 0),
        };
        let math = match self.math.as_deref() {
            None => Math::Default,
            Some("f32") => Math::F32,
            Some("f64") => Math::F64,
            Some("i32") => Math::I32,
            Some(other) => panic!("no math {other}"),
        };
        let nan = match self.propagate_nan {
            true => NanPropagation::Propagate,
            false => NanPropagation::NotPropagate,
        };
        let [alpha, beta] = [self.alpha, self.beta].map(Real::new);
        let index = self.index.is_some();
        let plain = Resample::new(pass, mode, sampling);
        Resample { padding, math, nan, index, alpha, beta, ..plain }
    }

    /// Outputs along each spatial dimension, over a denominator that all have in common.
    fn outputs(&self, sampling: &Sampling) -> Vec<i64> {
        let along = |axis: usize| {
            let all = [
                sampling.window_dims[axis],
                sampling.strides[axis],
                sampling.pre_paddings[axis],
                sampling.post_paddings[axis],
            ];
            let unit: i64 = all.iter().map(|of| of.denominator()).product();
            let [window, stride, pre, post] =
                all.map(|of| of.numerator() * (unit / of.denominator()));
            1 + (self.image[axis] * unit + pre + post - window).div_euclid(stride)
        };
        (0..self.image.len()).map(along).collect()
    }

    fn tensor(&self, uid: i64, name: &str, dims: &[i64], dtype: DType) -> TensorDesc {
        self.lay.tensor(self.image.len(), uid, name, dims, dtype)
    }

    pub fn graph(&self) -> OperationGraph {
        let op = self.op();
        let outer = [self.n, self.c];
        let image = [&outer[..], &self.image].concat();
        let small = [&outer[..], &self.outputs(&op.sampling)].concat();
        let (names, dims) = match self.backward {
            false => (["x", "y", "y_before"], [&image, &small]),
            true => (["dy", "dx", "dx_before"], [&small, &image]),
        };
        let mut graph = OperationGraph::builder();
        let own = self.result.unwrap_or(self.dtype);
        let mut inputs = vec![graph.tensor(self.tensor(1, names[0], dims[0], self.dtype))];
        let channels: Vec<i64> =
            (0..image.len()).map(|axis| if axis == 1 { self.c } else { 1 }).collect();
        if matches!(self.fused, Fused::ScaleBiasRelu | Fused::Rich) {
            let [scale, shift] =
                ["scale", "shift"].map(|name| graph.input(name, &channels, DType::F32));
            let apply = |graph: &mut GraphBuilder, mode, of: &[i64]| {
                graph.pointwise(Pointwise::new(mode), of).unwrap()
            };
            let scaled = apply(&mut graph, Mode::Mul, &[inputs[0], scale]);
            let shifted = apply(&mut graph, Mode::Add, &[scaled, shift]);
            inputs[0] = apply(&mut graph, Mode::ReluFwd, &[shifted]);
            graph.name(inputs[0], "activated", self.dtype);
        }
        let index = self.index.map(|dtype| {
            let index = self.tensor(30, "winners", &small, dtype);
            graph.tensor(index)
        });
        if self.backward && op.mode == ResampleMode::MaxPool {
            let x = || self.tensor(31, "x", &image, self.dtype);
            let winners = index.unwrap_or_else(|| graph.tensor(x()));
            inputs.push(winners);
        }
        if self.beta != 0.0 {
            inputs.push(graph.tensor(self.tensor(20, names[2], dims[1], own)));
        }
        let stored = graph.tensor(self.tensor(21, names[1], dims[1], own));
        let is_rich = self.fused == Fused::Rich;
        let own_result = match is_rich || self.fused == Fused::BiasRelu {
            false => stored,
            true => {
                let desc = self.tensor(22, "pooled", dims[1], DType::F32);
                let desc = if is_rich { TensorDesc { dtype: DType::F16, ..desc } } else { desc };
                graph.tensor(TensorDesc { is_virtual: !is_rich, ..desc })
            }
        };
        let mut outputs = vec![own_result];
        outputs.extend(index.filter(|_| !self.backward));
        graph.operation_into(Op::Resample(op), &inputs, &outputs);
        if own_result != stored {
            let added = match is_rich {
                true => {
                    let axis = image.len() as i64 - 1;
                    let index = Pointwise::new(Mode::GenIndex).axis(axis);
                    graph.pointwise(index, &[own_result]).unwrap()
                }
                false => graph.input("bias", &channels, self.dtype),
            };
            let sum = graph.pointwise(Pointwise::new(Mode::Add), &[own_result, added]).unwrap();
            graph.pointwise_into(Pointwise::new(Mode::ReluFwd), &[sum], stored);
        }
        graph.build().unwrap()
    }

    /// Numbers of which some are equal and some negative; winners that are within windows, and a
    /// few that are not.
    pub fn inputs(&self, graph: &OperationGraph) -> Values {
        let op = self.op();
        let taps: i64 = op.sampling.window_dims.iter().map(|window| window.numerator()).product();
        let values = |tensor: &TensorDesc| match tensor.name.as_str() {
            "winners" => {
                let count = tensor.elements().unwrap();
                (0..count).map(|at| ((at * 7919 + 3) % (taps + 2) - 1) as f64).collect()
            }
            _ => harness::fill(tensor, 5, 2.0),
        };
        graph.inputs().map(|tensor| (tensor.uid, values(tensor))).collect()
    }
}
