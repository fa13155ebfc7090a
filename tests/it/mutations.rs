//! Bugs planted in rendered kernels, one at a time: the sanitizer found every one, in the PTX of
//! both compilers, and names the line.

use std::fs;
use std::path::PathBuf;

use kiln::device::{Buffer, DeviceChoice};
use kiln::engine::{self, EngineConfig};
use kiln::expr::{Mode, Pointwise};
use kiln::{Config, DType, Kiln, OperationGraph, Result, TensorDesc, VariantPack};

use crate::harness;

/// A kernel to plant bugs in: a graph, and the knobs that choose its form.
struct Form {
    name: &'static str,
    graph: fn() -> OperationGraph,
    knobs: &'static [(&'static str, i64)],
}

const FORMS: &[Form] = &[
    Form { name: "flat", graph: || biased(3, 200), knobs: &[("grid", 0)] },
    Form { name: "rows", graph: || biased(5, 200), knobs: &[("grid", 1)] },
    Form { name: "tail", graph: || biased(3, 37), knobs: &[("grid", 0)] },
    Form { name: "strided", graph: strided, knobs: &[("grid", 0), ("items", 1), ("threads", 128)] },
];

/// `y = relu(x + bias)` in f16.
fn biased(rows: i64, columns: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, columns], DType::F16);
    let bias = graph.input("bias", &[1, columns], DType::F16);
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[sum]).unwrap();
    graph.output(y, "y", DType::F16);
    graph.build().unwrap()
}

