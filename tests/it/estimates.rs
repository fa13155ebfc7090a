//! How long key kernels take by their machine code: a golden file. A difference is reviewed as
//! code; `make golden` rewrites it.

use std::fmt::Write;

use kiln::device::Counters;
use kiln::engine::{self, machine_of};
use kiln::plan::{PlannedKernel, Problem, random_values};
use kiln::target::Target;
use kiln::{Config, Kiln, OperationGraph};
use kiln_sass::{Architecture, Code, Estimate, Latencies};
use serde::Deserialize;

use crate::golden::assert_golden;
use crate::harness::{self, Values};

#[derive(Deserialize)]
struct Row {
    name: String,
    devices: Vec<String>,
    problem: serde_json::Value,
}

/// Blocks or clusters that are simulated: those of one kernel do alike.
const SAMPLE: u32 = 2;

fn rows() -> Vec<Row> {
    let text = include_str!("../data/estimates.json");
    serde_json::from_str(text).expect("the data is well formed")
}

/// A simulated device that counts a sample of a launch's blocks.
fn counting(device: &str) -> Kiln {
    let device = Some(format!("sim:{device}").parse().expect("a target of the table"));
    let config = Config { device, count: true, sample: Some(SAMPLE), ..harness::config() };
    Kiln::open(config).expect("the simulated device opens")
}

/// The kernels of a graph by name, with their machine code and how long that takes.
fn estimated(
    kiln: &Kiln,
    graph: &OperationGraph,
    inputs: &Values,
) -> Vec<(String, Code, Estimate)> {
    let target = kiln.device().target();
    let machine = machine_of(target);
    let plan = kiln.plan(graph).unwrap_or_else(|error| panic!("{error:?}\n{graph}"));
    let counters = kiln.count(&plan, inputs).expect("the kernels run");
    let estimated = |(kernel, counters): (&PlannedKernel, &Option<Counters>)| {
        let counters = counters.as_ref().expect("the device counts");
        let clocks = kernel.clocks(target, &machine, counters);
        let (code, estimate) = clocks.expect("it has machine code");
        (kernel.identifier(), code, estimate)
    };
    plan.kernels().iter().zip(&counters).map(estimated).collect()
}

/// The kernels of a problem, a line each.
fn lines(row: &Row, device: &str) -> String {
    let problem = Problem::from_json(&row.problem.to_string()).expect("the problem is valid");
    let kiln = counting(device);
    let values = problem.random_values(1).expect("the inputs fit memory");
    let mut text = String::new();
    for (number, graph) in problem.graphs().into_iter().enumerate() {
        let inputs = problem.inputs(number, &values);
        for (stem, code, estimate) in estimated(&kiln, graph, &inputs) {
            let stem = stem.rsplit_once('-').map_or(&*stem, |(stem, _)| stem);
            let bound = estimate.bounds.first().expect("a kernel is bound by something").bound;
            let (instructions, clocks) = (code.instructions.len(), estimate.clocks);
            let (path, findings) = (estimate.path, estimate.findings.len());
            let us = estimate.us;
            writeln!(
                text,
                "  {stem:36} {instructions:5} {path:9.0} {clocks:9.0} {us:9.2} {findings:3} {bound}"
            )
            .expect("strings grow");
        }
    }
    text
}

#[test]
fn estimates_of_key_kernels() {
    let mut table = format!(
        "{:38} {:>5} {:>9} {:>9} {:>9} {:>3} bound by\n",
        "", "SASS", "path", "clocks", "us", "!"
    );
    for row in &rows() {
        for device in &row.devices {
            table += &format!("{}, {device}\n{}", row.name, lines(row, device));
        }
    }
    assert_golden("estimates", &table);
}

/// Every executed line of a block says how often it is: the loop of a GEMM's consumers, and the one
/// of its producer, repeat for each step of K.
#[test]
fn loops_repeat_as_often_as_there_are_steps() {
    let tensors =
        [("a", 1024, 1536), ("b", 1536, 1024), ("c", 1024, 1024)].map(|(name, rows, columns)| {
            format!(r#"{{ "name": "{name}", "dtype": "bf16", "dims": [{rows}, {columns}] }}"#)
        });
    let text = format!(
        r#"{{ "graph": {{ "tensors": [{}], "operations": [
            {{ "matmul": "f32", "a": "a", "b": "b", "c": "c" }}] }} }}"#,
        tensors.join(", ")
    );
    let problem = Problem::from_json(&text).expect("the problem is valid");
    let kiln = counting("h100");
    let values = problem.random_values(1).expect("the inputs fit memory");
    let graph = problem.only_graph().expect("there is one");
    let all = estimated(&kiln, graph, &problem.inputs(0, &values));
    let (name, _, estimate) = &all[0];
    assert!(name.contains("wgmma"), "{name}");
    let of = |pipe: &str| {
        let loops = estimate.loops.iter().filter(|each| each.mix.pipes.contains_key(pipe));
        // The innermost.
        loops.max_by_key(|each| each.depth).expect("there is one").trips
    };
    for pipe in ["tensor", "TMA"] {
        assert!((of(pipe) / 24.0 - 1.0).abs() < 0.02, "{pipe}: {} times", of(pipe));
    }
}

