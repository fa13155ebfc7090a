//! What the checks find: each planted mistake, by its whole report, and nothing in correct kernels.
//!
//! The reports are in `tests/reports`; `BLESS=1 cargo test` writes them anew, to be reviewed.

use crate::run::{golden, line, params, seeded, text, upload};
use kiln_sim::{Checks, Device, DeviceConfig, Error, FindingKind, Launch, Module, Report};

const TARGETS: [&str; 2] = ["sm_80", "sm_120"];

fn module(stem: &str, target: &str) -> Module {
    Module::load(&text(&format!("cuda/{stem}.{target}.ptx"))).unwrap()
}

/// The shape and arguments that a kernel of `races` or `unwritten` takes.
fn prepared(device: &Device, name: &str) -> (Launch, Vec<u64>) {
    let count: Vec<u32> = (0..256).collect();
    let input = || upload(device, &count);
    let zeroed = || upload(device, &[0_u32; 256]);
    let unwritten = || device.alloc(1024).unwrap();
    let grid = Launch { cooperative: true, ..line(4, 64) };
    match name.split('_').next().unwrap() {
        "lanes" | "collide" | "divided" | "register" => (line(1, 32), vec![input(), unwritten()]),
        "tiles" => (line(1, 64), vec![input(), unwritten(), 3]),
        "shared" => (line(1, 64), vec![input(), unwritten(), 60]),
        "local" => (line(1, 64), vec![input(), unwritten(), 5]),
        "grid" | "last" => (grid, vec![zeroed(), unwritten(), unwritten()]),
        "histogram" => (line(2, 64), vec![input(), zeroed()]),
        "copy" => (line(1, 64), vec![unwritten(), unwritten()]),
        "padding" => {
            let points = unwritten();
            (0..32).for_each(|at| device.write(points + at * 16, &[0; 12]).unwrap());
            (line(1, 32), vec![points, unwritten(), unwritten(), unwritten()])
        }
        "miscounted" => (line(1, 64), vec![unwritten(), 64, 96]),
        _ => (line(1, 64), vec![input(), unwritten()]),
    }
}

fn run(module: &Module, name: &str, seed: u64, checks: Checks) -> Result<Report, Error> {
    let device = seeded(seed);
    let kernel = module.kernel(name).unwrap();
    let (shape, arguments) = prepared(&device, name);
    let shape = Launch { checks, ..shape };
    device.launch(&kernel, &shape, &params(&kernel, &arguments))
}

/// What a kernel's findings and error say.
fn report(module: &Module, name: &str) -> String {
    let mut out = format!("== {name}\n");
    let (findings, error) = match run(module, name, 0, Checks::ALL) {
        Ok(report) => (report.findings, None),
        Err(error) => (error.findings().to_vec(), Some(error)),
    };
    findings.iter().for_each(|finding| out += &format!("{finding}\n"));
    error.iter().for_each(|error| out += &format!("error: {error}\n"));
    out + "\n"
}

#[test]
fn planted_mistakes_are_reported() {
    for stem in ["races", "unwritten"] {
        for target in TARGETS {
            let module = module(stem, target);
            let faulty = module.kernels().filter(|name| !is_clean(name));
            let have: String = faulty.map(|name| report(&module, name)).collect();
            golden(&format!("reports/{stem}.{target}.txt"), &have);
        }
    }
}

#[track_caller]
fn nothing(report: &Report, of: &str) {
    if let Some(finding) = report.findings.first() {
        panic!("{of}: {finding}");
    }
}

fn is_clean(name: &str) -> bool {
    name.ends_with("_clean") || name == "grid_fenced"
}

#[test]
fn every_mistake_has_its_kind() {
    use FindingKind::*;
    let races = [
        ("rotate_racy", vec![SharedRace, UninitialisedShared]),
        ("reuse_racy", vec![SharedRace]),
        ("tiles_racy", vec![SharedRace]),
        ("lanes_racy", vec![WarpRace]),
        ("collide_racy", vec![WarpRace]),
        ("histogram_racy", vec![WarpRace, GlobalRace]),
        ("grid_relaxed", vec![GlobalRace]),
        ("grid_unfenced", vec![GlobalRace]),
        ("grid_no_acquire", vec![GlobalRace]),
        ("grid_no_wait", vec![GlobalRace, UninitialisedGlobal]),
        ("last_racy", vec![GlobalRace]),
        ("named_racy", vec![SharedRace, UninitialisedShared]),
    ];
    for target in TARGETS {
        let module = module("races", target);
        for (name, allowed) in &races {
            for seed in 0..20 {
                let report = run(&module, name, seed, Checks::ALL).unwrap();
                let has = |kind| report.findings.iter().any(|finding| finding.kind == kind);
                assert!(has(allowed[0]), "{name} {target}, seed {seed}");
                let other = report.findings.iter().find(|f| !allowed.contains(&f.kind));
                assert!(other.is_none(), "{name} {target}, seed {seed}: {}", other.unwrap());
            }
        }
    }
}

#[test]
fn corrected_kernels_have_no_findings() {
    for target in TARGETS {
        let module = module("races", target);
        for name in module.kernels().filter(|name| is_clean(name)) {
            for seed in 0..20 {
                let report = run(&module, name, seed, Checks::ALL).unwrap();
                nothing(&report, &format!("{name} {target}, seed {seed}"));
            }
        }
    }
}

