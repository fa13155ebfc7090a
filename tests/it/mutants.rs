//! Bugs planted in rendered kernels of every family, one at a time (`tests/data/mutants.json`):
//! each says what finds it, a check of the simulator or a wrong result, and why if nothing does.
//!
//! `make mutants` plants each under eight orders of warps (`KILN_TEST_ALL=1`), other runs under
//! one; `KILN_TEST_MUTANTS` names a form whose bugs alone are planted.

mod form;
mod forms;
mod recurrences;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use kiln::codegen::KernelSource;
use kiln::device::DeviceChoice;
use kiln::engine::{self, EngineConfig};
use kiln::graph::InPlace;
use kiln::reference::{self, Expected};
use kiln::{Config, ErrorKind, Kiln, OperationGraph, Result, TensorDesc, VariantPack};
use serde::Deserialize;
use serde_json::Value;

use crate::harness::{self, Values};
use form::Form;
use forms::forms;

/// Orders of warps of the campaign.
const SEEDS: u64 = 8;

/// What finds a bug that changes the result and breaks no rule, or none that is checked.
const WRONG: &str = "wrong result";

const NOTHING: &str = "nothing";

/// A bug in a form's kernels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    bug: String,
    class: Class,
    /// A text of the sources, and what stands in its place.
    from: String,
    to: String,
    /// What finds it: the kind of a finding, an error of the machine, a wrong result, nothing.
    finds: String,
    /// The same under the orders of warps where something else does.
    #[serde(default)]
    finds_by_seed: BTreeMap<String, String>,
    /// Why nothing finds it.
    #[serde(default)]
    reason: String,
}

impl Bug {
    fn finds(&self, seed: u64) -> &str {
        self.finds_by_seed.get(&seed.to_string()).unwrap_or(&self.finds)
    }
}

/// What kind of mistake a bug is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
enum Class {
    /// A barrier of threads that is missing or stands elsewhere.
    Barrier,
    /// A wait for copies, products or other blocks that is missing or waits for too little.
    Wait,
    /// A fence, a proxy fence, an order or a scope that is missing or too weak.
    Fence,
    /// A stage, phase, parity, count or number of bytes of a pipeline.
    Pipeline,
    /// A bound or a mask that lets one more or one less through.
    Bounds,
    /// An index, stride, offset or operand in the place of another.
    Index,
    /// A value that is missing, was never set or is carried on wrongly.
    Value,
    /// Use of what belongs to others, or is gone: exits and reused memory.
    Lifetime,
}

/// Parts of the texts of the machine's errors, and what they are called here.
const ERRORS: &[(&str, &str)] = &[
    ("is out of bounds", "out of bounds"),
    ("is not aligned", "misaligned"),
    ("none makes progress", "hang"),
    ("arrivals where", "mbarrier overflow"),
    ("which has exited", "exited peer"),
    ("without a wgmma.fence", "missing wgmma fence"),
    (": trap", "trap"),
    ("it is not initialised", "uninitialised mbarrier"),
    ("ended after", "timeout"),
];

/// What an error of a launch is called.
fn finding(name: &str, error: &kiln::Error) -> String {
    assert!(error.kind() != ErrorKind::Compile, "{name}: {error}");
    let text = error.to_string();
    if let Some((_, first)) = text.split_once("first:\n") {
        return first.split(':').next().unwrap_or_default().to_owned();
    }
    let known = ERRORS.iter().find(|(part, _)| text.contains(part));
    known.unwrap_or_else(|| panic!("{name}: {text}")).1.to_owned()
}

fn open(device: &str, templates: Option<PathBuf>, seed: u64) -> Kiln {
    let device = Some(device.parse::<DeviceChoice>().unwrap());
    let sim_seed = Some(seed);
    Kiln::open(Config { templates, sim_seed, ..harness::checked(device) }).unwrap()
}

/// A kernel with the template that it was rendered from, which others may share.
struct Rendered {
    template: &'static str,
    parameters: BTreeMap<String, String>,
    source: KernelSource,
}

impl Rendered {
    /// What holds for this kernel's parameters and not for another's, in the language of templates.
    fn apart_from(&self, other: &Rendered) -> String {
        let differs = |(path, value): &(&String, &String)| {
            other.parameters.get(*path).is_some_and(|theirs| theirs != *value)
        };
        let (path, value) = self.parameters.iter().find(differs).expect("some parameter differs");
        format!("{path} == {value}")
    }
}

