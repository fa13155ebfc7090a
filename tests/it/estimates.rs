//! How long key kernels take by their machine code: a golden file. A difference is reviewed as
//! code; `make golden` rewrites it.

use std::fmt::Write;

use kiln::engine::{self, machine_of};
use kiln::plan::Problem;
use kiln::target::Target;
use kiln::{Config, Kiln};
use serde::Deserialize;

use crate::golden::assert_golden;
use crate::harness;

#[derive(Deserialize)]
struct Row {
    name: String,
    devices: Vec<String>,
    problem: serde_json::Value,
}

/// Blocks or clusters that are simulated: those of one kernel do alike.
const SAMPLE: u32 = 2;

/// The kernels of a problem, a line each.
fn lines(row: &Row, device: &str) -> String {
    let problem = Problem::from_json(&row.problem.to_string()).expect("the problem is valid");
    let device = Some(format!("sim:{device}").parse().expect("a target of the table"));
    let config = Config { device, count: true, sample: Some(SAMPLE), ..harness::config() };
    let kiln = Kiln::open(config).expect("the simulated device opens");
    let target = kiln.device().target();
    let machine = machine_of(target);
    let values = problem.random_values(1).expect("the inputs fit memory");
    let mut text = String::new();
    for (number, graph) in problem.graphs().into_iter().enumerate() {
        let plan = kiln.plan(graph).unwrap_or_else(|error| panic!("{}: {error:?}", row.name));
        let inputs = problem.inputs(number, &values);
        let counters = kiln.count(&plan, &inputs).expect("the kernels run");
        for (kernel, counters) in plan.kernels().iter().zip(&counters) {
            let counters = counters.as_ref().expect("the device counts");
            let estimated = kernel.clocks(target, &machine, counters);
            let (code, estimate) = estimated.expect("it has machine code");
            let stem = kernel.identifier();
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
    let text = include_str!("../data/estimates.json");
    let rows: Vec<Row> = serde_json::from_str(text).expect("the data is well formed");
    let mut table = format!(
        "{:38} {:>5} {:>9} {:>9} {:>9} {:>3} bound by\n",
        "", "SASS", "path", "clocks", "us", "!"
    );
    for row in &rows {
        for device in &row.devices {
            table += &format!("{}, {device}\n{}", row.name, lines(row, device));
        }
    }
    assert_golden("estimates", &table);
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
    assert_eq!(least, (batch * 32 * queries * 128 * 4) as u64);
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
