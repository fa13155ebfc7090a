//! Barriers, copies and products that are not waited for, or for ever.

use super::campaign::Class::{Error, Finding};
use super::campaign::{Mutation, nth, on, plant};
use super::edit::Change::{Drop, Instead, Only, Operand, Swap};
use kiln_sim::ErrorKind::{Deadlock, DivergentBarrier, Misuse};
use kiln_sim::FindingKind;
use kiln_sim::FindingKind::{
    BarrierMismatch, LeakedCopy, SharedRace, UnfinishedProduct, UninitialisedShared,
};

pub const MUTATIONS: &[Mutation] = &[
    // Barriers that some threads do not reach, or count differently.
    plant(
        "blocks/grid_barrier",
        nth("bar.sync", 1, Only(16)),
        Error(DivergentBarrier),
        "__syncthreads();",
    ),
    plant(
        "blocks/row_softmax",
        nth("bar.sync", 1, Only(16)),
        Finding(FindingKind::DivergentBarrier),
        "__syncthreads();",
    ),
    plant(
        "races/named_clean",
        nth("bar.arrive", 1, Swap("1, 64", "2, 64")),
        Error(DivergentBarrier),
        "bar.sync 1",
    ),
    plant(
        "races/named_clean",
        nth("bar.arrive", 1, Swap("64", "96")),
        Finding(BarrierMismatch),
        "bar.arrive 1",
    ),
    plant(
        "products/matmul",
        nth("bar.sync", 2, Swap("128", "96")),
        Error(DivergentBarrier),
        "bar.sync 1",
    ),
    // Copies of threads.
    plant(
        "attention/attention",
        nth("cp.async.wait_group", 1, Drop),
        Finding(UninitialisedShared),
        "ldmatrix",
    ),
    plant(
        "attention/attention",
        nth("cp.async.wait_group", 1, Swap("1;", "2;")),
        Finding(UninitialisedShared),
        "ldmatrix",
    ),
    plant(
        "attention/attention",
        nth("cp.async.commit_group", 2, Drop),
        Finding(LeakedCopy),
        "cp.async.cg",
    ),
    plant(
        "copies/small_copies",
        nth("mbarrier.try_wait", 1, Instead("setp.eq.u32 done, 0, 0;")),
        Finding(UninitialisedShared),
        "to[lane][i]",
    ),
    plant(
        "copies/small_copies",
        nth("cp.async.mbarrier.arrive", 1, Drop),
        Error(Deadlock),
        "mbarrier.try_wait",
    ),
    // TMA copies.
    plant(
        "copies/pipeline",
        nth("mbarrier.arrive.expect_tx", 1, Operand(2, "add.u32", 16)),
        Error(Deadlock),
        "mbarrier.try_wait",
    ),
    plant(
        "copies/pipeline",
        on("mbarrier.try_wait", "wait(shared_address(&empty", Operand(2, "xor.b32", 1)),
        Error(Deadlock),
        "mbarrier.try_wait",
    ),
    plant(
        "copies/pipeline",
        nth("mbarrier.arrive.shared", 1, Drop),
        Error(Deadlock),
        "mbarrier.try_wait",
    ),
    plant(
        "copies/pipeline",
        nth("mbarrier.init", 1, Operand(1, "add.u32", 1)),
        Error(Deadlock),
        "mbarrier.try_wait",
    ),
    plant("copies/pipeline", nth("cp.async.bulk", 1, Drop), Error(Deadlock), "mbarrier.try_wait"),
    plant(
        "copies/store_and_reduce",
        nth("cp.async.bulk.wait_group", 1, Drop),
        Finding(LeakedCopy),
        "cp.async.bulk.global",
    ),
    plant(
        "copies/store_and_reduce",
        nth("cp.async.bulk.commit_group", 1, Drop),
        Finding(LeakedCopy),
        "cp.async.bulk.global",
    ),
    plant(
        "clusters/center",
        on("mbarrier.arrive.expect_tx", "if (thread == 0) expect", Operand(2, "add.u32", 4)),
        Error(Deadlock),
        "mbarrier.try_wait",
    ),
    plant("clusters/center", nth("st.async", 1, Only(63)), Error(Deadlock), "mbarrier.try_wait"),
    plant(
        "clusters/center",
        on("mbarrier.try_wait", "wait(shared_address(&full", Instead("setp.eq.u32 done, 0, 0;")),
        Finding(UninitialisedShared),
        "unpack(*(const word*)",
    ),
    plant(
        "products/matmul",
        nth("cp.async.bulk.wait_group", 1, Drop),
        Finding(LeakedCopy),
        "cp.async.bulk.tensor.2d.global",
    ),
    plant(
        "products/matmul",
        nth("mbarrier.arrive.expect_tx", 1, Operand(2, "sub.u32", 8192)),
        Finding(SharedRace),
        "wgmma.mma_async",
    ),
    // Products of warpgroups.
    plant("products/matmul", nth("wgmma.fence", 1, Drop), Error(Misuse), "wgmma.mma_async"),
    plant("products/from_registers", nth("wgmma.fence", 1, Drop), Error(Misuse), "wgmma.mma_async"),
    plant(
        "products/matmul",
        nth("wgmma.wait_group", 2, Drop),
        Finding(UnfinishedProduct),
        "cvt.rn.f16x2",
    ),
    plant(
        "products/from_registers",
        nth("wgmma.wait_group", 1, Drop),
        Finding(UnfinishedProduct),
        "out[(row + i",
    ),
    plant(
        "products/from_registers",
        nth("wgmma.commit_group", 1, Drop),
        Finding(UnfinishedProduct),
        "out[(row + i",
    ),
    // A grid that waits for more blocks than arrive.
    plant(
        "lstm/lstm",
        nth("red.release", 1, Operand(1, "sub.u32", 1)),
        Error(Deadlock),
        "while (seen",
    ),
];
