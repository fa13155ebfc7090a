//! Plans of several kernels: their order, their workspace, their JSON form.

#![expect(unsafe_code, reason = "a workspace that is given by address")]

use kiln::device::Buffer;
use kiln::engine::{self, Choice, Mode, Notes, Selection};
use kiln::expr::{self, Pointwise};
use kiln::graph::{Matmul, NormBackward, NormMode, Op, Reduction, ReductionOp};
use kiln::plan::{DeviceMemory, Manifest, ManifestProblem};
use kiln::target::Target;
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph, Result, VariantPack};
use serde_json::{Value, json};

use crate::harness::{self, Values};
use crate::winners::{all_of, norm_backward};

/// A chain of unnamed intermediates, one of them of two bytes and read twice, and two outputs.
fn chain() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[6, 40], DType::F32);
    let bias = graph.input("bias", &[1, 40], DType::F32);
    let scale = graph.scalar("scale", 2, DType::F32);
    let sum = graph.pointwise(Pointwise::new(expr::Mode::Add), &[x, bias]).unwrap();
    graph.name(sum, "sum", DType::Bf16);
    let act = graph.pointwise(Pointwise::new(expr::Mode::GeluFwd), &[sum]).unwrap();
    let scaled = graph.pointwise(Pointwise::new(expr::Mode::Mul), &[act, scale]).unwrap();
    let residual = graph.pointwise(Pointwise::new(expr::Mode::Add), &[scaled, sum]).unwrap();
    graph.output(act, "act", DType::F16);
    graph.output(residual, "y", DType::F32);
    graph.build().unwrap()
}

fn inputs(graph: &OperationGraph) -> Values {
    graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 3, 2.0))).collect()
}

/// The chain's plan as a document, an operation to a part.
fn document(kiln: &Kiln) -> Value {
    let plan = kiln.plan(&chain()).unwrap();
    assert_eq!((plan.parts().len(), plan.workspace_bytes()), (1, 0));
    let mut document: Value = serde_json::from_str(&plan.to_json()).unwrap();
    let part = document["parts"][0].clone();
    let config = "pointwise{grid=0, items=1, threads=64, vector=2}";
    let writes = part["writes"].as_array().unwrap();
    let parts = writes.iter().map(|name| json!({"config": config, "writes": [name]}));
    document["parts"] = parts.collect();
    document
}

fn load(kiln: &Kiln, document: &Value) -> Result<kiln::plan::ExecutionPlan> {
    kiln.plan_from_json(&document.to_string())
}

#[test]
fn a_split_plan_gives_the_same_bits() {
    for kiln in harness::dialects() {
        let plan = load(kiln, &document(kiln)).unwrap();
        let graph = plan.graph().clone();
        assert_eq!(graph, chain());
        assert_eq!((plan.parts().len(), plan.kernels().len()), (4, 4));
        // `sum` lives from the first kernel to the last, `scaled` at the end; `act` is an output.
        assert_eq!(plan.workspace_bytes(), 512 + 1024);
        let inputs = inputs(&graph);
        let apart = harness::run_plan(kiln, &plan, &inputs).unwrap();
        harness::compare(&graph, &inputs, &apart, "an operation to a part");
        assert_eq!(apart, harness::run(kiln, &graph, None, &inputs).unwrap());
        let again = kiln.plan_from_json(&plan.to_json()).unwrap();
        assert_eq!(again.to_json(), plan.to_json());
    }
}

#[test]
fn a_workspace_must_fit() {
    let kiln = harness::kiln();
    let plan = load(kiln, &document(kiln)).unwrap();
    let bound = harness::bind(kiln, plan.graph(), &inputs(plan.graph())).unwrap();
    let execute = |pack: &VariantPack| {
        let error = plan.execute(&kiln.stream(), pack).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::BadParam);
        error.to_string()
    };
    let buffer = |bytes: u64| -> Buffer { kiln.device().alloc(bytes).unwrap() };
    assert_eq!(
        execute(&bound.pack),
        "variant pack: the plan needs a workspace of 1536 bytes, the pack has none"
    );
    assert_eq!(
        execute(&bound.pack.clone().with_workspace(&buffer(1535))),
        "variant pack: the workspace has 1535 bytes, the plan needs 1536"
    );
    let large = buffer(4096);
    let mut pack = bound.pack.clone();
    let address = large.address() + 128;
    // SAFETY: the bytes are those of a buffer that outlives the call.
    unsafe { pack.set_workspace_address(DeviceMemory { address, bytes: 3000 }) };
    assert_eq!(
        execute(&pack),
        format!("variant pack: workspace address {address:#x} is not aligned to 256 bytes")
    );
    let y = plan.graph().tensor_named("y").unwrap().uid;
    harness::place(&mut pack, y, large.address() + 1024, 6 * 40 * 4);
    let whole = DeviceMemory { address: large.address(), bytes: 4096 };
    // SAFETY: as above.
    unsafe { pack.set_workspace_address(whole) };
    assert_eq!(
        execute(&pack),
        format!("variant pack: the workspace overlaps tensor `y` (uid {y})")
    );
}

