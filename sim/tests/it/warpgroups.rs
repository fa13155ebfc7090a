//! Mistakes with the registers and warps of a warpgroup's products, in any order of warps.

use crate::run::{Plain, dialects, download, packed, seeded};
use kiln_sim::FindingKind::{
    DivergentWarpgroup, OverwrittenOperand, UnfencedRegister, WarpgroupRelease,
};
use kiln_sim::{Checks, FindingKind, Launch};

#[test]
fn mistakes_with_registers_and_warps_are_found() {
    let mistakes: [(&str, FindingKind); 5] = [
        ("scaled_racy", UnfencedRegister),
        ("reused_racy", OverwrittenOperand),
        ("apart_racy", DivergentWarpgroup),
        ("some_racy", DivergentWarpgroup),
        ("refilled_early", WarpgroupRelease),
    ];
    for module in dialects("warpgroups") {
        for name in module.kernels() {
            let kernel = module.kernel(name).unwrap();
            let expected = mistakes.iter().find(|(of, _)| *of == name).map(|(_, kind)| *kind);
            for seed in 0..12 {
                let device = seeded(seed);
                let out = device.alloc(256 * 16).unwrap();
                let warps = if name.starts_with("some") { 4 } else { 8 };
                let shape =
                    Launch { block: [32 * warps, 1, 1], checks: Checks::ALL, ..Launch::default() };
                let arguments = packed(&kernel, &[out.bytes(), 2.0_f32.bytes()]);
                let report = device.launch(&kernel, &shape, &arguments).unwrap();
                let other = report.findings.iter().find(|found| Some(found.kind) != expected);
                assert!(other.is_none(), "{name}, seed {seed}: {}", other.unwrap());
                assert_eq!(report.findings.is_empty(), expected.is_none(), "{name}, seed {seed}");
                if name == "scaled_clean" {
                    assert_eq!(download::<f32>(&device, out, 4), [48.0; 4]);
                }
            }
        }
    }
}
