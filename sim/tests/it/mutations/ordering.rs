//! Accesses that nothing orders any more.

use super::campaign::Class::Finding;
use super::campaign::{Mutation, nth, on, plant};
use super::edit::Change::{Drop, Only, Operand, Swap};
use kiln_sim::FindingKind::{GlobalRace, MissingProxyFence, SharedRace, WarpRace};

const RELAXED: super::edit::Change = Swap(".release", ".relaxed");
const NOT_ACQUIRED: super::edit::Change = Swap(".acquire", ".relaxed");
/// In the scope of a block where the device is meant.
const NEAR: super::edit::Change = Swap(".gpu", ".cta");

pub const MUTATIONS: &[Mutation] = &[
    // Shared memory, across warps: after the stores, and before what was read is stored over.
    plant("blocks/row_softmax", nth("bar.sync", 1, Drop), Finding(SharedRace), "partial[lane]"),
    plant(
        "blocks/row_softmax",
        nth("bar.sync", 2, Drop),
        Finding(SharedRace),
        "partial[warp] = sum",
    ),
    plant("blocks/row_softmax", nth("bar.sync", 3, Drop), Finding(SharedRace), "sum += partial[w]"),
    plant("blocks/matmul", nth("bar.sync", 1, Drop), Finding(SharedRace), "fmaf(as[y][i]"),
    plant("blocks/matmul", nth("bar.sync", 2, Drop), Finding(SharedRace), "bs[y][x] ="),
    plant("blocks/histogram", nth("bar.sync", 1, Drop), Finding(SharedRace), "local[i] = 0"),
    plant("blocks/histogram", nth("bar.sync", 2, Drop), Finding(SharedRace), "atomicAdd(&bins[i]"),
    plant(
        "counters/reduction",
        nth("bar.sync", 1, Drop),
        Finding(SharedRace),
        "s[t] += s[t + half]",
    ),
    plant(
        "counters/product_even",
        nth("bar.sync", 2, Drop),
        Finding(SharedRace),
        "bs[y + 8 * i][x]",
    ),
    plant(
        "cooperative/normalise",
        nth("barrier.sync", 1, Drop),
        Finding(SharedRace),
        "sum += partial[i]",
    ),
    plant("lstm/lstm", on("bar.sync", "__syncthreads();", Drop), Finding(SharedRace), "ldmatrix"),
    plant("lstm/lstm", nth("bar.sync", 2, Drop), Finding(SharedRace), "gates[i][thread % UNITS]"),
    plant("attention/attention", nth("bar.sync", 1, Drop), Finding(SharedRace), "ldmatrix"),
    plant("attention/attention", nth("bar.sync", 2, Drop), Finding(SharedRace), "cp.async.cg"),
    plant("clusters/center", nth("bar.sync", 1, Drop), Finding(SharedRace), "partial[0][column] +"),
    plant("clusters/center", nth("bar.sync", 2, Drop), Finding(SharedRace), "mean[0]"),
    plant(
        "clusters/center",
        nth("bar.sync", 3, Drop),
        Finding(SharedRace),
        "cp.async.bulk.tensor.2d.global",
    ),
    plant(
        "copies/store_and_reduce",
        nth("bar.sync", 1, Drop),
        Finding(SharedRace),
        "cp.async.bulk.global",
    ),
    plant(
        "products/matmul",
        nth("bar.sync", 2, Drop),
        Finding(SharedRace),
        "cp.async.bulk.tensor.2d.global",
    ),
    plant("races/named_clean", nth("bar.sync", 1, Drop), Finding(SharedRace), "y[t - 32]"),
    // Slots of a pipeline that are filled while they are read.
    plant(
        "copies/pipeline",
        on("mbarrier.init", "empty", Operand(1, "sub.u32", 32)),
        Finding(SharedRace),
        "cp.async.bulk.shared",
    ),
    plant(
        "clusters/center",
        nth("cp.async.bulk.wait_group.read", 1, Drop),
        Finding(SharedRace),
        "cp.async.bulk.tensor.2d.shared",
    ),
    // Between threads and TMA copies.
    plant(
        "copies/store_and_reduce",
        nth("fence.proxy.async", 1, Drop),
        Finding(MissingProxyFence),
        "row[threadIdx.x] =",
    ),
    plant(
        "copies/store_and_reduce",
        nth("fence.proxy.async", 1, Only(96)),
        Finding(MissingProxyFence),
        "row[threadIdx.x] =",
    ),
    plant(
        "clusters/center",
        nth("fence.proxy.async", 1, Drop),
        Finding(MissingProxyFence),
        "stmatrix",
    ),
    plant(
        "products/matmul",
        nth("fence.proxy.async", 1, Drop),
        Finding(MissingProxyFence),
        "stmatrix",
    ),
    // Lanes of a warp.
    plant("races/lanes_clean", nth("bar.warp.sync", 1, Drop), Finding(WarpRace), "y[t] = s[t ^ 1]"),
    plant(
        "blocks/row_softmax",
        on("bra", "if (lane == 0) partial[warp] = sum", Drop),
        Finding(WarpRace),
        "partial[warp] = sum",
    ),
    // Global memory, across blocks: releases, acquires, scopes, waits, fences.
    plant(
        "blocks/grid_barrier",
        nth("red.release", 1, RELAXED),
        Finding(GlobalRace),
        "out[blockIdx.x] += data",
    ),
    plant(
        "blocks/grid_barrier",
        nth("red.release", 2, RELAXED),
        Finding(GlobalRace),
        "data[blockIdx.x] =",
    ),
    plant(
        "blocks/grid_barrier",
        nth("red.release", 1, NEAR),
        Finding(GlobalRace),
        "out[blockIdx.x] += data",
    ),
    plant(
        "blocks/grid_barrier",
        nth("ld.acquire", 1, NOT_ACQUIRED),
        Finding(GlobalRace),
        "out[blockIdx.x] += data",
    ),
    plant(
        "blocks/grid_barrier",
        nth("ld.acquire", 1, NEAR),
        Finding(GlobalRace),
        "out[blockIdx.x] += data",
    ),
    plant(
        "blocks/grid_barrier",
        on("bra", "while (seen < want)", Drop),
        Finding(GlobalRace),
        "out[blockIdx.x] += data",
    ),
    plant("lstm/lstm", nth("red.release", 1, RELAXED), Finding(GlobalRace), "__ldcg"),
    plant("lstm/lstm", nth("ld.acquire", 1, NOT_ACQUIRED), Finding(GlobalRace), "__ldcg"),
    plant(
        "cooperative/normalise",
        nth("red.release", 1, RELAXED),
        Finding(GlobalRace),
        "total += sums[i]",
    ),
    plant("races/last_clean", nth("membar", 1, Drop), Finding(GlobalRace), "sum += partial[i]"),
    plant("races/last_clean", nth("membar", 2, Drop), Finding(GlobalRace), "sum += partial[i]"),
    plant(
        "blocks/spinlock",
        nth("ld.volatile", 0, Swap(".volatile", "")),
        Finding(GlobalRace),
        "*(volatile u32*)count",
    ),
    plant(
        "headers/sum_of_powers",
        on("atom", "atomicAdd(positive", Swap("atom.global", "atom.cta.global")),
        Finding(GlobalRace),
        "atomicAdd(positive",
    ),
];