#[test]
fn documents_that_do_not_fit_are_refused() {
    let kiln = harness::kiln();
    let refused = |change: &dyn Fn(&mut Value), kind: ErrorKind, text: &str| {
        let mut document = document(kiln);
        change(&mut document);
        let error = load(kiln, &document).expect_err(text);
        assert!(error.to_string().starts_with(text), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
    };
    let (bad, not) = (ErrorKind::BadParam, ErrorKind::NotSupported);
    refused(&|of| of["kiln_plan"] = json!(2), not, "the plan has schema 2, this version reads 1");
    refused(&|of| of["kiln_plan"] = json!("x"), bad, "malformed plan: it has no key `kiln_plan`");
    refused(&|of| of["version"] = json!("0.0.0"), not, "the plan is of version 0.0.0, this is ");
    let other = format!("the plan is for {}", kiln.device().target().name);
    refused(&|of| of["target"]["sm_count"] = json!(7), not, &other);
    refused(&|of| of["more"] = json!(1), bad, "malformed plan: unknown field `more`");
    let writes = |of: &mut Value, part: usize, name: &str| {
        of["parts"][part]["writes"] = json!([name]);
    };
    refused(
        &|of| writes(of, 0, "none"),
        bad,
        "malformed plan: no operation of the problem writes `none`",
    );
    refused(
        &|of| writes(of, 0, "act"),
        bad,
        "malformed plan: the operation that writes `act` is listed twice",
    );
    refused(
        &|of| drop(of["parts"].as_array_mut().unwrap().pop()),
        bad,
        "malformed plan: no part runs the operation that writes `y`",
    );
    refused(
        &|of| of["parts"].as_array_mut().unwrap().reverse(),
        bad,
        "malformed plan: a part reads `sum` before a later one writes it",
    );
    refused(
        &|of| of["parts"][0]["config"] = json!("pointwise{vector=3}"),
        bad,
        "engine pointwise: knob `grid` is not set",
    );
}

#[test]
fn dumps_of_a_split_plan_are_replayed_by_part() {
    let kiln = harness::kiln();
    let plan = load(kiln, &document(kiln)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folders = plan.dump(folder.path()).unwrap();
    assert_eq!(folders.len(), 4);
    for path in folders {
        let dump = kiln::plan::Dump::open(&path).unwrap();
        assert_eq!(dump.graph().operations().len(), 1);
        let values = kiln::plan::random_values(dump.graph(), 1).unwrap();
        let trial = kiln.replay(&dump, None, &values).unwrap().trial.unwrap();
        harness::compare(dump.graph(), &values, &trial.outputs, "a part alone");
    }
}

#[test]
fn a_tuned_setting_is_used_until_it_can_not_be() {
    let folder = tempfile::tempdir().unwrap();
    let open = |without: &str| {
        Kiln::open(Config {
            device: Some("sim".parse().unwrap()),
            cache_dir: Some(folder.path().to_owned()),
            without: Some(without.parse().unwrap()),
            count: true,
            ..Config::default()
        })
        .unwrap()
    };
    let kiln = open("");
    let heuristic = kiln.plan(&chain()).unwrap().parts()[0].config.clone();
    let mut steps = 0;
    let tuned = kiln.tune(&chain(), 6, |_| steps += 1).unwrap();
    let [tuned] = &tuned[..] else { panic!("{tuned:?}") };
    assert_eq!((tuned.tried.len(), tuned.tried[0].us), (6, Some(tuned.us)));
    assert!(Some(tuned.us) <= tuned.heuristic_us && steps >= 6, "{tuned:?}");
    let path = tuned.path.as_ref().unwrap();
    let chosen = |kiln: &Kiln| kiln.plan(&chain()).unwrap().parts()[0].config.clone();
    assert_eq!(chosen(&kiln), tuned.part.config);
    // As if another setting had won.
    let other = &tuned.tried[1].config;
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replacen(&tuned.tried[0].config, other, 1);
    std::fs::write(path, &text).unwrap();
    assert_ne!(*other, heuristic.to_string());
    assert_eq!(chosen(&open("")).to_string(), *other, "another process finds the file");
    let problem = ManifestProblem { inline: Some(chain().to_json()), ..Default::default() };
    let warmed = open("").warm(&Manifest::of(vec![problem]), &[], |_| ()).unwrap().warmed;
    assert_eq!(warmed[0].part.config.to_string(), *other, "what is warmed is what is planned");
    let damages = [
        text.replace("pointwise{", "pointwise{none=1, "),
        text.replace("pointwise{", "conv{"),
        text[..text.len() / 2].to_owned(),
    ];
    for damage in damages {
        std::fs::write(path, &damage).unwrap();
        assert_eq!(chosen(&open("")), heuristic, "{damage}");
    }
}

/// A filter looks at all legal settings, not at the one that is expected to run best.
#[test]
fn a_filter_searches_the_settings() {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[64, 16384], DType::Bf16);
    let b = graph.input("b", &[16384, 64], DType::Bf16);
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    graph.output(c, "c", DType::Bf16);
    let product = graph.build().unwrap();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[2, 1 << 17], DType::F32);
    let sum = graph.reduction(Reduction::new(ReductionOp::Add), x, &[2, 1]).unwrap();
    graph.output(sum, "sum", DType::F32);
    let sums = graph.build().unwrap();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[1 << 14, 4], DType::F32);
    let sum = graph.reduction(Reduction::new(ReductionOp::Add), x, &[1, 4]).unwrap();
    graph.output(sum, "sum", DType::F32);
    let columns = graph.build().unwrap();
    let without: Notes = "workspace, fft, winograd_tile_4x4".parse().unwrap();
    for name in ["t4", "a100", "h200", "b200", "sim120"] {
        let target = Target::named(name).unwrap();
        for graph in [&product, &sums, &columns] {
            for mode in [Mode::A, Mode::B, Mode::Fallback] {
                let selection = Selection { mode, without: without.clone() };
                let config = engine::choose(graph.canonical(), &target, &selection).unwrap();
                let supported = engine::supported(&config.engine, graph.canonical(), &target);
                let supported = supported.unwrap();
                supported.lower(&config).unwrap();
                assert!(!supported.notes(&config).names().contains(&"workspace"), "{config}");
                // Each engine that takes the graph has settings that are left.
                let first = engine::choose(graph.canonical(), &target, &Selection::default());
                if mode == Mode::A {
                    let left = engine::choices(graph.canonical(), &target, &selection).unwrap();
                    let engine = first.unwrap().engine;
                    assert!(left.iter().any(|of| of.config.engine == engine), "{name}: {graph}");
                }
            }
        }
    }
}

