//! Special registers.

use crate::block_state::BlockState;
use crate::context::Context;
use crate::op::{Kind, MicroOp, Special};
use crate::registers::LANES;
use crate::warp::Warp;

/// Writes a special register's value or a variable's address.
pub(super) fn write(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) {
    match op.kind {
        Kind::Special(register) => {
            let row = word(warp, block, cx, register);
            warp.registers.set_word(op.d, &row, active);
        }
        Kind::SpecialWide(register) => {
            let row = wide(warp, block, cx, register);
            warp.registers.set_wide(op.d, &row, active);
        }
        Kind::VariableAddress => {
            let row = [cx.variables[op.imm as usize]; LANES];
            warp.registers.set_wide(op.d, &row, active);
        }
        _ => warp.registers.set_word(op.d, &[active; LANES], active),
    }
}

/// Value of a 32-bit special register for every lane.
fn word(warp: &Warp, block: &BlockState, cx: &Context<'_>, register: Special) -> [u32; LANES] {
    let all = |value: u32| [value; LANES];
    let lanes = |f: fn(u32) -> u32| std::array::from_fn(|lane| f(lane as u32));
    let launch = cx.launch;
    match register {
        Special::Thread(axis) => cx.threads[warp.index as usize][usize::from(axis)].0,
        Special::BlockSize(axis) => all(launch.block[usize::from(axis)]),
        Special::Block(axis) => all(block.index[usize::from(axis)]),
        Special::GridSize(axis) => all(launch.grid[usize::from(axis)]),
        Special::Lane => lanes(|lane| lane),
        Special::Warp => all(warp.index),
        Special::WarpCount => all(cx.threads.len() as u32),
        Special::Multiprocessor => all((block.linear % u64::from(cx.sm_count)) as u32),
        Special::MultiprocessorCount => all(cx.sm_count),
        Special::Grid => all(0),
        Special::MaskEqual => lanes(|lane| 1 << lane),
        Special::MaskLessEqual => lanes(|lane| u32::MAX >> (31 - lane)),
        Special::MaskLess => lanes(|lane| (1 << lane) - 1),
        Special::MaskGreaterEqual => lanes(|lane| u32::MAX << lane),
        Special::MaskGreater => lanes(|lane| (u32::MAX << lane) << 1),
        Special::Clock => all(clock(block) as u32),
        Special::ClockHigh => all((clock(block) >> 32) as u32),
        Special::DynamicShared => all(launch.shared_bytes),
        Special::Cluster(axis) => {
            all(block.index[usize::from(axis)] / cx.cluster[usize::from(axis)])
        }
        Special::ClusterCount(axis) => {
            all(launch.grid[usize::from(axis)] / cx.cluster[usize::from(axis)])
        }
        Special::ClusterBlock(axis) => all(block.peers.place[usize::from(axis)]),
        Special::ClusterSize(axis) => all(cx.cluster[usize::from(axis)]),
        Special::ClusterRank => all(block.peers.rank),
        Special::ClusterBlocks => all(block.peers.size),
        Special::SharedWindow => all(block.peers.window() as u32),
        Special::ExplicitCluster => all(cx.explicit_cluster.into()),
        Special::WorkspaceHigh => all((cx.workspace >> 32) as u32),
        Special::WorkspaceLow => all(cx.workspace as u32),
        Special::TotalShared => all(launch.shared_bytes + cx.program.shared_bytes),
    }
}

/// Value of a 64-bit special register.
fn wide(warp: &Warp, block: &BlockState, cx: &Context<'_>, register: Special) -> [u64; LANES] {
    match register {
        Special::Clock => [clock(block); LANES],
        other => word(warp, block, cx, other).map(u64::from),
    }
}

/// Clocks count the block's own instructions, so that runs are reproducible; they leap when nothing
/// makes progress.
fn clock(block: &BlockState) -> u64 {
    block.warp_instructions + block.leapt
}
