//! Signals: their rules, what passes through them, how they divide a graph, and bugs planted in
//! their kernels.

use kiln::codegen::{KernelSource, Templates};
use kiln::device::DeviceChoice;
use kiln::engine;
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, Reduction, ReductionOp, Signal};
use kiln::plan::ExecutionPlan;
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph, TensorDesc};
use kiln_sim::{Checks, Device, DeviceConfig, FindingKind, Launch, Module};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{self, Values};

/// `y`, in memory, passed on from `x`, in memory, by a signal on `flag`.
pub fn passed(op: Signal, dtype: DType) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[5, 24], dtype);
    let flag = graph.input("flag", &[1, 1], DType::I32);
    let y = graph.signal(op, flag, x).unwrap();
    graph.output(y, "y", dtype);
    graph.build().unwrap()
}

/// A product whose flag is set once it is there.
pub fn producer() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[48, 40], DType::F16);
    let b = graph.input("b", &[40, 32], DType::F16);
    let ready = graph.input("ready", &[1], DType::I32);
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    graph.name(c, "c", DType::F16);
    let y = graph.signal(Signal::set(1), ready, c).unwrap();
    graph.output(y, "y", DType::F16);
    graph.build().unwrap()
}

/// What is done with it elsewhere, once the flag is set.
fn consumer() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let y = graph.input("y", &[48, 32], DType::F16);
    let ready = graph.input("ready", &[1], DType::I32);
    let y = graph.signal(Signal::wait(1), ready, y).unwrap();
    let z = graph.pointwise(Pointwise::new(Mode::Exp), &[y]).unwrap();
    graph.output(z, "z", DType::F32);
    graph.build().unwrap()
}

fn values(graph: &OperationGraph) -> Values {
    kiln::plan::random_values(graph, 3).unwrap()
}

fn kernels(plan: &ExecutionPlan) -> Vec<&str> {
    plan.kernels().iter().map(|kernel| kernel.spec().entry).collect()
}

#[test]
fn what_passes_through_virtual_tensors_is_not_copied() {
    for kiln in harness::dialects() {
        for (graph, second) in [(producer(), "signal_set"), (consumer(), "signal_wait")] {
            let plan = kiln.plan(&graph).unwrap();
            let entries = kernels(&plan);
            assert_eq!(entries.len(), 2, "{entries:?}");
            assert!(entries.contains(&second), "{entries:?}");
            assert_eq!(plan.workspace_bytes(), 0, "{entries:?}");
            harness::check(kiln, &graph, None, &values(&graph), second);
        }
    }
}

/// A tensor that two signals pass on in a chain, strided where it is in memory: at the end, at the
/// beginning, or nowhere, where it is in the workspace.
#[test]
fn chains_of_signals_have_one_tensor_in_memory() {
    let strided = |uid, name: &str, dtype: DType| TensorDesc {
        strides: vec![40, 1],
        alignment: dtype.bytes(),
        ..TensorDesc::packed(uid, name, &[5, 24], dtype)
    };
    for stored in ["first", "last", "none"] {
        let mut graph = OperationGraph::builder();
        let [f, g] = ["f", "g"].map(|name| graph.input(name, &[1], DType::I32));
        let x = match stored {
            "first" => graph.tensor(strided(10, "x", DType::F16)),
            _ => {
                let x = graph.input("x", &[5, 24], DType::F32);
                let x = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).unwrap();
                graph.name(x, "negated", DType::F16);
                x
            }
        };
        let first = graph.signal(Signal::set(7), f, x).unwrap();
        let second = if stored == "last" {
            let y = graph.tensor(strided(20, "y", DType::F16));
            let op = kiln::graph::Op::Signal(Signal::set(-1));
            graph.operation_into(op, &[first], &[g, y]);
            None
        } else {
            Some(graph.signal(Signal::set(-1), g, first).unwrap())
        };
        if let Some(second) = second {
            let z = graph.pointwise(Pointwise::new(Mode::Abs), &[second]).unwrap();
            graph.output(z, "z", DType::F32);
        }
        let graph = graph.build().unwrap();
        for kiln in harness::dialects() {
            let plan = kiln.plan(&graph).unwrap();
            let bytes = if stored == "none" { 256 } else { 0 };
            assert_eq!(plan.workspace_bytes(), bytes, "{stored}: {:?}", kernels(&plan));
            harness::check(kiln, &graph, None, &values(&graph), stored);
        }
    }
}

