//! A self-contained HTML page about a run.

mod listing;
mod picture;
mod roofline;
mod timeline;

use std::path::Path;
use std::sync::OnceLock;

use kiln::device::{Bound, Counters, Estimate};
use kiln::engine::{self, EngineConfig, Machine};
use kiln::plan::{self, ExecutionPlan, PlannedKernel, Trial, Values};
use kiln::{Error, ErrorKind, Kiln, OperationGraph};
use serde::Serialize;
use tera::{Context, Tera};

pub use timeline::{Recorder, Step};

use crate::counts;
use crate::page::listing::Line;
use crate::problem::{self, check_text};
use crate::progress;
use crate::sass;

const TEMPLATE: &str = include_str!("page.html.tera");

/// The page.
#[derive(Serialize)]
pub struct Page {
    pub device: String,
    pub kind: &'static str,
    pub machine: &'static str,
    pub toolchain: String,
    pub version: &'static str,
    pub kernels: Vec<KernelSection>,
    pub steps: Vec<Step>,
    /// Time from the start to the end of the last step.
    pub total_ms: f64,
}

/// Section about a kernel.
#[derive(Serialize)]
pub struct KernelSection {
    id: String,
    /// Problem file.
    problem: String,
    identifier: String,
    stem: String,
    config: String,
    key: String,
    origin: String,
    overridden: Option<String>,
    picture: String,
    graph: String,
    reasons: Vec<String>,
    refused: Vec<String>,
    candidates: Vec<Candidate>,
    facts: Vec<(String, String)>,
    checks: Vec<String>,
    counts: Vec<(String, String)>,
    bounds: Vec<BoundRow>,
    roofline: Option<String>,
    /// The machine code's loops and how long they take; empty if there is none, or nothing was
    /// counted.
    machine_code: Vec<String>,
    least: Option<String>,
    source: Vec<Line>,
    ptx: Vec<Line>,
}

/// A configuration that differs from the chosen one in one knob.
#[derive(Serialize)]
struct Candidate {
    /// The changed knob, such as `items=2`.
    change: String,
    registers: Option<u32>,
    blocks: Option<u32>,
    least: Option<String>,
    /// Why it cannot be used.
    refused: Option<String>,
}

/// A part of the GPU with its busy time.
#[derive(Serialize)]
struct BoundRow {
    part: String,
    time: String,
    percent: f64,
}

/// An executed kernel of the run.
pub struct Ran<'a> {
    pub problem: &'a Path,
    pub plan: &'a ExecutionPlan,
    pub kernel: &'a PlannedKernel,
    pub inputs: &'a Values,
    pub trial: &'a Trial,
    pub counters: Option<&'a Counters>,
}

impl Page {
    /// Renders the page.
    pub fn html(&self) -> kiln::Result<String> {
        static TERA: OnceLock<Tera> = OnceLock::new();
        let tera = TERA.get_or_init(|| {
            let mut tera = Tera::new();
            tera.add_raw_template("page.html", TEMPLATE).expect("the embedded template is tested");
            tera
        });
        let rendered =
            Context::from_serialize(self).and_then(|context| tera.render("page.html", &context));
        rendered.map_err(|error| {
            Error::with(ErrorKind::Internal, format!("failed to render the page: {error}"))
        })
    }
}

impl KernelSection {
    /// Section of the `number`-th kernel.
    pub fn of(
        kiln: &Kiln,
        machine: &Machine,
        ran: &Ran<'_>,
        number: usize,
    ) -> kiln::Result<KernelSection> {
        let Ran { problem, plan, kernel, inputs, trial, counters } = *ran;
        let (graph, report, config) = (&kernel.part().graph, kernel.report(), kernel.config());
        let estimated = |counters: &Counters, kernel: &PlannedKernel| {
            kiln::plan::estimate(counters, machine, kernel.launch(), kernel.report().resources)
        };
        let estimate = counters.map(|counters| estimated(counters, kernel));
        let checks = match kiln.device().kind() {
            "null" => Vec::new(),
            _ => problem::check(plan.graph(), inputs, trial)?.iter().map(check_text).collect(),
        };
        let bound = |bound: &Bound| BoundRow {
            part: bound.part.to_string(),
            time: microseconds(bound.us),
            percent: bound.share * 100.0,
        };
        let bounds = estimate.iter().flat_map(|estimate| &estimate.bounds);
        Ok(KernelSection {
            id: format!("k{number}"),
            problem: problem.display().to_string(),
            identifier: kernel.identifier(),
            stem: report.stem.clone(),
            config: config.to_string(),
            key: report.key.to_hex(),
            origin: report.origin.to_string(),
            overridden: report.overridden.as_ref().map(|path| path.display().to_string()),
            picture: picture::svg(graph),
            graph: graph.to_string(),
            reasons: reasons(kiln, graph, config),
            refused: refused(kiln, graph),
            candidates: candidates(kiln, ran, |counters, kernel| {
                estimated(counters, kernel).binds().map_or(0.0, |bound| bound.us)
            }),
            facts: facts(ran, estimate.as_ref(), kiln.device().kind()),
            checks,
            counts: counters.map(|of| count_rows(of, graph.bytes_min())).unwrap_or_default(),
            bounds: bounds.filter(|bound| bound.us > 0.0).map(bound).collect(),
            least: estimate.as_ref().and_then(Estimate::binds).map(|of| microseconds(of.us)),
            roofline: counters
                .zip(estimate.as_ref())
                .and_then(|(counters, estimate)| roofline::svg(counters, estimate, machine)),
            machine_code: counters
                .map_or(Ok(Vec::new()), |of| machine_code(kiln, ran, machine, of))?,
            source: listing::source(&kernel.source().text, counters),
            ptx: listing::ptx(&kernel.image().ptx, counters),
        })
    }
}

