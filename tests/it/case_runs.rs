//! Runs cases that are data: every instance on every engine that takes it, sanitized, against the
//! reference. What an engine refuses is counted by its reason, and golden: no skip is silent.
//!
//! `KILN_CASE=TEXT` runs the instances whose description has the text, and prints their outcome;
//! `KILN_CASE_DEVICE=TARGET` runs all of them on that simulated device.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::env;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, OnceLock};
use std::thread;

use kiln::engine;
use kiln::reference::{self, Expected};
use kiln::{ErrorKind, Kiln, OperationGraph};

use crate::cases::{Case, File, Instance};
use crate::golden::assert_golden;
use crate::harness::{self, Values};
use crate::resident_loop;
use crate::rnn_data;
use crate::settings;

/// What became of the instances of a case on an engine of a device.
#[derive(Default)]
struct Outcome {
    ran: usize,
    /// By the reason, its numbers left out.
    refused: BTreeMap<String, usize>,
}

/// Ordinary runs of fewer instances of a case run all engines.
const EVERY_ENGINE: usize = 8;

/// Stands for those engines that are chosen for the parts of a graph.
const CHOSEN: &str = "chosen";

/// By case, device and engine.
type Outcomes<'a> = BTreeMap<(&'a str, &'a str, &'a str), Outcome>;

/// What is run as one: engines and devices share an instance's values and what they are to give.
struct Work<'a> {
    case: &'a Case,
    instance: &'a Instance,
    engines: &'a [String],
    /// Number of the instance in its case.
    number: u64,
    /// Whether every engine runs it, or every second one, whose turn it is.
    every_engine: bool,
    inputs: OnceLock<Values>,
    expected: OnceLock<HashMap<i64, Expected>>,
    values: fn(&OperationGraph) -> Values,
}

impl<'a> Work<'a> {
    /// Runs the instance on one engine of one device, of which the first to run leaves its values;
    /// a reason where the engine refuses it.
    fn outcome(
        &self,
        kiln: &Kiln,
        device: &str,
        engine: &str,
        first: &OnceLock<Values>,
    ) -> Result<(), String> {
        let Work { case, instance, .. } = *self;
        let graph = &instance.graph;
        let inputs = self.inputs.get_or_init(|| instance.inputs(case, self.values));
        let refused = |error: kiln::Error| {
            assert_eq!(error.kind(), ErrorKind::NotSupported, "{}: {error}", instance.what);
            error.to_string()
        };
        let (plan, how) = if engine == CHOSEN {
            let plan = kiln.plan(graph).unwrap_or_else(|error| panic!("{error:?}\n{graph}"));
            (plan, engine.to_owned())
        } else if instance.is_network() {
            (rnn_data::plan_on(kiln, graph, engine).map_err(refused)?, engine.to_owned())
        } else {
            let target = kiln.device().target();
            let supported =
                engine::supported(engine, graph.canonical(), target).map_err(refused)?;
            if let Some(count) = case.settings.get(engine) {
                let count = if case.every_setting { settings::sample(*count) } else { *count };
                settings::agree(graph, inputs, engine, count, case.agreement);
                return Ok(());
            }
            let config = instance.ask(supported.heuristic());
            // A value that is asked for may be none of the target's.
            let lowering = supported.lower(&config).map_err(|error| {
                let kinds = [ErrorKind::NotSupported, ErrorKind::BadParam];
                assert!(kinds.contains(&error.kind()), "{}: {error}", instance.what);
                error.to_string()
            })?;
            let scratch = supported.scratch(&config).expect("it lowers");
            assert_eq!(scratch, lowering.scratch, "{}: {config}", instance.what);
            let plan = kiln.plan_with(graph, &config);
            (plan.unwrap_or_else(|error| panic!("{error:?}\n{graph}")), config.to_string())
        };
        let actual = harness::run_plan(kiln, &plan, inputs)
            .unwrap_or_else(|error| panic!("{error:?}\n{graph}"));
        let expected = self.expected.get_or_init(|| self.evaluate(inputs));
        let what = format!("{} {device} {how}", instance.what);
        harness::compare_with(expected, graph, inputs, &actual, &what);
        if case.same_bits {
            let bits = |values: &Vec<f64>| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            for (uid, values) in first.get_or_init(|| actual.clone()) {
                let same = bits(values) == bits(&actual[uid]);
                assert!(same, "{what}: tensor {uid} has other bits");
            }
        }
        Ok(())
    }

    fn evaluate(&self, inputs: &Values) -> HashMap<i64, Expected> {
        let graph = &self.instance.graph;
        let expected = reference::evaluate(graph, inputs).expect("inputs fit the graph");
        let mut values = graph.outputs().flat_map(|tensor| &expected[&tensor.uid].values);
        let finite = !self.case.finite || values.all(|value| value.is_finite());
        assert!(finite, "the reference reads what nobody is to read");
        expected
    }

    /// Whether the engine at this position runs it.
    fn takes(&self, at: usize) -> bool {
        // Multiples of the root of 2, the fraction of them in 2^-32: every engine meets all values
        // of a parameter, on every device, whose turns are multiples of the golden ratio.
        let fraction = (self.number as u32).wrapping_mul(0x6a09_e667);
        self.every_engine || at as u32 % 2 == fraction >> 31
    }