#[test]
fn two_results_of_one_virtual_tensor_are_two_tensors() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[5, 24], DType::F32);
    let [f, g] = ["f", "g"].map(|name| graph.input(name, &[1], DType::I32));
    let h = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).unwrap();
    for (flag, name) in [(f, "y"), (g, "z")] {
        let y = graph.signal(Signal::set(1), flag, h).unwrap();
        graph.output(y, name, DType::F32);
    }
    let graph = graph.build().unwrap();
    for kiln in harness::dialects() {
        // The first lies where the tensor does, the second is a copy.
        assert_eq!(kernels(&kiln.plan(&graph).unwrap()).len(), 4);
        harness::check(kiln, &graph, None, &values(&graph), "two results");
    }
}

/// Two waits that write nothing, on flags behind each other, beside operations that are written in
/// what they mean.
#[test]
fn plans_of_waits_without_a_result_are_saved() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[5, 24], DType::F32);
    let [f, g] = ["f", "g"].map(|name| graph.input(name, &[1], DType::I32));
    let op = Reduction::new(ReductionOp::Add);
    let sum = graph.reduction(op, x, &[5, 1]).unwrap();
    graph.output(sum, "sum", DType::F16);
    for flag in [f, g] {
        let passed = graph.signal(Signal::set(3), flag, sum).unwrap();
        graph.signal(Signal::wait(3).without_result(), flag, passed).unwrap();
        graph.signal(Signal::wait(3).timeout_ms(7).without_result(), flag, x).unwrap();
    }
    let graph = graph.build().unwrap();
    for kiln in harness::dialects() {
        let plan = kiln.plan(&graph).unwrap();
        let again = kiln.plan_from_json(&plan.to_json()).unwrap();
        assert_eq!(again.to_json(), plan.to_json());
        assert_eq!(kernels(&again), kernels(&plan));
        let actual = harness::run_plan(kiln, &again, &values(&graph)).unwrap();
        harness::compare(&graph, &values(&graph), &actual, "waits");
    }
}

#[test]
fn views_of_what_passes_through_are_copies_around_it() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[6, 24], DType::F16);
    let flag = graph.input("flag", &[1], DType::I32);
    let slice = kiln::graph::Slice::along(&[6, 24], 0, 1, 4);
    let piece = graph.operation(kiln::graph::Op::Slice(slice), &[x]).unwrap()[0];
    let passed = graph.signal(Signal::set(1), flag, piece).unwrap();
    let y = graph.reshape(passed, &[24, 3]).unwrap();
    graph.output(y, "y", DType::F16);
    let graph = graph.build().unwrap();
    for kiln in harness::dialects() {
        harness::check(kiln, &graph, None, &values(&graph), "views");
    }
}

#[test]
fn a_result_in_place_is_the_memory_of_its_operand() {
    let graph = passed(Signal::set(2).in_place(), DType::F16);
    let kiln = harness::kiln();
    let plan = kiln.plan(&graph).unwrap();
    assert_eq!(kernels(&plan), ["signal_set"]);
    harness::check(kiln, &graph, None, &values(&graph), "in place");
    let mut bound = harness::bind(kiln, &graph, &values(&graph)).unwrap();
    let other = kiln.device().alloc(240).unwrap();
    let x = graph.tensor_named("x").unwrap();
    harness::place(&mut bound.pack, x.uid, other.address(), 240);
    let error = harness::run_bound(kiln, &plan, &bound).unwrap_err().to_string();
    let said = "tensor `x` (uid 1) is in place in `y`: its address is ";
    assert!(error.starts_with(said), "{error}");
    let again = OperationGraph::from_json(&graph.to_json()).unwrap();
    assert_eq!(again, graph);
    // What is written by an operation is not in place of anything.
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[4], DType::F16);
    let flag = graph.input("flag", &[1], DType::I32);
    let h = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).unwrap();
    graph.output(h, "h", DType::F16);
    let y = graph.signal(Signal::set(2).in_place(), flag, h).unwrap();
    graph.output(y, "y", DType::F16);
    let error = graph.build().unwrap_err().to_string();
    let said = "signal[set 2]: `h`, which is in place, is written by an operation: where it is \
                virtual, it is written to its place";
    assert_eq!(error, said);
}

