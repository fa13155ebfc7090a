//! `ld.global.nc`: whatever orders it after a store of the same launch, it may miss it.

use crate::run::{dialects, launch, line, seeded, upload};
use kiln_sim::{Checks, FindingKind, Launch};

#[test]
fn what_the_launch_writes_is_not_loaded_by_the_read_only_path() {
    for module in dialects("noncoherent") {
        for (name, expected) in [("reread_stale", 64), ("reread_clean", 0)] {
            for seed in 0..4 {
                let device = seeded(seed);
                let (x, y) = (device.alloc(256).unwrap(), upload(&device, &[1_u32; 64]));
                let shape = Launch { checks: Checks::ALL, ..line(1, 64) };
                let report = launch(&device, &module.kernel(name).unwrap(), shape, &[x, y]);
                let kinds = report.findings.iter().map(|finding| finding.kind);
                assert!(kinds.clone().all(|kind| kind == FindingKind::NonCoherentLoad), "{name}");
                let count: u64 = report.findings.iter().map(|finding| finding.count).sum();
                assert_eq!(count, expected, "{name}, seed {seed}");
                // A second launch finds what the first wrote settled.
                let clean = module.kernel("reread_clean").unwrap();
                assert!(launch(&device, &clean, shape, &[y, x]).findings.is_empty());
            }
        }
    }
}
