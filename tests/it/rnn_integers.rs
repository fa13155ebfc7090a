//! Layers whose weights and states are 8-bit integers: what they are in documents, what is refused,
//! how states round, and what they cost beside those of 16 bits.

use kiln::device::Counters;
use kiln::engine::{self, EngineConfig};
use kiln::graph::{Cell, MatmulMath, Op, Operation, Quantization, Recurrence, RecurrenceSlots};
use kiln::rnn::{Block, CellKind, CellOptions, Rnn, WeightKind, WeightSpace};
use kiln::target::Target;
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};

use crate::harness;
use crate::recurrence::{self, everything, graph, values};
use crate::recurrence_vjp::derivative;
use crate::rnn_cells::user_cells;
use crate::rnn_own_cells::copies_input;

fn lstm(sizes: [i64; 2]) -> Recurrence {
    let plain = CellOptions::default();
    recurrence::layer(CellKind::Lstm, plain, MatmulMath::F32, sizes)
}

fn quantised(op: Recurrence, scale: f64, shift: i64) -> Recurrence {
    Recurrence { quantization: Some(Quantization::new(scale, shift)), ..op }
}

fn of_cell(cell: Cell) -> Recurrence {
    quantised(Recurrence::new(cell, 3, 5), 63.0, 128)
}

#[test]
fn quantised_layers_are_written_and_read_back() {
    for (scale, shift) in [(63.0, 128), (100.5, 0)] {
        let op = Recurrence { with: everything(CellKind::Lstm), ..lstm([3, 5]) };
        let graph = graph(&quantised(op, scale, shift), 4, DType::U8);
        let json = graph.to_json();
        let read = OperationGraph::from_json(&json).unwrap();
        assert_eq!(read.operations(), graph.operations(), "{json}");
        assert_eq!(read.tensors(), graph.tensors());
        let text = format!("recurrence[lstm, scale {scale}, shift {shift}]");
        assert!(graph.to_string().contains(&text), "{graph}");
    }
    // The parameters are of what is computed: other ones have other kernels.
    let digest = |scale| graph(&quantised(lstm([3, 5]), scale, 0), 4, DType::I8).digest();
    assert_ne!(digest(63.0), digest(64.0));
}

/// The error of a layer whose state has this type, and whose tensors `change` makes others.
fn error(op: &Recurrence, dtype: DType, change: impl Fn(&mut TensorDesc)) -> (ErrorKind, String) {
    let numbers = graph(&Recurrence { quantization: None, ..op.clone() }, 2, DType::F32);
    let mut tensors = numbers.tensors().to_vec();
    let scales = tensors.len() as i64 + 1;
    tensors.push(TensorDesc::packed(scales, "r_scales", &[1; 3], DType::F32));
    for tensor in &mut tensors {
        match tensor.name.as_str() {
            "r" => tensor.dtype = DType::I8,
            "y" | "h_initial" | "h_final" => tensor.dtype = dtype,
            _ => {}
        }
        change(tensor);
    }
    let op = Op::Recurrence(op.clone());
    let uid = |slot: &&str| tensors.iter().find(|of| of.name == *slot).map_or(scales, |of| of.uid);
    let slots = op.slots();
    let [inputs, outputs] = [slots.inputs, slots.outputs].map(|of| of.iter().map(uid).collect());
    let operation = Operation { op, inputs, outputs };
    let error = OperationGraph::new(tensors, vec![operation]).expect_err("it is refused");
    (error.kind(), error.to_string())
}

