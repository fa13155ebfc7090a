//! LSTMs of 8-bit integers through oneDNN's front-end: against oneDNN's own library, and against
//! plain loops for every direction, type, size and format; reorders to and from integers.

use std::collections::BTreeMap;

use kiln::expr::Real;
use kiln::onednn::{
    Arg, Cell, DataQuantization, FormatTag, MemoryDesc, Primitive, PrimitiveAttr, PropKind,
    RnnDesc, RnnDirection, Tensor, WeightsScales,
};
use kiln::{DType, Kiln};

use crate::harness;
use crate::onednn::run;
use crate::onednn_cases::{Arguments, Case, integer_cases, plain_integers};
use crate::onednn_integer_lstm::{Computed, Of, lstm};

/// Weights by a reorder on the device, as a program makes them.
fn reordered(kiln: &Kiln, case: &Case, primitive: &Primitive) -> Arguments {
    let own = [Tensor::WeightsLayer, Tensor::WeightsIter].map(|tensor| {
        let to = primitive.desc(Arg::Of(tensor)).unwrap();
        let from = MemoryDesc::new(to.dims(), DType::F32, FormatTag::Ldigo).unwrap();
        let reorder = Primitive::reorder(&from, to, &case.attr()).unwrap();
        let given = BTreeMap::from([(Arg::FROM, case.of_arg(Arg::Of(tensor)).unwrap())]);
        (Arg::Of(tensor), run(kiln, &reorder, &given)[&Arg::TO].clone())
    });
    own.into()
}

/// All of oneDNN's cases: what is computed here is what the document says, and what oneDNN has
/// computed is that with its habits.
#[test]
fn lstms_of_integers_are_those_of_onednn() {
    let cases = integer_cases();
    assert_eq!(cases.len(), 32);
    let (mut equal, mut all) = (0, 0);
    for (turn, case) in cases.iter().enumerate() {
        let desc = case.desc(PropKind::ForwardInference, &plain_integers(case));
        let primitive = Primitive::rnn(&desc).unwrap_or_else(|error| panic!("{error}"));
        let given = case.integers_of(|arg| case.of_arg(arg));
        let [own, theirs] = [Of::Document, Of::Avx2].map(|whose| lstm(&desc, &given, whose));
        let of_onednn = case.results_of_onednn();
        theirs.check(&format!("oneDNN's {}", case.name), &of_onednn);
        let pairs = own.results[&Arg::TO].iter().zip(&of_onednn[&Arg::TO]);
        all += own.results[&Arg::TO].len();
        equal += pairs.filter(|(own, theirs)| own == theirs).count();
        for kiln in harness::dialects_by_turns(turn) {
            let weights = reordered(kiln, case, &primitive);
            assert!(weights.iter().all(|(arg, values)| given[arg] == *values), "{}", case.name);
            own.check(&case.name, &run(kiln, &primitive, &given));
        }
    }
    // Elements of dst_layer on which habits have no influence.
    assert_eq!((equal, all), (522, 960));
}

/// The order in memory of a tensor of these dimensions and type.
type Format<'a> = &'a dyn Fn(&[i64], DType) -> MemoryDesc;

/// Sizes and choices of an LSTM.
#[derive(Debug, Clone, Copy)]
struct Choice {
    sizes: [i64; 5],
    direction: RnnDirection,
    integers: DType,
    shift: f64,
    channels: bool,
    /// Types of `dst_layer`, and of states.
    numbers: [bool; 2],
    /// Whether states and biases are there.
    whole: bool,
}

impl Choice {
    fn attr(&self) -> PrimitiveAttr {
        let [.., hidden] = self.sizes;
        let data = DataQuantization { scale: Real::new(61.5), shift: Real::new(self.shift) };
        let scale = |at: i64| Real::new(300.0 + (at % 7) as f64 * 17.5);
        let weights = match self.channels {
            true => WeightsScales { mask: 24, scales: (0..4 * hidden).map(scale).collect() },
            false => WeightsScales { mask: 0, scales: vec![scale(1)] },
        };
        PrimitiveAttr { data: Some(data), weights: Some(weights), projection: None }
    }

