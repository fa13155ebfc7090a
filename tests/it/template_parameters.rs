//! Templates and their parameters: a template reads every parameter that its engine passes, and
//! fails to render without one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

use kiln::codegen::Templates;
use kiln::engine::{self, EngineConfig, engines};
use kiln::expr::{Mode, Pointwise, Real};
use kiln::graph::{
    Attention, AttentionBackward, AttentionShape, Band, Diagonal, Matmul, MatmulMath, Op,
    Quantization, Recurrence, Reduction, ReductionOp,
};
use kiln::kernel::KernelSpec;
use kiln::rnn::{CellKind, CellOptions};
use kiln::target::Target;
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};
use serde_json::Value;

use crate::attention::backward_cases;
use crate::attention::cases::{Storage, graph as attention, keep_program};
use crate::convolution;
use crate::gemm::cases::{Case, Lay};
use crate::gemm::fusion::{bias_gelu, rich, swiglu, two_outputs};
use crate::golden;
use crate::injection::graphs;
use crate::norm::rms_gradients;
use crate::recurrence::{everything, graph as recurrent, layer};
use crate::recurrence_vjp::derivative;
use crate::reduction::{residual_rms, softmax};
use crate::rnn_cells::user_cells;

/// Settings of a graph on a target whose kernels are looked at.
const SAMPLE: usize = 4;

/// Parameters that no engine passes: `knobs` says what a kernel's configuration is, and not every
/// template says that.
const OF_NO_ENGINE: [&str; 1] = ["knobs"];

/// Graphs whose kernels read what those of the others do not.
fn more_graphs() -> Vec<OperationGraph> {
    use DType::{Bf16, F8E4M3, F16, F32};
    let lays = [Lay::Rows, Lay::Columns, Lay::Rows];
    let linear = |types, extents| Case::new(MatmulMath::F32, types, extents).lays(lays).graph();
    let shape = AttentionShape {
        batches: 2,
        heads: 4,
        kv_heads: 2,
        queries: 256,
        keys: 256,
        depth: 64,
        width: 64,
    };
    let plain = Attention::new(MatmulMath::F32);
    let storage = [Storage::packed(Bf16); 4];
    let fp8 = [F8E4M3, F8E4M3, F8E4M3, Bf16].map(Storage::packed);
    let window = Band { diagonal: Diagonal::BottomRight, left: Some(40), right: Some(3) };
    let masked = Attention {
        band: window,
        sinks: true,
        descale_v: true,
        dropout: Some(Real::new(0.1)),
        keep: Some(Arc::new(keep_program(F32))),
        query_lengths: true,
        statistics: true,
        ..plain.clone()
    };
    let ragged = Attention {
        band: Band::causal(Diagonal::TopLeft),
        queries_max: Some(256),
        keys_max: Some(256),
        intervals: true,
        ..plain.clone()
    };
    let of = |op: &Attention, storage| attention(op.clone(), shape, storage, [true; 4]);
    let backward = |op: &Attention, broadcast: [bool; 4]| {
        let bias = !op.bias;
        let op = Attention { bias: true, descale_v: false, ..op.clone() };
        let op = AttentionBackward { dbias: bias, ..AttentionBackward::new(op) };
        backward_cases::graph(&op, shape, storage, broadcast)
    };
    let long = AttentionShape { depth: 512, width: 512, ..shape };
    vec![
        linear([Bf16, Bf16, F16], [256, 256, 512]),
        linear([F32; 3], [64, 64, 64]),
        linear([DType::I8, DType::I8, DType::I32], [64, 64, 64]),
        batches_of_extents(true),
        batches_of_extents(false),
        swiglu([256, 512, 1024], Bf16, true),
        two_outputs([256, 512, 1024], F16),
        rich([100, 60, 72], F16),
        bias_gelu([100, 60, 72], F32),
        of(&masked, storage),
        backward(&masked, [true; 4]),
        backward(&ragged, [false; 4]),
        of(&masked, fp8),
        of(&ragged, storage),
        of(&plain, fp8),
        attention(plain.clone(), long, storage, [true; 4]),
        attention(
            Attention::new(MatmulMath::F64),
            long,
            [Storage::packed(DType::F64); 4],
            [true; 4],
        ),
        softmax(Bf16, &[64, 1000], true),
        residual_rms([8, 16384]),
        rms_gradients([64, 768]),
        golden::centred([16, 512, 768]),
        convolution::depthwise_filter_with("rich"),
        lstm(),
        layer_norm_lstm(),
        integers(CellKind::GruResetBefore, -7),
        integers(CellKind::Lstm, 0),
        row_beside_matrix(&[]),
        row_beside_matrix(&[48]),
        rounded_mean(&[64, 1000], &[64, 1]),
        rounded_mean(&[16, 1 << 20], &[16, 1]),
        rounded_mean(&[16, 512, 768], &[16, 1, 768]),
        recurrent(
            &derivative(
                &layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [8, 64]),
                Bf16,
            ),
            4,
            Bf16,
        ),
    ]
}