/// The square of a channels-last operand.
fn strided() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = TensorDesc::packed(1, "x", &[2, 3, 35], DType::F32);
    let x = graph.tensor(TensorDesc { strides: vec![105, 1, 3], ..x });
    let y = graph.pointwise(Pointwise::new(Mode::Mul), &[x, x]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

/// A form, a text of its source, what stands for it instead, what the report must say, and what
/// stands in a statement that it names.
type Mutation = [&'static str; 5];

const BOUNDS: &str = "is out of bounds";
const ALIGNMENT: &str = "is not aligned";
const REGISTER: &str = "uninitialised register";
const GLOBAL: &str = "uninitialised global memory";

const MUTATIONS: &[Mutation] = &[
    // Guards and offsets.
    ["flat", "LAST = ROWS * CHUNKS;", "LAST = ROWS * CHUNKS + 1;", BOUNDS, "ld.global.v4"],
    ["flat", "x + x_layout::at(p)", "x + x_layout::at(p) + VECTOR", BOUNDS, "ld.global.v4"],
    ["flat", "y + y_layout::at(p)", "y + y_layout::at(p) + VECTOR", BOUNDS, "st.global.v4"],
    ["rows", "if (column >= COLUMNS) return;", "", BOUNDS, "ld.global.v4"],
    ["rows", "LAST = ROWS;", "LAST = ROWS + 1;", BOUNDS, "ld.global.v4"],
    ["tail", "x + x_layout::at(p)", "x + x_layout::at(p) + 1", BOUNDS, "short*>(from)"],
    ["strided", "x + x_layout::at(p)", "x + x_layout::at(p) + 3", BOUNDS, "ld.global.u32"],
    // Vectors at single elements.
    ["flat", "y + y_layout::at(p)", "y + y_layout::at(p) + 1", ALIGNMENT, "st.global.v4"],
    ["rows", "bias + bias_layout::at(point(0, column))", "bias + 1", ALIGNMENT, "ld.global.v4"],
    // Values that nobody wrote.
    ["flat", "load<x_layout", "if (threadIdx.x) load<x_layout", REGISTER, "st.global.v4"],
    ["tail", "x + x_layout::at(p)", "y + y_layout::at(p)", GLOBAL, "short*>(from)"],
    // Threads that share an element, of a warp and of several.
    ["flat", "y + y_layout::at(p)", "y + p.column", "race within a warp", "st.global.v4"],
    ["strided", "y + y_layout::at(p)", "y + p.column", "race in global memory", "st.global.u32"],
];

/// A device whose only template is a text.
fn rendered(choice: &DeviceChoice, template: &str, text: &str) -> Kiln {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{template}.tera"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("{{% raw %}}{text}{{% endraw %}}")).unwrap();
    open(choice, Some(folder.path().to_owned()))
}

fn open(choice: &DeviceChoice, templates: Option<PathBuf>) -> Kiln {
    let device = Some(choice.clone());
    Kiln::open(Config { templates, ..harness::checked(device) }).unwrap()
}

/// Executes a plan with buffers that hold its tensors and nothing else.
fn run(kiln: &Kiln, graph: &OperationGraph, config: &EngineConfig) -> Result<()> {
    let plan = kiln.plan_with(graph, config)?;
    let (mut pack, mut buffers): (VariantPack, Vec<Buffer>) = Default::default();
    let bytes = |tensor: &TensorDesc| tensor.span_bytes().unwrap() as usize;
    for tensor in graph.inputs() {
        let mut data = vec![0; bytes(tensor)];
        for (value, at) in harness::fill(tensor, 3, 1.0).into_iter().zip(tensor.offsets()) {
            tensor.dtype.write(value, &mut data[at * tensor.dtype.bytes()..]);
        }
        buffers.push(kiln.device().upload(&data)?);
        pack = pack.with(tensor.uid, &buffers[buffers.len() - 1]);
    }
    for tensor in graph.outputs() {
        buffers.push(kiln.device().alloc(bytes(tensor) as u64)?);
        pack = pack.with(tensor.uid, &buffers[buffers.len() - 1]);
    }
    plan.execute(&kiln.stream(), &pack)
}

/// Whether a report names a statement of the source that has a text, by its last line.
fn names(report: &str, stem: &str, source: &str, part: &str) -> bool {
    let lines: Vec<&str> = source.lines().collect();
    let statement = |last: usize| {
        let ended = |line: &&str| line.trim_end().ends_with([';', '{', '}']);
        let before = lines[..last - 1].iter().rev().take_while(|line| !ended(line)).count();
        lines[last - 1 - before..last].concat()
    };
    let file = format!("{stem}.cu:");
    let mut numbers = report
        .split(&file)
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok());
    numbers.any(|number| statement(number).contains(part))
}

/// What is not found of the bugs of a form.
fn missed(choice: &DeviceChoice, clean: &Kiln, form: &Form) -> Result<String> {
    let (graph, target) = ((form.graph)(), clean.device().target());
    let chosen = engine::choose(graph.canonical(), target, &Default::default())?;
    let config = form.knobs.iter().fold(chosen, |config, (knob, value)| config.with(knob, *value));
    run(clean, &graph, &config)?;
    let source = clean.sources(&graph, &config)?.remove(0);
    let supported = engine::supported(&config.engine, graph.canonical(), target)?;
    let template = supported.lower(&config)?.kernels[0].spec.template;
    let mut out = String::new();
    for [_, from, to, says, at] in MUTATIONS.iter().filter(|mutation| mutation[0] == form.name) {
        assert!(source.text.contains(from), "{} has no `{from}`:\n{}", form.name, source.text);
        let text = source.text.replace(from, to);
        let report = match run(&rendered(choice, template, &text), &graph, &config) {
            Ok(()) => "nothing".to_owned(),
            Err(error) => error.to_string(),
        };
        if !report.contains(says) || !names(&report, &source.stem, &text, at) {
            out += &format!("{target} {}: `{to}` for `{from}`: {report}\n", form.name);
        }
    }
    Ok(out)
}

#[test]
fn every_planted_bug_is_found() {
    if harness::kiln().device().kind() != "sim" {
        println!("skipped: only the simulated device has a sanitizer");
        return;
    }
    let mut out = String::new();
    for target in ["sim", "sim120"] {
        let choice = DeviceChoice::Sim(target.to_owned());
        let clean = open(&choice, None);
        for form in FORMS {
            out += &missed(&choice, &clean, form)
                .unwrap_or_else(|error| panic!("{target} {}: {error}", form.name));
        }
    }
    assert!(out.is_empty(), "not found:\n{out}");
}
