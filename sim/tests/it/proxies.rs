//! Fences between the proxies of threads and of TMA copies, in shared and in global memory.

use crate::run::{dialects, download, f16_boxes_of, launch, line, seeded, upload};
use kiln_sim::{Checks, FindingKind, Launch, Report};

/// Whether a launch has findings; all are missing proxy fences.
fn lacks_fences(report: &Report, what: &str) -> bool {
    let other = report.findings.iter().find(|of| of.kind != FindingKind::MissingProxyFence);
    assert!(other.is_none(), "{what}: {}", other.unwrap());
    !report.findings.is_empty()
}

#[test]
fn copies_see_what_threads_stored_after_a_fence() {
    for module in dialects("proxies") {
        for name in module.kernels() {
            let racy = name.ends_with("_racy");
            assert!(racy || name.ends_with("_clean"), "{name}");
            let blocks = if name.starts_with("in_") { 2 } else { 1 };
            for seed in 0..8 {
                let device = seeded(seed);
                let [data, flag, out] =
                    [128, 1, 128].map(|count| upload(&device, &vec![0_u32; count]));
                let shape = Launch { checks: Checks::ALL, ..line(blocks, 128) };
                let kernel = module.kernel(name).unwrap();
                let report = launch(&device, &kernel, shape, &[data, flag, out]);
                let what = format!("{name}, seed {seed}");
                assert_eq!(lacks_fences(&report, &what), racy, "{what}");
                let expected: Vec<u32> = (0..128).collect();
                assert_eq!(download::<u32>(&device, out, 128), expected, "{what}");
            }
        }
    }
}

#[test]
fn copies_see_tensor_maps_that_are_released_and_acquired() {
    for module in dialects("maps") {
        for name in module.kernels() {
            for seed in 0..8 {
                let device = seeded(seed);
                let values: Vec<u16> = (0..8 * 64).collect();
                let other = upload(&device, &vec![0_u16; 8 * 64]);
                let model = upload(&device, &f16_boxes_of(other, [8, 64], 8));
                let map = device.alloc(128).unwrap();
                let [data, out] = [&values, &vec![0; 8 * 64]].map(|of| upload(&device, of));
                let shape = Launch { checks: Checks::ALL, ..line(1, 64) };
                let kernel = module.kernel(name).unwrap();
                let report = launch(&device, &kernel, shape, &[model, map, data, out]);
                let what = format!("{name}, seed {seed}");
                assert_eq!(lacks_fences(&report, &what), name.ends_with("_racy"), "{what}");
                assert_eq!(download::<u16>(&device, out, 8 * 64), values, "{what}");
            }
        }
    }
}