/// An output that is a row, of which one row of threads stores the elements, and matrices with
/// other numbers of rows.
fn row_beside_matrix(others: &[i64]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[16, 256], DType::F32);
    let row = graph.input("row", &[1, 256], DType::F32);
    let positive = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[row]).unwrap();
    graph.output(positive, "positive", DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Add), &[x, positive]).unwrap();
    graph.output(y, "y", DType::F32);
    for rows in others {
        let other = graph.input(&format!("x{rows}"), &[*rows, 256], DType::F32);
        let z = graph.pointwise(Pointwise::new(Mode::Mul), &[other, row]).unwrap();
        graph.output(z, &format!("z{rows}"), DType::F32);
    }
    graph.build().unwrap()
}

/// A recurrent layer with everything that there is.
fn lstm() -> OperationGraph {
    let options = CellOptions { projected: true, peephole: true, ..CellOptions::default() };
    let op = layer(CellKind::Lstm, options, MatmulMath::F32, [8, 64]);
    recurrent(&Recurrence { with: everything(CellKind::Lstm), ..op }, 5, DType::Bf16)
}

/// A recurrent layer with layer norms, of a type that not every tensor core has.
fn layer_norm_lstm() -> OperationGraph {
    let cells = user_cells::all().unwrap();
    let cell = cells.into_iter().find(|cell| cell.name == "layer_norm_lstm").unwrap();
    recurrent(&Recurrence::new(cell, 8, 64), 4, DType::Bf16)
}

/// A quantised layer with everything that there is.
fn integers(kind: CellKind, shift: i64) -> OperationGraph {
    let op = layer(kind, CellOptions::default(), MatmulMath::F32, [8, 64]);
    let quantization = Some(Quantization::new(63.0, shift));
    recurrent(&Recurrence { with: everything(kind), quantization, ..op }, 5, DType::I8)
}

/// A batched GEMM in which each batch has its own M and N, and K if that is `limited`.
fn batches_of_extents(limited: bool) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[3, 64, 64], DType::F16);
    let b = graph.input("b", &[3, 64, 64], DType::F16);
    let names = ["m", "n", "k"].into_iter().take(if limited { 3 } else { 2 });
    let limits: Vec<i64> = names.map(|name| graph.input(name, &[3, 1, 1], DType::I32)).collect();
    let c = graph.tensor(TensorDesc::packed(100, "c", &[3, 64, 64], DType::F32));
    let op = Matmul { overrides: [true, true, limited], ..Matmul::new(MatmulMath::F32) };
    graph.operation_into(Op::Matmul(op), &[&[a, b], &limits[..]].concat(), &[c]);
    graph.build().unwrap()
}

/// A mean that is rounded before elements need it, and a function of it that is only stored.
fn rounded_mean(dims: &[i64], to: &[i64]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", dims, DType::F16);
    let mean = graph.reduction(Reduction::new(ReductionOp::Avg), x, to).unwrap();
    let root = graph.pointwise(Pointwise::new(Mode::Sqrt), &[mean]).unwrap();
    graph.name(root, "root", DType::F16);
    let y = graph.pointwise(Pointwise::new(Mode::Sub), &[x, root]).unwrap();
    graph.output(y, "y", DType::F16);
    let stored = graph.pointwise(Pointwise::new(Mode::Exp), &[mean]).unwrap();
    graph.output(stored, "stored", DType::F32);
    graph.build().unwrap()
}

/// The kernels of every template, at some settings.
fn specs() -> &'static BTreeMap<&'static str, Vec<KernelSpec>> {
    static SPECS: OnceLock<BTreeMap<&'static str, Vec<KernelSpec>>> = OnceLock::new();
    SPECS.get_or_init(made)
}

fn made() -> BTreeMap<&'static str, Vec<KernelSpec>> {
    let mut specs: BTreeMap<&str, Vec<KernelSpec>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for target in ["t4", "a100", "h200"].map(|name| Target::named(name).unwrap()) {
        let others = more_graphs().into_iter().map(|graph| (graph, vec![]));
        for (graph, knobs) in graphs().into_iter().chain(others) {
            for engine in engines().iter().map(|engine| engine.name()) {
                let Ok(supported) = engine::supported(engine, graph.canonical(), &target) else {
                    continue;
                };
                let all = EngineConfig::all(engine, &supported.knobs());
                let apart = (all.len() / SAMPLE / 4).max(1) | 1;
                let spread = all.iter().step_by(apart).filter_map(|of| supported.lower(of).ok());
                let own = supported.heuristic();
                let has = |name: &str| supported.knobs().iter().any(|knob| knob.name == name);
                let asked = knobs.iter().filter(|(knob, _)| has(knob));
                let own = asked.fold(own, |own, (knob, value)| own.with(knob, *value));
                let own = supported.lower(&own).ok();
                for spec in spread.take(SAMPLE).chain(own).flat_map(|of| of.kernels) {
                    let spec = spec.spec;
                    if seen.insert((spec.template, spec.parameters.to_string())) {
                        specs.entry(spec.template).or_default().push(spec);
                    }
                }
            }
        }
    }
    specs
}