/// Traffic of K and V over the least, by the model of L2.
fn traffic(target: &str, engine: &str, [queries, batch]: [i64; 2], op: &str) -> f64 {
    let tensor = |name: &str| {
        format!(r#"{{ "name": "{name}", "dtype": "bf16", "dims": [{batch}, 32, {queries}, 128] }}"#)
    };
    let tensors = ["q", "k", "v", "o"].map(tensor).join(", ");
    let text = format!(
        r#"{{ "graph": {{ "tensors": [{tensors}], "operations": [
            {{ "attention": "f32", {op} "q": "q", "k": "k", "v": "v", "o": "o" }}] }} }}"#
    );
    let problem = Problem::from_json(&text).expect("the problem is valid");
    let target = Target::named(target).expect("known");
    let graph = problem.only_graph().expect("there is one");
    let supported = engine::supported(engine, graph.canonical(), &target).expect("it runs it");
    let order = supported.tile_order(&supported.heuristic()).expect("the order is known");
    let machine = machine_of(&target);
    let least = order.distinct_bytes();
    // The last keys fill no whole tile.
    let bytes = (batch * 32 * queries * 128 * 4) as f64;
    assert!((1.0..1.05).contains(&(least as f64 / bytes)), "{least} bytes for {bytes}");
    order.dram_bytes(machine.l2_bytes, machine.sm_count.into()) as f64 / least as f64
}

#[test]
fn attention_reads_keys_and_values_about_once() {
    for (target, engine) in [("h100", "attention_wgmma"), ("a100", "attention_mma")] {
        for shape in [[2048, 8], [4096, 4], [8192, 2]] {
            for (op, most) in [("", 1.01), (r#""right": 0,"#, 1.6)] {
                let times = traffic(target, engine, shape, op);
                assert!((1.0..most).contains(&times), "{engine} {shape:?} `{op}`: {times}");
            }
        }
    }
}

/// Estimates are compared with published times in `benches/estimates`: every figure has an address,
/// and one that is missed by more than 25 % a reason.
#[test]
fn published_figures_that_are_missed_have_reasons() {
    let text = include_str!("../../benches/estimates/published.json");
    let published: serde_json::Value = serde_json::from_str(text).expect("the data is well formed");
    let table = include_str!("../../benches/estimates/table.md");
    let mut figures = 0;
    for row in published["rows"].as_array().expect("there are rows") {
        let [name, machine] = ["name", "machine"].map(|key| row[key].as_str().expect("text"));
        assert!(row.get("kiln").is_some() != row.get("triton").is_some(), "{name}");
        for figure in row["published"].as_array().expect("there are figures") {
            let [by, source] = ["by", "source"].map(|key| figure[key].as_str().expect("text"));
            let address = published["sources"][source].as_str().expect("a source has an address");
            assert!(address.starts_with("https://"), "{name}: {address}");
            let start = format!("| {name} | {machine} | ");
            let kernel = if row.get("triton").is_some() { "Triton, " } else { "sm" };
            let found = table.lines().find(|line| {
                let rest = line.strip_prefix(&start);
                rest.is_some_and(|rest| {
                    rest.starts_with(kernel) && rest.contains(&format!("| [{by}]("))
                })
            });
            let line = found.unwrap_or_else(|| panic!("the table lacks {name}, {by}"));
            let ratio = line.trim_end_matches(" |").rsplit("| ").next();
            let ratio: f64 = ratio.and_then(|ratio| ratio.parse().ok()).expect("a ratio");
            let why = row.get("why").and_then(|why| why.as_str());
            let near = (0.75..=1.25).contains(&ratio);
            assert!(near || why.is_some_and(|why| table.contains(why)), "{name}, {by}: {ratio}");
            figures += 1;
        }
    }
    assert_eq!(table.lines().filter(|line| line.starts_with("| ")).count(), figures + 1);
}

/// A CTC loss takes as long as its recursion at least, in which each step waits for the one before:
/// a label's probability is passed on by a shuffle, and the logarithm of a sum of three is the way
/// of an exponential and a logarithm with seven others, which take four clocks each. They are: the
/// class's probability, two maxima, the distance from the larger, two sums, and the maximum again.
/// That is 92 clocks a step: 11,040 for the 120 of the golden file's loss, 5.6 us on H100.
#[test]
fn a_ctc_loss_waits_for_its_recursion() {
    /// Clocks of a sum or a maximum of f32 (Luo et al. 2024, as [`Latencies`]).
    const SUM: f64 = 4.0;
    let rows = rows();
    let row = rows.iter().find(|row| row.name.starts_with("CTC loss")).expect("it is there");
    let graph = OperationGraph::from_json(&row.problem.to_string()).expect("it is one graph");
    let values = random_values(&graph, 1).expect("the inputs fit memory");
    let lengths = &values[&graph.tensor_named("input_lengths").expect("it has them").uid];
    let steps = lengths[..SAMPLE as usize].iter().copied().fold(0.0, f64::max);
    assert!(steps >= 60.0, "{lengths:?}");
    for device in &row.devices {
        let kiln = counting(device);
        let version = u32::from(kiln.device().target().arch.capability);
        let Latencies { shuffle, special, .. } = Architecture::of(version).latencies;
        let floor = steps * (shuffle + 2.0 * special + 7.0 * SUM);
        let [(_, _, estimate)] = &estimated(&kiln, &graph, &values)[..] else {
            panic!("one kernel")
        };
        assert!(estimate.path >= floor, "{device}: {}, at least {floor}", estimate.path);
    }
}
