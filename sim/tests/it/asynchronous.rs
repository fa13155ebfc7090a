//! What asynchronous copies order and access: mistakes are found whatever the order of warps, and
//! correct kernels are silent.

use crate::run::{dialects, launch, line, seeded, upload};
use kiln_sim::{Checks, Device, Finding, FindingKind, Kernel, Launch};

const SEEDS: u64 = 12;

fn findings(device: &Device, kernel: &Kernel, blocks: u32, values: &[u64]) -> Vec<Finding> {
    let cooperative = blocks > 1;
    let shape = Launch { checks: Checks::ALL, cooperative, ..line(blocks, 64) };
    launch(device, kernel, shape, values).findings
}

/// Findings of a kernel with fresh memory, by its number of parameters.
fn found(device: &Device, kernel: &Kernel) -> Vec<Finding> {
    let numbers: Vec<u32> = (0..256).collect();
    let unwritten = || device.alloc(1024).unwrap();
    let zeros = || upload(device, &[0_u32; 256]);
    match kernel.params().len() {
        1 => findings(device, kernel, 4, &[zeros()]),
        2 => findings(device, kernel, 1, &[upload(device, &numbers), unwritten()]),
        _ => findings(device, kernel, 4, &[zeros(), unwritten(), unwritten()]),
    }
}

#[test]
fn mistakes_are_found_in_any_order() {
    use FindingKind::{GlobalRace, SharedRace, UninitialisedGlobal, UninitialisedShared};
    for module in dialects("asynchronous") {
        for name in module.kernels().filter(|name| !name.starts_with("unwritten")) {
            let kernel = module.kernel(name).unwrap();
            for seed in 0..SEEDS {
                let found = found(&seeded(seed), &kernel);
                let kinds: &[FindingKind] = match name {
                    "two_copies_racy" => &[UninitialisedShared, SharedRace],
                    "beside_racy" | "arrives_racy" => &[SharedRace, UninitialisedShared],
                    "fetched_racy" | "loaded_racy" => {
                        &[GlobalRace, UninitialisedGlobal, UninitialisedShared]
                    }
                    "stored_racy" => &[GlobalRace],
                    "handed_racy" => &[GlobalRace, UninitialisedGlobal],
                    _ => &[],
                };
                let other = found.iter().find(|finding| !kinds.contains(&finding.kind));
                assert!(other.is_none(), "{name}, seed {seed}: {}", other.unwrap());
                let expected = name.ends_with("_racy");
                assert_eq!(!found.is_empty(), expected, "{name}, seed {seed}");
            }
        }
    }
}

#[test]
fn unwritten_bytes_stay_so_when_they_are_copied() {
    for module in dialects("asynchronous") {
        for name in ["unwritten_copy", "unwritten_load"] {
            let kernel = module.kernel(name).unwrap();
            for seed in 0..SEEDS {
                let device = seeded(seed);
                let x = device.alloc(512).unwrap();
                device.write(x, &[1; 40 * 4 + 2]).unwrap();
                let run = |used: u64| {
                    let values = [x, device.alloc(512).unwrap(), used];
                    findings(&device, &kernel, 1, &values)
                };
                assert_eq!(run(40), [], "{name}, seed {seed}");
                let found = run(42);
                assert_eq!(found.len(), 1, "{name}, seed {seed}: {found:?}");
                assert_eq!(found[0].kind, FindingKind::UninitialisedShared);
                // Words 40, half of which was written, and 41.
                assert_eq!(found[0].count, 2);
                let text = found[0].to_string();
                assert!(text.contains("copied there by the cp at ptx line"), "{text}");
            }
        }
    }
}
