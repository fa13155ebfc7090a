//! Names from outside: whatever characters they have, the code of a kernel is the same but for its
//! identifiers, for every engine and every template; and files stay inside their folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use kiln::codegen::{KernelSource, Templates};
use kiln::engine::{self, EngineConfig, engines};
use kiln::escape::is_word;
use kiln::expr::Real;
use kiln::graph::{
    Attention, AttentionBackward, AttentionShape, Direction, MatmulMath, Quantization, Recurrence,
    RecurrenceSlots, RowLayout, Signal, Softcap,
};
use kiln::plan::{Dump, Problem};
use kiln::target::Target;
use kiln::{DType, OperationGraph};
use serde_json::Value as Json;

use crate::attention::backward_cases;
use crate::attention::cases::{Storage, graph as attention, keep_program, score_program};
use crate::convolution;
use crate::ctc;
use crate::dynamic_slice;
use crate::gemm::fusion::{bias_gelu, prologues, reduced_everywhere};
use crate::golden;
use crate::harness;
use crate::norm::rms_gradients;
use crate::pointwise;
use crate::pointwise_loop;
use crate::recurrence::graph as recurrent;
use crate::reduction::{residual_rms, softmax};
use crate::resample;
use crate::resident_loop;
use crate::rng;
use crate::rnn_cells::user_cells;
use crate::signal;
use crate::views;

/// What a name may try. Each is made unique by a number, in front or behind.
fn payloads() -> Vec<String> {
    let short = [
        "x\n#include \"/etc/passwd\"\n//",
        "x\r__device__ int injected = 1;//",
        "x\u{b}__device__ int injected = 1;",
        "x\u{2028}__device__ int injected = 1;",
        "*/ __device__ int injected = 1; /*",
        "x */ int y; //\\",
        "x\\",
        "x??/\n__device__ int injected;",
        "x??/",
        "x\n#define float double\n",
        "\"); asm(\"trap;\"); //",
        "{{ stem }}{% include \"x\" %}",
        "..",
        "../../../../etc/cron.d/x",
        "/etc/passwd",
        "a\u{0}b",
        "\u{202e}rtl\u{2066}",
        "\u{1b}[2J\u{1b}]0;x\u{7}",
        "asm",
        "__asm__ volatile (\"trap;\")",
        "__global__",
        "linux",
        "float2",
        "uint4",
        "dim3",
        "threadIdx.x",
        "__FILE__",
        "NULL",
        "assert",
        "__syncthreads",
        "return 1;",
        "x;int injected",
        "$`${IFS}",
        "%s%n",
        "😀é重",
        "",
    ];
    let long = ["y".repeat(10_000), "\n".repeat(10_000)];
    short.iter().map(|text| (*text).to_owned()).chain(long).collect()
}

/// All names that a graph's document has from its author.
fn names(document: &Json) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let tensors = document["graph"]["tensors"].as_array().into_iter().flatten();
    names.extend(tensors.filter_map(|tensor| tensor["name"].as_str().map(str::to_owned)));
    collect(document, &mut names);
    names
}

