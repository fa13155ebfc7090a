//! Dispatch of unit ops, and their operands.

use super::{
    Next, bulk, cluster, copy, fragments, heap, matrix, mbarrier, multiply, print, registers,
    scaled, sparse, tensor, tensor_map, warpgroup,
};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::op::MicroOp;
use crate::unit::Unit;
use crate::warp::Warp;

/// Whether a `.sync.aligned` op can execute: no lane of its warp may have exited.
fn whole(warp: &Warp, active: u32) -> Result<bool, Failure> {
    if active != u32::MAX && active == warp.live {
        let count = active.count_ones();
        return misuse(
            active.trailing_zeros() as usize & 31,
            format!("a matrix instruction needs the 32 lanes of a warp and has {count}"),
        );
    }
    Ok(active == u32::MAX)
}

pub(super) fn step(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    unit: Unit,
    (active, pc): (u32, u32),
) -> Result<Next, Failure> {
    match unit {
        Unit::LoadMatrix(_)
        | Unit::StoreMatrix(_)
        | Unit::TransposeMatrix
        | Unit::Multiply(_)
        | Unit::Fragments(_)
        | Unit::WarpgroupMultiply(_)
        | Unit::WarpgroupFence
        | Unit::WarpgroupCommit
        | Unit::WarpgroupWait => {
            if !whole(warp, active)? {
                return Ok(Next::WaitLanes(active));
            }
            match unit {
                Unit::LoadMatrix(moved) => matrix::load(warp, block, cx, op, moved)?,
                Unit::StoreMatrix(moved) => matrix::store(warp, block, cx, op, moved)?,
                Unit::Multiply(product) => match (product.scale, product.sparsity) {
                    (Some(scale), _) => scaled::multiply(warp, cx, op, product, scale),
                    (_, Some(sparsity)) => sparse::multiply(warp, cx, op, product, sparsity)?,
                    _ => multiply::multiply(warp, cx, op, product),
                },
                Unit::Fragments(product) => fragments::multiply(warp, cx, op, product),
                Unit::WarpgroupMultiply(product) => {
                    warpgroup::multiply(warp, block, cx, op, product)?;
                }
                Unit::WarpgroupFence => warp.products.fenced = true,
                Unit::WarpgroupCommit => warpgroup::commit(warp, block),
                Unit::WarpgroupWait => return Ok(warpgroup::wait(warp, block, op.imm as u32)),
                _ => matrix::transpose(warp, cx, op),
            }
        }
        Unit::Copy(bytes) => copy::issue(warp, block, cx, op, bytes, active, pc)?,
        Unit::CopyCommit => copy::commit(warp, active),
        Unit::CopyWait => copy::wait(warp, block, cx, Some(op.imm as u32), active)?,
        Unit::CopyWaitAll => copy::wait(warp, block, cx, None, active)?,
        Unit::CopyArrive { window, joins } => {
            copy::arrive(warp, block, cx, op, (window, joins), active, pc)?;
        }
        Unit::Barrier(barrier) => return mbarrier::step(warp, block, cx, op, barrier, active),
        Unit::PendingCount => mbarrier::pending_count(warp, cx, op, active)?,
        Unit::Bulk(copy) => bulk::issue(warp, block, cx, op, copy, active, pc)?,
        Unit::StoreAsync(store) => bulk::issue_store(warp, block, cx, op, store, active, pc)?,
        Unit::BulkCommit => bulk::commit(warp, block, active),
        Unit::BulkWait { reads } => {
            bulk::wait(warp, block, cx, (op.imm as u32, reads), active)?;
        }
        Unit::ReplaceMap { field, window } => {
            tensor_map::change(warp, block, cx, op, (field, window), active)?;
        }
        Unit::Tensor(which) => {
            if tensor::of_warp(which) && !whole(warp, active)? {
                return Ok(Next::WaitLanes(active));
            }
            tensor::step(warp, block, cx, op, which, (active, pc))?;
        }
        Unit::CopyMap => {
            if !whole(warp, active)? {
                return Ok(Next::WaitLanes(active));
            }
            tensor_map::copy(warp, block, cx, op, active)?;
        }
        // The checks alone tell a map that was not acquired.
        Unit::AcquireMap => {}
        Unit::MapAddress => cluster::map_address(warp, block, cx, op, active)?,
        Unit::AddressRank => cluster::address_rank(warp, block, cx, op, active),
        Unit::ClusterArrive { aligned, .. } => return cluster::arrive(warp, aligned, active),
        Unit::ClusterWait { aligned } => return cluster::wait(warp, aligned, active),
        Unit::Elect => return cluster::elect(warp, cx, op, active),
        Unit::Registers { raises } => {
            if !whole(warp, active)? {
                return Ok(Next::WaitLanes(active));
            }
            let assembled = cx.launch.registers != 0;
            return registers::set(warp, block, op.imm as u32, (raises, assembled));
        }
        Unit::Print => print::print(warp, block, cx, op, active)?,
        Unit::Allocate => heap::allocate(warp, cx, op, active),
        Unit::Free => heap::free(warp, cx, op, active)?,
    }
    Ok(Next::Go)
}
