//! `kiln doctor`: diagnosis of the installation, with fixes.

use std::process::ExitCode;

use clap::Args;
use kiln::cache::RemoteCache;
use kiln::compile::variable;
use kiln::device::Device;
use kiln::expr::{Mode, Pointwise};
use kiln::plan::{VARIABLES, Variable};
use kiln::{DType, Kiln, OperationGraph, compile, plan};
use serde_json::json;

use crate::options::DeviceArgs;
use crate::problem::{self, Check, shown};
use crate::progress;
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln doctor
  kiln doctor --device cuda:0 --json";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// A diagnosed component.
struct Finding {
    name: &'static str,
    state: State,
    text: String,
    /// Remedy, if there is one.
    fix: Option<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Ok,
    /// Missing, but not required.
    Optional,
    /// Missing and required.
    Missing,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Optional => "none",
            State::Missing => "missing",
        }
    }
}

pub fn doctor(args: &DoctorArgs) -> kiln::Result<ExitCode> {
    progress::doing("looking for the driver, NVRTC and the cache, and running a kernel");
    let mut findings = vec![settings(), driver()];
    match args.device.open() {
        Ok(kiln) => {
            let target = kiln.device().target();
            findings.push(ok("device", format!("{target} [{}]", kiln.device().kind())));
            findings.push(cache(&kiln));
            findings.extend(kiln.remote_cache().map(remote));
            let compiler = nvrtc(&kiln);
            let usable = compiler.state == State::Ok;
            findings.push(compiler);
            if usable {
                findings.push(trial(args, kiln.device().kind()));
            }
        }
        Err(error) => findings.push(Finding {
            name: "device",
            state: State::Missing,
            text: error.to_string(),
            fix: Some("use --device sim, or unset what asks for another device".to_owned()),
        }),
    }
    let healthy = findings.iter().all(|finding| finding.state != State::Missing);
    if args.json {
        let list: Vec<_> = findings
            .iter()
            .map(|finding| {
                json!({
                    "name": finding.name,
                    "state": finding.state.name(),
                    "text": finding.text,
                    "fix": finding.fix,
                })
            })
            .collect();
        let places: Vec<_> = compile::places()
            .into_iter()
            .map(|(kind, folder)| json!({"kind": kind, "folder": folder}))
            .collect();
        let document = json!({"healthy": healthy, "findings": list, "nvrtc_places": places});
        say_json(&document);
    } else {
        for finding in &findings {
            say!("{:8} {:8} {}", finding.name, finding.state.name(), finding.text);
            if let Some(fix) = &finding.fix {
                say!("{:17} fix: {fix}", "");
            }
        }
        say!("\nNVRTC is searched at --nvrtc or KILN_NVRTC if set, otherwise among the libraries");
        say!("of the process, then here in this order, unless others can write there:");
        for (kind, folder) in compile::places() {
            say!("  {kind:15} {}", folder.display());
        }
        say!("\n{}", if healthy { "Kiln can run here" } else { "Kiln cannot run here yet" });
    }
    Ok(ExitCode::from(u8::from(!healthy)))
}

fn ok(name: &'static str, text: String) -> Finding {
    Finding { name, state: State::Ok, text, fix: None }
}

/// Which variables are set; not to what, since an address may hold a password.
fn settings() -> Finding {
    let is_set = |of: &&Variable| variable(of.name).is_some();
    let names: Vec<&str> = VARIABLES.iter().filter(is_set).map(|of| of.name).collect();
    ok(
        "settings",
        match names.is_empty() {
            true => "no variable is set".to_owned(),
            false => format!("from {}", names.join(", ")),
        },
    )
}

