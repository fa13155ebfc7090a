//! Mistakes with the registers and warps of a warpgroup's products, in any order of warps.

use crate::run::{Plain, dialects, download, packed, seeded};
use kiln_sim::FindingKind::{
    DivergentWarpgroup, OverwrittenOperand, UnfencedRegister, WarpgroupRelease,
};
use kiln_sim::{Checks, FindingKind, Launch, Module};

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

#[test]
fn more_groups_than_there_are_may_be_left() {
    for left in ["1", "4294967295", "4294967296", "9223372036854775807"] {
        let text = format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n.global .align 4 .b8 from[4];\n\
             .visible .entry k()\n{{\n.reg .b32 %r0;\n.shared .align 4 .b8 to[512];\n\
             mov.u32 %r0, %tid.x;\nmad.lo.u32 %r0, %r0, 4, to;\n\
             cp.async.ca.shared.global [%r0], [from], 4;\n\
             wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned {left};\n\
             cp.async.commit_group;\ncp.async.wait_group {left};\n\
             cp.async.bulk.commit_group;\ncp.async.bulk.wait_group {left};\n\
             cp.async.wait_all;\nret;\n}}\n"
        );
        let kernel = Module::load(&text).unwrap().kernel("k").unwrap();
        for checks in [Checks::NONE, Checks::ALL] {
            let shape = Launch { block: [128, 1, 1], checks, ..Launch::default() };
            let report = seeded(0).launch(&kernel, &shape, &[]).unwrap();
            assert!(report.findings.is_empty(), "{left}: {}", report.findings[0]);
        }
    }
}
