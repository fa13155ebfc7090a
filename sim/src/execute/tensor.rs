//! `tcgen05`: allocation of tensor memory, transfers, and what is queued for the tensor core.

use super::mbarrier::{change, locate};
use super::tensor_multiply;
use crate::access::Window;
use crate::aim::{Attempt, Place, lanes_of, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, Fault, misuse};
use crate::matrix_descriptor::Descriptor;
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::tensor_descriptor;
use crate::tensor_memory::{COLUMNS, LANES as TENSOR_LANES, Product, Region, Work};
use crate::unit::{TensorCopy, TensorMove, TensorMultiply, TensorOp, TensorShape};
use crate::warp::Warp;

/// Whether the op is executed by a whole warp.
pub(super) fn of_warp(op: TensorOp) -> bool {
    use TensorOp::*;
    matches!(op, Allocate { .. } | Free | Relinquish | Load(_) | Store(_) | Wait { .. })
}

/// Splits an address into lane and column.
fn split(address: u32) -> (u32, u32) {
    (address >> 16, address & 0xffff)
}

fn refused<T>(lane: usize, result: Result<T, String>) -> Result<T, Failure> {
    result.or_else(|why| misuse(lane, why))
}

/// A word that all lanes of a warp agree on.
fn uniform(warp: &Warp, cx: &Context<'_>, op: &MicroOp, at: usize) -> Result<u32, Failure> {
    let row = warp.registers.word(&cx.program.constants, cx.list(op)[at]);
    match row.iter().position(|&word| word != row[0]) {
        Some(lane) => misuse(lane, "the lanes of a warp have different operands of tcgen05"),
        None => Ok(row[0]),
    }
}

pub(super) fn step(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    which: TensorOp,
    (active, pc): (u32, u32),
) -> Result<(), Failure> {
    match which {
        TensorOp::Allocate { window } => {
            let count = uniform(warp, cx, op, 1)?;
            let first = refused(0, block.tensor.allocate(count, warp.index, pc))?;
            let address = warp.registers.wide(&cx.program.constants, cx.list(op)[0])[0];
            let attempt = Attempt { verb: "tcgen05.alloc", bytes: 4 };
            if !address.is_multiple_of(4) {
                return Err(attempt.misaligned(0, address, 4));
            }
            match resolve(warp, block, cx, window, 0, address, attempt)? {
                Place::Shared(at) => block.shared[at as usize / 4] = first,
                _ => return misuse(0, "tcgen05.alloc outside the block's shared memory"),
            }
            block.progressed = true;
        }
        TensorOp::Free => {
            let (address, count) = (uniform(warp, cx, op, 0)?, uniform(warp, cx, op, 1)?);
            refused(0, block.tensor.free(address, count))?;
        }
        TensorOp::Relinquish => block.tensor.relinquished = true,
        TensorOp::Wait { .. } => {}
        TensorOp::Load(moved) => load(warp, block, cx, op, moved)?,
        TensorOp::Store(moved) => store(warp, block, cx, op, moved)?,
        TensorOp::Copy(copy) => {
            for lane in lanes_of(active) {
                issue_copy(warp, block, cx, op, copy, (lane, pc))?;
            }
        }
        TensorOp::Multiply(product) => {
            for lane in lanes_of(active) {
                issue_multiply(warp, block, cx, op, product, (lane, pc))?;
            }
        }
        TensorOp::Commit { window, multicast } => {
            for lane in lanes_of(active) {
                issue_commit(warp, block, cx, op, (window, multicast), (lane, pc))?;
            }
        }
    }
    Ok(())
}

/// Lane, within the warp's, and column of each thread's word; a packed word takes two columns.
fn place(moved: TensorMove, thread: usize, word: usize) -> (usize, usize) {
    let row = thread / 4;
    let (lane, column, further) = match moved.shape {
        TensorShape::L32x32 => (thread, word, 0),
        TensorShape::L16x32x2(split) => (thread % 16, word, thread / 16 * usize::from(split)),
        TensorShape::L16x64 => (row + thread % 2 * 8, thread / 2 % 2 + 2 * word, 0),
        TensorShape::L16x128 => (row + word % 2 * 8, thread % 4 + word / 2 * 4, 0),
        TensorShape::L16x256 => {
            (row + word / 2 % 2 * 8, thread % 4 * 2 + word % 2 + word / 4 * 8, 0)
        }
    };
    (lane, column * if moved.packed { 2 } else { 1 } + further)
}

