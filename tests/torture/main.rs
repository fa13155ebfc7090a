//! Campaigns against the cache: processes killed at random moments, every flipped bit, full disks,
//! foreign folders, clocks that go back. `make torture` runs them all and prints what happened.
//!
//! Worker processes are this program itself, started with the hidden argument `inside`.

mod damage;
mod intrusion;
mod kill;
mod mounts;
mod sample;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use serde::{Deserialize, Serialize};

/// Torture the kernel cache.
#[derive(Parser)]
struct Arguments {
    /// How long processes are killed for.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Where random numbers start; printed, so that a failure can be repeated.
    #[arg(long, default_value_t = 2026)]
    seed: u64,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Only campaigns whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// What a child process does, in which folder; for this program's own use.
    #[arg(long, hide = true, num_args = 2)]
    inside: Option<Vec<String>>,
}

/// What a campaign did and found.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Outcome {
    /// What was done, and how often.
    figures: Vec<(String, u64)>,
    /// Everything that should not have happened.
    failures: Vec<String>,
    /// Why something was not tried.
    skipped: Vec<String>,
}

impl Outcome {
    fn figure(&mut self, name: &str, count: u64) {
        self.figures.push((name.to_owned(), count));
    }

    /// A failure with its text, unless the condition holds.
    fn expect(&mut self, condition: bool, text: impl FnOnce() -> String) {
        if !condition {
            self.failures.push(text());
        }
    }
}

/// A campaign runs in an empty folder of its own.
struct Campaign {
    name: &'static str,
    run: fn(&Context) -> Outcome,
}

struct Context {
    folder: PathBuf,
    seconds: u64,
    seed: u64,
}

const CAMPAIGNS: &[Campaign] = &[
    Campaign { name: "16 processes", run: kill::sixteen_processes },
    Campaign { name: "kill -9", run: kill::kill_at_random_moments },
    Campaign { name: "flipped bits of an entry", run: damage::bits_of_an_entry },
    Campaign { name: "flipped bits of a pack", run: damage::bits_of_a_pack },
    Campaign { name: "lengths of an entry", run: damage::lengths_of_an_entry },
    Campaign { name: "lengths of a pack", run: damage::lengths_of_a_pack },
    Campaign { name: "wrong files in right places", run: damage::wrong_files },
    Campaign { name: "clock that goes back", run: damage::clock_that_goes_back },
    Campaign { name: "disk full", run: mounts::disk_full },
    Campaign { name: "read-only folder", run: mounts::read_only },
    Campaign { name: "no HOME, unknown user", run: mounts::nobody },
    Campaign { name: "links and foreign folders", run: intrusion::links_and_foreign_folders },
];

/// A line of the result.
#[derive(Serialize)]
struct Line {
    campaign: &'static str,
    seconds: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

impl Line {
    fn print(&self) {
        let Outcome { figures, failures, skipped } = &self.outcome;
        let state = match (failures.len(), figures.len()) {
            (0, 0) => "skipped",
            (0, _) => "ok",
            _ => "FAILED",
        };
        let mut parts: Vec<String> =
            figures.iter().map(|(name, count)| format!("{count} {name}")).collect();
        parts.push(format!("{:.1} s", self.seconds));
        println!("{:<28} {state:<8} {}", self.campaign, parts.join(", "));
        failures.iter().take(10).for_each(|text| println!("    failed: {text}"));
        skipped.iter().for_each(|text| println!("    skipped: {text}"));
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some([role, folder]) = arguments.inside.as_deref() {
        return work::inside(role, folder.as_ref(), arguments.seed);
    }
    let mut lines = Vec::new();
    for campaign in CAMPAIGNS.iter().filter(|campaign| campaign.name.contains(&arguments.only)) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let Arguments { seconds, seed, .. } = arguments;
        let context = Context { folder: folder.path().to_owned(), seconds, seed };
        let start = Instant::now();
        let outcome = (campaign.run)(&context);
        let seconds = start.elapsed().as_secs_f64();
        let line = Line { campaign: campaign.name, seconds, outcome };
        if !arguments.json {
            line.print();
        }
        lines.push(line);
    }
    let count = |of: fn(&Outcome) -> bool| lines.iter().filter(|line| of(&line.outcome)).count();
    let failed = count(|outcome| !outcome.failures.is_empty());
    let skipped = count(|outcome| !outcome.skipped.is_empty());
    if arguments.json {
        let document = serde_json::json!({
            "seed": arguments.seed, "failed": failed, "skipped": skipped, "campaigns": lines,
        });
        println!("{document:#}");
    } else {
        let campaigns = lines.len();
        let seed = arguments.seed;
        println!(
            "{campaigns} campaigns, {failed} failed, {skipped} with something skipped, seed {seed}"
        );
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
