//! Asynchronous copies, barriers in shared memory, tensor maps and clusters.

use crate::run::{Plain, device, dialects, download, launch, line, packed, seeded, upload};
use kiln_sim::{
    Device, Interleave, L2Promotion, Launch, Module, OutOfBoundsFill, Swizzle, TensorMap,
    TensorType, Tiled,
};

/// Devices whose warps run in different orders.
fn devices() -> impl Iterator<Item = Device> {
    (0..6).map(seeded)
}

#[test]
fn bulk_copies_feed_a_pipeline() {
    let tiles = 7;
    let input: Vec<f32> = (0..tiles * 256).map(|i| (i % 97) as f32).collect();
    for module in dialects("copies") {
        let kernel = module.kernel("pipeline").unwrap();
        for device in devices() {
            let out = upload(&device, &[0_f32; 256]);
            let arguments = [upload(&device, &input), out, tiles as u64];
            launch(&device, &kernel, line(1, 288), &arguments);
            let got = download::<f32>(&device, out, 256);
            for (i, got) in got.into_iter().enumerate() {
                assert_eq!(got, (0..tiles).map(|tile| input[tile * 256 + i]).sum::<f32>());
            }
        }
    }
}

#[test]
fn bulk_stores_and_reductions() {
    for module in dialects("copies") {
        let kernel = module.kernel("store_and_reduce").unwrap();
        for device in devices() {
            let (stored, reduced) =
                (upload(&device, &[0_f32; 384]), upload(&device, &[1_f32; 128]));
            launch(&device, &kernel, line(3, 128), &[stored, reduced]);
            let stored = download::<f32>(&device, stored, 384);
            let reduced = download::<f32>(&device, reduced, 128);
            for i in 0..384 {
                assert_eq!(stored[i], (i % 128 + 1000 * (i / 128)) as f32);
                assert_eq!(reduced[i % 128], (1 + 3 * (i % 128) + 3000) as f32);
            }
        }
    }
}

#[test]
fn small_copies_land_with_zeros() {
    let input: Vec<u8> = (0..32 * 48_u32).map(|i| (i % 251 + 1) as u8).collect();
    for module in dialects("copies") {
        let kernel = module.kernel("small_copies").unwrap();
        let device = device();
        let out = upload(&device, &[0_u8; 32 * 48]);
        launch(&device, &kernel, line(1, 32), &[upload(&device, &input), out]);
        let got = download::<u8>(&device, out, 32 * 48);
        for lane in 0..32 {
            let kept = |i: usize| match i {
                0..4 => Some(true),
                4..8 => None,
                8..16 => Some(i - 8 < lane % 9),
                16..32 => Some(i - 16 < lane % 17),
                _ => Some(lane % 2 == 0),
            };
            for i in 0..48 {
                let want = match kept(i) {
                    Some(true) => input[lane * 48 + i],
                    Some(false) => 0,
                    None => 0xee,
                };
                assert_eq!(got[lane * 48 + i], want, "lane {lane} byte {i}");
            }
        }
    }
}

#[test]
fn blocks_of_a_cluster_reach_each_other() {
    for module in dialects("copies") {
        let kernel = module.kernel("neighbours").unwrap();
        assert_eq!(kernel.cluster(), Some([4, 1, 1]));
        for device in devices() {
            let out = upload(&device, &[0_u32; 24]);
            launch(&device, &kernel, line(8, 32), &[out]);
            let got = download::<u32>(&device, out, 24);
            for (block, got) in got.chunks(3).enumerate() {
                let (cluster, rank) = (block / 4, block % 4);
                let values = (0..4).map(|other| 10 * (cluster * 4 + other) + 1);
                assert_eq!(got[0], values.sum::<usize>() as u32);
                assert_eq!(got[1], 100 + (rank as u32 + 3) % 4);
                assert_eq!(got[2], 10 * block as u32 + 8);
            }
        }
    }
}