#[test]
fn graphs_survive_their_json() {
    let ops = [
        Signal::set(i64::from(i32::MIN)),
        Signal::set(5).without_result(),
        Signal::wait(-1).timeout_ms(250),
        Signal::wait(0).without_result(),
    ];
    for op in ops {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[5, 24], DType::I8);
        let flag = graph.input("flag", &[1, 1], DType::I32);
        let y = graph.signal(op, flag, x).unwrap();
        if y != x {
            graph.output(y, "y", DType::I8);
        }
        let graph = graph.build().unwrap();
        let again = OperationGraph::from_json(&graph.to_json()).unwrap();
        assert_eq!(again, graph, "{}", graph.to_json());
        assert_eq!(again.to_json(), graph.to_json());
        for kiln in harness::dialects() {
            harness::check(kiln, &graph, None, &values(&graph), &op.to_string());
        }
    }
}

/// A signal with changes to its keys and tensors.
fn problem(keys: &Value, tensors: &[(&str, Value)]) -> String {
    let mut operation = json!({"signal": "wait", "value": 1, "flag": "f", "x": "x", "y": "y"});
    for (key, value) in keys.as_object().unwrap() {
        match value.is_null() {
            true => drop(operation.as_object_mut().unwrap().remove(key)),
            false => operation[key] = value.clone(),
        }
    }
    let mut all = vec![
        json!({"name": "x", "dtype": "f32", "dims": [4, 6]}),
        json!({"name": "f", "dtype": "i32", "dims": [1]}),
        json!({"name": "y", "dtype": "f32", "dims": [4, 6]}),
    ];
    for (name, changes) in tensors {
        let tensor = all.iter_mut().find(|tensor| tensor["name"] == *name).unwrap();
        for (key, value) in changes.as_object().unwrap() {
            tensor[key] = value.clone();
        }
    }
    let used =
        |of: &Value| operation.as_object().unwrap().values().any(|value| *value == of["name"]);
    all.retain(used);
    json!({"graph": {"tensors": all, "operations": [operation]}}).to_string()
}

#[track_caller]
fn refused(keys: Value, tensors: &[(&str, Value)], words: &str) {
    let error = OperationGraph::from_json(&problem(&keys, tensors)).expect_err(words);
    assert_eq!((error.to_string().as_str(), error.kind()), (words, ErrorKind::BadParam));
}

#[test]
fn what_is_no_signal_is_said_with_its_numbers() {
    OperationGraph::from_json(&problem(&json!({}), &[])).unwrap();
    let plain = json!({});
    let of = |name, changes| [(name, changes)];
    refused(
        plain.clone(),
        &of("f", json!({"dims": [2]})),
        "signal[wait 1]: flag `f` is [2], expected one element",
    );
    refused(
        plain.clone(),
        &of("f", json!({"dims": [0]})),
        "signal[wait 1]: flag `f` is [0], expected one element",
    );
    for dtype in ["f32", "i64", "u8", "bool"] {
        let words = format!("signal[wait 1]: flag `f` is {dtype}, expected i32");
        refused(plain.clone(), &of("f", json!({"dtype": dtype})), &words);
    }
    refused(
        plain.clone(),
        &of("f", json!({"by_value": true})),
        "signal[wait 1]: flag `f` has no memory",
    );
    refused(
        json!({"signal": "set"}),
        &of("f", json!({"virtual": true})),
        "signal[set 1]: flag `f` has no memory",
    );
    refused(
        plain.clone(),
        &of("y", json!({"dims": [4, 5]})),
        "signal[wait 1]: output `y` is [4, 5], expected [4, 6]",
    );
    refused(
        plain.clone(),
        &of("y", json!({"dtype": "f16"})),
        "signal[wait 1]: output `y` is f16, expected f32 as of `x`",
    );
    refused(
        json!({"in_place": true}),
        &of("y", json!({"strides": [8, 1]})),
        "signal[wait 1]: `x`, which is in place, has stride 6 along axis 0, output `y` has 8",
    );
    let one = [("x", json!({"dims": [1, 1], "by_value": true})), ("y", json!({"dims": [1, 1]}))];
    refused(plain, &one, "signal[wait 1]: `x` is by value: it has no memory to pass on");
    for value in [1_i64 << 31, -(1 << 31) - 1, i64::MAX, i64::MIN] {
        let words = format!("signal[wait {value}]: value {value} is not an i32");
        refused(json!({"value": value}), &[], &words);
    }
    for timeout in [0, -1, 3_600_001] {
        let words =
            format!("signal[wait 1, {timeout} ms]: timeout_ms {timeout} is not in [1, 3600000]");
        refused(json!({"timeout_ms": timeout}), &[], &words);
    }
}