/// Without compilation only what caches hold is planned, with a setting that is not the first, too.
#[test]
fn without_compilation_what_is_cached_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let open = |without: &str| {
        Kiln::open(Config {
            device: Some("sim".parse().unwrap()),
            cache_dir: Some(folder.path().to_owned()),
            without: Some(without.parse().unwrap()),
            ..Config::default()
        })
        .unwrap()
    };
    let compiling = open("");
    let (graph, target) = (chain(), compiling.device().target());
    let first = engine::choose(graph.canonical(), target, &Selection::default()).unwrap();
    let other = first.clone().with("threads", 512);
    assert_ne!(first, other);
    let error = open("runtime_compilation").plan(&chain()).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let text = "runtime_compilation is excluded, and neither pointwise{";
    assert!(error.to_string().starts_with(text), "{error}");
    let notes = |kiln: &Kiln| kiln.notes(&chain(), &other).unwrap().to_string();
    assert_eq!(notes(&compiling), "runtime_compilation");
    compiling.plan_with(&chain(), &other).unwrap();
    assert_eq!([notes(&compiling), notes(&open(""))], ["", ""]);
    let plan = open("runtime_compilation").plan(&chain()).unwrap();
    assert_eq!(plan.parts()[0].config, other);
}

/// Counts of the simulator say nothing of a GPU: what they have found is used there alone.
#[test]
fn tuning_by_counts_is_for_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let open = |device: &str| {
        Kiln::open(Config {
            device: Some(device.parse().unwrap()),
            cache_dir: Some(folder.path().to_owned()),
            count: device == "sim",
            ..Config::default()
        })
        .unwrap()
    };
    let kiln = open("sim");
    let tuned = kiln.tune(&chain(), 3, |_| ()).unwrap().remove(0);
    let path = tuned.path.unwrap();
    let other = tuned.tried.iter().map(|of| &of.config);
    let heuristic =
        engine::choose(chain().canonical(), kiln.device().target(), &Default::default());
    let heuristic = heuristic.unwrap().to_string();
    let other = { other }.find(|config| **config != heuristic).unwrap().clone();
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replacen(&tuned.part.config.to_string(), &other, 1);
    let chosen = |kiln: &Kiln| kiln.plan(&chain()).unwrap().parts()[0].config.to_string();
    let null = open("null");
    assert_eq!(null.device().target(), kiln.device().target(), "they share their records");
    for (measured, expected) in [("counts", &heuristic), ("time", &other)] {
        let text =
            text.replace("\"measured\": \"counts\"", &format!("\"measured\": \"{measured}\""));
        std::fs::write(&path, &text).unwrap();
        assert_eq!(chosen(&open("sim")), other);
        assert_eq!(chosen(&open("null")), *expected, "{measured}");
    }
}