/// First lane and column of a transfer, whose columns may be accessed.
fn start(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    (op, at): (&MicroOp, usize),
    moved: TensorMove,
    (what, writes): (&str, bool),
) -> Result<(usize, usize), Failure> {
    let (lane, first) = split(uniform(warp, cx, op, at)?);
    let half = !matches!(moved.shape, TensorShape::L32x32);
    let own = warp.index % 4 * 32;
    if lane != own && !(half && lane == own + 16) {
        return misuse(
            0,
            format!("{what} of tensor memory lane {lane} by a warp whose lanes start at {own}"),
        );
    }
    let columns = (0..LANES).map(|thread| place(moved, thread, usize::from(moved.words) - 1).1);
    let count = columns.max().unwrap_or_default() as u32 + if moved.packed { 2 } else { 1 };
    let halves = match half {
        false => [true; 2],
        true => [lane == own, lane != own],
    };
    let region = Region { first, count, halves };
    refused(0, block.tensor.check_allocated(what, region))?;
    refused(0, block.tensor.check_idle(what, region, writes))?;
    Ok((lane as usize, first as usize))
}

fn load(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    moved: TensorMove,
) -> Result<(), Failure> {
    let words = usize::from(moved.words);
    let (lane, first) = start(warp, block, cx, (op, words), moved, ("tcgen05.ld", false))?;
    for word in 0..words {
        let row = std::array::from_fn(|thread| {
            let (row, column) = place(moved, thread, word);
            match moved.packed {
                false => *block.tensor.cell(lane + row, first + column),
                true => {
                    let low = *block.tensor.cell(lane + row, first + column) & 0xffff;
                    low | *block.tensor.cell(lane + row, first + column + 1) << 16
                }
            }
        });
        warp.registers.set_word(cx.list(op)[word], &row, u32::MAX);
    }
    Ok(())
}

fn store(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    moved: TensorMove,
) -> Result<(), Failure> {
    let (lane, first) = start(warp, block, cx, (op, 0), moved, ("tcgen05.st", true))?;
    for word in 0..usize::from(moved.words) {
        let row = *warp.registers.word(&cx.program.constants, cx.list(op)[1 + word]);
        for (thread, &value) in row.iter().enumerate() {
            let (row, column) = place(moved, thread, word);
            match moved.packed {
                false => *block.tensor.cell(lane + row, first + column) = value,
                true => {
                    *block.tensor.cell(lane + row, first + column) = value & 0xffff;
                    *block.tensor.cell(lane + row, first + column + 1) = value >> 16;
                }
            }
        }
    }
    Ok(())
}

fn descriptor(
    block: &BlockState,
    lane: usize,
    bits: u64,
    transposed: bool,
    (groups, chunks): (u64, u64),
) -> Result<Descriptor, Failure> {
    let descriptor = refused(lane, Descriptor::decode_tensor(bits, transposed))?;
    let end = descriptor.chunks(groups, chunks).into_iter().max().unwrap_or_default() + 16;
    if end > block.shared_bytes.into() {
        let size = block.shared_bytes;
        let text = format!(
            "the matrix descriptor {bits:#x} reaches shared offset {end:#x} of {size} bytes"
        );
        return misuse(lane, text);
    }
    Ok(descriptor)
}

/// A copy of a lane.
fn decoded_copy(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    (copy, lane): (TensorCopy, usize),
) -> Result<(u32, Descriptor), Failure> {
    let (constants, slots) = (&cx.program.constants, cx.list(op));
    let (at, first) = split(warp.registers.word(constants, slots[0])[lane]);
    let bits = warp.registers.wide(constants, slots[1])[lane];
    let shape = (u64::from(copy.rows) / 8, copy.chunks.into());
    let from = descriptor(block, lane, bits, false, shape)?;
    match at {
        0 => Ok((first, from)),
        at => misuse(lane, format!("tcgen05.cp to tensor memory lane {at}")),
    }
}

/// Groups and chunks of a matrix by its descriptor.
fn extent(rows: usize, k: usize, bits: usize, transposed: bool) -> (u64, u64) {
    match transposed {
        // Chunks of 16 bytes along the rows, and groups of eight along K.
        true => ((rows * bits).div_ceil(128) as u64, (k / 8) as u64),
        false => ((rows / 8) as u64, (k * bits / 128) as u64),
    }
}