    fn desc(&self, format: Format<'_>) -> RnnDesc {
        let [steps, batch, layers, input, hidden] = self.sizes;
        let d = self.direction.count();
        let width =
            if self.direction == RnnDirection::BidirectionalConcat { 2 } else { 1 } * hidden;
        let of = |is_number: bool| if is_number { DType::F32 } else { self.integers };
        let [outputs, states] = self.numbers.map(of);
        let mut desc = RnnDesc::new(Cell::Lstm, PropKind::ForwardInference, self.direction);
        desc.attr = self.attr();
        for (tensor, dims, dtype) in [
            (Tensor::SrcLayer, &[steps, batch, input][..], self.integers),
            (Tensor::SrcIter, &[layers, d, batch, hidden], states),
            (Tensor::SrcIterC, &[layers, d, batch, hidden], DType::F32),
            (Tensor::WeightsLayer, &[layers, d, input, 4, hidden], DType::I8),
            (Tensor::WeightsIter, &[layers, d, hidden, 4, hidden], DType::I8),
            (Tensor::Bias, &[layers, d, 4, hidden], DType::F32),
            (Tensor::DstLayer, &[steps, batch, width], outputs),
            (Tensor::DstIter, &[layers, d, batch, hidden], states),
            (Tensor::DstIterC, &[layers, d, batch, hidden], DType::F32),
        ] {
            let is_optional = dims.len() == 4;
            if self.whole || !is_optional {
                desc = desc.with(tensor, format(dims, dtype));
            }
        }
        desc
    }

    /// What it reads and gives, of numbers drawn such that no state is near where it rounds to
    /// another integer.
    fn drawn(&self) -> (Arguments, Computed) {
        let desc = self.desc(&packed);
        (1..100)
            .find_map(|seed| {
                let given = given(&desc, seed);
                let computed = lstm(&desc, &given, Of::Document);
                let scale = desc.attr.data.unwrap().scale.get();
                (computed.margin > scale * computed.bound).then_some((given, computed))
            })
            .expect("some draw is far from ties")
    }
}

fn packed(dims: &[i64], dtype: DType) -> MemoryDesc {
    MemoryDesc::new(dims, dtype, FormatTag::Any).unwrap()
}

/// Random values of what an LSTM reads.
fn given(desc: &RnnDesc, seed: u64) -> Arguments {
    let mut state = seed;
    let mut next = |range: [f64; 2]| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        range[0] + (state >> 40) as f64 / (1u64 << 24) as f64 * (range[1] - range[0])
    };
    let is_read = |arg: &&Arg| matches!(arg, Arg::Of(tensor) if !tensor.is_dst());
    let own = desc.descs.keys().filter(is_read).map(|arg| {
        let own = &desc.descs[arg];
        let range = match own.dtype() {
            DType::I8 => [-128.0, 127.0],
            DType::U8 => [0.0, 255.0],
            _ => [-1.5, 1.5],
        };
        let count = own.dims().iter().product();
        (*arg, (0..count).map(|_: i64| own.dtype().round(next(range))).collect())
    });
    own.collect()
}

const U8: Choice = Choice {
    sizes: [3, 2, 1, 5, 7],
    direction: RnnDirection::LeftToRight,
    integers: DType::U8,
    shift: 128.0,
    channels: false,
    numbers: [false; 2],
    whole: true,
};
const I8: Choice = Choice { integers: DType::I8, shift: 0.0, ..U8 };

/// Every direction, type, mask and choice of f32, at sizes around those of vectors and tiles.
fn choices() -> Vec<Choice> {
    use RnnDirection::{BidirectionalConcat, BidirectionalSum, LeftToRight, RightToLeft};
    let mut all = Vec::new();
    for direction in [LeftToRight, RightToLeft, BidirectionalConcat, BidirectionalSum] {
        for (own, shift) in [(U8, 128.0), (U8, 0.0), (I8, 0.0), (I8, -7.0)] {
            let turn = all.len();
            let [channels, outputs, states] = [1, 2, 0].map(|bit| turn >> bit & 1 == 1);
            let numbers = [outputs, states];
            all.push(Choice { direction, shift, channels, numbers, ..own });
            all.push(Choice {
                direction,
                shift,
                channels: !channels,
                numbers: [!outputs, !states],
                ..own
            });
        }
    }
    for (at, sizes) in [
        [1, 1, 1, 1, 1],
        [2, 1, 1, 16, 15],
        [2, 3, 1, 17, 16],
        [2, 9, 1, 15, 17],
        [3, 2, 2, 8, 8],
        [2, 1, 3, 5, 5],
        [2, 4, 1, 33, 64],
    ]
    .into_iter()
    .enumerate()
    {
        let direction = [LeftToRight, BidirectionalSum, BidirectionalConcat][at % 3];
        let numbers = [at % 2 == 0, false];
        all.push(Choice { sizes, direction, channels: at % 2 == 1, numbers, ..U8 });
        all.push(Choice { sizes, direction, numbers, ..I8 });
    }
    all.extend([Choice { whole: false, ..U8 }, Choice { whole: false, shift: 100.0, ..I8 }]);
    all
}

