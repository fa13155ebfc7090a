//! Every legal combination of knob values of small graphs, one or more for each engine: all are
//! right, and those that add up in one order give the same bits.
//!
//! Ordinary runs take a sample that is spread evenly; `make settings` takes them all
//! (`KILN_SETTINGS=all`) and prints how far it is.

use std::collections::HashMap;
use std::time::Instant;

use kiln::engine::{self, EngineConfig, NumericalNote};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{NormBackward, NormForward, NormMode, Op, Phase, Reduction, ReductionOp};
use kiln::plan::ExecutionPlan;
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph, TensorDesc, reference};

use crate::cases::Agreement;
use crate::columns::{self, statistics};
use crate::harness::{self, Values};
use crate::reduction::{residual_rms, softmax, values};
use crate::rows::{self, layer};

/// Settings of a graph in an ordinary run.
const SAMPLE: usize = 12;

/// Settings whose kernels one context holds; their number is the progress.
const CHUNK: usize = 200;

/// Whether every setting is asked for.
pub fn all_are_wanted() -> bool {
    std::env::var("KILN_SETTINGS").is_ok_and(|which| which == "all")
}

/// So many settings in an ordinary run, all of them where they are wanted.
pub fn sample(ordinary: usize) -> usize {
    if all_are_wanted() { usize::MAX } else { ordinary }
}

/// The combinations of knob values that an engine takes.
pub fn legal(graph: &OperationGraph, name: &str) -> Vec<EngineConfig> {
    let target = harness::kiln().device().target();
    let engine = engine::engine_named(name).unwrap();
    let supported = engine.support(graph.canonical(), target).unwrap();
    let mut all = EngineConfig::all(engine.name(), &supported.knobs());
    all.retain(|config| match supported.lower(config) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotSupported, "{config}: {error}");
            false
        }
    });
    all
}

/// What the order of sums depends on.
fn order(config: &EngineConfig, plan: &ExecutionPlan) -> (Vec<i64>, bool) {
    let knobs = |names: &[&str]| names.iter().map(|knob| config.knob(knob).unwrap()).collect();
    match config.engine.as_ref() {
        // A thread sums alone.
        "pointwise"
        | "pointwise_grouped"
        | "pointwise_transposed"
        | "convolution_depthwise"
        | "convolution_direct"
        | "ctc_loss"
        | "pointwise_loop"
        | "resident_loop"
        | "dynamic_slice"
        | "resample_direct" => (Vec::new(), false),
        // A row that is read again takes its variance in the phase of its mean.
        "reduction" => {
            let read = plan.kernels()[0].report().stem.ends_with("_read");
            (knobs(&["threads_row", "vector", "split", "cluster"]), read)
        }
        "attention_backward_simt" => (Vec::new(), false),
        // Neighbouring groups take threads from the strips of a tap.
        "convolution_depthwise_filter" => {
            (knobs(&["items", "rows", "split", "strip", "threads"]), false)
        }
        "attention_backward_mma" if config.knob("dq").unwrap() == 0 => {
            (knobs(&["dq", "step_k", "step_q"]), false)
        }
        "attention_backward_mma" => (knobs(&["cta_k", "dq", "step_q"]), false),
        "attention_backward_wgmma" => (knobs(&["dq"]), false),
        "reduction_columns" => (knobs(&["threads_y", "split"]), false),
        // Splits of K are whole steps.
        _ if config.knob("split_k").unwrap() == 1 => (Vec::new(), false),
        "gemm_wgmma" => (knobs(&["split_k"]), false),
        _ => (knobs(&["split_k", "cta_k"]), false),
    }
}

/// So many legal settings, spread evenly over all combinations of knob values.
fn sample_of(graph: &OperationGraph, name: &str, count: usize) -> Vec<EngineConfig> {
    let target = harness::kiln().device().target();
    let supported = engine::supported(name, graph.canonical(), target).unwrap();
    let all = EngineConfig::all(engine::engine_named(name).unwrap().name(), &supported.knobs());
    // An odd step meets every value of every knob.
    let step = (all.len() / count).max(1) | 1;
    let legal = |config: &&EngineConfig| supported.lower(config).is_ok();
    all.chunks(step).filter_map(|of| of.iter().find(legal).cloned()).collect()
}

