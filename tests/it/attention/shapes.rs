//! Edges of tiles, heads of any size, any order in memory, nothing at all.

use kiln::DType;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};

use crate::attention::cases::{self, Storage};
use crate::attention::features::check;

fn causal() -> Attention {
    Attention {
        band: Band::causal(Diagonal::BottomRight),
        statistics: true,
        ..Attention::new(MatmulMath::F32)
    }
}

/// 0, 1, and around the tiles that default settings have.
#[test]
fn edges_of_tiles() {
    const EXTENTS: [i64; 8] = [0, 1, 15, 16, 17, 63, 64, 65];
    for (at, queries) in EXTENTS.into_iter().enumerate() {
        for keys in [EXTENTS[at], EXTENTS[(at + 3) % 8]] {
            for (dtype, depth) in [(DType::F16, 64), (DType::F32, 16)] {
                let shape = AttentionShape {
                    batches: 1,
                    heads: 2,
                    kv_heads: 1,
                    queries,
                    keys,
                    depth,
                    width: depth,
                };
                let case = cases::case(causal(), shape, Storage::packed(dtype), [true; 4]);
                check(&case, &format!("{queries} queries, {keys} keys of {dtype}"));
            }
        }
    }
}

#[test]
fn heads_of_any_size() {
    let small = [(1, 1), (3, 40), (40, 3), (8, 16), (33, 64), (64, 65)];
    let large = [(80, 96), (96, 101), (100, 128), (192, 128), (240, 200), (256, 256)];
    for (depth, width) in small.into_iter().chain(large) {
        for dtype in [DType::Bf16, DType::F32] {
            let shape = AttentionShape {
                batches: 1,
                heads: 3,
                kv_heads: 3,
                queries: 20,
                keys: 35,
                depth,
                width,
            };
            let case = cases::case(causal(), shape, Storage::packed(dtype), [true; 4]);
            check(&case, &format!("{depth} and {width} elements of {dtype}"));
        }
    }
}

/// Positions outside of heads, gaps, elements apart, the least alignment.
#[test]
fn any_order_in_memory() {
    let shape = AttentionShape {
        batches: 2,
        heads: 4,
        kv_heads: 2,
        queries: 18,
        keys: 21,
        depth: 24,
        width: 40,
    };
    let packed = Storage::packed(DType::F16);
    for storage in [
        Storage { positions_first: true, ..packed },
        Storage { gap: 8, ..packed },
        Storage { gap: 2, alignment: 4, ..packed },
        Storage { gap: 1, alignment: 2, ..packed },
        Storage { spacing: 3, positions_first: true, ..packed },
    ] {
        check(&cases::case(causal(), shape, storage, [true; 4]), "order");
        let mixed = [storage, packed, storage, packed];
        check(&cases::case_of(causal(), shape, mixed, [true; 4], 2), "mixed order");
        let wide = Storage { dtype: DType::F32, ..storage };
        let wide = Storage { alignment: storage.alignment.max(4), ..wide };
        let mixed = [packed, storage, packed, wide];
        check(&cases::case_of(causal(), shape, mixed, [true; 4], 3), "wider results");
    }
}

/// Types that tensor cores do not take together go to the ordinary units.
#[test]
fn types_may_differ() {
    let shape = AttentionShape {
        batches: 1,
        heads: 2,
        kv_heads: 1,
        queries: 9,
        keys: 11,
        depth: 8,
        width: 8,
    };
    let of = Storage::packed;
    let types = [of(DType::F32), of(DType::F16), of(DType::Bf16), of(DType::F64)];
    let ran = check(&cases::case_of(causal(), shape, types, [true; 4], 1), "types");
    assert!(ran.iter().all(|engine| *engine == "attention_simt"), "{ran:?}");
}
