//! `tcgen05`: a correct kernel is clean, and one with a bug planted is found.

use crate::run::{device, line, params, text};
use kiln_sim::{Checks, Error, FindingKind, Launch, Module, Report};

/// Runs a kernel of `tests/ptx/tcgen05` with a text replaced.
#[track_caller]
fn run(replaced: &str, by: &str) -> Result<Report, Error> {
    let source = text("ptx/tcgen05/mma-f16.ptx");
    assert!(replaced.is_empty() || source.contains(replaced), "no `{replaced}`");
    run_text(&if replaced.is_empty() { source } else { source.replace(replaced, by) })
}

#[track_caller]
fn run_text(text: &str) -> Result<Report, Error> {
    let module = Module::load(text).unwrap_or_else(|error| panic!("{error}"));
    let kernel = module.kernel("test").unwrap();
    let device = device();
    let out = device.alloc(1 << 16).unwrap();
    let shape = Launch { checks: Checks::ALL, ..line(1, 128) };
    device.launch(&kernel, &shape, &params(&kernel, &[out]))
}

#[track_caller]
fn fails(replaced: &str, by: &str, want: &str) {
    let text = run(replaced, by).unwrap_err().to_string();
    assert_eq!(text.split("; kernel").next().unwrap(), want);
}

#[test]
fn a_correct_kernel_is_clean() {
    assert_eq!(run("", "").unwrap().findings, []);
}

#[test]
fn results_are_not_read_before_a_commit_is_waited_for() {
    fails(
        "    @!%p0 bra WAIT;\n",
        "",
        "tcgen05.ld of tensor memory columns 0 to 15, which a tcgen05 operation writes whose \
         commit has not been waited for",
    );
}

#[test]
fn a_commit_that_is_missing_hangs() {
    let commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];";
    let error = run(commit, "").unwrap_err();
    assert_eq!(error.kind(), kiln_sim::ErrorKind::Deadlock, "{error}");
}

#[test]
fn tensor_memory_is_allocated_while_it_is_used() {
    fails(
        "kind::f16.collector::a::fill [%r5],",
        "kind::f16.collector::a::fill [%r5+24],",
        "tcgen05.mma of tensor memory columns 24 to 39, which are not allocated",
    );
    fails(
        "    @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32;\n",
        "",
        "32 columns of tensor memory are not deallocated",
    );
    fails(
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32",
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 64",
        "tcgen05.dealloc of 64 columns at 0x0, which were not allocated so",
    );
    fails(
        "shared::cta.b32 [place], 32",
        "shared::cta.b32 [place], 48",
        "tcgen05.alloc of 48 columns, not a power of 2 from 32 to 512",
    );
    let alloc = "@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;";
    let relinquish = "@%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;";
    fails(
        alloc,
        &format!("{relinquish}\n{alloc}"),
        "tcgen05.alloc after tcgen05.relinquish_alloc_permit",
    );
    let large = alloc.replace("32;", "512;");
    fails(alloc, &format!("{alloc}\n{large}"), "tcgen05.alloc of 512 columns where 480 are free");
}

#[test]
fn a_warp_accesses_its_own_lanes() {
    let text = run("and.b32 %r6, %r1, 96;", "and.b32 %r6, %r1, 64;").unwrap_err().to_string();
    assert!(text.starts_with("tcgen05.st of tensor memory lane "), "{text}");
    assert!(text.contains(" by a warp whose lanes start at "), "{text}");
}

#[test]
fn descriptors_are_checked() {
    let error = |by: &str| run("mov.b32 %r7, 0x08040010;", by).unwrap_err().to_string();
    assert!(
        error("mov.b32 %r7, 0x08040014;")
            .starts_with("the instruction descriptor 0x08040014 has sparse operands"),
    );
    assert!(
        error("mov.b32 %r7, 0x08060010;")
            .starts_with("the instruction descriptor 0x08060010 has the shape 128 x 24"),
    );
    assert!(
        error("mov.b32 %r7, 0x08040010; mov.b64 %d2, 0;")
            .starts_with("the matrix descriptor 0x0 has other bits where constants belong"),
    );
}

