//! Bugs planted in rendered kernels of products, reductions, attention and recurrent layers, one at
//! a time (`tests/data/mutants.json`): the sanitizer or a wrong result finds every one.
//! `KILN_TEST_MUTANTS` names a form whose bugs alone are planted.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use kiln::codegen::KernelSource;
use kiln::device::DeviceChoice;
use kiln::engine::{self, EngineConfig};
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::reference::{self, Expected};
use kiln::rnn::{CellKind, CellOptions};
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph};

use crate::attention::cases::{self as attention, Storage};
use crate::gemm::cases::{self as gemm, Case, Lay};
use crate::golden::centred;
use crate::harness::{self, Values};
use crate::recurrence;
use crate::reduction::softmax;

/// A kernel to plant bugs in: a graph with values, an engine and the knobs that choose its form.
struct Form {
    name: &'static str,
    graph: OperationGraph,
    inputs: Values,
    engine: &'static str,
    knobs: &'static [(&'static str, i64)],
}

/// Bugs of a form: what they are, a text of its source, what stands for it instead.
type Bugs = BTreeMap<String, Vec<[String; 3]>>;

fn product(types: [DType; 3], extents: [i64; 3], lays: [Lay; 3]) -> (OperationGraph, Values) {
    let graph = Case::new(MatmulMath::F32, types, extents).lays(lays).graph();
    let inputs = gemm::inputs(&graph);
    (graph, inputs)
}

fn rows(graph: OperationGraph) -> (OperationGraph, Values) {
    let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 3, 1.0))).collect();
    (graph, inputs)
}

/// Causal attention of sequences with lengths, keys and values of a type.
fn causal(kv: DType, [queries, keys]: [i64; 2]) -> (OperationGraph, Values) {
    let band = Band::causal(Diagonal::BottomRight);
    let op = Attention { band, key_lengths: true, ..Attention::new(MatmulMath::F32) };
    let (batches, heads, kv_heads, depth, width) = (2, 2, 1, 64, 64);
    let shape = AttentionShape { batches, heads, kv_heads, queries, keys, depth, width };
    let storage = [DType::Bf16, kv, kv, DType::F32].map(Storage::packed);
    let mut case = attention::case_of(op, shape, storage, [true; 4], 3);
    // Values behind a length are no numbers.
    let of = |name: &str| case.graph.inputs().find(|of| of.name == name).unwrap().uid;
    let (v, lengths) = (of("v"), case.inputs[&of("key_lengths")].clone());
    for (at, value) in case.inputs.get_mut(&v).unwrap().iter_mut().enumerate() {
        let row = at as i64 / width;
        if (row % keys) as f64 >= lengths[(row / keys) as usize] {
            *value = f64::NAN;
        }
    }
    (case.graph, case.inputs)
}

fn lstm([batch, units]: [i64; 2]) -> (OperationGraph, Values) {
    let op =
        recurrence::layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [batch, units]);
    let graph = recurrence::graph(&op, 5, DType::F16);
    let values = recurrence::values(&graph, &op, 5);
    (graph, values)
}

fn forms() -> Vec<Form> {
    use DType::{Bf16, F8E4M3, F16, F32};
    let form = |name, engine, (graph, inputs), knobs| Form { name, graph, inputs, engine, knobs };
    let small: &[(&str, i64)] = &[
        ("cta_k", 32),
        ("cta_m", 64),
        ("cta_n", 64),
        ("split_k", 1),
        ("stages", 3),
        ("warp_m", 32),
        ("warp_n", 32),
    ];
    let copied = product([Bf16, Bf16, F32], [70, 72, 200], [Lay::Rows, Lay::Columns, Lay::Rows]);
    let staged = product([F16, Bf16, F32], [70, 72, 100], [Lay::OddRows, Lay::Rows, Lay::Rows]);
    let bulk = product([Bf16, Bf16, F32], [200, 136, 320], [Lay::Rows, Lay::Columns, Lay::Rows]);
    let split = product([F32, F32, F32], [40, 36, 100], [Lay::Rows; 3]);
    vec![
        form("gemm_mma", "gemm_mma", copied, small),
        form("gemm_staged", "gemm_mma", staged, &[("split_k", 1), ("stages", 2)]),
        form("gemm_wgmma", "gemm_wgmma", bulk, &[("cta_m", 128), ("cta_n", 64), ("stages", 3)]),
        form("gemm_split", "gemm_simt", split, &[("split_k", 2)]),
        form(
            "reduction",
            "reduction",
            rows(softmax(F32, &[6, 1000], false)),
            &[("threads", 128), ("threads_row", 64)],
        ),
        form(
            "columns",
            "reduction_columns",
            rows(centred([2, 90, 72])),
            &[("split", 1), ("threads_y", 16)],
        ),
        form(
            "attention_mma",
            "attention_mma",
            causal(Bf16, [50, 70]),
            &[("cta_k", 16), ("cta_q", 64), ("hold_q", 0), ("warp_q", 16)],
        ),
        form(
            "attention_decode",
            "attention_decode",
            causal(F8E4M3, [30, 200]),
            &[("cluster", 2), ("cta_k", 16), ("cta_q", 64), ("split", 2)],
        ),
        form(
            "attention_wgmma",
            "attention_wgmma",
            causal(Bf16, [300, 208]),
            &[("cta_k", 32), ("cta_q", 128), ("stages", 3)],
        ),
        form(
            "attention_fp8",
            "attention_wgmma",
            causal(F8E4M3, [150, 208]),
            &[("cta_k", 32), ("cta_q", 128), ("stages", 2)],
        ),
        form("rnn_cta", "rnn_cta", lstm([5, 40]), &[]),
        form("rnn_cluster", "rnn_cluster", lstm([5, 64]), &[("group_ctas", 2)]),
        form("rnn_counter", "rnn_grid", lstm([20, 128]), &[("group_ctas", 2), ("exchange", 0)]),
        form("rnn_ll", "rnn_grid", lstm([5, 64]), &[("group_ctas", 2), ("exchange", 1)]),
    ]
}

