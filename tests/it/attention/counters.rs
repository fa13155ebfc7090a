//! What attention costs, counted: products of the tiles that are attended to and no other, keys and
//! values read once for each tile of queries, no conflict.

use std::collections::BTreeMap;

use kiln::DType;
use kiln::device::Counters;
use kiln::engine::{self, EngineConfig};
use kiln::expr::Real;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};

use crate::attention::cases::{self, Case, Storage};
use crate::harness::{self, conflicts};

const SHAPE: AttentionShape = AttentionShape {
    batches: 1,
    heads: 2,
    kv_heads: 1,
    queries: 256,
    keys: 256,
    depth: 64,
    width: 64,
};

fn count(case: &Case, config: &str) -> Counters {
    harness::count(&case.graph, Some(&config.parse().unwrap()), &case.inputs)
}

fn mma(cta_q: i64, cta_k: i64) -> String {
    format!("attention_mma{{cta_k={cta_k}, cta_q={cta_q}, hold_q=0, warp_q=16}}")
}

fn wgmma(cta_q: i64, cta_k: i64) -> String {
    format!("attention_wgmma{{cta_k={cta_k}, cta_q={cta_q}, stages=2}}")
}

const MMA: fn(i64, i64) -> String = mma;
const WGMMA: fn(i64, i64) -> String = wgmma;

fn case(band: Band, shape: AttentionShape) -> Case {
    let op = Attention { band, ..Attention::new(MatmulMath::F32) };
    let storage = Storage { alignment: 256, ..Storage::packed(DType::F16) };
    cases::case(op, shape, storage, [true; 4])
}

/// Tiles of scores that hold a key that a query attends to, one by one.
pub fn tiles(
    shape: &AttentionShape,
    cta_q: i64,
    cta_k: i64,
    attends: impl Fn(i64, i64) -> bool,
) -> i64 {
    let hit = |row: i64, column: i64| {
        let queries = row * cta_q..((row + 1) * cta_q).min(shape.queries);
        let keys = column * cta_k..((column + 1) * cta_k).min(shape.keys);
        queries.clone().any(|query| keys.clone().any(|key| attends(query, key)))
    };
    let [rows, columns] =
        [(shape.queries, cta_q), (shape.keys, cta_k)].map(|(of, tile)| (of + tile - 1) / tile);
    (0..rows).map(|row| (0..columns).filter(|column| hit(row, *column)).count() as i64).sum()
}

/// Whether a query attends to a key, in a band from the bottom right corner.
pub fn attends(shape: &AttentionShape, band: Band) -> impl Fn(i64, i64) -> bool {
    let offset = shape.keys - shape.queries;
    move |query, key| {
        let own = query + offset;
        band.left.is_none_or(|left| key >= own - left)
            && band.right.is_none_or(|right| key <= own + right)
    }
}

#[test]
fn products_are_those_of_tiles_that_are_attended_to() {
    let odd = AttentionShape { queries: 200, keys: 230, ..SHAPE };
    for shape in [SHAPE, odd] {
        for (left, right) in [
            (None, None),
            (None, Some(0)),
            (Some(70), Some(0)),
            (Some(10), Some(10)),
            (Some(0), None),
        ] {
            let band = Band { diagonal: Diagonal::BottomRight, left, right };
            for (engine, cta_q, cta_k) in
                [(MMA, 64, 64), (MMA, 128, 32), (WGMMA, 64, 64), (WGMMA, 128, 32), (WGMMA, 192, 80)]
            {
                let counters = count(&case(band, shape), &engine(cta_q, cta_k));
                let tiles = tiles(&shape, cta_q, cta_k, attends(&shape, band));
                let want = shape.heads * tiles * cta_q * cta_k * 128;
                let [products] = &counters.products[..] else { panic!("one kind of product") };
                assert_eq!(products.multiply_adds, want as u64, "{band:?} {cta_q} {cta_k}");
                assert_eq!(conflicts(&counters), 0, "{band:?} {cta_q} {cta_k}");
            }
        }
    }
}

/// Every tile of queries reads its keys and values once; memory sees all once.
#[test]
fn keys_are_read_once_for_a_tile_of_queries() {
    for engine in [MMA, WGMMA] {
        let counters = count(&case(Band::default(), SHAPE), &engine(128, 64));
        let bytes = |heads: i64| 2 * (heads * 256 * 64) as u64;
        let (q, o, kv) = (bytes(2), bytes(2), 2 * bytes(1));
        // Two heads of two tiles of queries.
        assert_eq!(counters.total.global.bytes, q + o + 4 * kv);
        assert_eq!(counters.dram_read_bytes, q + kv);
        assert_eq!(counters.dram_written_bytes, o);
    }
}

