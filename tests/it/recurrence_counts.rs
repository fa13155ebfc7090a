//! What recurrent layers cost, counted; which engine takes which; and that none of them spills.

use std::fmt::Write;

use kiln::DType;
use kiln::device::Counters;
use kiln::device::InstructionClass;
use kiln::engine;
use kiln::expr::Real;
use kiln::graph::{Direction, MatmulMath, Recurrence, RecurrenceSlots};
use kiln::rnn::{CellKind, CellOptions};
use kiln::target::Target;

use crate::golden::assert_golden;
use crate::harness;
use crate::recurrence::{graph, layer, values};
use crate::recurrence_vjp::derivative;
use crate::rnn_cells::user_cells;

/// The counts of the layer's own kernel, which is the last of its plan.
fn count(op: &Recurrence, steps: i64, dtype: DType, config: &str) -> Counters {
    let graph = graph(op, steps, dtype);
    harness::count(&graph, Some(&config.parse().unwrap()), &values(&graph, op, steps))
}

fn lstm(batch: i64, units: i64) -> Recurrence {
    layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [batch, units])
}

const CTA: &str = "rnn_cta{batch_tile=8, exchange=0, group_ctas=1, smem_percent=100, \
    warps_k=1, warps_n=8, weight_registers=160}";
const SHARED: &str = "rnn_cta{batch_tile=8, exchange=0, group_ctas=1, smem_percent=100, \
    warps_k=1, warps_n=8, weight_registers=0}";
const PARTS: &str = "rnn_cta{batch_tile=8, exchange=0, group_ctas=1, smem_percent=100, \
    warps_k=2, warps_n=8, weight_registers=32}";
const CLUSTER: &str = "rnn_cluster{batch_tile=8, exchange=0, group_ctas=2, smem_percent=100, \
    warps_k=1, warps_n=4, weight_registers=160}";
const GRID: &str = "rnn_grid{batch_tile=8, exchange=0, group_ctas=2, smem_percent=100, \
    warps_k=1, warps_n=4, weight_registers=160}";
const WORDS: &str = "rnn_grid{batch_tile=8, exchange=1, group_ctas=2, smem_percent=100, \
    warps_k=1, warps_n=4, weight_registers=160}";

/// A step multiplies what it must, moves what it must, and no lanes wait for a bank.
#[test]
fn steps_do_the_least() {
    let (batch, units) = (8, 64);
    for config in [CTA, SHARED, PARTS, CLUSTER, GRID, WORDS] {
        let [short, long] =
            [8, 16].map(|steps| count(&lstm(batch, units), steps, DType::F16, config));
        for counters in [&short, &long] {
            assert_eq!(harness::conflicts(counters), 0, "{config}");
        }
        let products = |counters: &Counters| counters.products[0].multiply_adds;
        let weights = (4 * units * units) as u64;
        assert_eq!(products(&short), 8 * weights * batch as u64, "{config}");
        assert_eq!(products(&long), 16 * weights * batch as u64, "{config}");
        // Weights come once, however many steps there are; a step reads its input, and words of
        // its own.
        let words = if config == WORDS { batch * units * 2 } else { 0 };
        let (input, words) = ((4 * batch * units * 4) as u64, words as u64);
        let [longer, shorter] = [&long, &short].map(|counters| counters.dram_read_bytes);
        assert_eq!(longer - shorter, 8 * (input + words), "{config}");
        assert!(shorter >= 2 * weights + 8 * input + 7 * words, "{config}");
        assert!(shorter < 2 * weights + 8 * (input + words) + 8192, "{config}");
    }
}

/// One exchange for every product but the last step's, which nobody hears: a block counts itself
/// once, or one of its warps stores its 8 x 32 values of 2 bytes, 16 bytes a lane. Those of 16
/// steps are cleared once.
#[test]
fn blocks_hear_of_each_other_once_for_every_product() {
    let atomics = |op: &Recurrence, steps: i64| {
        let counters = count(op, steps, DType::F16, GRID);
        counters.class(InstructionClass::Atomic).warp_instructions
    };
    let words = |op: &Recurrence, steps: i64| {
        let counters = count(op, steps, DType::F16, WORDS);
        assert_eq!(counters.class(InstructionClass::Atomic).warp_instructions, 0);
        executed(&counters, "st.relaxed.gpu")
    };
    let plain = CellOptions::default();
    let before = layer(CellKind::GruResetBefore, plain, MatmulMath::F32, [8, 64]);
    let projected = CellOptions { projected: true, ..plain };
    let projected = layer(CellKind::Lstm, projected, MatmulMath::F32, [8, 64]);
    let blocks = 2;
    for steps in [1, 5] {
        let each = steps as u64 * blocks;
        for (op, exchanges) in [(&lstm(8, 64), each), (&before, 2 * each), (&projected, 2 * each)] {
            assert_eq!(atomics(op, steps), exchanges - blocks, "{op}");
            let cleared = if steps > 1 { 16 * exchanges / steps as u64 } else { 0 };
            assert_eq!(words(op, steps), exchanges - blocks + cleared, "{op}");
        }
    }
}