fn collect(json: &Json, names: &mut BTreeSet<String>) {
    match json {
        Json::Object(object) => {
            for (key, value) in object {
                let lists = ["gates", "states", "parameters", "row_inputs", "unit_inputs"];
                match key.as_str() {
                    "cell" | "statistics" => collect_name(value, names),
                    "program" | "keep" | "score" => collect_lines(value, names),
                    key if lists.contains(&key) => {
                        let texts = value.as_array().into_iter().flatten();
                        names.extend(texts.filter_map(|text| text.as_str().map(str::to_owned)));
                    }
                    _ => {}
                }
                collect(value, names);
            }
        }
        Json::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}

fn collect_name(json: &Json, names: &mut BTreeSet<String>) {
    let objects = std::slice::from_ref(json).iter();
    let objects = objects.chain(json.as_array().into_iter().flatten());
    names.extend(objects.filter_map(|object| object["name"].as_str().map(str::to_owned)));
}

fn collect_lines(json: &Json, names: &mut BTreeSet<String>) {
    let lines = json.as_array().or_else(|| json["operations"].as_array()).into_iter().flatten();
    names.extend(lines.filter_map(|line| line["output"].as_str().map(str::to_owned)));
}

/// The document with other names. Names of a cell are also parts of names.
fn renamed(json: &Json, names: &BTreeMap<String, String>) -> Json {
    let rename = |text: &str| {
        let whole = names.get(text).cloned();
        let behind = |prefix: &str| {
            let rest = text.strip_prefix(prefix)?;
            names.get(rest).map(|name| format!("{prefix}{name}"))
        };
        let before = |suffix: &str| {
            let rest = text.strip_suffix(suffix)?;
            names.get(rest).map(|name| format!("{name}{suffix}"))
        };
        // `next_h` is the name of a line, and means the next `h`.
        let parts = ["next_", "x_", "r_"].into_iter().find_map(behind);
        let parts = parts.or_else(|| ["_mean", "_inv"].into_iter().find_map(before));
        parts.or(whole).unwrap_or_else(|| text.to_owned())
    };
    match json {
        Json::String(text) => Json::String(rename(text)),
        Json::Array(values) => values.iter().map(|value| renamed(value, names)).collect(),
        Json::Object(object) => {
            object.iter().map(|(key, value)| (key.clone(), renamed(value, names))).collect()
        }
        other => other.clone(),
    }
}

/// The graph with names of which the first is the payload of this number.
fn with_names(graph: &OperationGraph, round: usize) -> OperationGraph {
    let document: Json = serde_json::from_str(&graph.to_json()).unwrap();
    let payloads = payloads();
    let name = |(at, name): (usize, String)| {
        let payload = &payloads[(at + round) % payloads.len()];
        let new = if at % 2 == 0 { format!("{payload}{at}") } else { format!("{at}{payload}") };
        (name, new)
    };
    let new = names(&document).into_iter().enumerate().map(name).collect();
    let text = renamed(&document, &new).to_string();
    OperationGraph::from_json(&text).unwrap_or_else(|error| panic!("{error:?}\n{text}"))
}

/// What a source is made of, in the order of the alphabet, without its comments: operations that do
/// not depend on each other are ordered by their names.
struct Tokens {
    identifiers: Vec<String>,
    others: Vec<String>,
}

fn tokens(source: &str) -> Tokens {
    assert!(!source.contains("??/"), "a trigraph");
    let printable = |c: char| c == '\n' || c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    assert!(source.chars().all(printable), "a character that is not printable");
    let joined = source.replace("\\\n", "");
    let (mut identifiers, mut others) = (Vec::new(), Vec::new());
    for line in joined.lines() {
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            if rest.starts_with("//") {
                break;
            }
            assert!(c.is_ascii(), "{line}");
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let length = match c {
                '"' => 2 + rest[1..].find('"').unwrap_or_else(|| panic!("open string: {line}")),
                c if is_part(c) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
                _ => 1,
            };
            let (token, behind) = rest.split_at(length);
            rest = behind;
            match c {
                ' ' => {}
                c if is_part(c) && !c.is_ascii_digit() => identifiers.push(token.to_owned()),
                _ => others.push(token.to_owned()),
            }
        }
    }
    others.sort();
    identifiers.sort();
    Tokens { identifiers, others }
}

