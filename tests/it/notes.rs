//! Notes are what the kernels do: read from the PTX and the launches of every engine, on a target
//! of each class.

use std::collections::BTreeSet;

use kiln::engine::{self, EngineConfig, Notes, Selection};
use kiln::graph::{
    Attention, AttentionBackward, AttentionShape, MatmulMath, NormMode, Recurrence,
    RecurrenceSlots, ReductionOp,
};
use kiln::plan::ExecutionPlan;
use kiln::rnn::{CellKind, CellOptions};
use kiln::target::Target;
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph};

use crate::attention::backward_cases;
use crate::attention::cases::{Storage, graph as attention};
use crate::gemm::cases::Case;
use crate::golden::chain;
use crate::harness;
use crate::recurrence::{graph as recurrence, layer};
use crate::reduction::softmax;
use crate::winners::{all_of, norm_backward, reduced};

/// One of each class that compiles to other instructions.
const TARGETS: [&str; 5] = ["t4", "a100", "rtx4090", "h200", "sim120"];

/// Settings of an engine that are looked at beside the heuristic's.
const SAMPLED: usize = 2;

fn kiln(target: &str, without: &str) -> Kiln {
    let device = Some(format!("null:{target}").parse().unwrap());
    let without = Some(without.parse().unwrap());
    let ptx_only = Some(true);
    Kiln::open(Config { device, without, ptx_only, ..harness::config() }).unwrap()
}

fn problems() -> Vec<(&'static str, OperationGraph)> {
    let product = |math, dtype, out, extents| {
        let types = [dtype, dtype, out];
        Case::new(math, types, extents).graph()
    };
    let (bf16, f16, f32, f64) = (DType::Bf16, DType::F16, DType::F32, DType::F64);
    let sdpa = |math, dtype, queries| {
        let shape = AttentionShape {
            batches: 1,
            heads: 2,
            kv_heads: 1,
            queries,
            keys: 2048,
            depth: 64,
            width: 64,
        };
        attention(Attention::new(math), shape, [Storage::packed(dtype); 4], [true; 4])
    };
    let gradients = |math, dtype| {
        let (heads, kv_heads, queries, keys) = (2, 1, 256, 256);
        let shape =
            AttentionShape { batches: 1, heads, kv_heads, queries, keys, depth: 64, width: 64 };
        let op = AttentionBackward::new(Attention::new(math));
        backward_cases::graph(&op, shape, [Storage::packed(dtype); 4], [true; 4])
    };
    let network = |kind, math, dtype, units, batch| {
        let mut op = layer(kind, CellOptions::default(), math, [batch, units]);
        op.with = RecurrenceSlots { h_initial: true, ..RecurrenceSlots::default() };
        recurrence(&op, 5, dtype)
    };
    let fast = layer(CellKind::Gru, CellOptions::default(), MatmulMath::F32, [4, 64]);
    let fast = Recurrence { fast_activations: true, ..fast };
    vec![
        ("chain", chain(37, 1001)),
        ("softmax", softmax(bf16, &[64, 1000], false)),
        ("sum", reduced(ReductionOp::Add, &[64, 8192], &[1, 1])),
        ("columns", reduced(ReductionOp::Add, &[8192, 64], &[1, 64])),
        ("norm_backward", all_of(norm_backward(NormMode::Layer), &[512, 768], &[1, 768], false)),
        ("gemm_bf16", product(MatmulMath::F32, bf16, bf16, [64, 64, 4096])),
        ("gemm_f32", product(MatmulMath::F32, f32, f32, [64, 64, 512])),
        ("gemm_tf32", product(MatmulMath::Tf32, f32, f32, [128, 128, 512])),
        ("gemm_f64", product(MatmulMath::F64, f64, f64, [64, 64, 64])),
        ("gemm_i8", product(MatmulMath::I32, DType::I8, DType::I32, [128, 128, 128])),
        ("sdpa_f16", sdpa(MatmulMath::F32, f16, 256)),
        ("sdpa_tf32", sdpa(MatmulMath::Tf32, f32, 256)),
        ("sdpa_f64", sdpa(MatmulMath::F64, f64, 64)),
        ("sdpa_backward_f16", gradients(MatmulMath::F32, f16)),
        ("sdpa_backward_tf32", gradients(MatmulMath::Tf32, f32)),
        ("decode_bf16", sdpa(MatmulMath::F32, bf16, 1)),
        ("lstm_f16", network(CellKind::Lstm, MatmulMath::F32, f16, 256, 4)),
        ("gru_fast", recurrence(&fast, 5, f16)),
        ("lstm_tf32", network(CellKind::Lstm, MatmulMath::Tf32, f32, 64, 4)),
        ("gru_f32", network(CellKind::Gru, MatmulMath::F32, f32, 512, 4)),
        ("tanh_f64", network(CellKind::Tanh, MatmulMath::F64, f64, 32, 2)),
    ]
}