fn open(templates: Option<PathBuf>) -> Kiln {
    let device = Some(DeviceChoice::Sim("sim".to_owned()));
    Kiln::open(Config { templates, ..harness::checked(device) }).unwrap()
}

/// A device whose templates are texts, by their names.
fn rendered(texts: &[(&str, String)]) -> Kiln {
    let folder = tempfile::tempdir().unwrap();
    for (template, text) in texts {
        let path = folder.path().join(format!("{template}.tera"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{{% raw %}}{text}{{% endraw %}}")).unwrap();
    }
    open(Some(folder.path().to_owned()))
}

/// A form's kernels as they are, and what they should give.
struct Clean<'a> {
    form: &'a Form,
    config: EngineConfig,
    kernels: Vec<(&'static str, KernelSource)>,
    expected: HashMap<i64, Expected>,
}

impl<'a> Clean<'a> {
    fn of(kiln: &Kiln, form: &'a Form) -> Clean<'a> {
        let Form { graph, engine, knobs, .. } = form;
        let supported =
            engine::supported(engine, graph.canonical(), kiln.device().target()).unwrap();
        let own = supported.heuristic();
        let config = knobs.iter().fold(own, |config, (knob, value)| config.with(knob, *value));
        let templates =
            supported.lower(&config).unwrap_or_else(|error| panic!("{config}: {error}"));
        let templates = templates.kernels.into_iter().map(|kernel| kernel.spec.template);
        let kernels = templates.zip(kiln.sources(graph, &config).unwrap()).collect();
        let expected = reference::evaluate(graph, &form.inputs).unwrap();
        let clean = Clean { form, config, kernels, expected };
        let texts = clean.texts("", "");
        assert_eq!(
            clean.finding(&rendered(&texts)),
            None,
            "{}: the kernels as they are",
            form.name
        );
        clean
    }

    fn texts(&self, from: &str, to: &str) -> Vec<(&'static str, String)> {
        let text = |source: &KernelSource| match from {
            "" => source.text.clone(),
            from => source.text.replace(from, to),
        };
        self.kernels.iter().map(|(template, source)| (*template, text(source))).collect()
    }

    /// What tells that kernels are wrong.
    fn finding(&self, kiln: &Kiln) -> Option<String> {
        let Form { name, graph, inputs, .. } = self.form;
        match harness::run(kiln, graph, Some(&self.config), inputs) {
            Err(error) => {
                assert!(error.kind() != ErrorKind::Compile, "{name}: {error}");
                Some(error.to_string())
            }
            Ok(actual) => actual.iter().find_map(|(uid, values)| {
                let worst = self.expected[uid].worst(values)?;
                (worst.ratio > 1.0).then(|| format!("{worst:?}"))
            }),
        }
    }

    /// What is not found of these bugs.
    fn missed(&self, bugs: &[[String; 3]]) -> String {
        let mut out = String::new();
        for [bug, from, to] in bugs {
            let name = self.form.name;
            let has = |(_, source): &(&str, KernelSource)| source.text.contains(from);
            assert!(
                self.kernels.iter().any(has),
                "{name} has no `{from}`:\n{}",
                self.kernels.last().unwrap().1.text
            );
            match self.finding(&rendered(&self.texts(from, to))) {
                None => out += &format!("{name}: {bug}: `{to}` for `{from}`\n"),
                Some(finding) => {
                    println!("{name}: {bug}: {}", finding.lines().next().unwrap_or_default());
                }
            }
        }
        out
    }
}

#[test]
fn every_bug_in_kernels_of_matrices_is_found() {
    if harness::kiln().device().kind() != "sim" {
        println!("skipped: only the simulated device has a sanitizer");
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mutants.json");
    let bugs: Bugs = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let forms = forms();
    let known = |name: &String| forms.iter().any(|form| form.name == name);
    assert!(bugs.keys().all(known), "forms are {:?}", bugs.keys());
    let clean = open(None);
    let only = std::env::var("KILN_TEST_MUTANTS").ok();
    let of = |form: &Form| match &bugs.get(form.name) {
        Some(bugs) if only.as_ref().is_none_or(|only| only == form.name) => {
            Clean::of(&clean, form).missed(bugs)
        }
        _ => String::new(),
    };
    let missed: String = thread::scope(|scope| {
        let all: Vec<_> = forms.iter().map(|form| scope.spawn(|| of(form))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(missed.is_empty(), "not found:\n{missed}");
}