/// The layer of a gradient multiplies as often as the layer, with the same weights, which come
/// once; a step reads what the layer saved, and is heard of once.
#[test]
fn derivatives_do_what_layers_do() {
    let (batch, units, blocks) = (8, 64, 2);
    let own = derivative(&lstm(batch, units), DType::F16);
    for config in ["rnn_cta 1 2 4 64", "rnn_cluster 2 4 2 32", "rnn_grid 2 4 2 32"] {
        let [engine, group_ctas, warps_k, warps_n, registers] =
            config.split(' ').collect::<Vec<&str>>()[..].try_into().unwrap();
        let config = format!(
            "{engine}{{batch_tile=8, exchange=0, group_ctas={group_ctas}, smem_percent=100, \
             warps_k={warps_k}, warps_n={warps_n}, weight_registers={registers}}}"
        );
        let [short, long] = [8, 16].map(|steps| count(&own, steps, DType::F16, &config));
        let weights = (4 * units * units) as u64;
        for (counters, steps) in [(&short, 8), (&long, 16)] {
            assert_eq!(harness::conflicts(counters), 0, "{config}");
            let products = counters.products[0].multiply_adds;
            assert_eq!(products, steps * weights * batch as u64, "{config}");
            let exchanges = counters.class(InstructionClass::Atomic).warp_instructions;
            let each = if engine == "rnn_grid" { (steps - 1) * blocks } else { 0 };
            assert_eq!(exchanges, each, "{config}");
        }
        // The gradient of y in f32, and in f16 what was saved but for h; never the weights again.
        let saved = own.cell.unit_inputs.len() as i64 - 1;
        let input = (batch * units * (4 + 2 * saved)) as u64;
        let read = long.dram_read_bytes - short.dram_read_bytes;
        assert!((8 * input..8 * input + 2 * weights).contains(&read), "{config}: {read}");
    }
}

/// How many warps executed instructions with this text.
fn executed(counters: &Counters, text: &str) -> u64 {
    let lines = counters.lines.iter().filter(|line| line.text.contains(text));
    lines.map(|line| line.count.warp_instructions).sum()
}

/// Moments of a stage take two sums of the block, each with a barrier, and one exchange of the
/// cluster, with another; the step ends with a barrier.
#[test]
fn statistics_take_one_exchange_for_each_stage() {
    let op = Recurrence::new(user_cells::layer_norm_lstm().unwrap(), 8, 64);
    let stages = 2;
    for (config, blocks, warps) in [(CTA, 1, 8), (CLUSTER, 2, 4)] {
        let [short, long] = [4, 12].map(|steps| count(&op, steps, DType::F16, config));
        let shared = long.total.shared_loads.conflicts + long.total.shared_stores.conflicts;
        assert_eq!(shared, 0, "{config}: conflicts");
        let step = |text| (executed(&long, text) - executed(&short, text)) as f64 / 8.0;
        let cluster = u64::from(blocks > 1);
        let barriers = (stages * (2 + cluster) + 1) * blocks * warps;
        assert_eq!(step("bar.sync"), barriers as f64, "{config}");
        // And one of the state.
        let exchanges = cluster * (stages + 1) * blocks;
        assert_eq!(step("expect_tx"), exchanges as f64, "{config}");
    }
}

/// Instructions of all warps in one more step, for each matrix product.
#[test]
fn steps_take_few_instructions() {
    let mut table = String::new();
    for (batch, units) in [(8, 64), (8, 128), (32, 128)] {
        for config in [CTA, SHARED, CLUSTER] {
            let [short, long] =
                [4, 12].map(|steps| count(&lstm(batch, units), steps, DType::F16, config));
            let instructions =
                (long.total.warp_instructions - short.total.warp_instructions) as f64 / 8.0;
            let products = (long.products[0].multiply_adds - short.products[0].multiply_adds)
                as f64
                / (8.0 * 16.0 * 8.0 * 16.0);
            writeln!(
                table,
                "{config} {batch} x {units}: {instructions:.0} instructions, {products:.0} matrix \
                 products in a step: {:.1} each",
                instructions / products
            )
            .unwrap();
        }
    }
    assert_golden("rnn_instructions", &table);
}

