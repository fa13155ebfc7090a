//! How layers of networks are planned: how many kernels they have, and which.

use std::borrow::Cow;

use kiln::engine::{self, Mode, Selection};
use kiln::graph::{MatmulMath, RowLayout};
use kiln::rnn::{CellKind, CellOptions, Extent, Optional, Rnn};
use kiln::target::Target;
use kiln::{DType, ErrorKind};

use crate::recurrence::{graph, layer};

/// A layer without a place on chip has as many kernels packed as it has unpacked, and one more for
/// sequences that are longer than the mean.
#[test]
fn packed_rows_multiply_no_kernels() {
    let target = Target::named("t4").expect("it is known");
    let (batch, steps) = (64, 100);
    let kernels = |layout: RowLayout| {
        let rnn = Rnn::lstm(1024, 1024).dtype(DType::F16).layout(layout);
        let with = Optional { lengths: true, h_final: true, ..Optional::default() };
        let extent = Extent { batch, rows: batch * steps };
        let network = rnn.network(extent, with).expect("it is valid");
        let parts = engine::partition(&network.graph, &target, &Selection::default());
        let parts = parts.expect("engines run it");
        let part = parts.iter().find(|part| part.config.engine == "rnn_step");
        let part = part.expect("no other engine runs the layer");
        let own = engine::supported("rnn_step", part.graph.canonical(), &target);
        let own = own.expect("it was chosen");
        own.lower(&part.config).expect("it was chosen").kernels.len()
    };
    let unpacked = kernels(RowLayout::SequenceMajor);
    assert_eq!(unpacked, 2 * steps as usize + 2);
    assert_eq!(kernels(RowLayout::Packed), unpacked + 1);
}

/// However many steps a layer has, its plan has a bounded number of kernels, and is found quickly
/// by every heuristic.
#[test]
fn planning_is_bounded_in_the_number_of_steps() {
    for target in ["sim", "t4"].map(|name| Target::named(name).expect("it is known")) {
        for (hidden, steps) in [(32, 1 << 31), (2048, 1 << 20), (2048, 20_000)] {
            let rnn = Rnn::lstm(16, hidden).dtype(DType::F16);
            let extent = Extent { batch: 4, rows: 4 * steps };
            let network = rnn.network(extent, Optional::default()).expect("it is valid");
            for mode in [Mode::A, Mode::B, Mode::Fallback] {
                let selection = Selection { mode, ..Selection::default() };
                let parts = match engine::partition(&network.graph, &target, &selection) {
                    Ok(parts) => parts,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
                        continue;
                    }
                };
                for part in parts {
                    let own =
                        engine::supported(&part.config.engine, part.graph.canonical(), &target);
                    let lowered = own.expect("it was chosen").lower(&part.config);
                    let count = lowered.expect("it was chosen").kernels.len();
                    assert!(count <= (1 << 13) + 8, "{}: {count} kernels", part.config);
                }
            }
        }
    }
}

/// All products of a backward pass are on tensor cores, as gradients of gates stay as narrow as
/// they are kept, and those of a layer's weights add up the gradients of its biases. What was kept
/// in f32 is converted in front of them, or before where TMA fetches it.
#[test]
fn gradients_of_weights_are_products_alone() {
    for name in ["t4", "a100", "l40s", "h100", "b200", "rtx5090"] {
        let target = Target::named(name).expect("it is known");
        let cells = [Rnn::lstm(256, 512).layers(2), Rnn::gru(512, 256).bidirectional()];
        let ways = [(DType::F16, Mode::A), (DType::Bf16, Mode::B)];
        for (rnn, (dtype, mode)) in cells.into_iter().zip(ways) {
            let rnn = rnn.dtype(dtype);
            let extent = Extent { batch: 32, rows: 32 * 64 };
            let training = rnn.training(extent, Optional::default()).expect("it is valid");
            let selection = Selection { mode, ..Selection::default() };
            let engines = |graph| {
                let parts = engine::partition(graph, &target, &selection).expect("engines run it");
                parts.into_iter().map(|part| part.config.engine).collect::<Vec<_>>()
            };
            // Those of Turing have no bf16.
            let has_tensor_cores = target.arch.capability >= 80 || dtype == DType::F16;
            for network in &training.weights {
                let own = engines(&network.graph);
                let converts =
                    |pair: &[Cow<'_, str>]| pair[0] != "pointwise" || pair[1].starts_with("gemm_");
                let products = own.iter().filter(|engine| engine.starts_with("gemm_")).count();
                let converted = own.iter().filter(|engine| *engine == "pointwise").count();
                assert!(own.windows(2).all(converts), "{name}: {own:?}");
                assert!(products + converted == own.len(), "{name}: {own:?}");
            }
            let all = training.weights.iter().chain([&training.data]);
            let all: Vec<_> = all.flat_map(|network| engines(&network.graph)).collect();
            let lanes = all.iter().any(|engine| engine == "gemm_simt");
            assert_eq!(lanes, !has_tensor_cores, "{name}, {dtype}: {all:?}");
        }
    }
}

/// A filter finds what is left: a layer without tensor cores on any, and none whose blocks must be
/// resident together.
#[test]
fn notes_are_what_the_kernels_do() {
    for name in ["sim", "t4", "a100", "h100"] {
        let target = Target::named(name).expect("it is known");
        for hidden in [64, 1024, 4096] {
            let rnn = Rnn::lstm(64, hidden).dtype(DType::F16);
            let extent = Extent { batch: 8, rows: 80 };
            let network = rnn.network(extent, Optional::default()).expect("it is valid");
            for note in ["tensor_core", "cooperative", "tensor_core, cooperative"] {
                let without = note.parse().expect("it is known");
                let selection = Selection { without, ..Selection::default() };
                let parts = engine::partition(&network.graph, &target, &selection);
                for part in parts.unwrap_or_else(|error| panic!("{name} {hidden}: {error}")) {
                    let own =
                        engine::supported(&part.config.engine, part.graph.canonical(), &target);
                    let lowered = own.expect("it was chosen").lower(&part.config);
                    for kernel in lowered.expect("it was chosen").kernels {
                        let uses = kernel.spec.template.contains("mma");
                        let refused = note.contains("tensor_core") && uses
                            || note.contains("cooperative") && kernel.launch.cooperative;
                        assert!(!refused, "{name} {hidden}, without {note}: {}", part.config);
                    }
                }
            }
        }
    }
}

/// Layers without tensor cores whose weights fit on chip only if threads hold as many as they can.
#[test]
fn registers_hold_what_shared_memory_does_not() {
    for (name, engine_name, batch, units) in [
        ("h200", "rnn_cluster", 8, 848),
        ("h200", "rnn_cluster", 8, 960),
        ("a100", "rnn_grid", 32, 784),
        ("t4", "rnn_grid", 8, 528),
    ] {
        let target = Target::named(name).expect("it is known");
        let op = layer(CellKind::Tanh, CellOptions::default(), MatmulMath::F32, [batch, units]);
        let graph = graph(&op, 8, DType::F32);
        let own = engine::supported(engine_name, graph.canonical(), &target);
        let config = own.unwrap_or_else(|error| panic!("{name}, {units}: {error}")).heuristic();
        assert!(config.knob("weight_registers").expect("it is set") > 64, "{name}: {config}");
    }
}
