//! Spans and metrics: what is documented is what is emitted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kiln::expr::{Mode, Pointwise};
use kiln::plan::{Background, Manifest, ManifestProblem, Metrics};
use kiln::{Config, DType, Kiln, OperationGraph};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::harness;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/observability.md");

/// A span's level and its fields, with a value of each that was recorded.
type Spans = BTreeMap<String, (String, BTreeMap<String, String>)>;

/// Collects every span of Kiln.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Spans>>);

impl Collector {
    fn record(&self, name: &str, values: impl FnOnce(&mut dyn Visit)) {
        struct Values<'a>(&'a mut BTreeMap<String, String>);
        impl Visit for Values<'_> {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0.insert(field.name().to_owned(), format!("{value:?}"));
            }
        }
        let mut spans = self.0.lock().unwrap();
        values(&mut Values(&mut spans.get_mut(name).unwrap().1));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, _id: &Id, _context: Context<'_, S>) {
        let metadata = attributes.metadata();
        if !metadata.target().starts_with("kiln") {
            return;
        }
        let fields = metadata.fields().iter().map(|field| (field.name().to_owned(), String::new()));
        let level = metadata.level().as_str().to_lowercase();
        let fresh = || (level, fields.collect());
        self.0.lock().unwrap().entry(metadata.name().to_owned()).or_insert_with(fresh);
        self.record(metadata.name(), |visit| attributes.record(visit));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let name = context.span(id).unwrap().name();
        if self.0.lock().unwrap().contains_key(name) {
            self.record(name, |visit| values.record(visit));
        }
    }
}

fn graph(columns: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[3, columns], DType::F32);
    let bias = graph.input("bias", &[1, columns], DType::F32);
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::SigmoidFwd), &[sum]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

/// Everything there is a span or a counter for: a compilation, its general kernel behind it, a
/// second shape, an execution, a warm-up, a plan made before.
fn scenario(folder: &Path) -> Metrics {
    let config = Config {
        device: Some("sim".parse().unwrap()),
        cache_dir: Some(folder.to_owned()),
        background: Some(Background::default()),
        ..Config::default()
    };
    let kiln = Kiln::open(config).unwrap();
    kiln.plan(&graph(30)).unwrap();
    assert!(kiln.settle(Duration::from_secs(60)));
    let plan = kiln.plan(&graph(40)).unwrap();
    let inputs = graph(40).inputs().map(|x| (x.uid, harness::fill(x, 1, 1.0))).collect();
    harness::run_plan(&kiln, &plan, &inputs).unwrap();
    plan.settle(Duration::from_secs(60)).unwrap();
    assert!(kiln.settle(Duration::from_secs(60)));
    kiln.plan(&graph(40)).unwrap();
    let problem =
        ManifestProblem { inline: Some(graph(50).to_json()), ..ManifestProblem::default() };
    kiln.warm(&Manifest::of(vec![problem]), &[], |_| {}).unwrap();
    kiln.metrics()
}

/// Level and fields per span, from the table of the documentation.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = fs::read_to_string(DOCS).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let fields = cells[3].split_whitespace().map(|field| field.trim_matches('`').to_owned());
        (cells[1].trim_matches('`').to_owned(), (cells[2].to_owned(), fields.collect()))
    };
    rows.map(row).collect()
}

/// Runs in a process of its own: whether a span is heard is remembered for all threads, and other
/// tests have threads where nobody listens.
#[test]
fn the_documented_spans_are_those_emitted() {
    if harness::in_own_processes("observability::the_documented_spans_are_those_emitted", &["run"])
        .is_none()
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::default();
    let subscriber = tracing_subscriber::registry().with(collector.clone());
    tracing::subscriber::with_default(subscriber, || scenario(folder.path()));
    let spans = collector.0.lock().unwrap().clone();
    let emitted: BTreeMap<_, _> = spans
        .iter()
        .map(|(name, (level, fields))| {
            (name.clone(), (level.clone(), fields.keys().cloned().collect::<BTreeSet<_>>()))
        })
        .collect();
    assert_eq!(emitted, documented());
    for (name, (_, fields)) in &spans {
        for (field, value) in fields {
            assert!(!value.is_empty(), "span {name} never recorded {field}");
        }
    }
    assert_eq!(spans["execute"].1["family"], "\"pointwise_general\"");
    assert_eq!(spans["compile"].1["target"], "sm_90a");
    assert!(spans["compile"].1["ns"].parse::<u64>().unwrap() > 1_000_000);
}

#[test]
fn metrics_count_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = scenario(folder.path());
    // The second shape, planned again; the third is warm when it is planned.
    assert_eq!((metrics.plan_hits, metrics.general_hits), (1, 1));
    // Own kernels of three shapes, and the general one.
    assert_eq!(metrics.kernels["compiled"], 4, "{metrics:?}");
    assert_eq!((metrics.kernels["pack"], metrics.compile_failures), (0, 0));
    let background = metrics.background;
    assert_eq!((background.waiting, background.failed, background.refused), (0, 0, 0));
    assert!(background.finished >= 2, "{background:?}");
    let cache = metrics.cache.as_ref().unwrap();
    assert_eq!((cache.writes, cache.misses["absent"] >= 3), (4, true));
    assert!(cache.written_bytes > 4000 && metrics.ns["compile"] > 4_000_000, "{metrics:?}");
    let text = serde_json::to_string(&metrics).unwrap();
    assert_eq!(serde_json::from_str::<Metrics>(&text).unwrap(), metrics);
    let text = metrics.to_prometheus();
    for line in [
        "# TYPE kiln_kernels_total counter",
        "kiln_kernels_total{origin=\"compiled\"} 4",
        "kiln_plan_hits_total 1",
        "# TYPE kiln_background_waiting gauge",
        "kiln_cache_writes_total 4",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.rsplit_once(' ').unwrap().1.parse::<u64>().is_ok(), "{line}");
    }
}

#[test]
fn the_examples_of_the_documentation_work() {
    let folder = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    std::os::unix::fs::symlink(examples, folder.path().join("examples")).unwrap();
    let text = fs::read_to_string(DOCS).unwrap();
    let commands: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert_eq!(commands.len(), 6);
    for command in commands {
        let (variables, arguments): (Vec<&str>, Vec<&str>) =
            command.split(' ').partition(|word| word.contains('=') && !word.starts_with("--"));
        let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(&arguments[1..])
            .envs(variables.iter().map(|pair| pair.split_once('=').unwrap()))
            .env("KILN_CACHE_DIR", "off")
            .current_dir(folder.path())
            .output()
            .expect("the tool starts");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{command}: {errors}");
        let expected = match variables.first() {
            None => continue,
            Some(filter) if filter.contains("kiln=info") => "INFO",
            Some(filter) if filter.contains("trace") => "TRACE execute{",
            Some(filter) if filter.contains("choice") => "engine chosen config=gemm_",
            Some(_) => "DEBUG plan{",
        };
        assert!(errors.contains(expected), "{command}: {errors}");
    }
    let trace = fs::read_to_string(folder.path().join("trace.json")).unwrap();
    let events: Vec<serde_json::Value> = serde_json::from_str(&trace).unwrap();
    for name in ["plan", "compile", "load", "execute"] {
        assert!(events.iter().any(|event| event["name"] == name), "no {name} in the trace");
    }
}
