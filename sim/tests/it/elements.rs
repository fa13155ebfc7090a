//! Races of elements of 8 and 16 bits in shared memory, several of which share a word: found at
//! every one of them, and none where threads share words but no bytes.

use crate::run::{dialects, launch, line, seeded};
use kiln_sim::{Checks, FindingKind, Launch};
use std::collections::BTreeSet;

#[test]
fn races_of_narrow_elements_are_found() {
    for module in dialects("elements") {
        for name in module.kernels() {
            for seed in 0..8 {
                let device = seeded(seed);
                let out = device.alloc(512).unwrap();
                let threads = if name.starts_with("neighbours") { 32 } else { 64 };
                let shape = Launch { checks: Checks::ALL, ..line(1, threads) };
                let report = launch(&device, &module.kernel(name).unwrap(), shape, &[out]);
                let races: u64 = report
                    .findings
                    .iter()
                    .filter(|finding| {
                        matches!(finding.kind, FindingKind::SharedRace | FindingKind::WarpRace)
                    })
                    .map(|finding| finding.count)
                    .sum();
                let expected = match name {
                    // One for each element.
                    "twice_u8_racy" | "twice_u16_racy" | "kept_racy" | "neighbours_racy" => 32,
                    "passed_low_u16_racy" | "passed_high_u16_racy" => 16,
                    "passed_second_u8_racy" => 8,
                    _ => 0,
                };
                let kinds: BTreeSet<String> =
                    report.findings.iter().map(|finding| finding.to_string()).collect();
                match name.ends_with("_clean") {
                    true => assert!(kinds.is_empty(), "{name}, seed {seed}: {kinds:#?}"),
                    false => assert!(
                        if expected == 0 { races > 0 } else { races == expected },
                        "{name}, seed {seed}: {races} races, {kinds:#?}"
                    ),
                }
            }
        }
    }
}
