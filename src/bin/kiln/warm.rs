//! `kiln warm`: the kernels of a manifest, compiled ahead of the first call.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kiln::escape::escaped;
use kiln::plan::Manifest;
use serde_json::json;

use crate::DeviceArgs;
use crate::problem::shown;
use crate::progress;
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln warm cache/pointwise.toml
  kiln warm deployment.toml --target h200 --target sm_80 --json

An interrupted warm-up resumes: kernels that are in the cache are not compiled again.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct WarmArgs {
    /// The manifest (TOML)
    manifest: PathBuf,
    /// Warm for this GPU or architecture instead of the manifest's; may be repeated
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Between two times that a bar is drawn.
const TICK: Duration = Duration::from_millis(250);

/// A bar with the time that is left, on a terminal.
pub fn progress_bar(hidden: bool) -> ProgressBar {
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} kernels, {eta} left  {msg}");
    let bar = bar.with_style(style.expect("the template is valid"));
    // Drawn from the beginning, and alive while nothing is finished.
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// Says what is under way: the bar does, or a line where there is no terminal for it.
pub fn tell(bar: &ProgressBar, what: &str) {
    match bar.is_hidden() {
        true => {
            let (done, total) = (bar.position(), bar.length().unwrap_or(0));
            progress::doing(format!("{done} of {total} done, {what}"));
        }
        false => {
            progress::done();
            bar.set_message(escaped(what).into_owned());
        }
    }
}

pub fn warm(args: &WarmArgs) -> kiln::Result<ExitCode> {
    let manifest = Manifest::read(&args.manifest)?;
    let targets: Vec<_> =
        args.target.iter().map(|name| Manifest::target(name)).collect::<kiln::Result<_>>()?;
    let kiln = args.device.open()?;
    let bar = progress_bar(args.json);
    tell(&bar, "planning");
    let summary = kiln.warm(&manifest, &targets, |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        tell(&bar, progress.stem);
    })?;
    bar.finish_and_clear();
    let kernels = summary.kernels();
    let count = |name: &str| kernels.get(name).copied().unwrap_or(0);
    if args.json {
        let failed: Vec<_> = summary
            .failed
            .iter()
            .map(|(name, error)| json!({"problem": name, "error": error.to_string()}))
            .collect();
        let document = json!({
            "problems": summary.warmed.len() + summary.failed.len(),
            "compiled": count("compiled"),
            "found": count("found"),
            "fetched": count("fetched"),
            "failed": failed,
            "seconds": summary.elapsed.as_secs_f64(),
        });
        say_json(&document);
    } else {
        say!(
            "{} problems: {} kernels compiled, {} found in the cache, {} fetched, in {}",
            summary.warmed.len() + summary.failed.len(),
            count("compiled"),
            count("found"),
            count("fetched"),
            shown(summary.elapsed),
        );
        for (name, error) in &summary.failed {
            say!("failed   {name}: {error}");
        }
    }
    Ok(ExitCode::from(u8::from(!summary.failed.is_empty())))
}
