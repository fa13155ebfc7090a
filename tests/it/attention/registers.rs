//! Default settings leave no register to memory, on every architecture, and no product waits.

use std::sync::Arc;

use kiln::codegen::Templates;
use kiln::compile::compile_all;
use kiln::engine;
use kiln::expr::Real;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath, Softcap};
use kiln::target::Target;
use kiln::{DType, OperationGraph};

use crate::attention::cases::{self, Storage};
use crate::attention::features::ENGINES;
use crate::harness;

/// Nothing but causal, what models of language ask for, all there is, keys and values of 8 bits.
pub fn operations(shape: &AttentionShape) -> [(&'static str, Attention); 4] {
    let causal = Attention {
        band: Band::causal(Diagonal::BottomRight),
        statistics: true,
        ..Attention::new(MatmulMath::F32)
    };
    let model = Attention {
        softcap: Some(Softcap { cap: Real::new(30.0), last: false }),
        slopes: true,
        sinks: true,
        key_lengths: true,
        band: Band { left: Some(1024), ..causal.band },
        ..causal.clone()
    };
    let all = Attention {
        intervals: true,
        bias: true,
        mask: true,
        query_lengths: true,
        dropout: Some(Real::new(0.1)),
        score: Some(Arc::new(cases::score_program(shape))),
        keep: Some(Arc::new(cases::keep_program(DType::F32))),
        ..model.clone()
    };
    let eight = Attention { descale_k: true, descale_v: true, ..causal.clone() };
    [("causal", causal), ("model", model), ("all", all), ("8 bits", eight)]
}

#[test]
fn defaults_spill_nothing() {
    let mut graphs = Vec::new();
    for elements in [64, 128, 256] {
        let shape = AttentionShape {
            batches: 2,
            heads: 32,
            kv_heads: 8,
            queries: 2048,
            keys: 2048,
            depth: elements,
            width: elements,
        };
        for (what, op) in operations(&shape) {
            let kv = if op.descale_k { DType::F8E4M3 } else { DType::Bf16 };
            let storage = [DType::Bf16, kv, kv, DType::Bf16].map(Storage::packed);
            let graph = cases::graph(op, shape, storage, [true; 4]);
            graphs.push((format!("{what} of {elements}"), graph));
        }
    }
    assert_no_spills(&["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"], &ENGINES, &graphs);
}

/// Compiles the default settings of each engine that takes a graph on each of these targets.
pub fn assert_no_spills(targets: &[&str], engines: &[&str], graphs: &[(String, OperationGraph)]) {
    let mut sources = Vec::new();
    for name in targets {
        let target = Target::named(name).unwrap();
        for (what, graph) in graphs {
            for engine in engines {
                let supported = engine::supported(engine, graph.canonical(), &target);
                let Ok(supported) = supported else { continue };
                let config = supported.heuristic();
                let kernels = supported.lower(&config).unwrap().kernels;
                let what = format!("{what}: {config} on {name}");
                for kernel in kernels {
                    let source = Templates::embedded().render(&kernel.spec).unwrap();
                    sources.push((what.clone(), source));
                }
            }
        }
    }
    assert!(sources.len() >= graphs.len() * targets.len(), "{engines:?} take {}", sources.len());
    let compiler = harness::kiln().compiler().unwrap();
    let texts: Vec<_> = sources.iter().map(|(_, source)| source.clone()).collect();
    let images = compile_all(compiler, &texts, |_, _| {});
    for ((what, _), image) in sources.iter().zip(images) {
        let image = image.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        // Products that the assembler does not let run on are waited for one by one.
        assert!(!image.log.contains("are serialized"), "{what}: {}", image.log);
        let resources = image.resources;
        assert_eq!(resources.spill_bytes, 0, "{what}: {} registers", resources.registers);
    }
}