fn driver() -> Finding {
    let none = |text: String, fix: &str| Finding {
        name: "driver",
        state: State::Optional,
        text,
        fix: Some(fix.to_owned()),
    };
    match Device::cuda_count() {
        Ok(0) => none("a CUDA driver, but no GPU".to_owned(), "none needed: the simulator is used"),
        Ok(count) => {
            let name = |index: u32| match Device::cuda(index) {
                Ok(device) => device.target().to_string(),
                Err(error) => error.to_string(),
            };
            let names: Vec<String> = (0..count).map(name).collect();
            let version = Device::cuda(0).ok().and_then(|device| device.cuda_version());
            let version = version.map(|(major, minor)| format!(", CUDA {major}.{minor}"));
            ok(
                "driver",
                format!("{count} GPU: {}{}", names.join("; "), version.unwrap_or_default()),
            )
        }
        Err(error) => none(
            error.to_string(),
            "none needed: the simulator is used; for a GPU install NVIDIA's driver (580 or newer)",
        ),
    }
}

fn cache(kiln: &Kiln) -> Finding {
    match kiln.disk_cache() {
        Some(cache) => {
            let shards = std::fs::read_dir(cache.folder().join("kernels"));
            let entries: usize = shards
                .into_iter()
                .flatten()
                .filter_map(|shard| std::fs::read_dir(shard.ok()?.path()).ok())
                .map(Iterator::count)
                .sum();
            ok("cache", format!("{} ({entries} kernels)", cache.folder().display()))
        }
        None => Finding {
            name: "cache",
            state: State::Optional,
            text: "no usable folder: kernels are kept in memory only".to_owned(),
            fix: Some("set KILN_CACHE_DIR to a folder that is yours, mode 0700".to_owned()),
        },
    }
}

fn remote(store: &RemoteCache) -> Finding {
    match store.check() {
        Ok(answered) => ok("remote", format!("{} answers in {}", store.name(), shown(answered))),
        Err(error) => Finding {
            name: "remote",
            state: State::Optional,
            text: error.to_string(),
            fix: Some("none needed: kernels are compiled here; check KILN_REMOTE".to_owned()),
        },
    }
}

fn nvrtc(kiln: &Kiln) -> Finding {
    let fix = match kiln.device().cuda_version() {
        // Images of a later NVRTC are none for it.
        Some((major, _)) if major < 13 => compile::REMEDY.to_owned(),
        _ => "run `make setup`, or `pip install nvidia-cuda-nvrtc`, or set KILN_NVRTC".to_owned(),
    };
    let missing = |text: String| Finding {
        name: "nvrtc",
        state: State::Missing,
        text,
        fix: Some(fix.clone()),
    };
    let located = match kiln.nvrtc() {
        Ok(located) => located,
        Err(error) => return missing(error.to_string()),
    };
    match kiln.compiler() {
        Ok(compiler) => {
            let (major, minor) = compiler.version();
            ok("nvrtc", format!("{major}.{minor} at {located}"))
        }
        Err(error) => missing(error.to_string()),
    }
}

/// Compiles and runs a small kernel, bypassing the caches.
fn trial(args: &DoctorArgs, kind: &str) -> Finding {
    let attempt = || -> kiln::Result<bool> {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[1000], DType::F32);
        let y = graph.pointwise(Pointwise::new(Mode::TanhFwd), &[x])?;
        graph.output(y, "y", DType::F32);
        let graph = graph.build()?;
        let kiln = DeviceArgs { cache_dir: Some("off".into()), ..args.device.clone() }.open()?;
        let inputs = plan::random_values(&graph, 7)?;
        let ran = kiln.trial(&kiln.plan(&graph)?, &inputs)?;
        Ok(problem::check(&graph, &inputs, &ran)?.iter().all(Check::passed))
    };
    let failed = |text: String| Finding {
        name: "trial",
        state: State::Missing,
        text,
        fix: Some("fix what is missing above; if nothing is, please report this".to_owned()),
    };
    match attempt() {
        _ if kind == "null" => ok("trial", "skipped: the null device runs nothing".to_owned()),
        Ok(true) => ok("trial", "compiled and ran a kernel, the result is right".to_owned()),
        Ok(false) => failed("a kernel ran but its result is wrong".to_owned()),
        Err(error) => failed(error.to_string()),
    }
}