#[test]
fn keys_that_a_signal_has_not_are_refused() {
    let wait = "signal: key `signal` is `poll`, expected one of set, wait";
    refused(json!({"signal": "poll"}), &[], wait);
    refused(json!({"value": null}), &[], "signal: key `value` is missing");
    refused(json!({"value": 1.5}), &[], "signal: key `value` is 1.5, expected a whole number");
    refused(json!({"flag": null}), &[], "signal: key `flag` is missing");
    refused(json!({"x": null}), &[], "signal: key `x` is missing");
    let timeout = json!({"signal": "set", "timeout_ms": 5});
    refused(timeout, &[], "signal: key `timeout_ms` is that of `wait`");
    refused(json!({"y": null, "in_place": true}), &[], "signal: key `in_place` without `y`");
    refused(json!({"order": 1}), &[], "signal: unknown key `order`");
}

#[test]
fn a_wait_for_what_no_graph_gives_has_no_value() {
    let graph = passed(Signal::wait(5), DType::F32);
    let mut inputs = values(&graph);
    inputs.insert(2, vec![3.0]);
    let error = kiln::reference::evaluate(&graph, &inputs).unwrap_err();
    let words = "signal[wait 5]: flag `flag` is 3, and nothing in the graph sets it";
    assert_eq!((error.to_string().as_str(), error.kind()), (words, ErrorKind::BadParam));
}

