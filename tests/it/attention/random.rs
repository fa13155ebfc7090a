//! Random combinations of features, shapes and orders in memory, on every engine that takes them.
//!
//! `KILN_ATTENTIONS=500 cargo test --test it attention::random -- --nocapture` runs that many, and
//! says how far it is; a failure says how to run its case alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln::DType;
use kiln::expr::Real;
use kiln::graph::{
    Attention, AttentionBackward, AttentionShape, Band, Diagonal, MatmulMath, Softcap,
};

use crate::attention::backward_cases;
use crate::attention::cases::check;
use crate::attention::cases::{self, Broadcast, Case, Storage};
use crate::random_graphs::{Random, number};

/// Combinations in the ordinary run of the tests.
const ATTENTIONS: u64 = 16;

/// Combinations from one line of progress to the next.
const PROGRESS: u64 = 10;

const POSITIONS: [i64; 9] = [1, 7, 16, 17, 30, 48, 64, 65, 90];
const ELEMENTS: [i64; 8] = [1, 8, 16, 24, 32, 33, 64, 72];

/// The case of a seed.
fn case_of(seed: u64) -> Case {
    let mut random = Random(seed);
    let kv_heads = random.pick(&[1, 2]);
    let depth = random.pick(&ELEMENTS);
    let width = if random.below(3) == 0 { random.pick(&ELEMENTS) } else { depth };
    let shape = AttentionShape {
        batches: random.pick(&[1, 2]),
        heads: kv_heads * random.pick(&[1, 2, 3]),
        kv_heads,
        queries: random.pick(&POSITIONS),
        keys: random.pick(&POSITIONS),
        depth,
        width,
    };
    let page = random.pick(&[5, 8, 16, 32]);
    let op = operation(&mut random, &shape, page);
    let dtype = random.pick(&[DType::F16, DType::Bf16, DType::F16, DType::F32]);
    let mut storage = [(); 4].map(|()| {
        let gap = random.pick(&[0, 0, 8, 1]);
        let alignment = if gap == 1 { dtype.bytes() } else { 16 };
        let spacing = if random.below(8) == 0 { 2 } else { 1 };
        Storage { dtype, positions_first: random.below(2) == 0, spacing, gap, alignment, page }
    });
    let broadcast = [(); 4].map(|()| random.below(2) == 0);
    for of in &mut storage[1..3] {
        of.dtype = random.pick(&[dtype, dtype, dtype, DType::F8E4M3, DType::F8E5M2]);
    }
    let mut flag = || random.below(5) == 0;
    let op = Attention { descale_k: flag(), descale_v: flag(), ..op };
    let is_tf32 = dtype == DType::F32 && random.below(2) == 0;
    let op = Attention { math: if is_tf32 { MatmulMath::Tf32 } else { op.math }, ..op };
    match seed.is_multiple_of(2) {
        true => cases::case_of(op, shape, storage, broadcast, seed),
        false => bulk(op, shape, storage, broadcast, seed),
    }
}

/// The same as TMA copies take it: operands of 16 bits whose lines begin at multiples of 16 bytes,
/// whole swizzled patterns of keys on a page. Other features are those of the seed.
fn bulk(
    op: Attention,
    shape: AttentionShape,
    storage: [Storage; 4],
    broadcast: Broadcast,
    seed: u64,
) -> Case {
    let dtype = if storage[0].dtype == DType::Bf16 { DType::Bf16 } else { DType::F16 };
    let whole = |elements: i64| (elements + 7) / 8 * 8;
    let shape = AttentionShape { depth: whole(shape.depth), width: whole(shape.width), ..shape };
    let page = if storage[0].page % 8 == 0 { storage[0].page } else { 8 };
    let paged = op.paged && shape.keys % page == 0;
    let op = Attention { math: MatmulMath::F32, paged, ..op };
    let storage = storage.map(|of| Storage {
        dtype,
        gap: of.gap / 8 * 8,
        spacing: 1,
        alignment: 16,
        page,
        ..of
    });
    cases::case_of(op, shape, storage, broadcast, seed)
}