/// Runs so many of the legal settings, or all of them: the first of those that are to agree is
/// compared with the reference and run twice, the others are compared with it. Those that need not
/// repeat are compared with the reference alone.
pub fn agree(
    graph: &OperationGraph,
    inputs: &Values,
    engine: &str,
    sample: usize,
    agreement: Agreement,
) {
    let started = Instant::now();
    let all = match sample {
        usize::MAX => legal(graph, engine),
        count => sample_of(graph, engine, count),
    };
    assert!(!all.is_empty(), "{engine} has no legal setting: {graph}");
    let target = harness::kiln().device().target();
    let supported = engine::supported(engine, graph.canonical(), target).unwrap();
    let expected = reference::evaluate(graph, inputs).expect("inputs fit the graph");
    let mut known: HashMap<(Vec<i64>, bool), Values> = HashMap::new();
    for (chunk, configs) in all.chunks(CHUNK).enumerate() {
        let kiln = Kiln::open(harness::checked(None)).unwrap();
        for (at, config) in configs.iter().enumerate() {
            let plan = kiln.plan_with(graph, config).unwrap_or_else(|e| panic!("{config}: {e:?}"));
            let actual = harness::run_plan(&kiln, &plan, inputs).unwrap();
            if supported.notes(config).numerical.contains(&NumericalNote::Nondeterministic) {
                harness::compare_with(&expected, graph, inputs, &actual, &config.to_string());
                continue;
            }
            let key = match agreement {
                Agreement::Order => order(config, &plan),
                Agreement::Setting => (vec![(chunk * CHUNK + at) as i64], false),
            };
            let first = known.entry(key).or_insert_with(|| {
                harness::compare_with(&expected, graph, inputs, &actual, &config.to_string());
                harness::run_plan(&kiln, &plan, inputs).unwrap()
            });
            for (uid, values) in &actual {
                let mut pairs = std::iter::zip(values, &first[uid]);
                let same = pairs.all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{config}: tensor {uid} has other bits");
            }
        }
        let (done, seconds) = (chunk * CHUNK + configs.len(), started.elapsed().as_secs());
        println!("{engine}: {done} of {} settings, {seconds} s", all.len());
    }
    let (orders, seconds) = (known.len(), started.elapsed().as_secs());
    println!("{engine}: {} settings ran in {orders} orders of sums, {seconds} s", all.len());
}

fn check_filled(graph: &OperationGraph, engine: &str) {
    agree(graph, &values(graph), engine, sample(SAMPLE), Agreement::Order);
}

/// A legal setting that spills registers runs; it is refused only where that is asked for.
#[test]
fn settings_that_spill_run() {
    let mut graph = OperationGraph::builder();
    let dims = [31, 4, 1, 127];
    let x = graph.input("x", &dims, DType::F32);
    let desc = TensorDesc::packed(2, "dy", &dims, DType::F32);
    let dy = graph.tensor(TensorDesc { strides: vec![521, 130, 130, 1], ..desc });
    let dx = graph.pointwise(Pointwise::new(Mode::EluBwd), &[dy, x]).unwrap();
    let maximum = graph.reduction(Reduction::new(ReductionOp::Max), x, &[1; 4]).unwrap();
    graph.output(dx, "dx", DType::F32);
    graph.output(maximum, "maximum", DType::F32);
    let graph = graph.build().unwrap();
    let open = |allow_spills| {
        let device = Some("sim".parse().unwrap());
        Kiln::open(Config { device, allow_spills, ..harness::config() }).unwrap()
    };
    let kiln = open(None);
    let target = kiln.device().target();
    let config = engine::supported("reduction", graph.canonical(), target).unwrap().heuristic();
    let spills = |kiln: &Kiln| {
        let plan = kiln.plan_with(&graph, &config).unwrap();
        plan.kernels().iter().any(|kernel| kernel.report().resources.spill_bytes > 0)
    };
    assert!(spills(&kiln), "{config} spills no more: take another setting");
    harness::check(&kiln, &graph, Some(&config), &values(&graph), "a setting that spills");
    let error = open(Some(false)).plan_with(&graph, &config).unwrap_err();
    assert!(error.to_string().contains(" bytes of registers per thread"), "{error}");
    // What a heuristic chooses is passed over for a smaller one, down to the last.
    for mode in [engine::Mode::A, engine::Mode::Fallback] {
        let device = Some("sim".parse().unwrap());
        let chosen = Config { device, heuristic: Some(mode), ..harness::config() };
        harness::check(&Kiln::open(chosen).unwrap(), &graph, None, &values(&graph), "chosen");
    }
}

/// Kept or read again, by a few threads or by blocks.
#[test]
fn every_setting_of_a_norm_of_rows() {
    check_filled(&layer(DType::F32, [3, 70]), "reduction");
    check_filled(&layer(DType::Bf16, [2, 8200]), "reduction");
}

#[test]
fn every_setting_of_a_softmax() {
    check_filled(&softmax(DType::F16, &[3, 70], false), "reduction");
}

#[test]
fn every_setting_of_a_norm_of_columns() {
    let op = NormForward { statistics: true, ..NormForward::new(NormMode::Batch, Phase::Training) };
    for op in [Op::NormForward(op), Op::NormBackward(NormBackward::new(NormMode::Batch))] {
        let (graph, values) = statistics(op, DType::F16, [5, 11, 5, 3]);
        agree(&graph, &values, "reduction_columns", sample(SAMPLE), Agreement::Order);
    }
}

/// Sums of rows, of dimensions that do not merge, of rows that are split, of gradients.
#[test]
fn every_setting_of_reductions_of_rows() {
    for graph in [residual_rms([5, 21]), rows::channels(), rows::long()] {
        check_filled(&graph, "reduction");
    }
    // The threads of a block say which rows it sums up.
    let gradients = Op::NormBackward(NormBackward::new(NormMode::Layer));
    let gradients = rows::norm(gradients, DType::Bf16, [70, 21]);
    let inputs = values(&gradients);
    agree(&gradients, &inputs, "reduction", sample(SAMPLE), Agreement::Setting);
}

#[test]
fn every_setting_of_reductions_of_columns() {
    let (batch_norm, _) = statistics(columns::batch_norm(), DType::F16, [1, 3, 1, 3]);
    let [sum, middle] =
        [columns::sum(DType::F16, [70, 19]), columns::middle(DType::F32, [2, 5, 3])];
    for graph in [batch_norm, sum, middle] {
        check_filled(&graph, "reduction_columns");
    }
}
