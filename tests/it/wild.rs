//! Random graphs of all operations but attention and recurrent layers, with any shape: empty
//! tensors, odd strides, values passed by value, one to five dimensions.

mod moves;

use kiln::expr::{Mode, Pointwise, Real};
use kiln::graph::{
    BnBackwardWeights, Convolution, ConvolutionMode, ConvolutionPass, Fraction, GenStats,
    GraphBuilder, Matmul, MatmulMath, NormBackward, NormForward, NormMode, Op, PaddingMode, Phase,
    Reduction, ReductionOp, Resample, ResampleMode, ResamplePass, Rng, Sampling, Signal,
    SignalMode, Window,
};
use kiln::{DType, OperationGraph, TensorDesc};

use crate::harness::{self, Values};
use crate::random_graphs::Random;
use crate::wild_menu::Menu;

/// A tensor that may be read.
struct Value {
    uid: i64,
    dims: Vec<i64>,
    /// Whether an operation writes it.
    written: bool,
    read: bool,
}

struct Grown<'a> {
    random: Random,
    menu: &'a Menu,
    graph: GraphBuilder,
    values: Vec<Value>,
    rank: usize,
    /// The largest uid so far.
    uid: i64,
    /// Tensors of operations that keep types.
    typed: Vec<i64>,
    /// Flags that have a value, set or given, with it.
    flags: Vec<(i64, i64)>,
}