/// Graphs which between them every engine takes, with the settings that need every template.
pub fn graphs() -> Vec<(OperationGraph, Vec<(&'static str, i64)>)> {
    let extents = [256, 512, 1024];
    let shape = AttentionShape {
        batches: 2,
        heads: 4,
        kv_heads: 2,
        queries: 128,
        keys: 128,
        depth: 64,
        width: 64,
    };
    let storage = [Storage::packed(DType::Bf16); 4];
    let plain = Attention::new(MatmulMath::F32);
    let full = Attention {
        softcap: Some(Softcap { cap: Real::new(30.0), last: false }),
        bias: true,
        key_lengths: true,
        keep: Some(keep_program(DType::F32).into()),
        score: Some(score_program(&shape, DType::F32).into()),
        statistics: true,
        ..plain.clone()
    };
    let gradients = AttentionBackward {
        dlse: true,
        dbias: true,
        dsinks: true,
        dscore: [true, false, false, false, false, false, false, false],
        ..AttentionBackward::new(Attention { sinks: true, ..full.clone() })
    };
    let sloped = Attention { slopes: true, ..plain.clone() };
    let few = AttentionBackward { dslopes: true, ..AttentionBackward::new(sloped) };
    let one = AttentionShape { queries: 1, keys: 8000, ..shape };
    let paged = Attention { paged: true, key_lengths: true, ..plain.clone() };
    let with = RecurrenceSlots {
        lengths: true,
        x_bias: true,
        r_bias: true,
        h_initial: true,
        ..Default::default()
    };
    let cell = |cell: kiln::graph::Cell| {
        let (layout, direction) = (RowLayout::Packed, Direction::Both);
        Recurrence { with, layout, direction, ..Recurrence::new(cell, 8, 64) }
    };
    let quantised = |op: Recurrence| {
        let quantization = Some(Quantization::new(63.0, 128));
        Recurrence { quantization, ..op }
    };
    let own = user_cells::layer_norm_lstm().unwrap();
    let gated = || user_cells::minimal_gated_unit().unwrap();
    vec![
        (golden::chain(64, 768), vec![]),
        (bias_gelu(extents, DType::Bf16), vec![("split_k", 2)]),
        (prologues(extents, DType::F16), vec![("split_k", 1)]),
        (reduced_everywhere(extents, DType::Bf16), vec![("split_k", 1)]),
        (residual_rms([64, 256]), vec![]),
        (softmax(DType::F32, &[16, 1 << 20], false), vec![]),
        (golden::centred([64, 32, 64]), vec![("split", 2)]),
        (attention(full, shape, storage, [true; 4]), vec![]),
        (attention(plain, shape, storage, [true; 4]), vec![]),
        (attention(paged, one, storage, [true; 4]), vec![("cluster", 1), ("split", 4)]),
        (
            backward_cases::graph(&gradients, shape, storage, [true; 4]),
            vec![("cta_q", 64), ("dq", 0), ("step_k", 32)],
        ),
        (
            backward_cases::graph(&few, shape, storage, [true; 4]),
            vec![("cta_q", 0), ("dq", 1), ("step_k", 0)],
        ),
        (recurrent(&cell(own), 5, DType::F16), vec![]),
        (rms_gradients([300, 96]), vec![]),
        (recurrent(&cell(gated()), 5, DType::F32), vec![]),
        (recurrent(&cell(gated()), 5, DType::F16), vec![]),
        (recurrent(&quantised(cell(gated())), 5, DType::U8), vec![]),
        (views::rope("rope_halves"), vec![]),
        (views::split_heads(), vec![]),
        (pointwise::transposed(DType::F16, [2, 20, 70]), vec![]),
        (convolution::grouped(), vec![]),
        (convolution::strided(), vec![]),
        (convolution::depthwise(), vec![]),
        (convolution::depthwise_spread(), vec![]),
        (convolution::depthwise_filter(), vec![("split", 2)]),
        (convolution::depthwise_filter(), vec![("split", 1)]),
        (convolution::windowed("forward", "scale_bias_relu"), vec![("split_k", 1)]),
        (convolution::windowed("backward_filter", "nothing"), vec![("split_k", 1)]),
        (convolution::pixels("forward", 8), vec![("split_k", 1)]),
        (convolution::pixels("backward_filter", 8), vec![("split_k", 1)]),
        (convolution::grouped_pixels("backward_data"), vec![("split_k", 1)]),
        (convolution::batched("backward_filter"), vec![("split_k", 1)]),
        (convolution::norm_gradient(), vec![("split_k", 1)]),
        (convolution::phases("scale_bias_relu"), vec![("split_k", 1)]),
        (convolution::scattered("forward"), vec![("split_k", 1)]),
        (rng::dropout(&[64, 768]), vec![]),
        (rng::gemm_dropout(extents, DType::Bf16, true), vec![("split_k", 1)]),
        (rng::noise(&[64, 256]), vec![]),
        (rng::convolution(true, true), vec![("split_k", 1)]),
        (resample::winners(), vec![]),
        (resample::averages(), vec![]),
        (resample::scaled(), vec![]),
        (resample::scaled_gradient(), vec![]),
        (resample::found_gradient(), vec![]),
        (resample::read_gradient(), vec![]),
        (ctc::concatenated().graph(), vec![("lattice", 1), ("threads", 128)]),
        (ctc::kept().graph(), vec![("lattice", 0), ("threads", 128)]),
        (ctc::alone().graph(), vec![("lattice", 0), ("threads", 128)]),
        (pointwise_loop::scan().graph(), vec![("ahead", 4), ("threads", 64)]),
        (pointwise_loop::doubled().graph(), vec![("ahead", 1), ("threads", 64)]),
        (resident_loop::iteration(), vec![("cluster", 0), ("ctas", 1), ("threads", 128)]),
        (resident_loop::iteration(), vec![("cluster", 1), ("ctas", 4), ("threads", 128)]),
        (resident_loop::relaxation(true), vec![("cluster", 0), ("ctas", 16), ("threads", 128)]),
        (dynamic_slice::turn(), vec![("threads", 128)]),
        (dynamic_slice::decoding(), vec![("threads", 512)]),
        (signal::passed(Signal::set(1), DType::F16), vec![]),
        (signal::passed(Signal::wait(1), DType::F16), vec![]),
    ]
}

/// A template and what became of it.
type Kernel = (String, KernelSource);

fn kernels(
    engine: &str,
    graph: &OperationGraph,
    target: &Target,
    config: &EngineConfig,
) -> Vec<Kernel> {
    let supported = engine::supported(engine, graph.canonical(), target).unwrap();
    let kernels = supported.lower(config).unwrap().kernels.into_iter();
    let source = |spec| Templates::embedded().render(&spec).unwrap();
    kernels.map(|kernel| (kernel.spec.template.to_owned(), source(kernel.spec))).collect()
}

/// Whether the code of kernels is that of others but for lower-case identifiers. Reductions of a
/// product, too, are ordered by their names: kernels are compared all together.
fn check(expected: &Tokens, kernels: &[Kernel], what: &str) {
    let text: String = kernels.iter().map(|(_, source)| source.text.as_str()).collect();
    let found = tokens(&text);
    assert_eq!(found.others, expected.others, "{what}:\n{text}");
    assert_eq!(found.identifiers.len(), expected.identifiers.len(), "{what}:\n{text}");
    let known: BTreeSet<&String> = expected.identifiers.iter().collect();
    for token in found.identifiers.iter().filter(|token| !known.contains(token)) {
        let plain = !token.contains(|c: char| c.is_ascii_uppercase()) && !token.starts_with('_');
        assert!(plain && !WORDS.contains(&token.as_str()), "{token}: {what}:\n{text}");
    }
    for (_, source) in kernels {
        assert!(is_word(&source.stem), "{}", source.stem);
    }
}

/// Words of payloads that mean something to the compiler.
const WORDS: &[&str] = &["asm", "include", "linux", "return", "volatile"];

#[test]
fn names_reach_no_code_but_as_identifiers() {
    let (mut templates, mut used) = (BTreeSet::new(), BTreeSet::new());
    let mut to_compile = BTreeMap::new();
    let target = Target::named("h200").unwrap();
    for (number, (graph, knobs)) in graphs().into_iter().enumerate() {
        let rounds = if graph.operations().len() == 1 { 4 } else { 2 };
        let starts = (0..rounds).map(|round| number * 5 + round * payloads().len() / rounds);
        let renamed: Vec<OperationGraph> = starts.map(|at| with_names(&graph, at)).collect();
        for engine in engines().iter().map(|engine| engine.name()) {
            let Ok(supported) = engine::supported(engine, graph.canonical(), &target) else {
                continue;
            };
            used.insert(engine);
            let own = supported.heuristic();
            let has = |name: &str| supported.knobs().iter().any(|knob| knob.name == name);
            let asked = knobs.iter().filter(|(knob, _)| has(knob));
            let asked = asked.fold(own.clone(), |config, (knob, value)| config.with(knob, *value));
            let config = if supported.lower(&asked).is_ok() { asked } else { own };
            let plain = kernels(engine, &graph, &target, &config);
            templates.extend(plain.iter().map(|(template, _)| template.clone()));
            let text: String = plain.iter().map(|(_, source)| source.text.as_str()).collect();
            let expected = tokens(&text);
            for (round, renamed) in renamed.iter().enumerate() {
                let kernels = kernels(engine, renamed, &target, &config);
                check(&expected, &kernels, &format!("{engine}, round {round}"));
                if round == 0 {
                    to_compile.extend(kernels.into_iter().map(|(_, of)| (of.stem.clone(), of)));
                }
            }
        }
    }
    assert_eq!(used, engines().iter().map(|engine| engine.name()).collect(), "every engine");
    assert_eq!(templates, kernel_templates(), "every template");
    harness::compile_without_spills(&to_compile.into_iter().collect::<Vec<_>>());
}

/// Every `.cu` template.
fn kernel_templates() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let mut names = BTreeSet::new();
    for folder in fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()) {
        for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            names.extend(
                name.strip_suffix(".tera").filter(|name| name.ends_with(".cu")).map(str::to_owned),
            );
        }
    }
    names
}

