//! Blocks that share the units of a layer wait for each other, but not for ever.

use std::collections::HashMap;

use kiln::codegen::Templates;
use kiln::engine::{self, EngineConfig, Selection};
use kiln::graph::{MatmulMath, Recurrence};
use kiln::kernel::Argument;
use kiln::rnn::{CellKind, CellOptions};
use kiln::target::Target;
use kiln::{DType, ErrorKind};
use kiln_sim::{Device, DeviceConfig, Launch, Module};

use crate::harness;
use crate::recurrence::{graph, layer};

fn lstm(batch: i64, units: i64) -> Recurrence {
    layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [batch, units])
}

/// Runs a layer whose weights and input are 0 where only so many of its two blocks ever begin, as
/// if others had the SMs.
fn run(config: &str, blocks: u32) -> Result<(), kiln_sim::Error> {
    let graph = graph(&lstm(8, 64), 4, DType::F16);
    let config: EngineConfig = config.parse().unwrap();
    let target = harness::kiln().device().target();
    let supported = engine::supported(&config.engine, graph.canonical(), target).unwrap();
    let lowering = supported.lower(&config).unwrap();
    let device = Device::new(DeviceConfig::default());
    let zeros = |bytes: u64| {
        let address = device.alloc(bytes).unwrap();
        device.fill(address, 0, bytes).unwrap();
        address
    };
    let mut tensors = HashMap::new();
    let scratch: Vec<u64> = lowering.scratch.iter().map(|bytes| zeros(*bytes)).collect();
    let last = lowering.kernels.len() - 1;
    for (at, kernel) in lowering.kernels.iter().enumerate() {
        let source = Templates::embedded().render(&kernel.spec).unwrap();
        let image = harness::assembled(&[(config.to_string(), source)]).remove(0);
        let entry = Module::load(&image.ptx).unwrap().kernel(kernel.spec.entry).unwrap();
        let mut address = |argument: &Argument| match *argument {
            Argument::Address(uid) => *tensors
                .entry(uid)
                .or_insert_with(|| zeros(graph.tensors()[uid as usize].span_bytes().unwrap())),
            Argument::Scratch(at) => scratch[at],
            ref other => panic!("{other:?}"),
        };
        let addresses: Vec<u64> = kernel.launch.arguments.iter().map(&mut address).collect();
        let numbers = kernel.launch.numbers.iter().map(|number| *number as u64);
        let words = addresses.into_iter().chain(numbers);
        let parameters: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let launch = Launch {
            grid: [if at == last { blocks } else { 1 }, 1, 1],
            block: [kernel.launch.threads, 1, 1],
            shared_bytes: kernel.launch.shared_bytes,
            cooperative: kernel.launch.cooperative,
            ..Launch::default()
        };
        device.launch(&entry, &launch, &parameters)?;
    }
    Ok(())
}

#[test]
fn a_wait_for_a_block_that_never_comes_ends_the_launch() {
    for engine in ["rnn_grid", "rnn_stream"] {
        for exchange in [0, 1] {
            let config = format!(
                "{engine}{{batch_tile=8, exchange={exchange}, group_ctas=2, smem_percent=100, \
                 warps_k=1, warps_n=4, weight_registers=160}}"
            );
            run(&config, 2).unwrap_or_else(|error| panic!("{config}: {error}"));
            let error = run(&config, 1).unwrap_err();
            assert_eq!(error.kind(), kiln_sim::ErrorKind::Trap, "{config}: {error}");
            let text = error.to_string();
            assert!(text.starts_with("trap; kernel `rnn`, block (0, 0, 0)"), "{config}: {text}");
        }
    }
}

#[test]
fn a_grid_that_can_not_be_resident_is_refused() {
    let target = Target::named("sim").unwrap();
    let graph = graph(&lstm(160, 64), 4, DType::F16);
    let refusal = |name: &str| {
        let error = engine::supported(name, graph.canonical(), &target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        error.to_string()
    };
    for engine in ["rnn_grid", "rnn_stream"] {
        assert_eq!(refusal(engine), "needs 40 resident blocks, 4 SMs hold one each");
    }
    let chosen = engine::choose(graph.canonical(), &target, &Selection::default()).unwrap();
    assert_eq!(chosen.engine, "rnn_cta");
}

#[test]
fn a_cluster_that_the_device_has_not_is_refused() {
    let target = Target::named("rtx5090").unwrap();
    let graph = graph(&lstm(8, 256), 4, DType::F16);
    let supported = engine::supported("rnn_cluster", graph.canonical(), &target).unwrap();
    let config = supported.heuristic().with("group_ctas", 16);
    let error = supported.lower(&config).unwrap_err();
    let text = format!("{config} needs a cluster of 16 blocks, it has at most 8");
    assert_eq!(error.to_string(), text);
}