#[test]
fn copies_are_cast_to_several_blocks() {
    let input: Vec<u32> = (0..256).map(|i| i * 3 + 1).collect();
    for module in dialects("copies") {
        let kernel = module.kernel("multicast").unwrap();
        for device in devices() {
            let out = upload(&device, &[0_u32; 256]);
            launch(&device, &kernel, line(4, 64), &[upload(&device, &input), out]);
            for (i, got) in download::<u32>(&device, out, 256).into_iter().enumerate() {
                let (pair, rank) = (i / 128, i / 64 % 2);
                assert_eq!(got, input[pair * 128 + i % 64] + rank as u32, "{i}");
            }
        }
    }
}

/// A matrix of f32 with 50 rows of 40 and a box of 8 rows of 32.
fn matrix(address: u64, swizzle: Swizzle, fill: OutOfBoundsFill) -> Tiled<'static> {
    Tiled {
        data_type: TensorType::F32,
        address,
        dims: &[40, 50],
        strides: &[192],
        box_dims: &[32, 8],
        element_strides: &[1, 1],
        interleave: Interleave::None,
        swizzle,
        l2_promotion: L2Promotion::None,
        fill,
    }
}

#[test]
fn tiles_are_loaded_stored_and_added() {
    let (rows, pitch) = (50_usize, 48_usize);
    let input: Vec<f32> = (0..rows * pitch).map(|i| i as f32 + 1.0).collect();
    let inside = |x: i32, y: i32| (0..40).contains(&x) && (0..50).contains(&y);
    let cases = [(0, 0), (8, 10), (16, 45), (-4, -3), (36, 48), (100, 3)];
    for module in dialects("copies") {
        let kernel = module.kernel("tiles").unwrap();
        for ((x, y), swizzle) in
            cases.into_iter().zip([Swizzle::B128, Swizzle::None].into_iter().cycle())
        {
            let device = device();
            let fill = if x == 36 { OutOfBoundsFill::Nan } else { OutOfBoundsFill::Zero };
            let stored = upload(&device, &vec![0_f32; rows * pitch]);
            let reduced = upload(&device, &vec![0.5_f32; rows * pitch]);
            let maps = [upload(&device, &input), stored, reduced].map(|address| {
                let map = TensorMap::encode_tiled(&matrix(address, swizzle, fill)).unwrap();
                map.bytes().to_vec()
            });
            let out = upload(&device, &[0_f32; 256]);
            let scalars = [x.bytes(), y.bytes(), out.bytes()];
            let block = packed(&kernel, &[&maps[..], &scalars[..]].concat());
            let shape = Launch { shared_bytes: 2048, ..line(1, 64) };
            device.launch(&kernel, &shape, &block).unwrap_or_else(|error| panic!("{error}"));
            let out = download::<f32>(&device, out, 256);
            for row in 0..8 {
                for column in 0..32 {
                    let (x, y) = (x + column, y + row);
                    // A chunk of 16 bytes changes places with another of its row of 128 bytes.
                    let chunk = if swizzle == Swizzle::B128 {
                        (column / 4) ^ (row % 8)
                    } else {
                        column / 4
                    };
                    let got = out[(row * 32 + chunk * 4 + column % 4) as usize];
                    if inside(x, y) {
                        assert_eq!(got, input[y as usize * pitch + x as usize], "{x} {y}");
                    } else if fill == OutOfBoundsFill::Nan {
                        assert!(got.is_nan());
                    } else {
                        assert_eq!(got, 0.0);
                    }
                }
            }
            let stored = download::<f32>(&device, stored, rows * pitch);
            let reduced = download::<f32>(&device, reduced, rows * pitch);
            for at in 0..rows * pitch {
                let (u, w) = ((at % pitch) as i32, (at / pitch) as i32);
                let taken = inside(u, w) && (x..x + 32).contains(&u) && (y..y + 8).contains(&w);
                assert_eq!(stored[at], if taken { input[at] * 2.0 } else { 0.0 }, "{u} {w}");
                assert_eq!(reduced[at], if taken { input[at] * 2.0 + 0.5 } else { 0.5 });
            }
        }
    }
}

