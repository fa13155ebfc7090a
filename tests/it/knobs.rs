//! Knobs: values that they do not have are refused, and every architecture that the pointwise
//! engine claims compiles its settings without a spilled register.

use kiln::engine::{self, engines};
use kiln::expr::{Math, Mode, Pointwise};
use kiln::target::Target;
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};

use crate::harness;
use crate::injection::graphs;

/// Row operand, scalar, streams of three widths, a tail, 24 chunks per row.
pub fn mixed() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[37, 187], DType::Bf16);
    let bias = graph.input("bias", &[1, 187], DType::F32);
    let column = graph.input("column", &[37, 1], DType::F16);
    let scale = graph.scalar("scale", 2, DType::F32);
    let sum = graph.pointwise(Pointwise::new(Mode::Add).alphas(0.7, 1.0), &[x, bias]).unwrap();
    let hidden = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[sum]).unwrap();
    let scaled = graph.pointwise(Pointwise::new(Mode::Mul), &[hidden, scale]).unwrap();
    let shifted = graph.pointwise(Pointwise::new(Mode::Sub), &[scaled, column]).unwrap();
    graph.output(hidden, "hidden", DType::F32);
    graph.output(shifted, "y", DType::I8);
    graph.build().unwrap()
}

/// Packed, one dimension, double precision.
pub fn packed() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[5, 205], DType::F64);
    let exp = Pointwise::new(Mode::Exp).math(Math::F64);
    let y = graph.pointwise(exp, &[x]).unwrap();
    graph.output(y, "y", DType::F64);
    graph.build().unwrap()
}

/// Three outer dimensions that do not collapse, an index, an output smaller than the domain.
pub fn permuted() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = TensorDesc { strides: vec![180, 1, 30, 5], ..desc(1, "x", &[3, 5, 6, 5], DType::F16) };
    let x = graph.tensor(x);
    let row = graph.input("row", &[1, 1, 6, 5], DType::F32);
    let doubled = graph.pointwise(Pointwise::new(Mode::Add), &[row, row]).unwrap();
    let index = graph.pointwise(Pointwise::new(Mode::GenIndex).axis(2), &[x]).unwrap();
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, doubled]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Mul), &[sum, index]).unwrap();
    graph.output(doubled, "doubled", DType::F32);
    graph.output(y, "y", DType::Bf16);
    graph.build().unwrap()
}

/// Every storage type read and written, in vectors.
fn all_types() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let mut sum = graph.input("x", &[4, 64], DType::F32);
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_f8() && *dtype != DType::I64) {
        let input = graph.input(&format!("in_{dtype}"), &[4, 64], dtype);
        sum = graph.pointwise(Pointwise::new(Mode::Add), &[sum, input]).unwrap();
    }
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_f8() && *dtype != DType::I64) {
        let copy = graph.pointwise(Pointwise::new(Mode::Identity), &[sum]).unwrap();
        graph.output(copy, &format!("out_{dtype}"), dtype);
    }
    graph.build().unwrap()
}

fn desc(uid: i64, name: &str, dims: &[i64], dtype: DType) -> TensorDesc {
    TensorDesc::packed(uid, name, dims, dtype)
}

#[test]
fn every_target_compiles_without_spills() {
    let mut sources = Vec::new();
    for name in ["t4", "a100", "rtx3090", "rtx4090", "h200", "b200", "rtx5090"] {
        let target = Target::named(name).unwrap();
        for graph in [mixed(), packed(), permuted(), all_types()] {
            let heuristic =
                engine::choose(graph.canonical(), &target, &Default::default()).unwrap();
            let supported = engine::supported("pointwise", graph.canonical(), &target).unwrap();
            for grid in [0, 1] {
                let config = heuristic.clone().with("grid", grid);
                sources.extend(harness::sources(name, &*supported, &config));
            }
        }
    }
    let archs: std::collections::BTreeSet<_> =
        sources.iter().map(|(_, source)| source.arch).collect();
    assert_eq!(archs.len(), 7);
    let images = harness::compile_without_spills(&sources);
    for ((what, source), image) in sources.iter().zip(images) {
        let arch = source.arch;
        assert!((8..=128).contains(&image.resources.registers), "{what} for {arch}: {image:?}");
        assert!(image.ptx.contains(&format!(".target {arch}")), "{what} for {arch}");
    }
}

/// A value that a knob does not have is refused, whatever is asked of the engine.
#[test]
fn values_that_knobs_do_not_have_are_refused() {
    let target = Target::named("h200").unwrap();
    for (graph, _) in graphs() {
        for engine in engines().iter().map(|engine| engine.name()) {
            let Ok(supported) = engine::supported(engine, graph.canonical(), &target) else {
                continue;
            };
            let best = supported.heuristic();
            assert!(supported.work_of()(&best).is_some(), "{best}");
            for knob in supported.knobs() {
                for value in [-1, 0, 3, i64::MAX].into_iter().filter(|of| !knob.values.contains(of))
                {
                    let config = best.clone().with(knob.name, value);
                    assert_eq!(supported.work_of()(&config), None, "{config}");
                    supported.notes(&config);
                    let error = supported.lower(&config).unwrap_err();
                    let (name, values) = (knob.name, &knob.values);
                    let text = format!(
                        "engine {engine}: knob `{name}` is {value}, expected one of {values:?}"
                    );
                    assert_eq!((error.kind(), error.to_string()), (ErrorKind::BadParam, text));
                }
            }
        }
    }
}

/// Plans of versions whose knobs had other names say so.
#[test]
fn a_plan_with_a_knob_that_is_gone_is_refused() {
    let kiln = harness::kiln();
    let plan = kiln.plan(&packed()).unwrap();
    let config = plan.parts()[0].config.to_string();
    let old = config.replace("items=", "chunks=");
    assert_ne!(config, old);
    let error = kiln.plan_from_json(&plan.to_json().replace(&config, &old)).unwrap_err();
    let text = "engine pointwise: unknown knob `chunks`";
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::BadParam, text.to_owned()));
}
