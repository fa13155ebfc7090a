//! CTC losses as they are planned: by every heuristic for every class of target, with the same bits
//! in every order of warps, and without registers in memory.

use kiln::device::DeviceChoice;
use kiln::engine::{self, EngineConfig, Mode};
use kiln::expr::Math;
use kiln::graph::{CtcInfinite, CtcInput, CtcLoss};
use kiln::target::Target;
use kiln::{Config, DType, Kiln};

use crate::ctc::{Case, Lay, alone, concatenated, kept};
use crate::harness;

/// A GPU of every class.
const TARGETS: [&str; 6] = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"];

/// Orders of warps in which results must be the same.
const SEEDS: u64 = 8;

/// Two warps of pairs for each direction, in f16; a gradient that is kept; a loss alone, in f64; a
/// lattice that shared memory does not hold.
fn cases() -> [Case; 4] {
    let long = Case::new([400, 2, 70], 63);
    let op = CtcLoss { input: CtcInput::LogProbabilities, blank: 69, ..long.op };
    [concatenated(), kept(), alone(), Case { op, lay: Lay::Sequences, ..long }]
}

#[test]
fn every_order_of_warps_gives_the_same_bits() {
    for device in ["sim", "sim120"] {
        for case in cases() {
            let (graph, values) = (case.graph(), case.values());
            let bits = |seed: u64| {
                let device = Some(DeviceChoice::Sim(device.to_owned()));
                let config = Config { sim_seed: Some(seed), ..harness::checked(device) };
                let kiln = Kiln::open(config).unwrap();
                let results = harness::run(&kiln, &graph, None, &values).unwrap();
                let own = graph.outputs().flat_map(|tensor| results[&tensor.uid].clone());
                own.map(f64::to_bits).collect::<Vec<u64>>()
            };
            let first = bits(0);
            assert!(first.iter().any(|bits| f64::from_bits(*bits) > 0.0), "{case:?}");
            for seed in 1..SEEDS {
                assert_eq!(bits(seed), first, "seed {seed} on {device}: {case:?}");
            }
        }
    }
}

#[test]
fn every_heuristic_on_every_target() {
    for (at, target) in TARGETS.into_iter().enumerate() {
        for heuristic in [Mode::A, Mode::B, Mode::Fallback] {
            let Some(kiln) = harness::simulated_by(target, at as u64, heuristic) else { continue };
            for case in cases() {
                let (graph, values) = (case.graph(), case.values());
                let plan = kiln.plan(&graph).unwrap_or_else(|error| panic!("{case:?}: {error}"));
                let [part] = plan.parts()[..] else { panic!("{case:?}: one part") };
                assert_eq!(part.config.engine, "ctc_loss");
                let what = format!("{heuristic} on {target}: {case:?}");
                harness::check(kiln, &graph, None, &values, &what);
            }
        }
    }
}

/// The default, and the most threads that are offered, which have the fewest registers each.
#[test]
fn losses_compile_without_spills() {
    let mut sources = Vec::new();
    for name in TARGETS {
        let target = Target::named(name).unwrap();
        let mut cases = cases().to_vec();
        // With offsets of 32 bits, and of 64.
        for classes in [5000, 150_000] {
            let wide = Case::new([300, 64, classes], 255);
            let op = CtcLoss { infinite: CtcInfinite::Keep, ..wide.op.clone() };
            cases.push(Case { op, concatenated: true, types: [DType::Bf16; 3], ..wide.clone() });
            let op = CtcLoss { math: Math::F64, ..wide.op.clone() };
            cases.push(Case { op, types: [DType::F64; 3], lay: Lay::Sequences, ..wide });
        }
        for case in cases {
            let graph = case.graph();
            let own = engine::supported("ctc_loss", graph.canonical(), &target).unwrap();
            let best = own.heuristic();
            let legal = |config: &EngineConfig| own.lower(config).is_ok();
            let threads = [512, 1024].map(|threads| best.clone().with("threads", threads));
            let most = threads.into_iter().rfind(legal).unwrap();
            for config in [best, most] {
                sources.extend(harness::sources(&format!("{case:?}"), &*own, &config));
            }
        }
    }
    harness::compile_without_spills(&sources);
}
