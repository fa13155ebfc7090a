//! Engines and features on a target of every class of devices: what compiles and runs on one need
//! not on another, which has other instructions, and clusters or none.

use std::sync::Arc;

use kiln::device::DeviceChoice;
use kiln::engine::{self, EngineConfig};
use kiln::expr::{Mode, Pointwise, Program, Real};
use kiln::graph::{Attention, AttentionShape, MatmulMath, Softcap};
use kiln::{DType, Kiln};

use crate::attention::cases::{self, Case, Storage};
use crate::attention::features::{ENGINES, SHAPE, features};
use crate::harness;

/// A target of each class, and the engines that take 16 bits there.
pub const TARGETS: [(&str, usize); 6] =
    [("t4", 1), ("a100", 3), ("l40s", 3), ("h200", 4), ("b200", 3), ("sim120", 3)];

/// Of features that need no function of their own, every target takes one in so many.
const SAMPLE: usize = 6;

/// A program of one operation on the score.
fn program(mode: Mode) -> Arc<Program> {
    let mut program = Program::new();
    let score = program.input("score", DType::F32);
    let result = program.push("result", Pointwise::new(mode), &[score], DType::F32).unwrap();
    program.output(result);
    Arc::new(program)
}

/// Features whose kernels have functions that engines' own code may have, too.
fn functions() -> Vec<(&'static str, Attention)> {
    let plain = Attention { statistics: true, ..Attention::new(MatmulMath::F32) };
    let softcap = Some(Softcap { cap: Real::new(50.0), last: false });
    let of = |mode| Attention { score: Some(program(mode)), ..plain.clone() };
    vec![
        ("softcap with sinks", Attention { softcap, sinks: true, ..plain.clone() }),
        ("tanh", of(Mode::TanhFwd)),
        ("sigmoid", of(Mode::SigmoidFwd)),
    ]
}

/// A simulator of a target that checks what kernels do.
pub fn open(target: &str) -> Kiln {
    let device = Some(DeviceChoice::Sim(target.to_owned()));
    Kiln::open(harness::checked(device)).expect("the simulator opens")
}

/// Runs a case on every engine of a target, with keys split in decoding.
pub fn check(kiln: &Kiln, case: &Case, what: &str) -> usize {
    let target = kiln.device().target();
    let mut ran = 0;
    for name in ENGINES {
        let Ok(supported) = engine::supported(name, case.graph.canonical(), target) else {
            continue;
        };
        let config: EngineConfig = match name {
            "attention_decode" => {
                "attention_decode{cluster=1, cta_k=16, cta_q=16, split=2}".parse().unwrap()
            }
            _ => supported.heuristic(),
        };
        let what = format!("{what}: {config} on {}", target.name);
        harness::check(kiln, &case.graph, Some(&config), &case.inputs, &what);
        ran += 1;
    }
    ran
}

#[test]
fn every_class_of_devices() {
    for (number, (target, engines)) in TARGETS.into_iter().enumerate() {
        let kiln = open(target);
        let sampled = features().into_iter().skip(number % SAMPLE).step_by(SAMPLE);
        for (name, op) in functions().into_iter().chain(sampled) {
            let storage = Storage { page: 8, ..Storage::packed(DType::Bf16) };
            let shape = AttentionShape { keys: if op.paged { 56 } else { 55 }, ..SHAPE };
            let ran = check(&kiln, &cases::case(op, shape, storage, [true; 4]), name);
            assert_eq!(ran, engines, "engines for {name} on {target}");
        }
    }
}