/// Paths and values of the numbers and words in a value.
fn leaves(path: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            let under = |name: &String| match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            fields.iter().for_each(|(name, value)| leaves(&under(name), value, out));
        }
        Value::Array(all) => {
            let all = all.iter().enumerate();
            all.for_each(|(at, value)| leaves(&format!("{path}[{at}]"), value, out));
        }
        Value::String(text) if text.contains(['"', '\\', '\n']) => {}
        Value::String(_) | Value::Number(_) | Value::Bool(_) => {
            out.insert(path.to_owned(), value.to_string());
        }
        Value::Null => {}
    }
}

/// Runs a graph in buffers that end where its tensors do.
fn run(
    kiln: &Kiln,
    graph: &OperationGraph,
    config: &EngineConfig,
    inputs: &Values,
) -> Result<Values> {
    let plan = kiln.plan_with(graph, config)?;
    let (mut pack, mut buffers) = (VariantPack::new(), HashMap::new());
    let in_place: Vec<InPlace> = graph.in_place().collect();
    for tensor in graph.inputs().chain(graph.outputs()) {
        if in_place.iter().any(|of| of.uid == tensor.uid) {
            continue;
        }
        let before = in_place.iter().find(|of| of.within == tensor.uid).map(|of| of.uid);
        let given = before.unwrap_or(tensor.uid);
        let values = inputs.get(&given).map_or(&[][..], Vec::as_slice);
        if tensor.by_value {
            pack.set_value(tensor.uid, values[0]);
            continue;
        }
        let (bytes, size) = (tensor.span_bytes()?, tensor.dtype.bytes());
        let mut data = vec![0xff; bytes as usize];
        for (value, at) in values.iter().zip(tensor.offsets()) {
            tensor.dtype.write(*value, &mut data[at * size..]);
        }
        let buffer = kiln.device().upload(&data)?;
        harness::place(&mut pack, tensor.uid, buffer.address(), bytes);
        harness::place(&mut pack, given, buffer.address(), bytes);
        buffers.insert(tensor.uid, buffer);
    }
    let workspace = kiln.device().upload(&vec![0xff; plan.workspace_bytes() as usize])?;
    let stream = kiln.stream();
    plan.execute(&stream, &pack.with_workspace(&workspace))?;
    stream.synchronize()?;
    let read = |tensor: &TensorDesc| {
        let (bytes, size) = (buffers[&tensor.uid].to_vec()?, tensor.dtype.bytes());
        Ok((
            tensor.uid,
            tensor.offsets().map(|at| tensor.dtype.read(&bytes[at * size..])).collect(),
        ))
    };
    graph.outputs().map(read).collect()
}

/// A form's kernels as they are, and what they should give.
struct Clean<'a> {
    form: &'a Form,
    config: EngineConfig,
    kernels: Vec<Rendered>,
    expected: HashMap<i64, Expected>,
}