/// Floats of 8 bits are half of the bytes, in memory and on the way, and stored without conflicts.
#[test]
fn keys_of_8_bits_are_half_the_bytes() {
    let op = Attention::new(MatmulMath::F32);
    let [f16, fp8] = [DType::F16, DType::F8E4M3]
        .map(|dtype| Storage { alignment: 256, ..Storage::packed(dtype) });
    let case = cases::case_of(op, SHAPE, [f16, fp8, fp8, f16], [true; 4], 1);
    for (config, tiles) in [
        (mma(128, 64), 4),
        ("attention_decode{cluster=1, cta_k=64, cta_q=64, split=1}".to_owned(), 8),
    ] {
        let counters = count(&case, &config);
        let (q, o, kv) = (2 * 2 * 256 * 64, 2 * 2 * 256 * 64, 2 * 256 * 64);
        assert_eq!(counters.total.global.bytes, q + o + tiles * kv, "{config}");
        assert_eq!(counters.dram_read_bytes, q + kv, "{config}");
        assert_eq!(conflicts(&counters), 0, "{config}");
    }
}

/// Parts that a cluster joins never leave the chip, and lie in all banks.
#[test]
fn clusters_join_parts_on_chip() {
    let op = Attention::new(MatmulMath::F32);
    let shape = AttentionShape { queries: 8, keys: 1024, ..SHAPE };
    let storage = Storage { alignment: 256, ..Storage::packed(DType::F16) };
    let case = cases::case_of(op, shape, [storage; 4], [true; 4], 1);
    let counters = count(&case, "attention_decode{cluster=8, cta_k=64, cta_q=16, split=8}");
    let (rows, kv) = (2 * 2 * 8 * 64, 2 * 2 * 1024 * 64);
    // Each part reads the queries.
    assert_eq!(counters.total.global.bytes, 8 * rows + rows + kv);
    assert_eq!((counters.dram_read_bytes, counters.dram_written_bytes), (rows + kv, rows));
    assert_eq!(conflicts(&counters), 0);
}

/// Heads of any size lie in panels that banks share evenly.
#[test]
fn no_size_of_heads_has_conflicts() {
    for (depth, width) in [(16, 16), (32, 32), (128, 128), (192, 128), (256, 256)] {
        let shape = AttentionShape { queries: 64, keys: 64, depth, width, ..SHAPE };
        for engine in [MMA, WGMMA] {
            let counters = count(&case(Band::default(), shape), &engine(64, 32));
            assert_eq!(conflicts(&counters), 0, "{depth} {width}");
        }
    }
}

/// The same bits, whatever ran before; with dropout, and of keys in parts, too.
#[test]
fn two_runs_give_the_same_bits() {
    let band = Band::causal(Diagonal::TopLeft);
    let dropped = Attention {
        band,
        dropout: Some(Real::new(0.2)),
        statistics: true,
        ..Attention::new(MatmulMath::F32)
    };
    let storage = Storage { alignment: 256, ..Storage::packed(DType::F16) };
    let dropped = cases::case(dropped, SHAPE, storage, [true; 4]);
    let few = case(band, AttentionShape { queries: 3, keys: 1024, ..SHAPE });
    let simt = "attention_simt{cta_k=32, cta_q=64}".to_owned();
    let bits = |case: &Case, config: Option<&EngineConfig>| {
        let values = harness::run(harness::kiln(), &case.graph, config, &case.inputs).unwrap();
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        values.into_iter().map(|(uid, of)| (uid, bits(of))).collect::<BTreeMap<_, _>>()
    };
    for case in [&case(band, SHAPE), &dropped] {
        for config in [mma(64, 64), wgmma(128, 64), simt.clone()] {
            let config: EngineConfig = config.parse().unwrap();
            assert!(bits(case, Some(&config)) == bits(case, Some(&config)), "{config}");
        }
    }
    let target = harness::kiln().device().target();
    let decode = engine::supported("attention_decode", few.graph.canonical(), target);
    let decode = decode.unwrap().heuristic();
    assert!(decode.to_string().contains("split"), "{decode}");
    assert!(bits(&few, Some(&decode)) == bits(&few, Some(&decode)), "{decode}");
}
