//! `kiln replay`: reruns a dumped kernel or an edited version, and compares.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use kiln::compile::{Resources, variable};
use kiln::plan::{self, Dump, Edit, Problem, Relaunch, Values};
use kiln::{Error, ErrorKind, Kiln, reference};
use serde_json::{Value, json};

use crate::counts;
use crate::difference::{BytesDifference, Difference};
use crate::options::{DeviceArgs, WatchArgs};
use crate::problem::{self, Check, InputArgs, check_json, check_text, shown};
use crate::progress;
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln replay dumps/sm75_pointwise_f32_flat-3b06bef4dc0ba51d
  kiln replay dumps/sm75_pointwise_f32_flat-3b06bef4dc0ba51d --edited faster.cu --counters
  kiln replay dumps/sm75_pointwise_f32_flat-3b06bef4dc0ba51d --device sim --sanitize
  kiln replay dumps/*

A kernel.cu or kernel.ptx that was edited in the folder itself is found without --edited.
Inputs are those captured in the dump, or random from seed 1 if it has none. A kernel that continues
what others began (a grid's steps, split sums) needs what was captured.

Exit code 1: a launch failed, the sanitizer reported findings, a result exceeds the error bound of
the f64 reference, or an unedited kernel's result differs from that on the same device before.
Exit code 6: a launch faulted on a GPU, so that this process has lost it.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Folders of dumped kernels
    #[arg(required = true, value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Run this .cu or .ptx file in place of the kernel; for a single folder
    #[arg(long, value_name = "FILE")]
    edited: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// Print a JSON object per folder instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn replay(args: &ReplayArgs) -> kiln::Result<ExitCode> {
    if args.folders.len() > 1 && (args.edited.is_some() || args.inputs.file().is_some()) {
        return Err(Error::with(
            ErrorKind::BadParam,
            "--edited and --inputs require a single folder",
        ));
    }
    let mut sound = true;
    for (number, folder) in args.folders.iter().enumerate() {
        if number > 0 && !args.json {
            say!("");
        }
        sound &= replay_one(args, folder)?;
    }
    Ok(ExitCode::from(u8::from(!sound)))
}

/// Replays a dump; returns whether the result is correct.
fn replay_one(args: &ReplayArgs, folder: &Path) -> kiln::Result<bool> {
    progress::doing(format!("replaying {}", folder.display()));
    let dump = Dump::open(folder)?;
    let edit = args.edited.as_deref().map(Edit::read).transpose()?;
    let edit = edit.as_ref().or(dump.edit());
    let kiln = open(args, &dump)?;
    let given = args.inputs.values(&Problem::new(dump.graph().clone()))?;
    let (inputs, origin) = match (given, dump.inputs()) {
        (Some(values), _) => (values, "given"),
        (None, Some(values)) => (values.clone(), "captured"),
        (None, None) => (plan::random_values(dump.graph(), 1)?, "random from seed 1"),
    };
    // The edited kernel first: if the dumped one faults, this process loses the GPU.
    let after = kiln.replay(&dump, edit, &inputs)?;
    let before = kiln.replay_dumped(&dump, &inputs)?;
    let comparison = Comparison::of(&kiln, &dump, edit, &inputs, origin, &before, &after)?;
    match args.json {
        true => say_json(&comparison.json()),
        false => comparison.print(),
    }
    Ok(comparison.faults.is_empty())
}

/// Opens the device selected by option or environment, otherwise that of the dump.
fn open(args: &ReplayArgs, dump: &Dump) -> kiln::Result<Kiln> {
    let chosen = variable("KILN_DEVICE").is_some();
    let mut device = args.device.clone();
    if device.device.is_none() && !chosen {
        device.device = Some(dump.device());
    }
    device.open_with(args.watch.config())
}

/// The dumped kernel and its replay, side by side.
struct Comparison<'a> {
    kiln: &'a Kiln,
    dump: &'a Dump,
    edit: Option<&'a Edit>,
    /// Source of the inputs.
    inputs: &'static str,
    before: &'a Relaunch,
    after: &'a Relaunch,
    /// Baseline of the comparison: `captured`, or the dumped kernel's result now.
    earlier: &'static str,
    differences: Vec<Difference>,
    /// Differences of scratch buffers that the kernel shares with others.
    scratch: Vec<BytesDifference>,
    checks: Vec<Check>,
    /// Faults that set the exit code to 1.
    faults: Vec<String>,
}

impl<'a> Comparison<'a> {
    fn of(
        kiln: &'a Kiln,
        dump: &'a Dump,
        edit: Option<&'a Edit>,
        inputs: &Values,
        origin: &'static str,
        before: &'a Relaunch,
        after: &'a Relaunch,
    ) -> kiln::Result<Self> {
        let captured = dump.outputs().filter(|_| origin == "captured");
        let (earlier, was) = match (captured, &before.trial) {
            (Some(outputs), _) => ("captured", Some(outputs)),
            (None, Ok(trial)) => ("before", Some(&trial.outputs)),
            (None, Err(_)) => ("before", None),
        };
        let mut comparison = Comparison {
            kiln,
            dump,
            edit,
            inputs: origin,
            before,
            after,
            earlier,
            differences: Vec::new(),
            scratch: Vec::new(),
            checks: Vec::new(),
            faults: Vec::new(),
        };
        match &after.trial {
            Err(error) => comparison.faults.push(format!("the launch failed: {error}")),
            Ok(_) if kiln.device().kind() == "null" => {}
            Ok(trial) => {
                let graph = dump.graph();
                let expected = reference::evaluate(graph, inputs)?;
                let compare = |tensor: &kiln::TensorDesc| {
                    let (is, expected) = (trial.outputs.get(&tensor.uid)?, &expected[&tensor.uid]);
                    was.map(|was| Difference::of(tensor, &was[&tensor.uid], is, &expected.values))
                };
                comparison.differences = graph.outputs().filter_map(compare).collect();
                let scratch = match captured {
                    Some(_) => dump.scratch(),
                    None => before.scratch.clone(),
                };
                let pairs = std::iter::zip(&scratch, &after.scratch);
                comparison.scratch = pairs
                    .map(|((name, was), (_, is))| BytesDifference::of(name, was, is))
                    .collect();
                if dump.is_last() {
                    comparison.checks = problem::check(graph, inputs, trial)?;
                }
            }
        }
        comparison.judge();
        Ok(comparison)
    }

    fn judge(&mut self) {
        let failed = self.checks.iter().filter(|check| !check.passed());
        self.faults.extend(
            failed.map(|check| format!("`{}` is not within the reference's bound", check.name)),
        );
        let same_device = self.earlier == "before" || self.dump.was_made_on(self.kiln.device());
        if self.edit.is_none() && same_device {
            let other = self.differences.iter().filter(|difference| !difference.is_none());
            let earlier = self.earlier;
            self.faults.extend(other.map(|of| format!("`{}` differs from {earlier}", of.name)));
            let other = self.scratch.iter().filter(|of| of.differing > 0);
            self.faults.extend(other.map(|of| format!("`{}` differs from {earlier}", of.name)));
        }
    }

    fn print(&self) {
        let (dump, device) = (self.dump, self.kiln.device());
        let launch = dump.launch();
        say!("dump      {} ({}), of {}", dump.stem(), dump.arch(), dump.target());
        say!("device    {} [{}]", device.target(), device.kind());
        say!("inputs    {}", self.inputs);
        if let (position, launches @ 2..) = dump.position() {
            say!("position  launch {} of {launches} of the problem", position + 1);
        }
        say!(
            "launch    {} blocks of {} threads, {} bytes of shared memory",
            launch.grid,
            launch.threads,
            launch.shared_bytes
        );
        say!("before    {}", relaunch_text("as dumped", self.before));
        say!("after     {}", relaunch_text(&self.edited(), self.after));
        if device.kind() == "null" {
            say!("the null device computes nothing: nothing is compared");
        }
        let earlier = self.earlier;
        for difference in &self.differences {
            say!("{earlier:<9} {}", difference.text().replace('\n', "\n          "));
        }
        for difference in &self.scratch {
            say!("{earlier:<9} {}", difference.text());
        }
        if !dump.is_last() && device.kind() != "null" {
            say!("reference none: the outputs are complete after the last launch");
        }
        for check in &self.checks {
            say!("reference {}", check_text(check));
        }
        // The first finding is in the launch's error.
        for finding in self.after.findings.iter().skip(1) {
            say!("finding   {finding}");
        }
        self.print_counters();
        match &self.faults[..] {
            [] => say!("\nthe replay is sound"),
            faults => say!("\nFAILED: {}", faults.join("\n").replace('\n', "\n        ")),
        }
    }

    fn print_counters(&self) {
        let (Some(before), Some(after)) = (&self.before.counters, &self.after.counters) else {
            return;
        };
        say!("\n{:<22} {:>14} {:>14} {:>9}", "counted", "before", "after", "change");
        for (name, was, is) in counts::compare(before, after) {
            let change = counts::change(was as f64, is as f64);
            say!("{}", format!("{name:<22} {was:>14} {is:>14} {change:>9}").trim_end());
        }
        let [was, is] = [self.before, self.after].map(|of| self.least_us(of));
        let machine = kiln::engine::machine_of(self.kiln.device().target()).name;
        let (name, change) = (format!("least us, {machine}"), counts::change(was, is));
        say!("{}", format!("{name:<22} {was:>14.3} {is:>14.3} {change:>9}").trim_end());
    }

    /// Lower bound of the launch time in microseconds.
    fn least_us(&self, of: &Relaunch) -> f64 {
        let machine = kiln::engine::machine_of(self.kiln.device().target());
        let resources = of.resources.unwrap_or_default();
        of.counters.as_ref().map_or(0.0, |counters| {
            let estimate = kiln::plan::estimate(counters, &machine, self.dump.launch(), resources);
            estimate.binds().map_or(0.0, |bound| bound.us)
        })
    }

    /// Describes the kernel that replaces the dumped one.
    fn edited(&self) -> String {
        match self.edit {
            Some(edit) => format!("edited {}", edit.path.display()),
            None => "compiled again".to_owned(),
        }
    }

    fn json(&self) -> Value {
        let relaunch = |of: &Relaunch| {
            json!({
                "registers": of.resources.map(|resources| resources.registers),
                "spill_bytes": of.resources.map(|resources| resources.spill_bytes),
                "run_us": of.trial.as_ref().ok().map(|trial| trial.elapsed.as_secs_f64() * 1e6),
                "error": of.trial.as_ref().err().map(Error::to_string),
                "findings": of.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "counters": of.counters.as_ref().map(counts::json),
                "least_us": of.counters.as_ref().map(|_| self.least_us(of)),
            })
        };
        let launch = self.dump.launch();
        json!({
            "kernel": self.dump.stem(),
            "arch": self.dump.arch().to_string(),
            "device": self.kiln.device().target().to_string(),
            "edited": self.edit.map(|edit| &edit.path),
            "inputs": self.inputs,
            "launch": {
                "grid": launch.grid,
                "threads": launch.threads,
                "shared_bytes": launch.shared_bytes,
            },
            "position": { "launch": self.dump.position().0, "of": self.dump.position().1 },
            "before": relaunch(self.before),
            "after": relaunch(self.after),
            "compared_with": self.earlier,
            "differences": self.differences.iter().map(Difference::json).collect::<Vec<_>>(),
            "scratch": self.scratch.iter().map(BytesDifference::json).collect::<Vec<_>>(),
            "checks": self.checks.iter().map(check_json).collect::<Vec<_>>(),
            "faults": self.faults,
        })
    }
}

/// Formats as `as dumped: 27 registers, no spills, ran in 2.1 ms`.
fn relaunch_text(what: &str, of: &Relaunch) -> String {
    let resources = match of.resources {
        Some(Resources { registers, spill_bytes: 0, .. }) => {
            format!("{registers} registers, no spills")
        }
        Some(Resources { registers, spill_bytes, .. }) => {
            format!("{registers} registers, {spill_bytes} bytes spilled")
        }
        None => "assembled by the device".to_owned(),
    };
    match &of.trial {
        Ok(trial) => format!("{what}: {resources}, ran in {}", shown(trial.elapsed)),
        Err(error) => {
            let text = error.to_string();
            format!("{what}: {resources}, {}", text.lines().next().unwrap_or_default())
        }
    }
}
