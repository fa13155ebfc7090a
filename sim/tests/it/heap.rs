//! Memory that kernels allocate: `malloc`, `free`, `new` and `delete[]`.

use crate::run::{device, dialects, download, line, params, seeded, upload};
use kiln_sim::{Checks, Error, ErrorKind, FindingKind, Launch, Report};
use kiln_sim::{Device, Module};

fn run(
    device: &Device,
    module: &Module,
    name: &str,
    shape: Launch,
    values: &[u64],
) -> Result<Report, Error> {
    let kernel = module.kernel(name).unwrap();
    let shape = Launch { checks: Checks::ALL, ..shape };
    device.launch(&kernel, &shape, &params(&kernel, values))
}

#[test]
fn blocks_are_apart_and_aligned() {
    for module in dialects("heap") {
        for seed in 0..4 {
            let device = seeded(seed);
            let out = upload(&device, &[0_i32; 192]);
            let report = run(&device, &module, "lists", line(3, 64), &[out, 6]).unwrap();
            assert!(report.findings.is_empty(), "{}", report.findings[0]);
            let expected: Vec<i32> = (0..192).map(|thread| thread * 15).collect();
            assert_eq!(download::<i32>(&device, out, 192), expected);
            let report = run(&device, &module, "arrays", line(3, 64), &[out]).unwrap();
            assert!(report.findings.is_empty(), "{}", report.findings[0]);
            let expected: Vec<i32> = (0..192).map(|at| 3 * (63 - at % 64) + at / 64).collect();
            assert_eq!(download::<i32>(&device, out, 192), expected);
        }
    }
}

#[test]
fn blocks_last_until_they_are_freed() {
    let module = &dialects("heap")[0];
    let device = device();
    let (place, out) = (upload(&device, &[0_i64]), upload(&device, &[0_i32]));
    run(&device, module, "keep", line(1, 1), &[place, 77]).unwrap();
    let report = run(&device, module, "recall", line(1, 1), &[place, out]).unwrap();
    assert!(report.findings.is_empty());
    assert_eq!(download::<i32>(&device, out, 1), [77]);
    let error = run(&device, module, "recall", line(1, 1), &[place, out]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UseAfterFree, "{error}");
    let kept = download::<i64>(&device, place, 1)[0] as u64;
    let error = device.read(kept, &mut [0; 4]).unwrap_err().to_string();
    let text = format!("failed to read 4 bytes at {kept:#x}: it is in the heap");
    assert!(error.starts_with(&text), "{error}");
    assert_eq!(device.allocation(kept), None);
}

#[test]
fn memory_is_used_again() {
    for module in dialects("heap") {
        let device = device();
        // With the room between blocks four times as much as there is, in one launch.
        device.set_heap_bytes(64 * 1008).unwrap();
        let out = upload(&device, &[0_i32; 64]);
        let report = run(&device, &module, "churn", line(1, 64), &[out, 64]).unwrap();
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
        let expected: Vec<i32> = (0..64).map(|thread| 64 * (5 * thread + 500)).collect();
        assert_eq!(download::<i32>(&device, out, 64), expected);
    }
}

#[test]
fn a_heap_has_an_end() {
    let module = &dialects("heap")[1];
    let count = |device: &Device, bytes: u64| {
        let out = upload(device, &[0_i32]);
        run(device, module, "exhaust", line(1, 1), &[out, bytes, 100_000]).unwrap();
        download::<i32>(device, out, 1)[0]
    };
    assert_eq!(count(&device(), 1 << 20), 8);
    let small = device();
    assert_eq!(small.heap_bytes(), 8 << 20);
    small.set_heap_bytes(1000).unwrap();
    // Blocks are multiples of 16 bytes.
    assert_eq!(count(&small, 100), 8);
    assert_eq!(count(&small, 100), 0);
    let error = small.set_heap_bytes(2000).unwrap_err();
    assert_eq!(error.to_string(), "failed to give the heap 2000 bytes: a kernel has used it");
    assert_eq!(count(&device(), u64::MAX), 0);
    let none = device();
    none.set_heap_bytes(0).unwrap();
    assert_eq!(count(&none, 1), 0);
}

#[test]
fn mistakes_with_blocks_are_found() {
    let expected = [
        (0, Err("uninitialised global memory")),
        (1, Ok((ErrorKind::OutOfBounds, "is out of bounds: 4 bytes past the end of the block"))),
        (
            2,
            Ok((ErrorKind::OutOfBounds, "is out of bounds: 4 bytes before the start of the block")),
        ),
        (3, Ok((ErrorKind::Misuse, "no block of the heap begins there"))),
        (4, Ok((ErrorKind::Misuse, "no block of the heap begins there"))),
        (5, Ok((ErrorKind::UseAfterFree, "it is in the freed block of 40 bytes"))),
        (6, Ok((ErrorKind::Misuse, ", which is freed already"))),
    ];
    for module in dialects("heap") {
        for (which, expected) in &expected {
            let device = device();
            let out = upload(&device, &[0_i32]);
            let outcome = run(&device, &module, "misuse", line(1, 1), &[out, *which]);
            match (outcome, expected) {
                (Ok(report), Err(name)) => {
                    assert_eq!(report.findings[0].kind.name(), *name, "{}", report.findings[0]);
                }
                (Err(error), Ok((kind, text))) => {
                    assert_eq!(error.kind(), *kind, "{which}: {error}");
                    assert!(error.to_string().contains(text), "{which}: {error}");
                }
                (outcome, _) => panic!("{which}: {outcome:?}"),
            }
        }
    }
}

#[test]
fn races_in_blocks_are_found() {
    for module in dialects("heap") {
        let device = device();
        let out = upload(&device, &[0_i32]);
        let report = run(&device, &module, "unordered", line(1, 64), &[out]).unwrap();
        let kinds: Vec<FindingKind> = report.findings.iter().map(|found| found.kind).collect();
        let known = [FindingKind::GlobalRace, FindingKind::UninitialisedGlobal];
        assert!(!kinds.is_empty() && kinds.iter().all(|kind| known.contains(kind)), "{kinds:?}");
    }
}