#[test]
fn tiles_of_four_dimensions() {
    let dims = [16_usize, 5, 4, 3];
    let input: Vec<u16> = (0..dims.iter().product::<usize>() as u16).map(|i| i + 1).collect();
    let element = |at: [i32; 4]| {
        let inside = (0..4).all(|axis| (0..dims[axis] as i32).contains(&at[axis]));
        let index = (0..4).rev().fold(0, |sum, axis| sum * dims[axis] as i32 + at[axis]);
        if inside { input[index as usize] } else { 0 }
    };
    for module in dialects("copies") {
        let kernel = module.kernel("tile_4d").unwrap();
        for (swizzle, bits) in [(Swizzle::B32, 1), (Swizzle::None, 0)] {
            let device = device();
            // Two of every third row, from row 1 on.
            let tiled = Tiled {
                data_type: TensorType::U16,
                address: upload(&device, &input),
                dims: &dims.map(|dim| dim as u64),
                strides: &[32, 160, 640],
                box_dims: &[16, 4, 2, 2],
                element_strides: &[1, 3, 1, 1],
                interleave: Interleave::None,
                swizzle,
                l2_promotion: L2Promotion::B128,
                fill: OutOfBoundsFill::Zero,
            };
            let map = TensorMap::encode_tiled(&tiled).unwrap();
            let bytes = 16 * 2 * 2 * 2 * 2;
            let out = upload(&device, &[0_u16; 128]);
            let start = [-2_i32, 1, 3, 1];
            let place: Vec<u8> = start.into_iter().flat_map(|at| at.bytes()).collect();
            let values = [map.bytes().to_vec(), place, bytes.bytes(), out.bytes()];
            let shape = Launch { shared_bytes: 256, ..line(1, 32) };
            device
                .launch(&kernel, &shape, &packed(&kernel, &values))
                .unwrap_or_else(|e| panic!("{e}"));
            let got = download::<u16>(&device, out, 128);
            for i in 0..128 {
                let (x, row) = (i % 16, i / 16);
                let at = [x, row % 2 * 3, row / 2 % 2, row / 4];
                let at = std::array::from_fn(|axis| start[axis] + at[axis] as i32);
                // The pattern of 32 bytes flips 16-byte chunks in every second group of 128.
                let flipped = i ^ (((i / 64) & bits) * 8);
                assert_eq!(got[flipped], element(at), "{swizzle:?} {i}");
            }
        }
    }
}

#[test]
fn prints_elects_and_reports_sizes() {
    for module in dialects("copies") {
        let kernel = module.kernel("small_things").unwrap();
        let device = device();
        let out = upload(&device, &[0_u32; 32]);
        let shape = Launch { shared_bytes: 48, ..line(1, 32) };
        let report = launch(&device, &kernel, shape, &[out, 2.5_f32.to_bits().into()]);
        assert_eq!(report.printed, "lane 0 of  2.50: words -5 c|7   |00ff %\n");
        let got = download::<u32>(&device, out, 32);
        assert_eq!(got[0], 148);
        assert_eq!(got[1..], [48; 31]);
    }
}