#[test]
fn operands_are_behind_a_proxy_fence_and_a_barrier() {
    let findings = run("    fence.proxy.async;\n", "").unwrap().findings;
    assert!(findings.iter().any(|found| found.kind == FindingKind::MissingProxyFence));
    // The store of the operands by other warps races with the first MMA.
    let source =
        "    @%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n    bar.sync 0;\n";
    let moved = source.replace("bar.sync 0;", "bar.warp.sync -1;");
    match run(source, &moved) {
        Ok(report) => assert!(!report.findings.is_empty()),
        Err(error) => assert!(!error.findings().is_empty(), "{error}"),
    }
}

/// The kinds of a mutant's findings on some seed, or the error that ends it.
fn kinds(replaced: &str, by: &str) -> Vec<FindingKind> {
    match run(replaced, by) {
        Ok(report) => report.findings.iter().map(|finding| finding.kind).collect(),
        Err(error) => error.findings().iter().map(|finding| finding.kind).collect(),
    }
}

#[test]
fn tensor_memory_is_written_before_it_is_read() {
    // The first MMA accumulates; what it accumulates to was stored, unless the store is missing.
    let accumulates =
        "setp.eq.u32 %p3, 0, 0;\n    tcgen05.mma.cta_group::1.kind::f16.collector::a::fill";
    let fresh = "setp.ne.u32 %p3, 0, 0;\n    tcgen05.mma.cta_group::1.kind::f16.collector::a::fill";
    assert_eq!(kinds(fresh, accumulates), []);
    let source = text("ptx/tcgen05/mma-f16.ptx").replace(fresh, accumulates);
    let store = source.lines().find(|line| line.contains("tcgen05.st")).unwrap();
    let report = run_text(&source.replace(store, "")).unwrap();
    let found: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(found, [FindingKind::UninitialisedTensor]);
    // Of 16 columns the store leaves out the last 8.
    let half = store.replace(".x16.", ".x8.").replacen("%x0, ", "", 8);
    let report = run_text(&source.replace(store, &half)).unwrap();
    assert_eq!(report.findings[0].kind, FindingKind::UninitialisedTensor);
    assert_eq!(report.findings[0].subject, "lane 0, column 8 of tensor memory");
}

#[test]
fn loads_and_stores_are_waited_for() {
    use FindingKind::{UnfinishedTensorLoad, UnfinishedTensorStore};
    let loads = kinds("    tcgen05.wait::ld.sync.aligned;\n", "");
    assert!(!loads.is_empty() && loads.iter().all(|kind| *kind == UnfinishedTensorLoad));
    let accumulates =
        "setp.eq.u32 %p3, 0, 0;\n    tcgen05.mma.cta_group::1.kind::f16.collector::a::fill";
    let fresh = "setp.ne.u32 %p3, 0, 0;\n    tcgen05.mma.cta_group::1.kind::f16.collector::a::fill";
    let source = text("ptx/tcgen05/mma-f16.ptx").replace(fresh, accumulates);
    let report = run_text(&source.replace("    tcgen05.wait::st.sync.aligned;\n", "")).unwrap();
    let found: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
    // Of both MMAs.
    assert_eq!(found, [UnfinishedTensorStore; 2]);
}

#[test]
fn operands_stay_until_the_commit_is_waited_for() {
    let refill = "st.shared.b32 [%r3+0], %r4;";
    // Behind the wait for the commit: every warp may.
    let after = "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%x0";
    assert_eq!(kinds(after, &format!("{refill}\n{after}")), []);
    // Before it: the issuer itself, behind its commit, and other warps that its store told of it.
    let wait = "WAIT:\n    mbarrier";
    assert!(kinds(wait, &format!("{refill}\n{wait}")).contains(&FindingKind::SharedRace));
    let commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];";
    let early = format!("{commit}\n    {refill}");
    assert_eq!(kinds(commit, &early), [FindingKind::SharedRace]);
    // A barrier behind the commit orders the threads, not the tensor core.
    let barrier =
        format!("WAIT:\n    @%p2 bar.warp.sync -1;\n bar.sync 1;\n{refill}\nWAITS:\n    mbarrier");
    let source = text("ptx/tcgen05/mma-f16.ptx");
    let source = source.replace(wait, &barrier).replace("@!%p0 bra WAIT;", "@!%p0 bra WAITS;");
    let found = match run_text(&source) {
        Ok(report) => report.findings,
        Err(error) => error.findings().to_vec(),
    };
    assert!(!found.is_empty() && found.iter().all(|of| of.kind == FindingKind::SharedRace));
}