#[test]
fn every_choice_is_as_the_document_says() {
    for (turn, choice) in choices().into_iter().enumerate() {
        let (given, computed) = choice.drawn();
        let primitive =
            Primitive::rnn(&choice.desc(&packed)).unwrap_or_else(|error| panic!("{error}"));
        for kiln in harness::dialects_by_turns(turn) {
            computed.check(&format!("{choice:?}"), &run(kiln, &primitive, &given));
        }
    }
}

#[test]
fn every_class_of_target_agrees() {
    let choice = Choice { direction: RnnDirection::BidirectionalSum, ..U8 };
    let (given, computed) = choice.drawn();
    let primitive = Primitive::rnn(&choice.desc(&packed)).unwrap();
    let targets = ["t4", "a100", "l40s", "h200", "b200", "rtx5090"];
    for (seed, target) in targets.iter().enumerate() {
        let Some(kiln) = harness::simulated_by_turns(target, seed as u64) else { return };
        computed.check(target, &run(kiln, &primitive, &given));
    }
}

/// The same results from other orders of dimensions, padding, and gates apart.
#[test]
fn formats_do_not_change_results() {
    let turned = |dims: &[i64], dtype: DType| {
        let tag = match dims.len() {
            3 => FormatTag::Ntc,
            4 => FormatTag::Ldnc,
            _ => FormatTag::Ldigo,
        };
        MemoryDesc::new(dims, dtype, tag).unwrap()
    };
    let padded = |dims: &[i64], dtype: DType| {
        let (mut strides, mut next) = (vec![0; dims.len()], 1);
        for axis in (0..dims.len()).rev() {
            strides[axis] = next;
            next = next * dims[axis] + 3;
        }
        MemoryDesc::strided(dims, dtype, &strides).unwrap()
    };
    let formats: [Format<'_>; 2] = [&turned, &padded];
    let concat = RnnDirection::BidirectionalConcat;
    let sum = RnnDirection::BidirectionalSum;
    for choice in [
        Choice { direction: concat, sizes: [3, 2, 2, 7, 7], ..U8 },
        Choice { direction: sum, numbers: [true, false], ..U8 },
        Choice { numbers: [false, true], ..I8 },
    ] {
        let (given, computed) = choice.drawn();
        for format in formats {
            let primitive = Primitive::rnn(&choice.desc(format)).unwrap();
            computed.check(&format!("{choice:?}"), &run(harness::kiln(), &primitive, &given));
        }
    }
}

/// Integers are read and written where they are, but for those of f32 memory and sums.
#[test]
fn only_what_is_converted_is_moved() {
    let count = |choice: Choice| Primitive::rnn(&choice.desc(&packed)).unwrap().steps().len();
    assert_eq!(count(U8), 1);
    assert_eq!(count(Choice { sizes: [3, 2, 2, 7, 7], ..I8 }), 1);
    assert_eq!(count(Choice { numbers: [true, false], ..U8 }), 2);
    assert_eq!(count(Choice { numbers: [true, true], ..U8 }), 4);
    assert_eq!(count(Choice { direction: RnnDirection::BidirectionalSum, ..U8 }), 2);
}

fn attr(scale: f64, shift: f64) -> PrimitiveAttr {
    let data = DataQuantization { scale: Real::new(scale), shift: Real::new(shift) };
    PrimitiveAttr { data: Some(data), ..PrimitiveAttr::default() }
}

/// Each number and the integer of u8 and of i8 that a scale of 4 and a shift of 3 make of it.
const ROUNDED: [(f64, f64, f64); 16] = [
    (0.0, 3.0, 3.0),
    (-0.0, 3.0, 3.0),
    (0.125, 4.0, 4.0),
    (0.375, 4.0, 4.0),
    (-0.125, 2.0, 2.0),
    (-0.375, 2.0, 2.0),
    (0.126, 4.0, 4.0),
    (0.124, 3.0, 3.0),
    (31.0, 127.0, 127.0),
    (31.25, 128.0, 127.0),
    (63.0, 255.0, 127.0),
    (64.0, 255.0, 127.0),
    (-1.0, 0.0, -1.0),
    (-32.75, 0.0, -128.0),
    (f64::INFINITY, 255.0, 127.0),
    (f64::NAN, 0.0, 0.0),
];

/// By hand: to nearest even, saturated; NaN is 0. The reverse is what the integer stands for.
#[test]
fn reorders_round_and_saturate() {
    let dims = [2, 4, 2];
    let of = |dtype, tag| MemoryDesc::new(&dims, dtype, tag).unwrap();
    for (turn, integers) in [DType::U8, DType::I8].into_iter().enumerate() {
        let (numbers, integer) = (of(DType::F32, FormatTag::Tnc), of(integers, FormatTag::Ntc));
        let quantise = Primitive::reorder(&numbers, &integer, &attr(4.0, 3.0)).unwrap();
        let from: Vec<f64> = ROUNDED.iter().map(|row| DType::F32.round(row.0)).collect();
        let expected: Vec<f64> =
            ROUNDED.iter().map(|row| if turn == 0 { row.1 } else { row.2 }).collect();
        for kiln in harness::dialects() {
            let moved = |reorder: &Primitive, from: &[f64]| {
                run(kiln, reorder, &BTreeMap::from([(Arg::FROM, from.to_vec())]))[&Arg::TO].clone()
            };
            assert_eq!(moved(&quantise, &from), expected, "{integers}");
            let dequantise = Primitive::reorder(&integer, &numbers, &attr(3.0, 3.0)).unwrap();
            let back: Vec<f64> =
                expected.iter().map(|own| DType::F32.round((own - 3.0) / 3.0)).collect();
            assert_eq!(moved(&dequantise, &expected), back, "{integers}");
            // Without attributes integers are numbers; beside integers they are the same.
            let plain = Primitive::reorder(&numbers, &integer, &PrimitiveAttr::default()).unwrap();
            let rounded: Vec<f64> = from.iter().map(|own| integers.round(*own)).collect();
            assert_eq!(moved(&plain, &from), rounded, "{integers}");
            let other = of(if turn == 0 { DType::I8 } else { DType::U8 }, FormatTag::Tnc);
            let between = Primitive::reorder(&integer, &other, &attr(4.0, 3.0)).unwrap();
            let same: Vec<f64> = expected.iter().map(|own| other.dtype().round(*own)).collect();
            assert_eq!(moved(&between, &expected), same, "{integers}");
        }
    }
}

/// Weights have a factor each, or one for each output channel; other types are quantised as well.
#[test]
fn reorders_of_weights_have_factors_of_channels() {
    let dims = [2, 1, 3, 4, 5];
    let values: Vec<f64> = (0..120).map(|at| f64::from(at * 37 % 120) / 32.0 - 1.9).collect();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for (mask, count) in [(0, 1), (24, 20)] {
            let scale = |at: usize| 80.0 + at as f64 * 3.25;
            let scales = (0..count).map(|at| Real::new(scale(at))).collect();
            let weights = Some(WeightsScales { mask, scales });
            let attr = PrimitiveAttr { weights, ..attr(5.0, 9.0) };
            let from = MemoryDesc::new(&dims, dtype, FormatTag::Ldigo).unwrap();
            let to = MemoryDesc::new(&dims, DType::I8, FormatTag::Ldgoi).unwrap();
            let reorder = Primitive::reorder(&from, &to, &attr).unwrap();
            let given: Vec<f64> = values.iter().map(|value| dtype.round(*value)).collect();
            let quantised = |(at, value): (usize, &f64)| {
                DType::I8.round(DType::F32.round(value * scale(at % count)))
            };
            let expected: Vec<f64> = given.iter().enumerate().map(quantised).collect();
            assert!(expected.contains(&127.0) && expected.contains(&-128.0));
            let actual = run(harness::kiln(), &reorder, &BTreeMap::from([(Arg::FROM, given)]));
            assert_eq!(actual[&Arg::TO], expected, "{dtype} by mask {mask}");
        }
    }
}