/// An MMA of a lane.
fn decoded_multiply(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    (product, lane): (TensorMultiply, usize),
) -> Result<Product, Failure> {
    let (constants, slots) = (&cx.program.constants, cx.list(op));
    let word = |at: usize| warp.registers.word(constants, slots[at])[lane];
    let wide = |at: usize| warp.registers.wide(constants, slots[at])[lane];
    let shape = refused(lane, tensor_descriptor::decode(word(3), product))?;
    let [a_major, b_major] = shape.transposed;
    let a = match product.a_tensor {
        false => {
            let extent = extent(shape.m, shape.k, shape.a.bits(), a_major);
            Ok(descriptor(block, lane, wide(1), a_major, extent)?)
        }
        true => {
            let (a_lane, first) = split(word(1));
            if a_lane != split(word(0)).0 || a_major {
                return misuse(lane, "tcgen05.mma with A in other lanes than D, or transposed");
            }
            Err(first)
        }
    };
    let of_b = extent(shape.n, shape.k, shape.b.bits(), b_major);
    let b = descriptor(block, lane, wide(2), b_major, of_b)?;
    let scales = match product.scales {
        0 => [0; 2],
        _ => [word(5), word(6)],
    };
    let adds = warp.registers.predicate(slots[4]) >> lane & 1 != 0;
    Ok(Product { op: product, shape, d: word(0), a, b, scales, adds })
}

/// Start addresses of the 16-byte chunks of shared memory that an op of a lane reads; `None` if it
/// is about to fail.
pub(crate) fn reads(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    which: TensorOp,
    lane: usize,
) -> Option<Vec<u64>> {
    match which {
        TensorOp::Copy(copy) => {
            let (_, from) = decoded_copy(warp, block, cx, op, (copy, lane)).ok()?;
            Some(from.chunks(u64::from(copy.rows) / 8, copy.chunks.into()))
        }
        TensorOp::Multiply(product) => {
            let Product { shape, a, b, .. } =
                decoded_multiply(warp, block, cx, op, (product, lane)).ok()?;
            let of = |matrix: Descriptor, rows: usize, bits: usize| {
                let (groups, chunks) = extent(rows, shape.k, bits, matrix.transposed);
                matrix.chunks(groups, chunks)
            };
            let of_a = a.ok().into_iter().flat_map(|a| of(a, shape.m, shape.a.bits()));
            Some(of_a.chain(of(b, shape.n, shape.b.bits())).collect())
        }
        _ => None,
    }
}

/// Tensor memory that an MMA accesses, and whether it writes it: D, then A and the scales.
fn regions(product: &Product, lane: usize) -> Result<Vec<(Region, bool)>, Failure> {
    let shape = product.shape;
    let (d_lane, first) = split(product.d);
    let half = shape.m == 64;
    if d_lane != 0 && !(half && d_lane == 16) {
        return misuse(lane, format!("tcgen05.mma with D at tensor memory lane {d_lane}"));
    }
    let halves = if half { [d_lane == 0, d_lane != 0] } else { [true; 2] };
    let mut regions = vec![(Region { first, count: shape.n as u32, halves }, true)];
    if let Err(first) = product.a {
        let count = (shape.k * shape.a.bits() / 32) as u32;
        regions.push((Region { first, count, halves }, false));
    }
    if product.op.scales != 0 {
        for (&address, rows) in product.scales.iter().zip([shape.m, shape.n]) {
            let (at, first) = split(address);
            if at != 0 {
                return misuse(lane, format!("scales at tensor memory lane {at}"));
            }
            regions.push((Region::all(first, rows.div_ceil(32) as u32), false));
        }
    }
    Ok(regions)
}

/// Tensor memory that an op of a lane reads, and what it writes; nothing if it is about to fail.
pub(crate) fn touched(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    which: TensorOp,
    lane: usize,
) -> (Vec<Region>, Vec<Region>) {
    let found = || -> Result<(Vec<Region>, Vec<Region>), Failure> {
        match which {
            TensorOp::Copy(copy) => {
                let (to, _) = decoded_copy(warp, block, cx, op, (copy, lane))?;
                Ok((Vec::new(), vec![Region::all(to, u32::from(copy.chunks) * 4)]))
            }
            TensorOp::Multiply(product) => {
                let product = decoded_multiply(warp, block, cx, op, (product, lane))?;
                let all = regions(&product, lane)?;
                let reads = all.iter().filter(|(_, writes)| !writes || product.adds);
                let writes = all.iter().filter(|(_, writes)| *writes);
                Ok((reads.map(|of| of.0).collect(), writes.map(|of| of.0).collect()))
            }
            _ => Ok((Vec::new(), Vec::new())),
        }
    };
    found().unwrap_or_default()
}

