//! What launches report and compute does not depend on the number of workers.

use crate::run::{dialects, download, line, params, upload};
use kiln_sim::{Checks, Device, DeviceConfig, Finding, FindingKind, Kernel, Launch, Report};

const BLOCKS: u32 = 64;
const THREADS: u32 = 256;
const COUNT: usize = (BLOCKS * THREADS) as usize;

/// A report or an error with its findings, and what memory holds.
type Outcome = (Result<Report, (String, Vec<Finding>)>, Vec<u32>, Vec<u32>);

fn outcome(
    kernel: &Kernel,
    checks: Checks,
    counters: bool,
    (workers, seed): (usize, u64),
) -> Outcome {
    let device = Device::new(DeviceConfig { workers, seed, ..DeviceConfig::default() });
    let x: Vec<u32> = (0..COUNT as u32).map(|i| i.wrapping_mul(2654435761) >> 7).collect();
    let x = upload(&device, &x);
    let y = device.alloc(4 * (COUNT + 64) as u64).unwrap();
    if kernel.name().starts_with("taken") {
        device.write(y, &[0; 4]).unwrap();
    }
    let launch = Launch { checks, counters, ..line(BLOCKS, THREADS) };
    let report = device.launch(kernel, &launch, &params(kernel, &[x, y]));
    let report = report.map_err(|error| (error.to_string(), error.findings().to_vec()));
    (report, download(&device, x, COUNT), download(&device, y, COUNT + 64))
}

#[test]
fn nothing_depends_on_the_number_of_workers() {
    let off = Checks::NONE;
    let modes = [
        (Checks::ALL, true),
        (Checks::ALL.without(FindingKind::GlobalRace), false),
        (Checks { uninitialised: true, ..off }, false),
        (Checks { shared_races: true, barriers: true, ..off }, true),
        (off, true),
    ];
    for module in dialects("workers") {
        for name in module.kernels() {
            let kernel = module.kernel(name).unwrap();
            for ((checks, counters), seed) in modes.into_iter().zip(0..) {
                let one = outcome(&kernel, checks, counters, (1, seed));
                for workers in [2, 4] {
                    let several = outcome(&kernel, checks, counters, (workers, seed));
                    assert!(several == one, "{name}, {checks:?}, {workers} workers");
                }
            }
        }
    }
}

#[test]
fn mistakes_are_found_on_several_workers() {
    let module = &dialects("workers")[0];
    let kinds = |name: &str| -> Vec<FindingKind> {
        let kernel = module.kernel(name).unwrap();
        let (report, ..) = outcome(&kernel, Checks::ALL, false, (4, 3));
        let findings = report.map_or_else(|(_, findings)| findings, |report| report.findings);
        findings.iter().map(|finding| finding.kind).collect()
    };
    for name in ["apart_clean", "marked_clean", "taken_clean", "beyond_racy"] {
        assert_eq!(kinds(name), [], "{name}");
    }
    assert_eq!(kinds("ahead_racy"), [FindingKind::GlobalRace]);
    assert_eq!(
        kinds("unwritten_racy"),
        [FindingKind::UninitialisedGlobal, FindingKind::GlobalRace]
    );
    assert_eq!(kinds("shared_racy"), [FindingKind::UninitialisedShared, FindingKind::SharedRace]);
}
