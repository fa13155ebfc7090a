//! Accesses out of bounds, misaligned, to freed memory, and of what nobody wrote.

use super::campaign::Bug::{Freed, Shared};
use super::campaign::Class::{Error, Finding};
use super::campaign::{Mutation, nth, on, plant};
use super::edit::Change::{Drop, Only, Operand, Shift, Swap};
use kiln_sim::ErrorKind::{Misaligned, OutOfBounds, UseAfterFree};
use kiln_sim::FindingKind::{
    UninitialisedGlobal, UninitialisedLocal, UninitialisedRegister, UninitialisedShared,
};

pub const MUTATIONS: &[Mutation] = &[
    // Bounds: predicates, tails, offsets, windows.
    plant("pointwise/f32_tanh", nth("bra", 1, Drop), Error(OutOfBounds), "UNARY(float, f32_tanh"),
    plant(
        "halves/bf16_gelu_erf",
        nth("ld.global", 1, Shift(0, 16)),
        Error(OutOfBounds),
        "CHAIN(bf16_gelu_erf",
    ),
    plant(
        "blocks/row_softmax",
        nth("st.global", 1, Shift(0, 4)),
        Error(OutOfBounds),
        "y[(long long)",
    ),
    plant(
        "blocks/matmul",
        on("bra", "if (row < m && column < n)", Drop),
        Error(OutOfBounds),
        "c[row * n + column]",
    ),
    plant("blocks/histogram", Shared(192), Error(OutOfBounds), "local[i] = 0"),
    plant("blocks/calls", on("bra", "if (i < n)", Drop), Error(OutOfBounds), "y[i] ="),
    plant("blocks/switches", on("bra", "if (i >= n)", Drop), Error(OutOfBounds), "x[i], r;"),
    plant(
        "blocks/local_array",
        on("st.local", "table[", Shift(0, 64)),
        Error(OutOfBounds),
        "table[",
    ),
    plant("blocks/bytes", nth("st.global", 1, Shift(0, 1)), Error(OutOfBounds), "out[i] ="),
    plant(
        "headers/rms_norm",
        on("bra", "if (row >= rows)", Drop),
        Error(OutOfBounds),
        "x[row * pairs + i]",
    ),
    plant(
        "cooperative/gather",
        nth("st.global", 1, Shift(0, 4)),
        Error(OutOfBounds),
        "out[found.shfl",
    ),
    plant(
        "attention/attention",
        on("bra", "if (row >= length)", Drop),
        Error(OutOfBounds),
        "*(word*)(out",
    ),
    plant(
        "attention/attention",
        Shared((64 + 4 * 32) * 72 * 2 - 160),
        Error(OutOfBounds),
        "cp.async.cg",
    ),
    plant(
        "lstm/lstm",
        on("bra", "if (sequence < batch) {", Drop),
        Error(OutOfBounds),
        "after[sequence",
    ),
    plant("lstm/lstm", Shared(72 * 40 * 2 - 64), Error(OutOfBounds), "previous + row * pitch"),
    plant(
        "copies/pipeline",
        nth("cp.async.bulk", 1, Shift(1, 16)),
        Error(OutOfBounds),
        "cp.async.bulk.shared",
    ),
    plant(
        "copies/store_and_reduce",
        nth("cp.async.bulk.global", 1, Shift(0, 16)),
        Error(OutOfBounds),
        "cp.async.bulk.global",
    ),
    plant(
        "clusters/center",
        Shared(2 * 8192 - 1024),
        Error(OutOfBounds),
        "cp.async.bulk.tensor.2d.shared",
    ),
    // Alignment.
    plant(
        "halves/bf16_gelu_erf",
        nth("st.global", 1, Shift(0, 8)),
        Error(Misaligned),
        "CHAIN(bf16_gelu_erf",
    ),
    plant(
        "blocks/histogram",
        nth("ld.global", 1, Shift(0, 2)),
        Error(Misaligned),
        "local[x[i] & 63]",
    ),
    plant(
        "attention/attention",
        nth("cp.async.cg", 1, Shift(0, 8)),
        Error(Misaligned),
        "cp.async.cg",
    ),
    plant(
        "attention/attention",
        nth("ldmatrix.sync.aligned.m8n8.x4.trans", 1, Shift(0, 8)),
        Error(Misaligned),
        "ldmatrix",
    ),
    plant("lstm/lstm", nth("st.shared.v4", 1, Shift(0, 8)), Error(Misaligned), "own + row * pitch"),
    plant(
        "copies/pipeline",
        nth("cp.async.bulk", 1, Shift(1, 8)),
        Error(Misaligned),
        "cp.async.bulk.shared",
    ),
    plant(
        "clusters/center",
        nth("cp.async.bulk.tensor.2d.shared", 1, Shift(0, 16)),
        Error(Misaligned),
        "cp.async.bulk.tensor.2d.shared",
    ),
    plant("clusters/center", nth("stmatrix", 1, Shift(0, 8)), Error(Misaligned), "stmatrix"),
    // Memory that was freed.
    plant("blocks/row_softmax", Freed(0), Error(UseAfterFree), "row[i]"),
    plant("headers/sum_of_powers", Freed(1), Error(UseAfterFree), "atomicAdd(sum, own)"),
    plant("copies/store_and_reduce", Freed(0), Error(UseAfterFree), "cp.async.bulk.global"),
    // Values that nobody wrote.
    plant(
        "blocks/row_softmax",
        nth("st.shared", 1, Drop),
        Finding(UninitialisedShared),
        "partial[lane]",
    ),
    plant(
        "blocks/matmul",
        on("st.shared", "as[y][x] =", Only(8)),
        Finding(UninitialisedShared),
        "as[y][i]",
    ),
    plant(
        "blocks/histogram",
        nth("st.shared", 1, Drop),
        Finding(UninitialisedShared),
        "atomicAdd(&local",
    ),
    plant(
        "counters/reduction",
        on("st.shared", "s[t] = x[", Only(255)),
        Finding(UninitialisedShared),
        "s[t] += s[t + half]",
    ),
    plant(
        "cooperative/normalise",
        nth("st.shared", 1, Only(80)),
        Finding(UninitialisedShared),
        "sum += partial[i]",
    ),
    plant(
        "lstm/lstm",
        on("st.shared", "previous + row * pitch", Only(8)),
        Finding(UninitialisedShared),
        "ldmatrix",
    ),
    plant(
        "clusters/center",
        on("st.shared", "means[column] =", Only(32)),
        Finding(UninitialisedShared),
        "mean[0]",
    ),
    plant(
        "copies/store_and_reduce",
        nth("st.shared", 1, Only(100)),
        Finding(UninitialisedShared),
        "cp.async.bulk.global",
    ),
    plant(
        "blocks/grid_barrier",
        on("st.global", "data[blockIdx.x] =", Drop),
        Finding(UninitialisedGlobal),
        "out[blockIdx.x] += data",
    ),
    plant(
        "lstm/lstm",
        on("st.global", "after[sequence * width", Drop),
        Finding(UninitialisedShared),
        "ldmatrix",
    ),
    plant(
        "races/last_clean",
        on("st.global", "partial[blockIdx.x] =", Drop),
        Finding(UninitialisedGlobal),
        "sum += partial[i]",
    ),
    plant(
        "blocks/local_array",
        on("st.local", "table[", Drop),
        Finding(UninitialisedLocal),
        "table[(j +",
    ),
    plant(
        "cooperative/gather",
        nth("atom.global", 1, Only(16)),
        Finding(UninitialisedRegister),
        "helpers.h",
    ),
    plant(
        "unwritten/register_read",
        nth("mov.b32", 1, Swap("7", "u")),
        Finding(UninitialisedRegister),
        "asm volatile",
    ),
    plant(
        "halves/bf16_gelu_erf",
        nth("ld.global.v4", 1, Only(40)),
        Finding(UninitialisedRegister),
        "CHAIN(bf16_gelu_erf",
    ),
    plant(
        "copies/pipeline",
        nth("mbarrier.try_wait", 0, Operand(2, "xor.b32", 1)),
        Finding(UninitialisedShared),
        "stage[slot][thread]",
    ),
];