fn operation(random: &mut Random, shape: &AttentionShape, page: i64) -> Attention {
    let mut flag = |of: usize| random.below(of) == 0;
    let (intervals, bias, slopes, mask) = (flag(4), flag(3), flag(3), flag(4));
    let (sinks, query_lengths, key_lengths) = (flag(4), flag(4), flag(3));
    let (statistics, score, keep) = (flag(2), flag(4), flag(4));
    let (paged, queries_max, keys_max) = (flag(4), flag(4), flag(4));
    let softcap = flag(3).then_some(Softcap { cap: Real::new(1.5), last: flag(2) });
    let dropout = flag(4).then_some(Real::new(0.2));
    let scale = flag(3).then_some(Real::new(if flag(4) { -0.5 } else { 0.5 }));
    let diagonal = if flag(2) { Diagonal::TopLeft } else { Diagonal::BottomRight };
    let left = random.pick(&[None, None, Some(0), Some(13), Some(40)]);
    let right = random.pick(&[None, Some(0), Some(0), Some(5)]);
    Attention {
        math: MatmulMath::F32,
        scale,
        softcap,
        band: Band { diagonal, left, right },
        intervals,
        paged: paged && shape.keys % page == 0,
        queries_max: queries_max.then_some(shape.queries),
        keys_max: (keys_max && !paged).then_some(shape.keys),
        bias,
        slopes,
        mask,
        sinks,
        query_lengths,
        key_lengths,
        dropout,
        score: score.then(|| Arc::new(cases::score_program(shape, DType::F32))),
        keep: keep.then(|| Arc::new(cases::keep_program(DType::F32))),
        statistics,
        ..Attention::default()
    }
}

#[test]
fn random_combinations_give_the_reference() {
    let (first, count) = (number("KILN_ATTENTIONS_FROM", 1), number("KILN_ATTENTIONS", ATTENTIONS));
    println!("{count} combinations of attention's features from seed {first} on");
    let mut runs = BTreeMap::new();
    for seed in first..first + count {
        let again = format!(
            "KILN_ATTENTIONS_FROM={seed} KILN_ATTENTIONS=1 cargo test --test it attention::random"
        );
        for engine in check(&case_of(seed), &format!("seed {seed} (again: {again})")) {
            *runs.entry(engine).or_insert(0) += 1;
        }
        let done = seed + 1 - first;
        if done % PROGRESS == 0 || done == count {
            let each = runs.iter().map(|(engine, count)| format!("{count} on {engine}"));
            let each: Vec<String> = each.collect();
            println!("{done} of {count} passed, to seed {seed}: runs {}", each.join(", "));
        }
    }
}

/// The gradients of the operation of a seed, all that it has.
fn gradients_of(seed: u64) -> Case {
    let mut random = Random(seed);
    let kv_heads = random.pick(&[1, 2]);
    let depth = random.pick(&ELEMENTS);
    let width = if random.below(3) == 0 { random.pick(&ELEMENTS) } else { depth };
    let shape = AttentionShape {
        batches: random.pick(&[1, 2]),
        heads: kv_heads * random.pick(&[1, 2, 3]),
        kv_heads,
        queries: random.pick(&POSITIONS),
        keys: random.pick(&POSITIONS),
        depth,
        width,
    };
    let op = Attention { paged: false, ..operation(&mut random, &shape, 1) };
    let dtype = random.pick(&[DType::F16, DType::Bf16, DType::F16, DType::F32]);
    let storage = [(); 4].map(|()| {
        let gap = random.pick(&[0, 0, 8, 1]);
        let alignment = if gap == 1 { dtype.bytes() } else { 16 };
        let spacing = if random.below(8) == 0 { 2 } else { 1 };
        Storage { dtype, positions_first: random.below(2) == 0, spacing, gap, alignment, page: 1 }
    });
    let broadcast = [(); 4].map(|()| random.below(2) == 0);
    let mut op = AttentionBackward {
        dlse: random.below(2) == 0,
        dbias: op.bias,
        dslopes: op.slopes,
        dsinks: op.sinks,
        ..AttentionBackward::new(op)
    };
    op.dscore[0] = op.forward.score.is_some();
    backward_cases::case_of(op, shape, storage, broadcast, seed)
}

#[test]
fn random_gradients_give_the_reference() {
    let (first, count) = (number("KILN_ATTENTIONS_FROM", 1), number("KILN_ATTENTIONS", ATTENTIONS));
    for seed in first..first + count {
        let again = format!(
            "KILN_ATTENTIONS_FROM={seed} KILN_ATTENTIONS=1 cargo test --test it random_gradients"
        );
        backward_cases::check(&gradients_of(seed), &format!("seed {seed} (again: {again})"));
    }
}
