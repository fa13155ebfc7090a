//! One page about a run: a self-contained HTML file that needs no network.

mod listing;
mod picture;
mod roofline;
mod timeline;

use std::path::Path;
use std::sync::OnceLock;

use kiln::device::Counters;
use kiln::engine::{self, EngineConfig};
use kiln::plan::{ExecutionPlan, Trial, Values};
use kiln::{Error, ErrorKind, Kiln, OperationGraph};
use kiln_sim::{Estimate, Machine};
use serde::Serialize;
use tera::{Context, Tera};

pub use timeline::{Recorder, Step};

use crate::counts;
use crate::page::listing::Line;
use crate::problem::{self, check_text};

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
    /// From the start to the end of the last step.
    pub total_ms: f64,
}

/// Everything about one kernel.
#[derive(Serialize)]
pub struct KernelSection {
    id: String,
    /// The problem file.
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
    least: Option<String>,
    source: Vec<Line>,
    ptx: Vec<Line>,
}

/// A setting that was not chosen: one knob away from the one that was.
#[derive(Serialize)]
struct Candidate {
    /// `items=2`.
    change: String,
    registers: Option<u32>,
    blocks: Option<u32>,
    least: Option<String>,
    /// Why it can not be used.
    refused: Option<String>,
}

/// A part of the machine and how long it is busy.
#[derive(Serialize)]
struct BoundRow {
    part: String,
    time: String,
    percent: f64,
}

/// One kernel of the run, executed.
pub struct Ran<'a> {
    pub problem: &'a Path,
    pub plan: &'a ExecutionPlan,
    pub inputs: &'a Values,
    pub trial: &'a Trial,
    pub counters: Option<&'a Counters>,
}

impl Page {
    /// The page's HTML.
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
    /// The section of the `number`-th kernel.
    pub fn of(
        kiln: &Kiln,
        machine: &Machine,
        ran: &Ran<'_>,
        number: usize,
    ) -> kiln::Result<KernelSection> {
        let Ran { problem, plan, inputs, trial, counters } = *ran;
        let (graph, report) = (plan.graph(), plan.report());
        let estimated = |counters: &Counters, plan: &ExecutionPlan| {
            counts::estimate(counters, machine, plan.launch(), plan.report().resources)
        };
        let estimate = counters.map(|counters| estimated(counters, plan));
        let checks = match kiln.device().kind() {
            "null" => Vec::new(),
            _ => problem::check(graph, inputs, trial)?.iter().map(check_text).collect(),
        };
        let bound = |bound: &kiln_sim::Bound| BoundRow {
            part: bound.part.to_string(),
            time: microseconds(bound.us),
            percent: bound.share * 100.0,
        };
        let bounds = estimate.iter().flat_map(|estimate| &estimate.bounds);
        Ok(KernelSection {
            id: format!("k{number}"),
            problem: problem.display().to_string(),
            identifier: plan.identifier(),
            stem: report.stem.clone(),
            config: plan.config().to_string(),
            key: report.key.to_hex(),
            origin: report.origin.to_string(),
            overridden: report.overridden.as_ref().map(|path| path.display().to_string()),
            picture: picture::svg(graph),
            graph: graph.to_string(),
            reasons: reasons(kiln, graph, plan.config()),
            refused: refused(kiln, graph),
            candidates: candidates(kiln, ran, |counters, plan| {
                estimated(counters, plan).binds().map_or(0.0, |bound| bound.us)
            }),
            facts: facts(plan, trial, estimate.as_ref(), kiln.device().kind()),
            checks,
            counts: counters.map(|of| count_rows(of, graph.bytes_min())).unwrap_or_default(),
            bounds: bounds.filter(|bound| bound.us > 0.0).map(bound).collect(),
            least: estimate.as_ref().and_then(Estimate::binds).map(|of| microseconds(of.us)),
            roofline: counters
                .zip(estimate.as_ref())
                .and_then(|(counters, estimate)| roofline::svg(counters, estimate, machine)),
            source: listing::source(&plan.source().text, counters),
            ptx: listing::ptx(&plan.image().ptx, counters),
        })
    }
}

/// Why the engine's heuristic has chosen this setting; nothing for a setting that a user chose.
fn reasons(kiln: &Kiln, graph: &OperationGraph, config: &EngineConfig) -> Vec<String> {
    let (canonical, target) = (graph.canonical(), kiln.device().target());
    match engine::engine_named(&config.engine) {
        Ok(engine) if engine.heuristic(canonical, target) == *config => {
            engine.reasons(canonical, target)
        }
        _ => Vec::new(),
    }
}

/// The engines that can not run the graph, and why.
fn refused(kiln: &Kiln, graph: &OperationGraph) -> Vec<String> {
    let target = kiln.device().target();
    let reason = |engine: &&dyn engine::Engine| {
        let reason = engine.support(graph.canonical(), target).err()?;
        Some(format!("{}: {reason}", engine.name()))
    };
    engine::engines().iter().filter_map(reason).collect()
}

/// Every setting that differs from the chosen one in one knob.
fn candidates(
    kiln: &Kiln,
    ran: &Ran<'_>,
    least_us: impl Fn(&Counters, &ExecutionPlan) -> f64,
) -> Vec<Candidate> {
    let (graph, chosen) = (ran.plan.graph(), ran.plan.config());
    let Ok(engine) = engine::engine_named(&chosen.engine) else { return Vec::new() };
    let mut candidates = Vec::new();
    for knob in engine.knobs(graph.canonical(), kiln.device().target()) {
        let own = chosen.knob(knob.name).ok();
        for value in knob.values.iter().filter(|value| Some(**value) != own) {
            let config = chosen.clone().with(knob.name, *value);
            let change = format!("{}={value}", knob.name);
            let tried = kiln
                .plan_with(graph, &config)
                .and_then(|plan| kiln.trial(&plan, ran.inputs).map(|_| plan));
            candidates.push(match tried {
                Ok(plan) => Candidate {
                    change,
                    registers: Some(plan.report().resources.registers),
                    blocks: Some(plan.launch().grid),
                    least: kiln.device().counters().map(|of| microseconds(least_us(&of, &plan))),
                    refused: None,
                },
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

/// What the kernel occupies, and how it is launched.
fn facts(
    plan: &ExecutionPlan,
    trial: &Trial,
    estimate: Option<&Estimate>,
    kind: &str,
) -> Vec<(String, String)> {
    let (resources, launch) = (plan.report().resources, plan.launch());
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
        facts.push(("Multiprocessors used", format!("{:.0}%", 100.0 * filled)));
    }
    let ran = if kind == "cuda" { "Ran in" } else { "Simulated in" };
    if kind != "null" {
        facts.push((ran, problem::shown(trial.elapsed)));
    }
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The counts, and how far the traffic is from the least.
fn count_rows(counters: &Counters, bytes_min: u64) -> Vec<(String, String)> {
    let shown = |(name, count): (String, u64)| (name, grouped(count));
    let mut rows: Vec<_> = counts::rows(counters).into_iter().map(shown).collect();
    let total = &counters.total;
    rows.push(("active lanes".to_owned(), format!("{:.1} of 32", total.active_lanes())));
    if bytes_min > 0 {
        let ratio = counters.dram_bytes() as f64 / bytes_min as f64;
        rows.push(("traffic over the least".to_owned(), format!("{ratio:.2}")));
    }
    rows
}

fn microseconds(us: f64) -> String {
    format!("{us:.3} µs")
}

/// `12 345 678`, with narrow spaces.
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
