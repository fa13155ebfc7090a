//! Estimates against published figures: `make estimates` writes `benches/estimates/table.md`.
//!
//! `estimates FOLDER [ROW ..]` estimates all rows of `published.json`, or those named; FOLDER holds
//! what `triton_kernels.py` compiled.

mod foreign;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use kiln::engine::machine_of;
use kiln::plan::Problem;
use kiln::{Config, Kiln};
use kiln_machine::Machine;
use serde::Deserialize;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Blocks or clusters that are simulated: those of one kernel do alike.
const SAMPLE: u32 = 2;

#[derive(Deserialize)]
struct Published {
    /// Address by name.
    sources: BTreeMap<String, String>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    name: String,
    machine: String,
    unit: String,
    /// Operations, bytes, or for a time how often what takes it is done.
    work: f64,
    published: Vec<Figure>,
    /// A problem, which Kiln solves with a kernel of the same design.
    kiln: Option<serde_json::Value>,
    /// Why the estimate is far off.
    why: Option<String>,
}

#[derive(Deserialize)]
struct Figure {
    by: String,
    value: f64,
    source: String,
}

/// What was estimated.
struct Estimated {
    us: f64,
    /// Name of the kernel that takes longest.
    kernel: String,
    bound: String,
    /// Its clock in GHz.
    ghz: f64,
}

impl Estimated {
    fn of(kernel: &str, estimate: &kiln_sass::Estimate) -> Estimated {
        let bound = estimate.bounds.first().map_or(String::new(), |of| of.bound.to_string());
        let (us, ghz) = (estimate.us, estimate.clock_hz / 1e9);
        Estimated { us, kernel: kernel.to_owned(), bound, ghz }
    }
}

impl Row {
    /// The figure for a time in microseconds, and the other way round.
    fn figure(&self, value: f64) -> f64 {
        match self.unit.as_str() {
            "TFLOP/s" => self.work / value / 1e6,
            "GB/s" => self.work / value / 1e3,
            _ => value / self.work,
        }
    }

    /// How much longer than published the estimate is.
    fn ratio(&self, estimated: &Estimated, figure: &Figure) -> f64 {
        let ratio = self.figure(estimated.us) / figure.value;
        if self.unit == "us" { ratio } else { 1.0 / ratio }
    }
}

fn of_problem(row: &Row, problem: &serde_json::Value) -> Result<Estimated> {
    let problem = Problem::from_json(&problem.to_string())?;
    let device = format!("sim:{}", row.machine.to_lowercase()).parse()?;
    let kiln = Kiln::open(Config {
        device: Some(device),
        count: true,
        sample: Some(SAMPLE),
        ..Config::default()
    })?;
    let target = kiln.device().target();
    let values = problem.random_values(1)?;
    let mut all = Vec::new();
    for (number, graph) in problem.graphs().into_iter().enumerate() {
        let plan = kiln.plan(graph)?;
        let counters = kiln.count(&plan, &problem.inputs(number, &values))?;
        for (kernel, counters) in plan.kernels().iter().zip(&counters) {
            let counters = counters.as_ref().ok_or("the device counts nothing")?;
            let (_, estimate) = kernel.clocks(target, &machine_of(target), counters)?;
            let stem = kernel.identifier();
            let stem = stem.rsplit_once('-').map_or(&*stem, |(stem, _)| stem);
            all.push(Estimated::of(stem, &estimate));
        }
    }
    let us = all.iter().map(|each| each.us).sum();
    let longest = all.into_iter().max_by(|a, b| a.us.total_cmp(&b.us)).ok_or("no kernel")?;
    Ok(Estimated { us, ..longest })
}

fn estimated(row: &Row, folder: &Path) -> Result<Estimated> {
    match &row.kiln {
        Some(problem) => of_problem(row, problem),
        None => {
            let machine = Machine::named(&row.machine).ok_or("an unknown machine")?;
            let (configuration, estimate) = foreign::best(folder, &row.id, &machine)?;
            Ok(Estimated::of(&format!("Triton, configuration {configuration}"), &estimate))
        }
    }
}

/// A figure with three digits.
fn digits(value: f64) -> String {
    let decimals = (2.0 - value.abs().log10().floor()).clamp(0.0, 3.0);
    format!("{value:.*}", decimals as usize)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let folder = arguments.next().ok_or("the folder of Triton's kernels is missing")?;
    let only: Vec<String> = arguments.collect();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/estimates");
    let published: Published =
        serde_json::from_str(&std::fs::read_to_string(here.join("published.json"))?)?;
    let mut table = String::from(
        "| | GPU | estimated kernel | bound by | GHz | published by | unit | published \
         | estimate | time, estimate / published |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let (mut reasons, mut ratios) = (String::new(), Vec::new());
    for row in published.rows.iter().filter(|row| only.is_empty() || only.contains(&row.id)) {
        let estimated = estimated(row, Path::new(&folder))?;
        let (kernel, bound) = (&estimated.kernel, &estimated.bound);
        for figure in &row.published {
            let source = published.sources.get(&figure.source).ok_or("an unknown source")?;
            let source = source.split(", ").next().unwrap_or(source);
            let ratio = row.ratio(&estimated, figure);
            ratios.push(ratio);
            let line = format!(
                "| {} | {} | {kernel} | {bound} | {:.2} | [{}]({source}) | {} | {} | {} | {:.2} |",
                row.name,
                row.machine,
                estimated.ghz,
                figure.by,
                row.unit,
                digits(figure.value),
                digits(row.figure(estimated.us)),
                ratio,
            );
            println!("{line}");
            writeln!(table, "{line}")?;
        }
        if let Some(why) = &row.why {
            writeln!(reasons, "* {}, {}: {why}", row.name, row.machine)?;
        }
    }
    if only.is_empty() {
        let near = ratios.iter().filter(|ratio| (0.75..=1.25).contains(*ratio)).count();
        let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
        let summary = format!(
            "{near} of {} figures are met within 25 %; the last column's geometric mean is {:.2}.",
            ratios.len(),
            mean.exp()
        );
        std::fs::write(here.join("table.md"), format!("{table}\n{summary}\n\n{reasons}"))?;
    }
    Ok(())
}