#[test]
fn what_has_no_integers_is_refused() {
    use DType::{F16, I8, U8};
    let with = RecurrenceSlots { h_initial: true, h_final: true, ..Default::default() };
    let own = Recurrence { with, ..lstm([3, 5]) };
    let bad = |scale, shift, dtype, rule: &str| {
        let op = quantised(own.clone(), scale, shift);
        assert_eq!(error(&op, dtype, |_| ()), (ErrorKind::BadParam, format!("{op}: {rule}")));
    };
    for scale in [0.0, -63.0, f64::NAN, f64::INFINITY, 1e-40, 1e39] {
        bad(scale, 0, U8, &format!("the scale {scale} is not a positive number in f32"));
    }
    for (shift, dtype) in [(256, U8), (-1, U8), (128, I8), (-129, I8)] {
        bad(63.0, shift, dtype, &format!("the shift {shift} is not a number of {dtype}"));
    }
    let op = quantised(own.clone(), 63.0, 0);
    let of = |name: &'static str, dtype: DType| {
        error(&op, U8, move |tensor| {
            if tensor.name == name {
                tensor.dtype = dtype;
            }
        })
    };
    for (name, dtype) in [("r", U8), ("r", F16), ("y", F16), ("h_final", I8), ("r_scales", I8)] {
        let (kind, text) = of(name, dtype);
        let at = if (name, dtype) == ("y", F16) {
            "h_initial `h_initial` is u8".to_owned()
        } else {
            format!("{name} `{name}` is {dtype}")
        };
        assert_eq!((kind, text), (ErrorKind::BadParam, format!("{op}: {at}")));
    }
    let refused = |op: Recurrence, rule: &str| {
        assert_eq!(error(&op, U8, |_| ()), (ErrorKind::NotSupported, format!("{op}: {rule}")));
    };
    let projected = CellOptions { projected: true, ..CellOptions::default() };
    refused(of_cell(CellKind::Lstm.cell(&projected)), "a projection of a quantised state");
    let gradient = derivative(&lstm([3, 5]), DType::F32);
    refused(quantised(gradient, 63.0, 0), "gradients of a quantised layer");
    let indrnn = user_cells::all().unwrap().into_iter().find(|cell| cell.name == "indrnn");
    refused(of_cell(indrnn.unwrap()), "a quantised layer without a recurrent GEMM");
    let wide = quantised(Recurrence::new(copies_input(), 1, 65_794), 63.0, 0);
    refused(wide, "sums of 65794 products of 8 bits, at most 65793 have 32 bits");
}

#[test]
fn quantised_layers_have_no_gradients() {
    let with = RecurrenceSlots { states_final: true, ..Default::default() };
    let graph = graph(&quantised(Recurrence { with, ..lstm([3, 5]) }, 63.0, 0), 2, DType::U8);
    let of = |name: &str| graph.tensor_named(name).unwrap().uid;
    let error = graph.vjp(&[of("states_final")], &[of("x")]).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let text = "recurrence[lstm, scale 63, shift 0]: no gradient of a quantised layer";
    assert!(error.to_string().contains(text), "{error}");
}