#[test]
fn a_signal_has_no_gradient() {
    let graph = passed(Signal::set(1), DType::F32);
    let (x, y) = (graph.tensor_named("x").unwrap().uid, graph.tensor_named("y").unwrap().uid);
    let error = graph.vjp(&[y], &[x]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
}

/// The kernels are of no value, time or tensor: graphs that differ in these share them.
#[test]
fn one_kernel_waits_for_every_value() {
    let target = harness::kiln().device().target();
    let source = |op: Signal, dtype| {
        let graph = passed(op.in_place(), dtype);
        let supported = engine::supported("signal", graph.canonical(), target).unwrap();
        let lowering = supported.lower(&supported.heuristic()).unwrap();
        Templates::embedded().render(&lowering.kernels[0].spec).unwrap()
    };
    let first = source(Signal::wait(1), DType::F32);
    assert_eq!(source(Signal::wait(-7).timeout_ms(3), DType::I8), first);
    assert_eq!(source(Signal::set(1), DType::F32), source(Signal::set(2), DType::F16));
    let set = source(Signal::set(1), DType::F32);
    for (text, instruction) in [
        (&first.text, "ld.acquire.sys.global.s32"),
        (&set.text, "fence.acq_rel.sys"),
        (&set.text, "st.release.sys.global.s32"),
    ] {
        assert_eq!(text.matches(instruction).count(), 1, "{instruction}:\n{text}");
    }
}

/// The functions of a kernel, with a name of their own.
fn function(source: &str, entry: &str) -> String {
    let kernel = format!("extern \"C\" __global__ void __launch_bounds__(1)\n{entry}(");
    assert!(source.contains(&kernel), "{source}");
    source.replace(&kernel, &format!("__device__ void {entry}("))
}

/// What the sanitizer finds where a block sets a flag behind a write, by the text of one kernel,
/// and another reads what was written behind a wait, by that of the other.
fn found(set: &str, wait: &str, seed: u64) -> Vec<FindingKind> {
    let kiln = harness::kiln();
    let [set, wait] = [(set, "signal_set"), (wait, "signal_wait")].map(|(text, entry)| {
        let inner = function(text, entry).replace("using i32 = int;", "");
        format!("namespace {entry}_ {{\n{inner}\n}}\n")
    });
    let text = format!(
        "using i32 = int;\n{set}{wait}\
         extern \"C\" __global__ void both(int* data, int* flag, long long* report, int* out) {{\n\
             if (blockIdx.x == 0) {{\n\
                 *data = 42;\n\
                 signal_set_::signal_set(flag, 5);\n\
             }} else {{\n\
                 signal_wait_::signal_wait(flag, (signal_wait_::Report*)report, 5, 1000000000);\n\
                 *out = *data;\n\
             }}\n\
         }}\n"
    );
    let arch = kiln.device().target().arch;
    let entry = "both".to_owned();
    let source = KernelSource { stem: entry.clone(), entry, arch, text };
    let image = kiln.compile(&source).unwrap_or_else(|error| panic!("{error}\n{}", source.text));
    let device = Device::new(DeviceConfig { seed, ..DeviceConfig::default() });
    let words = [0; 4].map(|_: u8| {
        let address = device.alloc(8).unwrap();
        device.write(address, &[0; 8]).unwrap();
        address
    });
    let parameters: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    let kernel = Module::load(&image.ptx).unwrap().kernel("both").unwrap();
    let launch =
        Launch { grid: [2, 1, 1], block: [1, 1, 1], checks: Checks::ALL, ..Launch::default() };
    let report = device.launch(&kernel, &launch, &parameters).unwrap();
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn orders_that_are_missing_are_found() {
    if harness::kiln().device().kind() != "sim" {
        println!("skipped: only the simulated device has a sanitizer");
        return;
    }
    let target = harness::kiln().device().target();
    let [set, wait] = [Signal::set(5), Signal::wait(5)].map(|op| {
        let graph = passed(op.in_place(), DType::F32);
        let supported = engine::supported("signal", graph.canonical(), target).unwrap();
        let lowering = supported.lower(&supported.heuristic()).unwrap();
        Templates::embedded().render(&lowering.kernels[0].spec).unwrap().text
    });
    let [fence, release] = ["fence.acq_rel.sys;", "st.release.sys"];
    for seed in 0..8 {
        assert_eq!(found(&set, &wait, seed), [], "seed {seed}");
        // Either of both orders the write, as a fence and a release do.
        assert_eq!(found(&set.replace(fence, ""), &wait, seed), [], "seed {seed}");
        let relaxed = set.replace(release, "st.relaxed.sys");
        assert_eq!(found(&relaxed, &wait, seed), [], "seed {seed}");
        for (set, wait) in [
            (relaxed.replace(fence, ""), wait.clone()),
            (set.replace(fence, "").replace(release, "st.volatile"), wait.clone()),
            (set.clone(), wait.replace("ld.acquire.sys", "ld.relaxed.sys")),
            (set.clone(), wait.replace("ld.acquire.sys", "ld.volatile")),
            (set.clone(), wait.replace("ld.acquire.sys", "ld.acquire.cta")),
            (set.replace(".sys", ".cta"), wait.clone()),
        ] {
            let kinds = found(&set, &wait, seed);
            let races = kinds.iter().all(|kind| *kind == FindingKind::GlobalRace);
            assert!(races && !kinds.is_empty(), "seed {seed}: {kinds:?}\n{set}\n{wait}");
        }
    }
}

/// A device whose kernel for signals has one text in the place of another.
pub fn with_bug(op: Signal, from: &str, to: &str) -> (Kiln, TempDir) {
    let graph = passed(op.in_place(), DType::F32);
    let target = harness::kiln().device().target();
    let supported = engine::supported("signal", graph.canonical(), target).unwrap();
    let kernel = supported.lower(&supported.heuristic()).unwrap().kernels.remove(0);
    let text = Templates::embedded().render(&kernel.spec).unwrap().text;
    assert!(text.contains(from), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{}.tera", kernel.spec.template));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = text.replace(from, to);
    std::fs::write(&path, format!("{{% raw %}}{text}{{% endraw %}}")).unwrap();
    let templates = Some(folder.path().to_owned());
    let device = Some(DeviceChoice::Sim("sim".to_owned()));
    (Kiln::open(Config { templates, ..harness::checked(device) }).unwrap(), folder)
}
