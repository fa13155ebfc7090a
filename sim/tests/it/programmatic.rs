//! Launches that may begin before the launch before them has ended (programmatic dependent
//! launch).

use crate::run::{dialects, launch, line, seeded, upload};
use kiln_sim::{Checks, FindingKind, Launch};

#[test]
fn memory_is_accessed_behind_the_wait() {
    let mut ran = 0;
    for module in dialects("programmatic") {
        for (name, seed) in module.kernels().flat_map(|name| (0..8).map(move |seed| (name, seed))) {
            let kernel = module.kernel(name).unwrap();
            assert_eq!(kernel.waits_for_grids(), name != "never_early", "{name}");
            for programmatic in [true, false] {
                let device = seeded(seed);
                let (x, y) = (upload(&device, &[7_u32; 64]), upload(&device, &[0_u32; 65]));
                let shape = Launch { programmatic, checks: Checks::ALL, ..line(1, 64) };
                let found = launch(&device, &kernel, shape, &[x, y]).findings;
                let other = found.iter().find(|of| of.kind != FindingKind::EarlyAccess);
                assert!(other.is_none(), "{name}, seed {seed}: {}", other.unwrap());
                let early = programmatic && name.ends_with("_early");
                assert_eq!(!found.is_empty(), early, "{name}, seed {seed}: {found:?}");
                ran += 1;
            }
        }
    }
    assert_eq!(ran, 2 * 11 * 8 * 2);
}

#[test]
fn an_early_access_is_told_with_its_place() {
    let module = dialects("programmatic").into_iter().next().unwrap();
    let device = seeded(0);
    let (x, y) = (upload(&device, &[7_u32; 64]), upload(&device, &[0_u32; 65]));
    let shape = Launch { programmatic: true, checks: Checks::ALL, ..line(1, 64) };
    let report = launch(&device, &module.kernel("load_early").unwrap(), shape, &[x, y]);
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!(finding.count, 64, "one per lane");
    let text = finding.to_string();
    for part in [
        "access before its grid waits: allocation #1 + 0 of 256 bytes, in kernel `load_early`",
        "load of 4 bytes by block (0, 0, 0), thread (0, 0, 0)",
        "griddepcontrol.wait must come before the access",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