/// States round to the nearest integer, halves to the even one, and saturate; NaN is the integer 0.
/// Expected values are by hand: where the cell copies its input, nothing rounds before.
#[test]
fn states_round_to_even_and_saturate() {
    let inputs = [
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        0.499,
        0.501,
        100.5,
        126.4,
        126.5,
        126.6,
        127.5,
        128.0,
        1e9,
        -127.5,
        -128.0,
        -128.4,
        -128.5,
        -129.0,
        -1e9,
        1e38,
        -1e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    for (dtype, shift) in [(DType::U8, 128), (DType::I8, 0), (DType::U8, 0), (DType::I8, -5)] {
        let op = Recurrence {
            with: RecurrenceSlots { h_final: true, ..Default::default() },
            ..Recurrence::new(copies_input(), 2, inputs.len() as i64)
        };
        let op = quantised(op, 64.0, shift);
        let graph = graph(&op, 1, dtype);
        let mut values = values(&graph, &op, 1);
        let x: Vec<f64> = inputs.iter().map(|input| input / 64.0).collect();
        values.insert(graph.tensor_named("x").unwrap().uid, [x.clone(), x].concat());
        let (low, high) = dtype.integer_range().unwrap();
        let integer = |input: &f64| match input.is_nan() {
            true => 0.0,
            // The shift is added in f32, in which halves up to 2^22 are exact.
            false => (f64::from(*input as f32) + shift as f64).round_ties_even().clamp(low, high),
        };
        let expected: Vec<f64> = inputs.iter().map(integer).collect();
        for kiln in harness::dialects() {
            for engine in ["rnn_cta", "rnn_step"] {
                let own = engine::supported(engine, graph.canonical(), kiln.device().target());
                let config = own.unwrap().heuristic();
                let actual = harness::run(kiln, &graph, Some(&config), &values).unwrap();
                for name in ["y", "h_final"] {
                    let actual = &actual[&graph.tensor_named(name).unwrap().uid];
                    let twice = [expected.clone(), expected.clone()].concat();
                    assert_eq!(*actual, twice, "{config}: {name} of {dtype}, shift {shift}");
                }
            }
        }
    }
}

const CTA: &str = "rnn_cta{batch_tile=8, exchange=0, group_ctas=1, smem_percent=100, \
    warps_k=1, warps_n=8, weight_registers=160}";
const CLUSTER: &str = "rnn_cluster{batch_tile=8, exchange=0, group_ctas=2, smem_percent=100, \
    warps_k=1, warps_n=4, weight_registers=0}";
const WORDS: &str = "rnn_grid{batch_tile=8, exchange=1, group_ctas=2, smem_percent=100, \
    warps_k=1, warps_n=4, weight_registers=160}";

/// MMAs that warps executed.
fn mmas(counters: &Counters) -> u64 {
    let lines = counters.lines.iter().filter(|line| line.text.starts_with("mma.sync"));
    lines.map(|line| line.count.warp_instructions).sum()
}

/// A step of integers has half the MMAs of one of 16 bits, and its weights half the bytes. The
/// compensation of a shift has the MMAs of one step.
#[test]
fn steps_have_half_the_mmas_of_sixteen_bits() {
    let (batch, units) = (8, 128);
    let count = |op: &Recurrence, steps: i64, dtype: DType, config: &str| {
        let graph = graph(op, steps, dtype);
        let config: EngineConfig = config.parse().unwrap();
        harness::count(&graph, Some(&config), &values(&graph, op, steps))
    };
    for config in [CTA, CLUSTER, WORDS] {
        let halves = lstm([batch, units]);
        let shifted = quantised(halves.clone(), 63.0, 128);
        let centred = quantised(halves.clone(), 63.0, 0);
        let of =
            |op: &Recurrence, dtype: DType| [4, 12].map(|steps| count(op, steps, dtype, config));
        let [half, shifted, centred] =
            [of(&halves, DType::F16), of(&shifted, DType::U8), of(&centred, DType::I8)];
        let step = |[short, long]: &[Counters; 2]| (mmas(long) - mmas(short)) / 8;
        let macs = 4 * units * units * batch;
        assert_eq!(step(&half), (macs / (16 * 8 * 16)) as u64, "{config}");
        assert_eq!(step(&shifted), step(&half) / 2, "{config}");
        assert_eq!(step(&centred), step(&half) / 2, "{config}");
        assert_eq!(mmas(&shifted[0]), 5 * step(&shifted), "{config}");
        assert_eq!(mmas(&centred[0]), 4 * step(&centred), "{config}");
        for counters in half.iter().chain(&shifted).chain(&centred) {
            assert_eq!(harness::conflicts(counters), 0, "{config}");
        }
        // Weights come once: half of theirs, 4 bytes more for each of their rows, which is what
        // they read less but for sectors that blocks have in common; so does what they exchange.
        let weights = (4 * units * units) as u64;
        let saved = half[0].dram_read_bytes - centred[0].dram_read_bytes;
        let least = weights - 4 * 4 * units as u64 - 64;
        assert!((least..weights + weights / 8).contains(&saved), "{config}: {saved} of {least}");
    }
}

/// Blocks of a layer of so many hidden units, at the least.
fn fewest_blocks(op: &Recurrence, dtype: DType, target: &Target) -> Option<i64> {
    let graph = graph(op, 8, dtype);
    let own = engine::supported("rnn_grid", graph.canonical(), target).ok()?;
    let heuristic = own.heuristic();
    let legal = |group: &i64| {
        // Registers and warps as the layer likes.
        let registers = [0, 64, 96, 128, 160].into_iter();
        let warps = [2, 4, 8, 16].into_iter();
        let mut all = registers.flat_map(|of| warps.clone().map(move |warps| (of, warps)));
        all.any(|(registers, warps)| {
            let config = heuristic.clone().with("group_ctas", *group).with("warps_n", warps);
            let config = config.with("warps_k", 1).with("weight_registers", registers);
            own.lower(&config.with("batch_tile", 8)).is_ok()
        })
    };
    [2, 4, 8, 16, 32, 64, 128].into_iter().find(legal)
}

/// A block holds the weights of twice as many units: half the blocks hold a layer.
#[test]
fn blocks_hold_twice_the_units() {
    let fewest = |name: &str, units: i64| {
        let target = Target::named(name).unwrap();
        let halves = lstm([8, units]);
        let integers = quantised(halves.clone(), 63.0, 128);
        let integers = fewest_blocks(&integers, DType::U8, &target).unwrap();
        (fewest_blocks(&halves, DType::F16, &target), integers)
    };
    for (name, units, blocks) in [
        ("a100", 384, [8, 4]),
        ("a100", 768, [32, 16]),
        ("h200", 384, [8, 4]),
        ("h200", 512, [8, 4]),
        ("h200", 1024, [32, 16]),
    ] {
        let expected = (Some(blocks[0]), blocks[1]);
        assert_eq!(fewest(name, units), expected, "{units} units on {name}");
    }
    // All SMs together do not hold the weights of 16 bits.
    assert_eq!(fewest("h200", 2048), (None, 64));
}

/// Kernels of all sizes for every class of target.
#[test]
fn integers_compile_without_spills() {
    let mut sources = Vec::new();
    for name in ["t4", "a100", "l40s", "h200", "b200", "rtx5090"] {
        let target = Target::named(name).unwrap();
        for (units, batch, dtype, shift) in [
            (64, 1, DType::U8, 128),
            (256, 64, DType::U8, 128),
            (512, 8, DType::I8, 0),
            (1024, 8, DType::U8, 128),
            (2048, 8, DType::I8, 0),
        ] {
            let with = RecurrenceSlots { x_bias: true, ..Default::default() };
            let op = quantised(Recurrence { with, ..lstm([batch, units]) }, 63.0, shift);
            let graph = graph(&op, 64, dtype);
            let chosen = engine::choose(graph.canonical(), &target, &Default::default()).unwrap();
            assert_ne!(chosen.engine, "rnn_step", "{op} of {units} units on {name}");
            let own = engine::supported(&chosen.engine, graph.canonical(), &target).unwrap();
            let what = format!("{op} {dtype} {batch} x {units} on {name}");
            sources.extend(harness::sources(&what, &*own, &chosen).pop());
        }
        let op = quantised(lstm([8, 100]), 63.0, 128);
        let graph = graph(&op, 4, DType::U8);
        let own = engine::supported("rnn_step", graph.canonical(), &target).unwrap();
        sources.extend(harness::sources(&format!("{op} on {name}"), &*own, &own.heuristic()));
    }
    harness::compile_without_spills(&sources);
}

/// Weights of a network in f32 become integers of which the largest of a row is 127, and scales.
#[test]
fn weights_become_integers() {
    let rnn = Rnn::lstm(3, 2).quantised(DType::U8, Quantization::new(63.0, 128));
    let numbers = Rnn { quantization: None, ..rnn.clone() }.dtype(DType::F32);
    let count = WeightSpace::new(&numbers).unwrap().elements();
    let weights: Vec<f64> = (0..count).map(|at| (at % 7) as f64 / 8.0 - 0.25).collect();
    let integers = rnn.quantise_weights(&weights, |row| row.factor()).unwrap();
    let space = WeightSpace::new(&rnn).unwrap();
    let part = |kind: WeightKind| {
        let Block { offset, rows, columns } = space.block(0, kind).unwrap();
        integers[offset as usize..][..(rows * columns) as usize].to_vec()
    };
    for (kind, scales, columns) in [
        (WeightKind::Input, WeightKind::InputScales, 3),
        (WeightKind::Recurrent, WeightKind::RecurrentScales, 2),
    ] {
        let given = WeightSpace::new(&numbers).unwrap().block(0, kind).unwrap().offset as usize;
        let own = part(kind);
        let rows = weights[given..].chunks(columns).zip(own.chunks(columns));
        for ((row, integers), scale) in rows.zip(part(scales)) {
            let largest = integers.iter().map(|of| of.abs()).fold(0.0, f64::max);
            assert_eq!(largest, 127.0, "{row:?}");
            for (weight, integer) in row.iter().zip(integers) {
                assert!((weight - integer * scale).abs() <= 0.51 * scale, "{weight} {integer}");
            }
        }
    }
    assert_eq!(part(WeightKind::InputBias), weights[(3 + 2) * 8..][..8]);
    assert_eq!(rnn.encode(&integers).len() as u64, space.bytes());
    assert_eq!(space.bytes(), (5 * 8 + 4 * 4 * 8) as u64);
    let failed = |rnn: &Rnn, weights: &[f64], factor: f64| {
        let error = rnn.quantise_weights(weights, |_| factor).expect_err("it is refused");
        (error.kind(), error.to_string())
    };
    let bad = |text: &str| (ErrorKind::BadParam, text.to_owned());
    let text = "rnn: integer weights of a network that is not quantised";
    assert_eq!(failed(&numbers, &weights, 1.0), bad(text));
    let text = "rnn: 55 weights, the network in f32 has 56";
    assert_eq!(failed(&rnn, &weights[1..], 1.0), bad(text));
    let text = "rnn: factor 0 of row 0 of `weight_ih_l0`";
    assert_eq!(failed(&rnn, &weights, 0.0), bad(text));
    let params = space.params(0, 0, space.bytes()).expect_err("it is refused");
    assert_eq!(params.kind(), ErrorKind::NotSupported);
}
