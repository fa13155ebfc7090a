//! Exchanges between lanes, against their definition, lane by lane.

use crate::run::{device, download, launch, line, upload};
use kiln_sim::Module;

/// Runs a body for one warp; `%r1` is the lane's value, `%r3` and `%p1` the results.
fn apply(body: &str, values: &[u32; 32]) -> Vec<(u32, u32)> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param \
         .u64 o)\n{{\n.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;\nld.param.u64 %rd1, \
         [a]; ld.param.u64 %rd3, [o];\nmov.u32 %r0, %tid.x; mul.wide.u32 %rd4, %r0, \
         4;\nmul.wide.u32 %rd5, %r0, 8;\nadd.s64 %rd1, %rd1, %rd4; add.s64 %rd3, %rd3, \
         %rd5;\nld.global.u32 %r1, [%rd1]; cvt.u64.u32 %rd6, %r1;\n{body}\nselp.u32 %r4, 1, 0, \
         %p1; st.global.v2.u32 [%rd3], {{%r3, %r4}};\nret;\n}}\n"
    );
    let module = Module::load(&text).unwrap_or_else(|error| panic!("{error}"));
    let kernel = module.kernel("k").unwrap();
    let device = device();
    let out = upload(&device, &[0_u32; 64]);
    launch(&device, &kernel, line(1, 32), &[upload(&device, values), out]);
    download::<u32>(&device, out, 64).chunks(2).map(|pair| (pair[0], pair[1])).collect()
}

fn values() -> [u32; 32] {
    std::array::from_fn(|lane| (lane as u32 * 7 + 3) % 10)
}

#[track_caller]
fn check(body: &str, want: impl Fn(usize) -> (u32, bool)) {
    let got = apply(body, &values());
    for (lane, got) in got.into_iter().enumerate() {
        let (value, predicate) = want(lane);
        assert_eq!(got, (value, predicate.into()), "{body} lane {lane}");
    }
}

#[test]
fn shuffles() {
    let v = values();
    let from = |lane: usize, source: Option<usize>| match source {
        Some(source) => (v[source], true),
        None => (v[lane], false),
    };
    check("shfl.sync.up.b32 %r3|%p1, %r1, 3, 0, -1;", |l| from(l, l.checked_sub(3)));
    check("shfl.sync.down.b32 %r3|%p1, %r1, 5, 31, -1;", |l| {
        from(l, (l + 5 < 32).then_some(l + 5))
    });
    check("shfl.sync.bfly.b32 %r3|%p1, %r1, 9, 31, -1;", |l| from(l, Some(l ^ 9)));
    check("shfl.sync.idx.b32 %r3|%p1, %r1, 17, 31, -1;", |l| from(l, Some(17)));
    // Segments of eight lanes: the mask 0b11000 in bits 8 to 12, the clamp 7.
    check("shfl.sync.idx.b32 %r3|%p1, %r1, 2, 0x1807, -1;", |l| from(l, Some((l & !7) + 2)));
    check("shfl.sync.down.b32 %r3|%p1, %r1, 3, 0x1807, -1;", |l| {
        from(l, (l % 8 + 3 < 8).then_some(l + 3))
    });
    check("shfl.sync.up.b32 %r3|%p1, %r1, 3, 0x1800, -1;", |l| {
        from(l, (l % 8 >= 3).then(|| l - 3))
    });
}

#[test]
fn votes_and_matches() {
    let v = values();
    let mask = |f: &dyn Fn(u32) -> bool| {
        v.iter().enumerate().fold(0_u32, |mask, (lane, &value)| mask | u32::from(f(value)) << lane)
    };
    check("setp.lt.u32 %p1, %r1, 4; vote.sync.ballot.b32 %r3, %p1, -1;", |l| {
        (mask(&|value| value < 4), v[l] < 4)
    });
    let zero = "mov.u32 %r3, 0; setp.lt.u32 %p2, %r1, 10; setp.lt.u32 %p3, %r1, 4;";
    check(&format!("{zero} vote.sync.all.pred %p1, %p2, -1;"), |_| (0, true));
    check(&format!("{zero} vote.sync.all.pred %p1, %p3, -1;"), |_| (0, false));
    check(&format!("{zero} vote.sync.any.pred %p1, !%p2, -1;"), |_| (0, false));
    check(&format!("{zero} vote.sync.uni.pred %p1, !%p2, -1;"), |_| (0, true));
    let same = |l: usize| mask(&|value| value == v[l]);
    let no = "setp.ne.u32 %p1, %r0, %r0;";
    check(&format!("{no} match.any.sync.b32 %r3, %r1, -1;"), |l| (same(l), false));
    check(&format!("{no} match.any.sync.b64 %r3, %rd6, -1;"), |l| (same(l), false));
    check("match.all.sync.b32 %r3|%p1, %r1, -1;", |_| (0, false));
    check("mov.u32 %r2, 5; match.all.sync.b32 %r3|%p1, %r2, -1;", |_| (u32::MAX, true));
}

#[test]
fn reductions() {
    let v = values();
    let no = "setp.ne.u32 %p1, %r0, %r0;";
    let fold = |f: fn(u32, u32) -> u32| v.iter().copied().reduce(f).unwrap();
    check(&format!("{no} redux.sync.add.s32 %r3, %r1, -1;"), |_| (fold(|a, b| a + b), false));
    check(&format!("{no} redux.sync.max.u32 %r3, %r1, -1;"), |_| (9, false));
    check(&format!("{no} sub.u32 %r1, %r1, 4; redux.sync.min.s32 %r3, %r1, -1;"), |_| {
        (4_u32.wrapping_neg(), false)
    });
    check(&format!("{no} redux.sync.xor.b32 %r3, %r1, -1;"), |_| (fold(|a, b| a ^ b), false));
}

#[test]
fn halves_of_a_warp_exchange_apart() {
    let v = values();
    // The two halves reach different shuffles, each with its own members.
    let body = "setp.lt.u32 %p1, %r0, 16; @%p1 bra LOW;\nredux.sync.add.u32 %r3, %r1, \
                0xffff0000; bra JOIN;\nLOW: redux.sync.add.u32 %r3, %r1, 0x0000ffff;\nJOIN: \
                bar.warp.sync -1;";
    check(body, |l| (v[l & 16..][..16].iter().sum(), l < 16));
    let masks = "setp.lt.u32 %p1, %r0, 16; selp.b32 %r2, 0xffff, 0xffff0000, %p1; \
                 vote.sync.ballot.b32 %r3, !%p1, %r2;";
    check(masks, |l| (if l < 16 { 0 } else { 0xffff_0000 }, l < 16));
}

#[test]
fn lanes_that_come_late_are_waited_for() {
    let v = values();
    // Lanes leave the loop one after the other; the vote waits for all.
    let body = "mov.u32 %r2, 0;\nL: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1; @%p1 bra \
                L;\nactivemask.b32 %r5; shfl.sync.idx.b32 %r3, %r2, 2, 31, -1; setp.eq.u32 %p1, \
                %r5, -1;";
    check(body, |_| (v[2].max(1), true));
}
