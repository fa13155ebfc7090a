//! Scopes of strong accesses, and strong vectors, whose elements are stored one by one.

use crate::run::{dialects, download, launch, line, seeded, upload};
use kiln_sim::{Checks, FindingKind, Launch};

#[test]
fn scopes_that_are_too_narrow_are_found() {
    for module in dialects("scopes") {
        let kernels = module.kernels().filter(|name| !name.starts_with("exchanged"));
        for name in kernels {
            let racy = name.ends_with("_racy");
            assert!(racy || name.ends_with("_clean"), "{name}");
            for seed in 0..8 {
                let device = seeded(seed);
                let [data, flags, out] =
                    [4, 4, 4].map(|count| upload(&device, &vec![0_u32; count]));
                let shape = Launch { checks: Checks::ALL, ..line(4, 32) };
                let kernel = module.kernel(name).unwrap();
                let report = launch(&device, &kernel, shape, &[data, flags, out]);
                let other = report.findings.iter().find(|of| of.kind != FindingKind::GlobalRace);
                assert!(other.is_none(), "{name}, seed {seed}: {}", other.unwrap());
                assert_eq!(!report.findings.is_empty(), racy, "{name}, seed {seed}");
            }
        }
    }
}

#[test]
fn elements_of_strong_vectors_are_stored_one_by_one() {
    for module in dialects("scopes") {
        for name in ["exchanged_torn", "exchanged_tagged", "exchanged_whole"] {
            let kernel = module.kernel(name).unwrap();
            let wrong = (0..16).filter(|&seed| {
                let device = seeded(seed);
                let [data, flags, out] =
                    [8, 1, 16].map(|count| upload(&device, &vec![0_u32; count]));
                let shape = Launch { checks: Checks::ALL, ..line(2, 32) };
                let report = launch(&device, &kernel, shape, &[data, flags, out]);
                assert_eq!(report.findings, [], "{name}, seed {seed}");
                let expected: Vec<u32> = (1..=16).map(|number| 3 * number).collect();
                download::<u32>(&device, out, 16) != expected
            });
            let wrong: Vec<u64> = wrong.collect();
            // Whoever polls one element takes the others for complete.
            assert_eq!(!wrong.is_empty(), name == "exchanged_torn", "{name}: {wrong:?}");
            println!("{name}: wrong with seeds {wrong:?} of 16");
        }
    }
}