/// What a comment is made of goes through the filter that keeps it one.
#[test]
fn templates_escape_what_they_write_into_comments() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let mut folders = vec![root];
    let mut problems = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().enumerate();
            problems.extend(
                lines
                    .filter(|(_, line)| !is_escaped(line))
                    .map(|(at, line)| format!("{}:{}: {line}", path.display(), at + 1)),
            );
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(is_escaped("{% if a // 2 %}{{ name }}{% endif %} // {{ text | comment }}"));
    assert!(!is_escaped("int {{ name }}; // {{ text }}"));
    assert!(!is_escaped("/* {{ text | comment }} */"));
}

/// Whether every tag inside of a line's comment is filtered, or counts the turns of a loop.
fn is_escaped(line: &str) -> bool {
    let mut rest = line;
    let mut in_comment = false;
    while !rest.is_empty() {
        if let Some(tag) = rest.strip_prefix("{{") {
            let (inner, behind) = tag.split_once("}}").unwrap_or((tag, ""));
            let number = inner.trim() == "loop.index0" || line.contains("product.n }}");
            if in_comment && !inner.ends_with("| comment ") && !number {
                return false;
            }
            rest = behind;
        } else if let Some(tag) = rest.strip_prefix("{%") {
            rest = tag.split_once("%}").map_or("", |(_, behind)| behind);
        } else {
            in_comment |= rest.starts_with("//");
            if rest.starts_with("/*") && line.contains("{{") {
                return false;
            }
            let next = rest.chars().next().map_or(1, char::len_utf8);
            rest = &rest[next..];
        }
    }
    true
}

/// The problem of a cell with this name.
fn network(cell: &str) -> Problem {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/user_cells/mgu.json");
    let mut document: Json = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    document["rnn"]["cell"]["name"] = cell.into();
    Problem::from_json(&document.to_string()).unwrap()
}

#[test]
fn dumps_stay_in_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let dumps = folder.path().join("deep/dumps");
    let names = ["../../../outside/of-the-folder", "/tmp/x", "..", "a\0b", "a\nb", ""];
    for name in names.map(str::to_owned).into_iter().chain(["n".repeat(10_000)]) {
        let problem = network(&name);
        let plan = harness::kiln().plan(problem.graphs()[0]).unwrap();
        for own in plan.dump(&dumps).unwrap() {
            assert_eq!(own.parent(), Some(dumps.as_path()), "{name}");
            assert!(own.is_dir());
            let dump = Dump::open(&own).unwrap();
            assert!(is_word(dump.stem()), "{}", dump.stem());
        }
    }
    let inside = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(inside.collect::<Vec<_>>(), ["deep"]);
}
