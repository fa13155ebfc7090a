//! Mistakes at the start of clusters, and with mbarriers that are being initialised.

use crate::run::{dialects, line, params, seeded, upload};
use kiln_sim::{Checks, ErrorKind, FindingKind, Launch};

#[test]
fn mistakes_at_the_start_are_found() {
    use FindingKind::{MissingBarrierFence, SharedRace, UnstartedPeer};
    for module in dialects("starts") {
        for name in module.kernels() {
            let kernel = module.kernel(name).unwrap();
            let expected = match name {
                "stored_racy" => Some(UnstartedPeer),
                "arrived_unfenced_racy" | "used_racy" => Some(SharedRace),
                "loaded_unfenced" => Some(MissingBarrierFence),
                _ => None,
            };
            for seed in 0..12 {
                let device = seeded(seed);
                let out = upload(&device, &[0_u32; 256]);
                let blocks = if kernel.cluster().is_some() { 2 } else { 1 };
                let shape = Launch { checks: Checks::ALL, ..line(blocks, 64) };
                let report = match device.launch(&kernel, &shape, &params(&kernel, &[out])) {
                    Ok(report) => report.findings,
                    // The mistake shows: a barrier is used before it is initialised.
                    Err(error) if name == "used_racy" && error.kind() == ErrorKind::Misuse => {
                        continue;
                    }
                    Err(error) => panic!("{name}, seed {seed}: {error}"),
                };
                let other = report.iter().find(|finding| Some(finding.kind) != expected);
                assert!(other.is_none(), "{name}, seed {seed}: {}", other.unwrap());
                assert_eq!(report.is_empty(), expected.is_none(), "{name}, seed {seed}");
            }
        }
    }
}