/// The kernels of `unwritten` with arguments that make them correct.
#[test]
fn what_is_written_may_be_read() {
    let words: Vec<u32> = (1..257).collect();
    for target in TARGETS {
        let module = module("unwritten", target);
        for seed in 0..20 {
            let device = seeded(seed);
            let input = upload(&device, &words);
            let out = || device.alloc(1024).unwrap();
            let points = out();
            (0..32).for_each(|at| device.write(points + at * 16, &[0; 12]).unwrap());
            let cases = [
                ("register_read", 32, vec![input, out()]),
                ("shared_read", 64, vec![input, out(), 64]),
                ("shared_halves", 64, vec![input, out(), 64]),
                ("copy", 64, vec![input, out()]),
                ("local_read", 64, vec![input, out(), 8]),
                // The last word of each point is moved, and used by nobody.
                ("padding", 32, vec![points, out(), out(), 0]),
                ("miscounted", 64, vec![out(), 64, 64]),
            ];
            for (name, threads, arguments) in cases {
                let kernel = module.kernel(name).unwrap();
                let shape = Launch { checks: Checks::ALL, ..line(1, threads) };
                let report = device.launch(&kernel, &shape, &params(&kernel, &arguments)).unwrap();
                nothing(&report, &format!("{name} {target}, seed {seed}"));
            }
        }
    }
}

#[test]
fn padding_that_was_moved_stays_unwritten() {
    let module = module("unwritten", "sm_80");
    let device = seeded(0);
    let kernel = module.kernel("padding").unwrap();
    let buffers = [0; 4].map(|_| device.alloc(1024).unwrap());
    (0..32).for_each(|at| device.write(buffers[0] + at * 16, &[0; 12]).unwrap());
    let shape = Launch { checks: Checks::ALL, ..line(1, 32) };
    let launch = |arguments: [u64; 4]| {
        device.launch(&kernel, &shape, &params(&kernel, &arguments)).unwrap().findings
    };
    assert!(launch([buffers[0], buffers[1], buffers[2], 0]).is_empty());
    // From the copy: its first words are written, its last are not.
    assert!(launch([buffers[1], buffers[0], buffers[2], 0]).is_empty());
    let found = launch([buffers[1], buffers[0], buffers[2], buffers[3]]);
    assert_eq!(found[0].kind, FindingKind::UninitialisedGlobal);
    assert_eq!(found[0].subject, "allocation #2 + 12 of 1024 bytes");
}

#[test]
fn a_launch_that_looks_for_nothing_may_write_anything() {
    let module = module("unwritten", "sm_80");
    let kernel = module.kernel("copy").unwrap();
    let device = seeded(0);
    let [a, b, c] = [0; 3].map(|_| device.alloc(256).unwrap());
    let launch = |from, to, checks| {
        let shape = Launch { checks, ..line(1, 64) };
        device.launch(&kernel, &shape, &params(&kernel, &[from, to])).unwrap().findings.len()
    };
    assert_eq!(launch(a, b, Checks::ALL), 1);
    assert_eq!(launch(b, c, Checks::ALL), 0);
    device.alloc(64).unwrap();
    assert_eq!(launch(a, b, Checks::NONE), 0);
    assert_eq!(launch(a, b, Checks::ALL), 0);
    let fresh = device.alloc(256).unwrap();
    assert_eq!(launch(fresh, b, Checks::ALL), 1);
}

#[test]
fn classes_are_chosen_one_by_one() {
    let module = module("races", "sm_80");
    let kinds = |name, checks| -> Vec<FindingKind> {
        run(&module, name, 0, checks).unwrap().findings.iter().map(|f| f.kind).collect()
    };
    let off = Checks::NONE;
    let shared = Checks { shared_races: true, ..off };
    let global = Checks { global_races: true, ..off };
    let unwritten = Checks { uninitialised: true, ..off };
    assert_eq!(kinds("rotate_racy", off), []);
    assert_eq!(kinds("rotate_racy", shared), [FindingKind::SharedRace]);
    assert_eq!(kinds("rotate_racy", global), []);
    assert_eq!(kinds("rotate_racy", unwritten), [FindingKind::UninitialisedShared]);
    assert_eq!(kinds("grid_relaxed", shared), []);
    assert_eq!(kinds("grid_relaxed", global), [FindingKind::GlobalRace]);
}

#[test]
fn findings_do_not_depend_on_workers() {
    let module = module("races", "sm_120");
    for name in ["histogram_racy", "grid_relaxed", "last_racy", "tiles_racy"] {
        let mut reports = [1, 1, 2, 4].map(|workers| {
            let config = DeviceConfig { workers, seed: 7, ..DeviceConfig::default() };
            let device = Device::new(config);
            let kernel = module.kernel(name).unwrap();
            let (shape, arguments) = prepared(&device, name);
            let shape = Launch { checks: Checks::ALL, counters: true, ..shape };
            device.launch(&kernel, &shape, &params(&kernel, &arguments)).unwrap()
        });
        let first = reports[0].clone();
        assert!(reports.iter_mut().all(|report| *report == first), "{name}");
    }
}