/// The estimate by the machine code; empty for kernels of which there is only PTX.
fn machine_code(
    kiln: &Kiln,
    ran: &Ran<'_>,
    machine: &Machine,
    counters: &Counters,
) -> kiln::Result<Vec<String>> {
    if ran.kernel.image().cubin.is_empty() {
        return Ok(Vec::new());
    }
    let (code, estimate) = ran.kernel.clocks(kiln.device().target(), machine, counters)?;
    Ok(sass::report(&code, &estimate, true))
}

/// Why the heuristic chose this configuration; empty if the user did.
fn reasons(kiln: &Kiln, graph: &OperationGraph, config: &EngineConfig) -> Vec<String> {
    let (canonical, target) = (graph.canonical(), kiln.device().target());
    match engine::supported(&config.engine, canonical, target) {
        Ok(supported) if supported.heuristic() == *config => supported.reasons(),
        _ => Vec::new(),
    }
}

/// The engines that cannot run the graph, and why.
fn refused(kiln: &Kiln, graph: &OperationGraph) -> Vec<String> {
    let target = kiln.device().target();
    let reason = |engine: &&dyn engine::Engine| {
        let reason = engine.support(graph.canonical(), target).err()?;
        Some(format!("{}: {reason}", engine.name()))
    };
    engine::engines().iter().filter_map(reason).collect()
}

/// Configurations that differ from the chosen one in one knob.
fn candidates(
    kiln: &Kiln,
    ran: &Ran<'_>,
    least_us: impl Fn(&Counters, &PlannedKernel) -> f64,
) -> Vec<Candidate> {
    let (graph, chosen) = (&ran.kernel.part().graph, ran.kernel.config());
    let target = kiln.device().target();
    let Ok(supported) = engine::supported(&chosen.engine, graph.canonical(), target) else {
        return Vec::new();
    };
    // Intermediates between subgraphs are not available here.
    let inputs = match ran.plan.parts().len() {
        1 => ran.inputs.clone(),
        _ => plan::random_values(graph, 1).unwrap_or_default(),
    };
    let mut candidates = Vec::new();
    for knob in supported.knobs() {
        let own = chosen.knob(knob.name).ok();
        for value in knob.values.iter().filter(|value| Some(**value) != own) {
            let config = chosen.clone().with(knob.name, *value);
            let change = format!("{}={value}", knob.name);
            progress::doing(format!("trying {change} of {}", ran.problem.display()));
            let tried = kiln
                .plan_with(graph, &config)
                .and_then(|plan| kiln.trial(&plan, &inputs).map(|trial| (plan, trial)));
            candidates.push(match tried {
                Ok((plan, trial)) => {
                    let least = |(kernel, counters): (&PlannedKernel, &Option<Counters>)| {
                        counters.as_ref().map(|counters| least_us(counters, kernel))
                    };
                    let least: Option<f64> =
                        plan.kernels().iter().zip(&trial.counters).map(least).sum();
                    let registers =
                        plan.kernels().iter().map(|kernel| kernel.report().resources.registers);
                    Candidate {
                        change,
                        registers: registers.max(),
                        blocks: Some(plan.kernels()[0].launch().grid),
                        least: least.map(microseconds),
                        refused: None,
                    }
                }
                Err(error) => Candidate {
                    change,
                    registers: None,
                    blocks: None,
                    least: None,
                    refused: Some(error.to_string()),
                },
            });
        }
    }
    candidates
}

/// Resource usage and launch of the kernel.
fn facts(ran: &Ran<'_>, estimate: Option<&Estimate>, kind: &str) -> Vec<(String, String)> {
    let (resources, launch) = (ran.kernel.report().resources, ran.kernel.launch());
    let registers = resources.registers;
    let shared = resources.shared_bytes + launch.shared_bytes;
    let mut facts = vec![
        ("Registers", format!("{registers} per thread")),
        ("Spills", format!("{} bytes per thread", resources.spill_bytes)),
        ("Local memory", format!("{} bytes per thread", resources.local_bytes)),
        ("Shared memory", format!("{} bytes per block", grouped(u64::from(shared)))),
        ("Launch", format!("{} × {} threads", grouped(u64::from(launch.grid)), launch.threads)),
    ];
    if let Some(Estimate { occupancy, filled, .. }) = estimate {
        let percent = 100.0 * occupancy.share;
        let limit = format!("{:?}", occupancy.limit).to_lowercase();
        let occupied = format!("{percent:.0}% ({} blocks, by {limit})", occupancy.blocks);
        facts.push(("Occupancy", occupied));
        facts.push(("SMs used", format!("{:.0}%", 100.0 * filled)));
    }
    let what = if kind == "cuda" { "Ran in" } else { "Simulated in" };
    if kind != "null" {
        facts.push((what, problem::shown(ran.trial.elapsed)));
    }
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Counts, and the ratio of traffic to its minimum.
fn count_rows(counters: &Counters, bytes_min: u64) -> Vec<(String, String)> {
    let shown = |(name, count): (String, u64)| (name, grouped(count));
    let mut rows: Vec<_> = counts::rows(counters).into_iter().map(shown).collect();
    let total = &counters.total;
    rows.push(("active lanes".to_owned(), format!("{:.1} of 32", total.active_lanes())));
    if bytes_min > 0 {
        let ratio = counters.dram_bytes() as f64 / bytes_min as f64;
        rows.push(("traffic over the minimum".to_owned(), format!("{ratio:.2}")));
    }
    rows
}

fn microseconds(us: f64) -> String {
    format!("{us:.3} µs")
}

/// Groups digits with narrow spaces: `12 345 678`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}