/// The notes that the kernels of a plan show; of those that only settings know, none.
fn shown(plan: &ExecutionPlan) -> BTreeSet<&'static str> {
    let mut shown = BTreeSet::new();
    if plan.workspace_bytes() > 0 {
        shown.insert("workspace");
    }
    for kernel in plan.kernels() {
        // A block that waits for others before it adds to what they add to does so in order.
        let is_ordered = kernel.image().ptx.contains("ld.acquire.gpu");
        if kernel.launch().cooperative {
            shown.insert("cooperative");
        }
        for line in kernel.image().ptx.lines().map(str::trim_start) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // A predicate may stand in front.
            let Some(name) = words.iter().find(|word| !word.starts_with('@')) else { continue };
            let parts: Vec<&str> = name.trim_end_matches(';').split('.').collect();
            let has = |part: &str| parts.contains(&part);
            let is_float = ["f16", "bf16", "f16x2", "bf16x2", "f32", "f64"].into_iter().any(has);
            match parts[0] {
                "mma" | "wmma" => {
                    shown.insert("tensor_core");
                    if has("tf32") {
                        shown.insert("down_convert_inputs");
                    }
                    // The types are those of the result, both factors and the sum.
                    if parts.ends_with(&["f16"])
                        || (parts.len() > 4 && parts[parts.len() - 4] == "f16")
                    {
                        shown.insert("reduced_precision_reduction");
                    }
                }
                "wgmma" if has("mma_async") => {
                    shown.insert("tensor_core");
                    if has("tf32") {
                        shown.insert("down_convert_inputs");
                    }
                    if parts.iter().position(|part| *part == "f16").is_some_and(|at| at < 6)
                        && !has("f32")
                    {
                        shown.insert("reduced_precision_reduction");
                    }
                }
                // The order in which blocks arrive is that of the sum.
                "atom" | "red" if has("add") && is_float && !is_ordered => {
                    shown.insert("nondeterministic");
                }
                "tanh" if has("approx") => {
                    shown.insert("fast_activations");
                }
                "cp" if has("reduce") && is_float && !is_ordered => {
                    shown.insert("nondeterministic");
                }
                _ => {}
            }
        }
    }
    shown
}

fn said(notes: &Notes) -> BTreeSet<&'static str> {
    notes.names().into_iter().filter(|name| *name != "runtime_compilation").collect()
}

/// The heuristic's setting and, where more are wanted, some others, spread over all that are legal.
fn settings(supported: &dyn engine::Supported, more: bool) -> Vec<EngineConfig> {
    if !more {
        return vec![supported.heuristic()];
    }
    let mut all: Vec<EngineConfig> =
        supported.settings().into_iter().map(|setting| setting.config).collect();
    let stride = all.len().div_ceil(SAMPLED).max(1);
    all = all.into_iter().skip(stride / 2).step_by(stride).collect();
    all.insert(0, supported.heuristic());
    all.dedup();
    all
}

#[test]
fn notes_are_what_kernels_do() {
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for (place, name) in TARGETS.into_iter().enumerate() {
        let (kiln, target) = (kiln(name, ""), Target::named(name).unwrap());
        for (at, (problem, graph)) in problems().into_iter().enumerate() {
            // Every problem is on every other target, its other settings on one: or all on all.
            let all = harness::all_are_wanted();
            let more = all || at % TARGETS.len() == place;
            if !all && (at + place) % 2 != 0 && !more {
                continue;
            }
            for engine in engine::engines() {
                let Ok(supported) = engine.support(graph.canonical(), &target) else { continue };
                for config in settings(&*supported, more) {
                    let plan = kiln.plan_with(&graph, &config);
                    let plan = plan
                        .unwrap_or_else(|error| panic!("{problem} on {name}: {config}: {error}"));
                    let (said, shown) = (said(&supported.notes(&config)), shown(&plan));
                    seen.extend(shown.iter().copied());
                    if said != shown {
                        wrong.push(format!(
                            "{problem} on {name}: {config}: says {said:?}, shows {shown:?}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of settings:\n{}", wrong.len(), wrong.join("\n"));
    // What nothing shows is not tested.
    let tested = BTreeSet::from([
        "tensor_core",
        "down_convert_inputs",
        "fast_activations",
        "workspace",
        "cooperative",
    ]);
    assert!(seen.is_superset(&tested), "{seen:?}");
}

#[test]
fn what_is_excluded_is_in_no_kernel() {
    for (place, name) in TARGETS.into_iter().enumerate() {
        let target = Target::named(name).unwrap();
        let notes = ["tensor_core", "down_convert_inputs", "workspace", "cooperative"];
        for (number, note) in notes.into_iter().enumerate() {
            let without = Selection { without: note.parse().unwrap(), ..Selection::default() };
            let kiln = kiln(name, note);
            for (at, (problem, graph)) in problems().into_iter().enumerate() {
                // Targets and notes take turns.
                if !harness::all_are_wanted() && (at + number + place) % 3 != 0 {
                    continue;
                }
                let plan = match kiln.plan(&graph) {
                    Ok(plan) => plan,
                    Err(error) => {
                        let refused = engine::partition(&graph, &target, &without);
                        assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
                        assert!(refused.is_err() && error.to_string().contains("excluded"));
                        continue;
                    }
                };
                assert!(!shown(&plan).contains(note), "{problem} on {name} without {note}");
            }
        }
    }
}
