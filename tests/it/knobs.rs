//! Knobs: values that they do not have are refused, and every architecture that the pointwise
//! engine claims compiles its settings without a spilled register.

use kiln::engine::{self, engines};
use kiln::target::Target;
use kiln::{ErrorKind, OperationGraph};

use crate::cases::{File, Parameters};
use crate::harness;
use crate::injection::graphs;

/// A graph of `tests/cases/pointwise.toml`.
fn graph(name: &str) -> OperationGraph {
    File::read("pointwise").graph(name, &Parameters::new())
}

#[test]
fn every_target_compiles_without_spills() {
    let mut sources = Vec::new();
    for name in ["t4", "a100", "rtx3090", "rtx4090", "h200", "b200", "rtx5090"] {
        let target = Target::named(name).unwrap();
        for graph in ["streams", "packed", "permuted", "every_type"].map(graph) {
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
    let plan = kiln.plan(&graph("packed")).unwrap();
    let config = plan.parts()[0].config.to_string();
    let old = config.replace("items=", "chunks=");
    assert_ne!(config, old);
    let error = kiln.plan_from_json(&plan.to_json().replace(&config, &old)).unwrap_err();
    let text = "engine pointwise: unknown knob `chunks`";
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::BadParam, text.to_owned()));
}