#[test]
fn heuristics_agree_on_what_is_legal() {
    for name in ["t4", "a100", "h200", "rtx5090"] {
        let target = Target::named(name).unwrap();
        let graph = chain();
        let choices = |mode: Mode| {
            let selection = Selection { mode, ..Selection::default() };
            engine::choices(graph.canonical(), &target, &selection).unwrap()
        };
        let (a, b, fallback) = (choices(Mode::A), choices(Mode::B), choices(Mode::Fallback));
        let us = |choice: &Choice| choice.predicted_us.unwrap();
        let lower = |Choice { config, .. }: &Choice| {
            let supported = engine::supported(&config.engine, graph.canonical(), &target);
            supported.unwrap().lower(config).unwrap();
        };
        assert!(b.is_sorted_by(|first, next| us(first) <= us(next)) && us(&b[0]).is_finite());
        for choice in &a {
            let config = &choice.config;
            lower(choice);
            let predicted = us(b.iter().find(|other| other.config == *config).unwrap());
            assert!(predicted < 2.0 * us(&b[0]), "{config} takes {predicted} us on {name}");
        }
        for choice in &b {
            lower(choice);
        }
        assert_eq!(fallback[0].config.engine, "pointwise_general");
    }
}

/// Gradients that reduce along different dimensions: no engine runs them as one operation.
#[test]
fn operations_are_divided_into_what_they_mean() {
    let (data, channels) = ([2, 6, 3, 5], [1, 6, 1, 1]);
    for mode in [NormMode::Instance, NormMode::Group(3)] {
        let op = match norm_backward(mode) {
            Op::NormBackward(op) => Op::NormBackward(NormBackward { statistics: false, ..op }),
            other => other,
        };
        let graph = all_of(op, &data, &channels, false);
        let mut inputs = inputs(&graph);
        let epsilon = graph.tensor_named("epsilon").unwrap().uid;
        inputs.insert(epsilon, vec![0.01]);
        for kiln in harness::dialects() {
            let plan = kiln.plan(&graph).unwrap();
            assert!(plan.parts().len() > 1 && plan.workspace_bytes() > 0, "{plan:?}");
            let first = harness::run_plan(kiln, &plan, &inputs).unwrap();
            harness::compare(&graph, &inputs, &first, &format!("{mode:?}"));
            let again = kiln.plan_from_json(&plan.to_json()).unwrap();
            assert_eq!(again.to_json(), plan.to_json());
            assert_eq!(harness::run_plan(kiln, &again, &inputs).unwrap(), first);
        }
        let target = harness::kiln().device().target();
        let parts = engine::partition(&graph, target, &Selection::default()).unwrap();
        let cuts = engine::cuts(&graph, target, &parts);
        assert!(
            cuts.iter().any(|cut| cut.to_string().contains("different dimensions")),
            "{cuts:?}"
        );
    }
}

/// What a pack was given stays as long as the pack, whoever lets go of it before.
#[test]
fn a_pack_keeps_its_buffers() {
    let kiln = harness::kiln();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[40], DType::F32);
    let y = graph.pointwise(Pointwise::new(expr::Mode::Neg), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let plan = kiln.plan(&graph.build().unwrap()).unwrap();
    let to = kiln.device().alloc(160).unwrap();
    let from = kiln.device().upload(&1.5_f32.to_le_bytes().repeat(40)).unwrap();
    let pack = VariantPack::new().with(x, &from).with(y, &to);
    drop(from);
    // Freed memory is given away again, and the simulator refuses to read it.
    let _other = kiln.device().upload(&[0; 160]).unwrap();
    plan.execute(&kiln.stream(), &pack).unwrap();
    assert_eq!(to.to_vec().unwrap(), (-1.5_f32).to_le_bytes().repeat(40));
    // Replaced, it goes.
    let pack = pack.with(x, &to);
    assert_eq!(pack, VariantPack::new().with(x, &to).with(y, &to));
}