impl Grown<'_> {
    fn chance(&mut self, of: usize) -> bool {
        self.random.below(of) == 0
    }

    /// A new input: packed, or with gaps, or with its dimensions in another order.
    fn input(&mut self, dims: &[i64]) -> i64 {
        let dtype = self.random.pick(self.menu.types);
        let uid = self.fresh();
        let mut tensor = TensorDesc::packed(uid, format!("in{uid}"), dims, dtype);
        let gaps = self.chance(3);
        let mut order: Vec<usize> = (0..dims.len()).rev().collect();
        if self.chance(4) {
            let [a, b] = [self.random.below(dims.len()), self.random.below(dims.len())];
            order.swap(a, b);
        }
        let mut stride = if gaps && self.chance(4) { 2 } else { 1i64 };
        for axis in order {
            tensor.strides[axis] = stride;
            let gap = if gaps { self.random.pick(&[0, 1, 3, 16]) } else { 0 };
            stride = stride.saturating_mul(dims[axis].max(1) + gap).min(1 << 40);
        }
        tensor.by_value = tensor.elements() == Some(1) && self.chance(3);
        if self.chance(5) {
            tensor.alignment = dtype.bytes();
        }
        self.graph.tensor(tensor);
        self.values.push(Value { uid, dims: dims.to_vec(), written: false, read: true });
        uid
    }

    /// A uid above all others, as the builder gives them.
    fn fresh(&mut self) -> i64 {
        self.uid += 1;
        self.uid
    }

    /// A value of these dimensions, or one that is broadcast to them.
    fn operand(&mut self, dims: &[i64], broadcast: bool) -> i64 {
        let alike: Vec<usize> =
            (0..self.values.len()).filter(|at| self.values[*at].dims == dims).collect();
        if !alike.is_empty() && self.chance(2) {
            let at = self.random.pick(&alike);
            self.values[at].read = true;
            return self.values[at].uid;
        }
        let mut shape = dims.to_vec();
        if broadcast {
            for dim in &mut shape {
                match self.random.below(3) {
                    0 if *dim == 1 => *dim = self.random.pick(self.menu.extents),
                    0 => *dim = 1,
                    _ => {}
                }
            }
        }
        self.input(&shape)
    }

    /// The dimensions of a normalisation's tensors by the names of their slots.
    fn norm_dims(&mut self, mode: NormMode, dims: &[i64]) -> impl Fn(&str) -> Vec<i64> + use<> {
        let rank = dims.len();
        let ones = vec![1; rank];
        let (mut scale, mut statistics) = (ones.clone(), ones.clone());
        match mode {
            NormMode::Layer | NormMode::Rms => {
                let from = self.random.below(rank);
                scale[from..].copy_from_slice(&dims[from..]);
                statistics[..from].copy_from_slice(&dims[..from]);
            }
            mode => {
                scale[1] = dims[1];
                (statistics[0], statistics[1]) = (dims[0], dims[1]);
                match mode {
                    NormMode::Batch => statistics[0] = 1,
                    NormMode::Group(groups) => statistics[1] = groups,
                    _ => {}
                }
            }
        }
        let data = dims.to_vec();
        move |slot| match slot {
            "x" | "dy" | "y" | "dx" => data.clone(),
            "epsilon" | "exp_avg_factor" => ones.clone(),
            "mean" | "inv_variance" => statistics.clone(),
            _ => scale.clone(),
        }
    }

    /// An operation whose operands and results have these dimensions, the first of them `x`.
    fn named(&mut self, op: Op, x: i64, dims: impl Fn(&str) -> Vec<i64>) -> Vec<Vec<i64>> {
        let slots = op.slots();
        let mut operands = vec![x];
        operands.extend(slots.inputs[1..].iter().map(|slot| self.operand(&dims(slot), false)));
        self.operation(op, &operands, slots.outputs.iter().map(|slot| dims(slot)).collect())
    }

    /// Adds an operation, if it is one: the dimensions of its results.
    fn operation(&mut self, op: Op, operands: &[i64], results: Vec<Vec<i64>>) -> Vec<Vec<i64>> {
        let added = match (op, &results[..]) {
            (Op::Reduction(op), [dims]) => self.graph.reduction(op, operands[0], dims).is_ok(),
            (op, _) => self.graph.operation(op, operands).is_ok(),
        };
        if added { results } else { Vec::new() }
    }

    fn pointwise(&mut self, x: i64, mut dims: Vec<i64>) -> Vec<Vec<i64>> {
        let mode = self.random.pick(self.menu.modes);
        let axis = self.random.below(self.rank) as i64;
        let mut op = Pointwise::new(mode);
        if mode == Mode::GenIndex {
            op = op.axis(axis);
        }
        let mut operands = vec![x];
        for _ in 1..mode.arity() {
            let broadcast = self.chance(2);
            let operand = self.operand(&dims, broadcast);
            let other = self.values.iter().find(|value| value.uid == operand).unwrap();
            dims = std::iter::zip(dims, &other.dims)
                .map(|(a, b)| if a == 1 { *b } else { a })
                .collect();
            operands.push(operand);
        }
        self.operation(Op::Pointwise(op), &operands, vec![dims])
    }

    fn matmul(&mut self, x: i64, dims: &[i64]) -> Vec<Vec<i64>> {
        let all = self.menu.modes.len() == Mode::ALL.len();
        let mut op = Matmul::new(match self.random.below(8) {
            0 => MatmulMath::Tf32,
            1 => MatmulMath::F64,
            2 if all => MatmulMath::I32,
            _ => MatmulMath::F32,
        });
        let (rank, n) = (self.rank, self.random.pick(self.menu.extents));
        let mut batch = vec![1; rank];
        batch[..rank - 2].copy_from_slice(&dims[..rank - 2]);
        let with = |last: [i64; 2]| [&batch[..rank - 2], &last[..]].concat();
        let mut operands = vec![x, self.operand(&with([dims[rank - 1], n]), false)];
        for given in &mut op.overrides {
            if self.random.below(12) == 0 {
                *given = true;
                let uid = self.fresh();
                let tensor = TensorDesc::packed(uid, format!("o{uid}"), &batch, DType::I32);
                let by_value = tensor.elements() == Some(1) && self.random.below(2) == 0;
                self.graph.tensor(TensorDesc { by_value, ..tensor });
                operands.push(uid);
            }
        }
        self.operation(Op::Matmul(op), &operands, vec![with([dims[rank - 2], n])])
    }

    fn norm(&mut self, x: i64, dims: &[i64]) -> Vec<Vec<i64>> {
        let groups = self.random.pick(&[1, 2, 5, dims[1].max(1)]);
        let modes = [NormMode::Layer, NormMode::Rms, NormMode::Instance, NormMode::Batch];
        let group = self.chance(5);
        let mode = if group { NormMode::Group(groups) } else { self.random.pick(&modes) };
        let of_slot = self.norm_dims(mode, dims);
        let [bias, statistics, running, backward] = [2, 2, 2, 3].map(|of| self.chance(of));
        if backward {
            let op = NormBackward { bias, statistics, ..NormBackward::new(mode) };
            return self.named(Op::NormBackward(op), x, of_slot);
        }
        let phase = self.random.pick(&[Phase::Inference, Phase::Training]);
        let batch = mode == NormMode::Batch;
        let statistics = statistics || (batch && phase == Phase::Inference);
        let running = running && batch && phase == Phase::Training;
        let op = NormForward { bias, statistics, running, ..NormForward::new(mode, phase) };
        self.named(Op::NormForward(op), x, of_slot)
    }

    fn channels(&mut self, x: i64, dims: &[i64]) -> Vec<Vec<i64>> {
        let mut channels = vec![1; self.rank];
        channels[1] = dims[1];
        let op = match self.random.below(2) {
            0 => Op::GenStats(GenStats::default()),
            _ => Op::BnBackwardWeights(BnBackwardWeights::default()),
        };
        let data = dims.to_vec();
        self.named(op, x, move |slot| match slot {
            "x" | "dy" => data.clone(),
            _ => channels.clone(),
        })
    }

    fn dtype(&self, uid: i64) -> Option<DType> {
        self.graph.descriptor(uid).map(|tensor| tensor.dtype)
    }

    /// `x` times random numbers, which may be broadcast.
    fn drawn(&mut self, x: i64, dims: &[i64]) -> Vec<Vec<i64>> {
        let op = self.random.pick(&[
            Rng::bernoulli(0.75),
            Rng::uniform(-1.0, 1.5),
            Rng::normal(0.0, 0.5),
            Rng::bernoulli(0.5).seed(None),
            Rng::uniform(0.0, 2.0).from_subsequence(),
        ]);
        let slots = Op::Rng(op).slots().inputs;
        let ones = vec![1; if self.chance(2) { 1 } else { self.rank }];
        let mut operands = Vec::new();
        for _ in slots {
            let (uid, by_value) = (self.fresh(), self.chance(2));
            let dtype = self.random.pick(&[DType::I32, DType::I64]);
            let tensor = TensorDesc::packed(uid, format!("r{uid}"), &ones, dtype);
            operands.push(self.graph.tensor(TensorDesc { by_value, ..tensor }));
        }
        let kept = |dim: &i64| if self.random.below(4) == 0 { 1 } else { *dim };
        let shape: Vec<i64> = dims.iter().map(kept).collect();
        let Ok(numbers) = self.graph.rng(op, &operands, &shape) else { return Vec::new() };
        self.uid = numbers;
        self.operation(Op::Pointwise(Pointwise::new(Mode::Mul)), &[x, numbers], vec![dims.to_vec()])
    }

    /// A resampling of `x`, or, as often, a gradient of one that has its dimensions.
    fn resample(&mut self, x: i64, dims: &[i64]) -> Vec<Vec<i64>> {
        let mode = self.random.pick(&ResampleMode::ALL);
        let backward = self.chance(2);
        let pass = if backward { ResamplePass::Backward } else { ResamplePass::Forward };
        let spatial = self.rank - 2;
        let mut numbers = |all: &[i64]| (0..spatial).map(|_| self.random.pick(all)).collect();
        let (window, strides): (Vec<i64>, Vec<i64>) = (numbers(&[1, 2, 3]), numbers(&[1, 2, 5]));
        let paddings: Vec<i64> = numbers(&[0, 0, 1]);
        let fixed = match mode {
            ResampleMode::Nearest => Some(1),
            ResampleMode::Bilinear => Some(2),
            _ => None,
        };
        let window = fixed.map_or(window, |taps| vec![taps; spatial]);
        let mut sampling = Sampling::of(&window).moved(&strides, &paddings);
        if fixed.is_some() && self.chance(2) {
            sampling.strides = vec![Fraction::new(2, 3).unwrap(); spatial];
        }
        let padding = self.random.pick(&PaddingMode::ALL);
        let op = Resample { padding, ..Resample::new(pass, mode, sampling.clone()) };
        if !backward {
            let along = |(at, extent): (usize, &i64)| {
                let of = |number: Fraction| (number.numerator(), number.denominator());
                let (stride, unit) = of(sampling.strides[at]);
                let rest = extent + 2 * paddings[at] - window[at];
                1 + (rest * unit).div_euclid(stride)
            };
            let outputs = dims[2..].iter().enumerate().map(along);
            let results = dims[..2].iter().copied().chain(outputs).collect();
            return self.operation(Op::Resample(op), &[x], vec![results]);
        }
        let along = |(at, outputs): (usize, &i64)| {
            let (stride, unit) =
                (sampling.strides[at].numerator(), sampling.strides[at].denominator());
            (outputs - 1) * stride / unit + window[at] - 2 * paddings[at]
        };
        let extents = dims[2..].iter().enumerate().map(along);
        let image: Vec<i64> = dims[..2].iter().copied().chain(extents).collect();
        if image.iter().any(|extent| *extent < 0) {
            return Vec::new();
        }
        let mut operands = vec![x];
        if mode == ResampleMode::MaxPool {
            operands.push(self.operand(&image, false));
        }
        let desc = TensorDesc::packed(self.uid + 1, "", &image, DType::F32);
        let result = self.graph.tensor(TensorDesc { is_virtual: true, ..desc });
        self.graph.operation_into(Op::Resample(op), &operands, &[result]);
        vec![image]
    }

    /// A convolution of `x`, or a gradient of one, of which it is the image or the response.
    fn convolution(&mut self, x: i64, dims: &[i64]) -> Vec<Vec<i64>> {
        let pass = self.random.pick(&ConvolutionPass::ALL);
        let group_axis = self.rank > 3 && self.chance(3);
        let outer = if group_axis { 3 } else { 2 };
        let spatial = self.rank - outer;
        let mut numbers =
            |all: &[i64]| -> Vec<i64> { (0..spatial).map(|_| self.random.pick(all)).collect() };
        let (taps, slack) = (numbers(&[1, 1, 2, 3, 5]), numbers(&[0, 0, 1]));
        let window = Window {
            filter_strides: numbers(&[1, 1, 2, 3]),
            dilations: numbers(&[1, 1, 2]),
            pre_paddings: numbers(&[0, 1, 2]),
            post_paddings: numbers(&[0, 0, 1]),
        };
        let groups = match group_axis {
            true => dims[1],
            false => self.random.pick(&[1, 1, 2, 3, dims[1].max(1)]),
        };
        if !group_axis && dims[1] % groups != 0 {
            return Vec::new();
        }
        let own = if group_axis { dims[2] } else { dims[1] / groups };
        let others = self.random.pick(&[1, 1, 2, 3, 8, 16]);
        let [reach, paddings] = [0, 1].map(|which| -> Vec<i64> {
            let along = |axis: usize| match which {
                0 => window.dilations[axis] * (taps[axis] - 1) + 1,
                _ => window.pre_paddings[axis] + window.post_paddings[axis],
            };
            (0..spatial).map(along).collect()
        });
        let is_response = pass == ConvolutionPass::BackwardData;
        let along = |axis: usize| {
            let (extent, stride) = (dims[outer + axis], window.filter_strides[axis]);
            match is_response {
                true => (extent - 1) * stride + reach[axis] - paddings[axis] + slack[axis] % stride,
                false => 1 + (extent + paddings[axis] - reach[axis]).div_euclid(stride),
            }
        };
        let extents: Vec<i64> = (0..spatial).map(along).collect();
        let response = if is_response { &dims[outer..] } else { &extents[..] };
        if extents.iter().any(|extent| *extent < 0) || response.contains(&0) {
            return Vec::new();
        }
        let work = [dims[0], groups, own, others].into_iter().chain(response.to_vec());
        let work = work.chain(taps.iter().copied()).fold(1, i64::saturating_mul);
        if work > self.menu.multiplications_max {
            return Vec::new();
        }
        let of = |front: &[i64], channels: i64, extents: &[i64]| match group_axis {
            true => [front, &[groups, channels], extents].concat(),
            false => [front, &[groups * channels], extents].concat(),
        };
        let filter = |k: i64, c: i64| match group_axis {
            true => [&[groups, k, c], &taps[..]].concat(),
            false => [&[groups * k, c], &taps[..]].concat(),
        };
        let (operands, result) = match pass {
            ConvolutionPass::Forward => {
                let w = self.operand(&filter(others, own), false);
                (vec![x, w], of(&dims[..1], others, &extents))
            }
            ConvolutionPass::BackwardData => {
                let w = self.operand(&filter(own, others), false);
                (vec![w, x], of(&dims[..1], others, &extents))
            }
            ConvolutionPass::BackwardFilter => {
                let dy = self.operand(&of(&dims[..1], others, &extents), false);
                (vec![x, dy], filter(others, own))
            }
        };
        let math = match self.random.below(8) {
            0 => MatmulMath::Tf32,
            1 => MatmulMath::F64,
            _ => MatmulMath::F32,
        };
        let mode = match self.chance(4) {
            true => ConvolutionMode::Convolution,
            false => ConvolutionMode::CrossCorrelation,
        };
        let [alpha, beta] =
            [[1.0, 1.0, 1.0, -0.5], [0.0, 0.0, 0.0, 2.0]].map(|all| self.random.pick(&all));
        let op = Convolution {
            mode,
            alpha: Real::new(alpha),
            beta: Real::new(beta),
            ..Convolution::new(pass, math, window)
        };
        let before = (beta != 0.0).then(|| self.operand(&result, false));
        let operands: Vec<i64> = operands.into_iter().chain(before).collect();
        let desc = TensorDesc::packed(self.uid + 1, "", &result, DType::F32);
        let uid = self.graph.tensor(TensorDesc { is_virtual: true, ..desc });
        self.graph.operation_into(Op::Convolution(op), &operands, &[uid]);
        vec![result]
    }

    /// A signal behind `x`: a flag is set, or one that has its value is waited for.
    fn signal(&mut self, x: i64, dims: &[i64]) -> Vec<Vec<i64>> {
        let Some(desc) = self.graph.descriptor(x).filter(|x| !x.by_value).cloned() else {
            return Vec::new();
        };
        let value = self.random.pick(&[0, 1, 7, -1, i64::from(i32::MIN)]);
        let mode = self.random.pick(&SignalMode::ALL);
        let known = match mode {
            SignalMode::Wait if !self.flags.is_empty() && !self.chance(4) => {
                Some(self.random.pick(&self.flags.clone()))
            }
            _ => None,
        };
        let (flag, value) = known.unwrap_or_else(|| {
            let ones = vec![1; if self.chance(2) { 1 } else { self.rank }];
            let uid = self.fresh();
            self.graph.tensor(TensorDesc::packed(uid, format!("f{uid}"), &ones, DType::I32));
            self.flags.push((uid, value));
            (uid, value)
        });
        let op = match mode {
            SignalMode::Set => Signal::set(value),
            SignalMode::Wait => Signal::wait(value),
        };
        let written = self.values.iter().any(|value| value.uid == x && value.written);
        let in_place = !written && self.chance(3);
        let op = match self.random.below(4) {
            0 => op.without_result(),
            _ if in_place => op.in_place(),
            _ => op,
        };
        let [mut operands, mut outputs] = [vec![x], Vec::new()];
        match mode {
            SignalMode::Set => outputs.push(flag),
            SignalMode::Wait => operands.insert(0, flag),
        }
        self.typed.push(x);
        let mut results = Vec::new();
        if Op::Signal(op).slots().outputs.contains(&"y") {
            let uid = self.uid + 1;
            self.typed.push(uid);
            let packed = TensorDesc::packed(uid, "", dims, desc.dtype);
            outputs.push(self.graph.tensor(match in_place {
                true => TensorDesc { strides: desc.strides, ..packed },
                false => TensorDesc { is_virtual: true, ..packed },
            }));
            results.push(dims.to_vec());
        }
        self.graph.operation_into(Op::Signal(op), &operands, &outputs);
        self.values.iter_mut().filter(|value| value.uid == x).for_each(|value| value.read = true);
        results
    }

    /// One operation more, where what is drawn is one.
    fn grow(&mut self) {
        let at = self.random.below(self.values.len());
        let (x, dims) = (self.values[at].uid, self.values[at].dims.clone());
        let results = match self.random.below(39) {
            10..=12 => {
                let kept = |dim: &i64| if self.random.below(2) == 0 { 1 } else { *dim };
                let shape: Vec<i64> = dims.iter().map(kept).collect();
                let op = Reduction::new(self.random.pick(&ReductionOp::ALL));
                self.operation(Op::Reduction(op), &[x], vec![shape])
            }
            8 | 9 if self.rank > 2 => self.resample(x, &dims),
            13..=15 if self.rank > 1 => self.matmul(x, &dims),
            16..=18 if self.rank > 1 => self.norm(x, &dims),
            19 if self.rank > 1 => self.channels(x, &dims),
            20..=23 => {
                let results = self.moved(x, &dims);
                let made = results.iter().map(|_| self.uid + 1);
                self.typed.extend(made.chain([x]));
                results
            }
            24 | 25 => self.drawn(x, &dims),
            26..=33 if self.rank > 2 => self.convolution(x, &dims),
            34 | 35 => self.signal(x, &dims),
            36 | 37 => self.sliced(x, &dims),
            _ => self.pointwise(x, dims),
        };
        self.values[at].read |= !results.is_empty();
        for dims in results {
            let uid = self.fresh();
            self.values.push(Value { uid, dims, written: true, read: false });
        }
    }
}

