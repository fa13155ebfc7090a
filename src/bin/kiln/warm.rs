//! `kiln warm`: the kernels of a manifest, compiled ahead of the first call.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kiln::plan::Manifest;
use serde_json::json;

use crate::options::DeviceArgs;
use crate::problem::shown;
use crate::progress::{progress_bar, tell};
use crate::terminal::{compiler_log, say_json};

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
            .map(|(name, error)| {
                let log = error.compile_failure().map(|failure| &failure.log);
                json!({"problem": name, "error": error.to_string(), "log": log})
            })
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
            if let Some(log) = compiler_log(error) {
                say!("{log}");
            }
        }
    }
    Ok(ExitCode::from(u8::from(!summary.failed.is_empty())))
}
