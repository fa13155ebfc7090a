//! Runs cases that are data: every instance on every engine that takes it, sanitized, against the
//! reference. What an engine refuses is counted by its reason, and golden: no skip is silent.
//!
//! `KILN_CASE=TEXT` runs the instances whose description has the text, and prints their outcome.

use std::any::Any;
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use kiln::engine;
use kiln::{ErrorKind, Kiln};

use crate::cases::{Case, File, Instance};
use crate::golden::assert_golden;
use crate::harness::{self, Values};
use crate::settings;

/// What became of the instances of a case on an engine of a device.
#[derive(Default)]
struct Outcome {
    ran: usize,
    /// By the reason, its numbers left out.
    refused: BTreeMap<String, usize>,
}

/// One instance on one engine of one device.
struct Run<'a> {
    case: &'a Case,
    instance: &'a Instance,
    device: &'a str,
    kiln: &'static Kiln,
    engine: &'a str,
}

impl Run<'_> {
    /// Runs it; a reason where the engine refuses it.
    fn outcome(&self, values: fn(&kiln::OperationGraph) -> Values) -> Result<(), String> {
        let Run { case, instance, kiln, engine, .. } = *self;
        let graph = &instance.graph;
        let mut inputs = values(graph);
        case.give(graph, &mut inputs);
        let refused = |error: kiln::Error| {
            assert_eq!(error.kind(), ErrorKind::NotSupported, "{}: {error}", instance.what);
            error.to_string()
        };
        let target = kiln.device().target();
        let supported = engine::supported(engine, graph.canonical(), target).map_err(refused)?;
        if let Some(count) = case.settings.get(engine) {
            let count = if case.every_setting { settings::sample(*count) } else { *count };
            settings::agree(graph, &inputs, engine, count, case.agreement);
            return Ok(());
        }
        let config = instance.ask(supported.heuristic());
        supported.lower(&config).map_err(refused)?;
        let what = format!("{} {} {config}", instance.what, self.device);
        harness::check(kiln, graph, Some(&config), &inputs, &what);
        Ok(())
    }
}

/// Runs the cases of a file and compares what became of them with `tests/golden/cases_NAME.snap`.
fn run(name: &str, values: fn(&kiln::OperationGraph) -> Values) {
    let file = File::read(name);
    let filter = env::var("KILN_CASE").unwrap_or_default();
    let instances: Vec<_> = file.cases.iter().map(|case| (case, file.instances(case))).collect();
    let mut runs = Vec::new();
    for (case, instances) in &instances {
        let wanted = instances.iter().filter(|of| of.what.contains(&filter));
        for (instance, device) in wanted.flat_map(|of| case.devices.iter().map(move |on| (of, on)))
        {
            let Some(kiln) = harness::simulated(device) else { continue };
            for engine in case.engines.as_ref().unwrap_or(&file.engines) {
                runs.push(Run { case, instance, device, kiln, engine });
            }
        }
    }
    let (outcomes, failures) = all(&runs, values);
    let mut text = String::new();
    for ((case, device, engine), Outcome { ran, refused }) in outcomes {
        writeln!(text, "{case} on {device}, {engine}: {ran} ran").unwrap();
        for (reason, count) in refused {
            writeln!(text, "  {count} refused: {reason}").unwrap();
        }
    }
    println!("{text}");
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    let whole = filter.is_empty() && !harness::all_are_wanted();
    if whole && harness::kiln().device().kind() == "sim" {
        assert_golden(&format!("cases_{name}"), &text);
    }
}

type Outcomes<'a> = BTreeMap<(&'a str, &'a str, &'a str), Outcome>;

/// Runs everything on as many threads as there are cores, and goes on after a failure.
fn all<'a>(
    runs: &[Run<'a>],
    values: fn(&kiln::OperationGraph) -> Values,
) -> (Outcomes<'a>, Vec<String>) {
    let (next, state) = (AtomicUsize::new(0), Mutex::new((Outcomes::new(), Vec::new())));
    let work = || {
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| run.outcome(values)));
            let (outcomes, failures) = &mut *state.lock().unwrap();
            let own = outcomes.entry((&run.case.name, run.device, run.engine)).or_default();
            match outcome {
                Ok(Ok(())) => own.ran += 1,
                Ok(Err(reason)) => *own.refused.entry(without_numbers(&reason)).or_default() += 1,
                Err(panic) => failures.push(format!(
                    "{} on {}, {}: {}",
                    run.instance.what,
                    run.device,
                    run.engine,
                    said(&*panic)
                )),
            }
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        (1..cores).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    state.into_inner().unwrap()
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}

/// A reason with `N` in the place of its numbers: reasons of one kind are counted together.
fn without_numbers(reason: &str) -> String {
    let mut text = String::new();
    let mut before = ' ';
    for c in reason.chars() {
        // Not those of a name, as of `f32` and `sm_120`.
        let digit = c.is_ascii_digit() && !(before.is_alphabetic() || before == '_');
        if !digit {
            text.push(c);
        } else if !text.ends_with('N') {
            text.push('N');
        }
        let named = !digit && c.is_ascii_digit();
        before = if named { '_' } else { c };
    }
    text
}

/// Values whose products neither vanish nor overflow, some of them 0.
fn near_one(graph: &kiln::OperationGraph) -> Values {
    let mut values = crate::reduction::values(graph);
    for tensor in graph.inputs().filter(|tensor| !tensor.dtype.is_float()) {
        values.insert(tensor.uid, harness::fill(tensor, 7, 2.0));
    }
    values
}

#[test]
fn reductions() {
    run("reductions", near_one);
}

#[test]
fn products() {
    run("gemm", crate::gemm::cases::inputs);
}