impl<'a> Clean<'a> {
    fn of(form: &'a Form) -> Clean<'a> {
        let Form { name, graph, engine, knobs, device, .. } = form;
        let kiln = open(device, None, 0);
        let supported = engine::supported(engine, graph.canonical(), kiln.device().target());
        let supported = supported.unwrap_or_else(|error| panic!("{name}: {error}"));
        let own = supported.heuristic();
        let config = knobs.iter().fold(own, |config, (knob, value)| config.with(knob, *value));
        let lowering =
            supported.lower(&config).unwrap_or_else(|error| panic!("{name}: {config}: {error}"));
        let sources = kiln.sources(graph, &config).unwrap();
        let kernels = std::iter::zip(lowering.kernels, sources).map(|(kernel, source)| {
            let mut parameters =
                BTreeMap::from([("stem".to_owned(), format!("\"{}\"", source.stem))]);
            leaves("", &kernel.spec.parameters, &mut parameters);
            Rendered { template: kernel.spec.template, parameters, source }
        });
        let kernels: Vec<_> = kernels.collect();
        let expected = reference::evaluate(graph, &form.inputs).unwrap();
        Clean { form, config, kernels, expected }
    }

    /// A folder of templates whose texts are the kernels', one text exchanged for another.
    fn templates(&self, from: &str, to: &str) -> tempfile::TempDir {
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for kernel in &self.kernels {
            let text = match from {
                "" => kernel.source.text.clone(),
                from => kernel.source.text.replace(from, to),
            };
            let alike = self.kernels.iter().filter(|other| other.template == kernel.template);
            let others = alike.filter(|other| other.parameters != kernel.parameters);
            let is_it: Vec<String> = others.map(|other| kernel.apart_from(other)).collect();
            let is_it = if is_it.is_empty() { "true".to_owned() } else { is_it.join(" and ") };
            let raw = format!("{{% if {is_it} %}}{{% raw %}}{text}{{% endraw %}}{{% endif %}}");
            let all = texts.entry(kernel.template).or_default();
            if !all.contains(&raw) {
                all.push_str(&raw);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        for (template, text) in texts {
            let path = folder.path().join(format!("{template}.tera"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
        }
        folder
    }

    /// What tells that the kernels of a folder are wrong.
    fn finding(&self, templates: &Path, seed: u64) -> String {
        let Form { name, graph, inputs, device, .. } = self.form;
        let kiln = open(device, Some(templates.to_owned()), seed);
        match run(&kiln, graph, &self.config, inputs) {
            Err(error) => finding(name, &error),
            Ok(actual) => {
                let wrong = |(uid, values): (&i64, &Vec<f64>)| {
                    self.expected[uid].worst(values).is_some_and(|worst| worst.ratio > 1.0)
                };
                if actual.iter().any(wrong) { WRONG } else { NOTHING }.to_owned()
            }
        }
    }

    /// What is not as these bugs say, and of the kernels without any.
    fn differences(&self, bugs: &[Bug], seeds: u64) -> String {
        let mut out = String::new();
        let name = self.form.name;
        let clean = self.templates("", "");
        for seed in 0..seeds {
            let found = self.finding(clean.path(), seed);
            if found != NOTHING {
                out += &format!("{name}: as it is, seed {seed}: {found}\n");
            }
        }
        for bug in bugs {
            let Bug { bug: what, from, to, .. } = bug;
            let has = |kernel: &Rendered| kernel.source.text.contains(from);
            assert!(self.kernels.iter().any(has), "{name}: {what}: no source has `{from}`");
            let templates = self.templates(from, to);
            for seed in 0..seeds {
                let (expected, found) = (bug.finds(seed), self.finding(templates.path(), seed));
                println!("{name}\t{what}\t{:?}\t{seed}\t{found}", bug.class);
                if found != expected {
                    out += &format!("{name}: {what}: seed {seed}: {found}, not {expected}\n");
                }
            }
        }
        out
    }
}

#[test]
fn every_bug_is_found() {
    if harness::kiln().device().kind() != "sim" {
        println!("skipped: only the simulated device has a sanitizer");
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mutants.json");
    let bugs: BTreeMap<String, Vec<Bug>> =
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut forms = forms();
    let known = |name: &String| forms.iter().any(|form| form.name == name);
    assert!(bugs.keys().all(known), "forms are {:?}", bugs.keys());
    for (name, bug) in bugs.iter().flat_map(|(name, bugs)| bugs.iter().map(move |bug| (name, bug)))
    {
        let missed = bug.finds == NOTHING;
        assert_eq!(missed, !bug.reason.is_empty(), "{name}: {}: a reason", bug.bug);
        assert!(bug.from != bug.to && !bug.from.is_empty(), "{name}: {}: an edit", bug.bug);
    }
    if let Ok(only) = std::env::var("KILN_TEST_MUTANTS") {
        forms.retain(|form| form.name == only);
    }
    let seeds = if harness::all_are_wanted() { SEEDS } else { 1 };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut out = String::new();
        while let Some(form) = forms.get(next.fetch_add(1, Relaxed)) {
            let bugs = bugs.get(form.name).map_or(&[][..], Vec::as_slice);
            out += &Clean::of(form).differences(bugs, seeds);
        }
        out
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let differences: String = thread::scope(|scope| {
        let all: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(differences.is_empty(), "not as `tests/data/mutants.json` says:\n{differences}");
}