/// Layers as people have them.
fn layers() -> Vec<(Recurrence, DType)> {
    let mut layers = Vec::new();
    for units in [64, 256, 512, 768, 1024, 2048] {
        for batch in [1, 8, 64] {
            layers.push((lstm(batch, units), DType::F16));
        }
    }
    let plain = CellOptions::default();
    let of = |kind, options, sizes| layer(kind, options, MatmulMath::F32, sizes);
    let both = Recurrence { direction: Direction::Both, ..of(CellKind::Gru, plain, [32, 384]) };
    let projected = CellOptions { projected: true, peephole: true, ..plain };
    let with = RecurrenceSlots { lengths: true, x_bias: true, r_bias: true, ..Default::default() };
    layers.extend([
        (both, DType::Bf16),
        (of(CellKind::GruResetBefore, plain, [16, 256]), DType::F16),
        (of(CellKind::Lstm, projected, [16, 512]), DType::Bf16),
        (Recurrence { with, ..lstm(64, 128) }, DType::F32),
        (layer(CellKind::Lstm, plain, MatmulMath::Tf32, [16, 256]), DType::F32),
        (layer(CellKind::Tanh, plain, MatmulMath::F64, [4, 100]), DType::F64),
    ]);
    let trained = [
        (lstm(8, 256), DType::F16),
        (lstm(64, 1024), DType::F16),
        (of(CellKind::Gru, plain, [32, 512]), DType::Bf16),
        (of(CellKind::GruResetBefore, plain, [16, 256]), DType::F16),
        (of(CellKind::Tanh, plain, [16, 256]), DType::F32),
    ];
    layers.extend(trained.map(|(op, dtype)| (derivative(&op, dtype), dtype)));
    layers
}

const TARGETS: [&str; 5] = ["t4", "a100", "rtx4090", "h200", "rtx5090"];

#[test]
fn engines_take_the_layers_they_are_for() {
    let mut table = String::new();
    for name in TARGETS {
        let target = Target::named(name).unwrap();
        writeln!(table, "{name}").unwrap();
        for (op, dtype) in layers() {
            let graph = graph(&op, 64, dtype);
            let chosen = engine::choose(graph.canonical(), &target, &Default::default()).unwrap();
            writeln!(table, "  {op} {dtype} {} x {}: {chosen}", op.batch, op.hidden_size).unwrap();
        }
    }
    assert_golden("rnn_engines", &table);
}

/// Kernels of single steps, of every cell in f64: of all types the one that takes most registers.
#[test]
fn steps_compile_without_spills() {
    let target = Target::named("h200").unwrap();
    let mut sources = Vec::new();
    let clipped = CellOptions { gate_clip: Some(Real::new(0.25)), ..CellOptions::default() };
    for kind in CellKind::ALL {
        for options in [CellOptions::default(), clipped] {
            let with = RecurrenceSlots { x_bias: true, r_bias: true, ..Default::default() };
            let op = Recurrence { with, ..layer(kind, options, MatmulMath::F64, [3, 3]) };
            let graph = graph(&op, 1, DType::F64);
            let own = engine::supported("rnn_step", graph.canonical(), &target).unwrap();
            let what = format!("{kind:?}, {options:?}");
            let kernels = harness::sources(&what, &*own, &own.heuristic()).into_iter();
            sources.extend(kernels.filter(|(_, source)| source.entry == "rnn_cell"));
        }
    }
    harness::compile_without_spills(&sources);
}

#[test]
fn layers_compile_without_spills() {
    let mut sources = Vec::new();
    for name in ["t4", "a100", "h200", "rtx5090"] {
        let target = Target::named(name).unwrap();
        let layers = layers().into_iter().enumerate();
        // Those of one family and size differ in the batch alone.
        for (_, (op, dtype)) in layers.filter(|(at, _)| name == "h200" || at % 4 == 3) {
            let graph = graph(&op, 64, dtype);
            let chosen = engine::choose(graph.canonical(), &target, &Default::default()).unwrap();
            let own = engine::supported(&chosen.engine, graph.canonical(), &target).unwrap();
            let what = format!("{op} {dtype} {} x {} on {name}", op.batch, op.hidden_size);
            sources.extend(harness::sources(&what, &*own, &chosen).pop());
        }
    }
    harness::compile_without_spills(&sources);
}