/// The paths to all members of a value that are there: not null. Those of the elements of an array
/// are one.
fn paths(value: &Value, path: &[String], found: &mut BTreeSet<Vec<String>>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(_, member)| !member.is_null()) {
                let path = [path, std::slice::from_ref(name)].concat();
                paths(member, &path, found);
                found.insert(path);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|of| paths(of, path, found)),
        _ => {}
    }
}

/// Applies a change to every object that has the last name of a path.
fn change(value: &mut Value, path: &[String], with: &dyn Fn(&mut Value, &str)) {
    match (value, path) {
        (Value::Array(elements), _) => elements.iter_mut().for_each(|of| change(of, path, with)),
        (value @ Value::Object(_), [name]) if value.get(name).is_some() => with(value, name),
        (value, [name, rest @ ..]) => {
            if let Some(member) = value.get_mut(name) {
                change(member, rest, with);
            }
        }
        _ => {}
    }
}

/// Whether a rendered source depends on a parameter: without it, or with the other value of a bool,
/// there is another source or none.
fn depends(spec: &KernelSpec, text: &str, path: &[String]) -> bool {
    let other = |with: &dyn Fn(&mut Value, &str)| {
        let mut spec = spec.clone();
        change(Arc::make_mut(&mut spec.parameters), path, with);
        match Templates::embedded().render(&spec) {
            Ok(source) => source.text != text,
            Err(_) => true,
        }
    };
    let removed = |object: &mut Value, name: &str| {
        object.as_object_mut().unwrap().remove(name);
    };
    let negated = |object: &mut Value, name: &str| {
        if let Value::Bool(value) = object[name] {
            object[name] = Value::Bool(!value);
        }
    };
    other(&removed) || other(&negated)
}

#[test]
fn templates_read_all_parameters() {
    let specs = specs();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let rooms =
        ["attention", "dynamic_slice", "gemm", "pointwise", "reduction", "resident_loop", "rnn"];
    for path in rooms.map(|of| folder.join(of)) {
        for file in fs::read_dir(path).unwrap().map(|file| file.unwrap().path()) {
            let name = file.strip_prefix(&folder).unwrap().to_str().unwrap();
            if let Some(name) = name.strip_suffix(".cu.tera") {
                assert!(specs.contains_key(&*format!("{name}.cu")), "no kernel of {name}");
            }
        }
    }
    let unread: Vec<String> = thread::scope(|scope| {
        let mut running = Vec::new();
        for (template, specs) in specs {
            running.push(scope.spawn(move || unread(template, specs)));
        }
        running.into_iter().flat_map(|unread| unread.join().unwrap()).collect()
    });
    assert!(unread.is_empty(), "not read:\n{}", unread.join("\n"));
}

/// The parameters that a template reads for none of its kernels.
fn unread(template: &str, specs: &[KernelSpec]) -> Vec<String> {
    let (mut read, mut unread) = (BTreeSet::new(), BTreeSet::new());
    for spec in specs {
        let mut open = BTreeSet::new();
        paths(&spec.parameters, &[], &mut open);
        // A struct that stands at several places need not be read whole at each of them.
        let known = |path: &Vec<String>| read.iter().any(|of: &Vec<_>| of.last() == path.last());
        open.retain(|path| !known(path) && !OF_NO_ENGINE.contains(&&*path[0]));
        if open.is_empty() {
            continue;
        }
        let text = Templates::embedded().render(spec).unwrap().text;
        for path in open {
            match depends(spec, &text, &path) {
                true => {
                    unread.remove(&path);
                    read.insert(path);
                }
                false => {
                    unread.insert(path);
                }
            }
        }
    }
    unread.retain(|path| read.iter().all(|of| of.last() != path.last()));
    unread.into_iter().map(|path| format!("{template}: {}", path.join("."))).collect()
}

#[test]
fn templates_need_all_parameters() {
    for (template, specs) in specs() {
        let names: Vec<&String> = specs[0].parameters.as_object().unwrap().keys().collect();
        let needed = names.into_iter().filter(|name| !OF_NO_ENGINE.contains(&&***name));
        for name in needed {
            let mut spec = specs[0].clone();
            let parameters = Arc::make_mut(&mut spec.parameters);
            parameters.as_object_mut().unwrap().remove(name);
            let error = Templates::embedded().render(&spec).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Compile);
            // One of a name that a tag binds elsewhere is missed where it is read.
            let found = error.to_string();
            let text = format!("failed to render template `{template}`: ");
            let own = format!("{text}no parameter `{name}`");
            assert!(found == own || found.starts_with(&text) && found.contains(name), "{found}");
        }
    }
}