/// Cells that a warp loads or stores, and their region; `None` if it is about to fail.
pub(crate) fn moved_cells(
    warp: &Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    moved: TensorMove,
    load: bool,
) -> Option<(Vec<(usize, usize)>, Region)> {
    let words = usize::from(moved.words);
    let (lane, first) = split(uniform(warp, cx, op, if load { words } else { 0 }).ok()?);
    let pair = if moved.packed { 2 } else { 1 };
    let mut cells = Vec::with_capacity(LANES * words);
    for thread in 0..LANES {
        for word in 0..words {
            let (row, column) = place(moved, thread, word);
            let at = |part: usize| (lane as usize + row, first as usize + column + part);
            cells.extend((0..pair).map(at));
        }
    }
    let end = cells.iter().map(|(_, column)| column + 1).max()? as u32;
    let half = |half: usize| cells.iter().any(|(lane, _)| lane / 16 % 2 == half);
    let halves = [half(0), half(1)];
    let inside = cells.iter().all(|(lane, column)| *lane < TENSOR_LANES && *column < COLUMNS);
    inside.then_some((cells, Region { first, count: end - first, halves }))
}

fn issue_copy(
    warp: &Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    copy: TensorCopy,
    (lane, pc): (usize, u32),
) -> Result<(), Failure> {
    let (to, from) = decoded_copy(warp, block, cx, op, (copy, lane))?;
    let region = Region::all(to, u32::from(copy.chunks) * 4);
    refused(lane, block.tensor.check_allocated("tcgen05.cp", region))?;
    let work = Work::Copy { to, from, copy };
    block.tensor.issue(work, (warp.index * LANES as u32 + lane as u32, pc), &[(region, true)]);
    Ok(())
}

fn issue_multiply(
    warp: &Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    product: TensorMultiply,
    (lane, pc): (usize, u32),
) -> Result<(), Failure> {
    let product = decoded_multiply(warp, block, cx, op, (product, lane))?;
    let regions = regions(&product, lane)?;
    for &(region, _) in &regions {
        refused(lane, block.tensor.check_allocated("tcgen05.mma", region))?;
    }
    let work = Work::Multiply(Box::new(product));
    block.tensor.issue(work, (warp.index * LANES as u32 + lane as u32, pc), &regions);
    Ok(())
}

fn issue_commit(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    (window, multicast): (Window, bool),
    (lane, pc): (usize, u32),
) -> Result<(), Failure> {
    let (constants, slots) = (&cx.program.constants, cx.list(op));
    let address = warp.registers.wide(constants, slots[0])[lane];
    let (rank, at) = locate(warp, block, cx, window, lane, address)?;
    let barriers = match multicast {
        false => vec![(rank, at)],
        true => {
            let ranks = warp.registers.word(constants, slots[1])[lane] & 0xffff;
            if ranks >> block.peers.size != 0 {
                return misuse(lane, format!("tcgen05.commit to blocks {ranks:#x} of the cluster"));
            }
            lanes_of(ranks).map(|rank| (rank, at)).collect()
        }
    };
    let by = (warp.index * LANES as u32 + lane as u32, pc);
    block.tensor.issue(Work::Commit(barriers), by, &[]);
    Ok(())
}

/// Executes some of the queued work, or all.
pub(super) fn advance(
    block: &mut BlockState,
    cx: &Context<'_>,
    count: usize,
) -> Result<(), (u32, Box<Fault>)> {
    for _ in 0..count.min(block.tensor.queue.len()) {
        let Some(job) = block.tensor.queue.pop_front() else { break };
        let (thread, pc) = job.by;
        let fault = |failure: Failure| (thread / LANES as u32, failure.at(pc));
        match &job.work {
            Work::Multiply(product) => tensor_multiply::multiply(block, cx, product),
            Work::Copy { to, from, copy } => land(block, *to, *from, *copy),
            Work::Commit(barriers) => {
                for &barrier in barriers {
                    let odd = block.parity(barrier);
                    let lane = thread as usize % LANES;
                    change(block, lane, barrier, |state| state.arrive(1, false)).map_err(fault)?;
                    block.tensor.signalled(&job, barrier, odd);
                }
            }
        }
        block.progressed = true;
    }
    Ok(())
}

fn land(block: &mut BlockState, to: u32, from: Descriptor, copy: TensorCopy) {
    for row in 0..usize::from(copy.rows) {
        for chunk in 0..usize::from(copy.chunks) {
            let at = from.address(row as u64 / 8, row as u64 % 8, chunk as u64) as usize / 4;
            for word in 0..4 {
                let value = block.shared[at + word];
                for quarter in lanes_of(copy.places[row / 32].into()) {
                    let column = (to as usize + chunk * 4 + word) % COLUMNS;
                    *block.tensor.cell(quarter * 32 + row % 32, column) = value;
                }
            }
        }
    }
}