    /// Runs it on all engines and devices, and goes on after a failure.
    fn run(&self, state: &Mutex<(Outcomes<'a>, Vec<String>)>) {
        for device in self.instance.devices(self.case) {
            let simulated = harness::simulated_by_turns(device, self.number);
            let Some(kiln) = simulated else { continue };
            let first = OnceLock::new();
            for (_, engine) in self.engines.iter().enumerate().filter(|(at, _)| self.takes(*at)) {
                let run = || self.outcome(kiln, device, engine, &first);
                let outcome = panic::catch_unwind(AssertUnwindSafe(run));
                let (outcomes, failures) = &mut *state.lock().unwrap();
                let own = outcomes.entry((&self.case.name, device, engine)).or_default();
                match outcome {
                    Ok(Ok(())) => own.ran += 1,
                    Ok(Err(reason)) => {
                        *own.refused.entry(without_numbers(&reason)).or_default() += 1;
                    }
                    Err(panic) => {
                        let (what, why) = (&self.instance.what, said(&*panic));
                        let failure = format!("{what} on {device}, {engine}: {why}");
                        // At once, and not held back: a fault may end the process.
                        let first = failure.lines().next().unwrap_or_default();
                        _ = writeln!(io::stderr(), "failed: {first}");
                        failures.push(failure);
                    }
                }
            }
        }
    }
}

/// Runs the cases of a file and compares what became of them with `tests/golden/cases_NAME.snap`.
fn run(name: &str, values: fn(&OperationGraph) -> Values) {
    let file = File::read(name);
    let filter = env::var("KILN_CASE").unwrap_or_default();
    let instances: Vec<_> = file.cases.iter().map(|case| (case, file.instances(case))).collect();
    let mut work = Vec::new();
    for (case, instances) in &instances {
        let engines = case.engines.as_ref().unwrap_or(&file.engines);
        let wanted = instances.iter().filter(|of| of.what.contains(&filter));
        let turns = case.turns && !case.same_bits && instances.len() >= EVERY_ENGINE;
        let on_gpu = harness::kiln().device().kind() != "sim";
        let every_engine = !turns || on_gpu || harness::all_are_wanted();
        let (inputs, expected) = (OnceLock::new(), OnceLock::new());
        work.extend(wanted.zip(0..).map(|(instance, number)| {
            let (inputs, expected) = (inputs.clone(), expected.clone());
            Work { case, instance, engines, number, every_engine, inputs, expected, values }
        }));
    }
    let (outcomes, failures) = all(work);
    let mut text = String::new();
    for ((case, device, engine), Outcome { ran, refused }) in outcomes {
        writeln!(text, "{case} on {device}, {engine}: {ran} ran").unwrap();
        for (reason, count) in refused {
            writeln!(text, "  {count} refused: {reason}").unwrap();
        }
    }
    println!("{text}");
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    let elsewhere = env::var("KILN_CASE_DEVICE").is_ok();
    let whole = filter.is_empty() && !elsewhere && !harness::all_are_wanted();
    if whole && harness::kiln().device().kind() == "sim" {
        assert_golden(&format!("cases_{name}"), &text);
    }
}

/// Runs everything on as many threads as there are cores.
fn all(work: Vec<Work<'_>>) -> (Outcomes<'_>, Vec<String>) {
    let (work, state) = (Mutex::new(work.into_iter()), Mutex::default());
    let take = || work.lock().unwrap().next();
    let run = || {
        while let Some(one) = take() {
            one.run(&state);
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        (1..cores).for_each(|_| {
            scope.spawn(run);
        });
        run();
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
fn near_one(graph: &OperationGraph) -> Values {
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
fn pointwise() {
    run("pointwise", near_one);
}

#[test]
fn products() {
    run("gemm", crate::gemm::cases::inputs);
}

#[test]
fn operand_sums() {
    run("operand_sums", crate::gemm::cases::inputs);
}

/// Of graphs that are built, the builder knows the values.
fn none(graph: &OperationGraph) -> Values {
    panic!("a graph that a file spells out: {graph}");
}

#[test]
fn attentions() {
    run("attention", none);
}

#[test]
fn attention_gradients() {
    run("attention_backward", none);
}

#[test]
fn convolutions() {
    run("convolution", none);
}

#[test]
fn depthwise_convolutions() {
    run("depthwise", none);
}

#[test]
fn depthwise_filters() {
    run("depthwise_filter", none);
}

#[test]
fn views() {
    run("views", near_one);
}

#[test]
fn random_numbers() {
    run("rng", near_one);
}

#[test]
fn resamplings() {
    run("resample", none);
}

/// Flags have the values that are waited for.
fn awaited(graph: &OperationGraph) -> Values {
    kiln::plan::random_values(graph, 5).unwrap()
}

#[test]
fn signals() {
    run("signal", awaited);
}

/// Small numbers; the file says what positions are.
fn small(graph: &OperationGraph) -> Values {
    resident_loop::values(graph, &[])
}

#[test]
fn dynamic_slices() {
    run("dynamic_slice", small);
}

#[test]
fn norms() {
    run("norms", near_one);
}

#[test]
fn recurrent_networks() {
    run("rnn", none);
}