/// The graph of a seed; none where what was drawn is not valid.
pub fn wild_graph(menu: &Menu, seed: u64) -> Option<OperationGraph> {
    let mut random = Random(seed);
    let rank = 1 + random.below(5);
    let operations = 1 + random.below(menu.operations_max);
    let dims: Vec<i64> = (0..rank).map(|_| random.pick(menu.extents)).collect();
    let graph = OperationGraph::builder();
    let mut grown = Grown {
        random,
        menu,
        graph,
        values: Vec::new(),
        rank,
        uid: 0,
        typed: Vec::new(),
        flags: Vec::new(),
    };
    grown.input(&dims);
    for _ in 0..operations {
        grown.grow();
    }
    for at in 0..grown.values.len() {
        let Value { uid, written, read, .. } = grown.values[at];
        if written && (!read || grown.chance(3)) {
            let any = grown.random.pick(menu.types);
            let own = grown.dtype(uid).filter(|_| grown.typed.contains(&uid));
            let dtype = own.unwrap_or(any);
            grown.graph.output(uid, &format!("t{uid}"), dtype);
        }
    }
    grown.graph.build().ok()
}

/// Values of a graph's inputs: overrides leave some of their dimension, factors and epsilons are
/// positive, and flags that are waited for have the value.
pub fn wild_values(graph: &OperationGraph, seed: u64) -> Values {
    let waited = |flag: i64| {
        graph.operations().iter().find_map(|operation| match operation.op {
            Op::Signal(op) if operation.inputs.len() == 2 && operation.inputs[0] == flag => {
                Some(vec![op.value as f64])
            }
            _ => None,
        })
    };
    let values = |tensor: &TensorDesc| {
        let values = harness::fill(tensor, seed, 1.0);
        match tensor.dtype {
            DType::I32 => waited(tensor.uid).unwrap_or_else(|| {
                values.iter().map(|value| (value * 4.0).abs().round()).collect()
            }),
            _ if tensor.elements() == Some(1) => {
                values.iter().map(|value| value.abs() + 0.25).collect()
            }
            _ => values,
        }
    };
    graph.inputs().map(|tensor| (tensor.uid, values(tensor))).collect()
}