#[test]
fn tensor_maps_are_checked() {
    let good = matrix(256, Swizzle::B128, OutOfBoundsFill::Zero);
    let refuse = |tiled: Tiled<'_>| {
        let error = TensorMap::encode_tiled(&tiled).unwrap_err().to_string();
        error.strip_prefix("failed to encode a tensor map: ").unwrap().to_string()
    };
    assert!(TensorMap::encode_tiled(&good).is_ok());
    assert_eq!(refuse(Tiled { dims: &[], ..good }), "rank 0 is not within 1 and 5");
    assert_eq!(
        refuse(Tiled { strides: &[], ..good }),
        "0 strides, 2 box dimensions, 2 steps for rank 2"
    );
    assert_eq!(refuse(Tiled { address: 8, ..good }), "address 0x8 is not a multiple of 16");
    assert_eq!(
        refuse(Tiled { dims: &[40, 0], ..good }),
        "dimension 1 of 0 elements is not within 1 and 4294967296"
    );
    assert_eq!(
        refuse(Tiled { strides: &[100], ..good }),
        "stride 0 of 100 bytes is not a multiple of 16 below 1099511627776"
    );
    assert_eq!(
        refuse(Tiled { box_dims: &[32, 257], ..good }),
        "box dimension 1 of 257 elements is not within 1 and 256"
    );
    assert_eq!(
        refuse(Tiled { element_strides: &[1, 9], ..good }),
        "step 9 of dimension 1 is not within 1 and 8"
    );
    assert_eq!(
        refuse(Tiled { box_dims: &[5, 8], ..good }),
        "the box's inner dimension of 20 bytes is not a multiple of 16"
    );
    assert_eq!(
        refuse(Tiled { box_dims: &[64, 8], ..good }),
        "the box's inner dimension of 256 bytes exceeds the swizzle's 128"
    );
    assert_eq!(
        refuse(Tiled { data_type: TensorType::S32, fill: OutOfBoundsFill::Nan, ..good }),
        "a NaN fill of an integer type"
    );
    assert_eq!(
        refuse(Tiled { interleave: Interleave::B16, ..good }),
        "an interleaved layout is not supported"
    );
}

#[test]
fn blocks_copy_and_add_into_each_other() {
    // Block 0 copies its 64 bytes into block 1, adds them to the next 64, and adds 5 to a word.
    let text = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 o)\n\
        .reqnctapercluster 2\n{\n.reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %rd<4>; .shared \
        .align 8 .b8 b[8]; .shared .align 128 .b8 s[256];\nld.param.u64 %rd1, [o]; mov.u32 %r0, \
        %tid.x; mov.u32 %r1, b; mov.u32 %r2, s; mov.u32 %r3, %cluster_ctarank; setp.ne.u32 %p1, \
        %r3, 0;\nshl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r2; mul.lo.u32 %r5, %r0, 3; \
        st.shared.u32 [%r4], %r5; st.shared.u32 [%r4+128], 1000;\nsetp.ne.u32 %p2, %r0, 0; @%p2 \
        bra READY;\nmbarrier.init.shared.b64 [%r1], 1; mbarrier.arrive.expect_tx.shared.b64 _, \
        [%r1], 132;\nREADY: barrier.cluster.arrive; barrier.cluster.wait;\n@%p1 bra WAIT; @%p2 bra \
        END;\nmov.u32 %r6, 1; mapa.shared::cluster.u32 %r7, %r1, %r6; \
        mapa.shared::cluster.u32 %r8, %r2, %r6; add.u32 %r9, %r8, 128; add.u32 %r10, %r8, 64;\n\
        getctarank.shared::cluster.u32 %r11, %r8; st.global.u32 [%rd1+256], %r11;\n\
        cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r2], 64, \
        [%r7];\ncp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add\
        .u32 [%r9], [%r2], 64, [%r7];\n\
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r8+252], \
        5, [%r7];\nbra END;\nWAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0; @!%p1 bra \
        WAIT;\nshl.b32 %r12, %r0, 3; cvt.u64.u32 %rd2, %r12; add.u64 %rd1, %rd1, %rd2; \
        ld.shared.u32 %r13, [%r4]; ld.shared.u32 %r14, [%r4+128]; st.global.v2.u32 [%rd1], {%r13, \
        %r14};\nEND: barrier.cluster.arrive; barrier.cluster.wait;\nret;\n}\n";
    let module = Module::load(text).unwrap_or_else(|error| panic!("{error}"));
    for device in devices() {
        let out = upload(&device, &[0_u32; 65]);
        launch(&device, &module.kernel("k").unwrap(), line(2, 32), &[out]);
        let got = download::<u32>(&device, out, 65);
        for (i, pair) in got[..64].chunks(2).enumerate() {
            assert_eq!(pair[0], if i < 16 { 3 * i } else { 3 * (i - 16) } as u32, "{i}");
            let added = if i < 16 { 3 * i as u32 } else { 5 * u32::from(i == 31) };
            assert_eq!(pair[1], 1000 + added, "{i}");
        }
        assert_eq!(got[64], 1);
    }
}
