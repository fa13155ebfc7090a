//! Bulk tensor copies of every rank, element size and swizzle, at every edge of a tensor.

use crate::run::{Plain, device, download, upload};
use kiln_sim::{
    Interleave, Kernel, L2Promotion, Launch, Module, OutOfBoundsFill, Swizzle, TensorMap,
    TensorType, Tiled,
};

/// Bytes of shared memory, and of what a kernel copies out of it or into it.
const BOX_BYTES: usize = 4096;

/// A kernel for tensors of a rank. `load` brings the box at the coordinates `x` to `out`, as it
/// lies in shared memory; `store` and the reductions bring `out` to the box.
fn kernel(rank: usize, direction: &str) -> Kernel {
    let at: Vec<String> = (0..rank).map(|axis| format!("%x{axis}")).collect();
    let at = at.join(", ");
    let coordinates: String =
        (0..rank).map(|axis| format!("ld.param.s32 %x{axis}, [x+{}];\n", axis * 4)).collect();
    let outward = |prefix: &str, operation: &str| {
        format!(
            "COPY: mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd1; ld.global.u32 %r2, [%rd2]; \
             mad.lo.u32 %r3, %r0, 4, %r1; st.shared.u32 [%r3], %r2; add.u32 %r0, %r0, 32; \
             setp.lt.u32 %p0, %r0, 1024; @%p0 bra COPY;\nfence.proxy.async.shared::cta; \
             bar.warp.sync -1;\n@%p1 {prefix}.tensor.{rank}d.global.shared::cta{operation}\
             .tile.bulk_group.L2::cache_hint [%rd3, {{{at}}}], [%r1], %rd4;\n\
             cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"
        )
    };
    let work = match direction {
        "load" => format!(
            "@%p1 mbarrier.init.shared.b64 [full], 1; ld.param.u32 %r4, [bytes];\n@%p1 \
             mbarrier.arrive.expect_tx.shared.b64 _, [full], %r4;\nbar.warp.sync -1;\n\
             @%p1 cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [%rd3, {{{at}}}];\n@%p1 \
             cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes\
             .L2::cache_hint [%r1], [%rd3, {{{at}}}], [full], %rd4;\nWAIT: \
             mbarrier.try_wait.parity.shared.b64 %p0, [full], 0; @!%p0 bra WAIT;\nCOPY: mad.lo.u32 \
             %r3, %r0, 4, %r1; ld.shared.u32 %r2, [%r3]; mul.wide.u32 %rd2, %r0, 4; add.u64 \
             %rd2, %rd2, %rd1; st.global.u32 [%rd2], %r2; add.u32 %r0, %r0, 32; setp.lt.u32 %p0, \
             %r0, %r5; @%p0 bra COPY;\n"
        ),
        "store" => outward("cp.async.bulk", ""),
        operation => outward("cp.reduce.async.bulk", &format!(".{operation}")),
    };
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .align 64 .b8 \
         map[128], .param .align 4 .b8 x[20], .param .u32 bytes, .param .u64 out)\n{{\n.reg .pred \
         %p<4>; .reg .b32 %r<9>, %x<5>; .reg .b64 %rd<9>; .shared .align 1024 .b8 box[4096]; \
         .shared .align 8 .b8 full[8];\n{coordinates}ld.param.u64 %rd1, [out]; mov.u64 %rd3, map; \
         cvta.param.u64 %rd3, %rd3; mov.b64 %rd4, 0x12f0000000000000; mov.u32 %r0, %tid.x; mov.u32 \
         %r1, box; ld.param.u32 %r5, [bytes]; shr.u32 %r5, %r5, 2; setp.eq.u32 %p1, %r0, 0;\n\
         {work}ret;\n}}\n"
    );
    Module::load(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).kernel("k").unwrap()
}

/// A tensor with its box, the box's place and its swizzle.
struct Case {
    ty: TensorType,
    dims: Vec<usize>,
    counts: Vec<usize>,
    steps: Vec<usize>,
    at: Vec<i32>,
    swizzle: Swizzle,
    fill: OutOfBoundsFill,
}

impl Case {
    /// Bytes of the tensor's rows, planes, ..: the innermost padded to 16 bytes and one more.
    fn strides(&self) -> Vec<usize> {
        let row = (self.dims[0] * self.size()).next_multiple_of(16) + 16;
        let mut strides = vec![row];
        for dim in &self.dims[1..] {
            strides.push(strides.last().unwrap() * dim);
        }
        strides
    }

    fn size(&self) -> usize {
        self.ty.bytes() as usize
    }

    fn bytes(&self) -> usize {
        self.counts.iter().product::<usize>() * self.size()
    }

    /// Where in the tensor the element of the box with this index is, if it is inside.
    fn element(&self, mut index: usize) -> Option<usize> {
        let strides = self.strides();
        let mut place = 0;
        for axis in 0..self.dims.len() {
            let at = self.at[axis] + (index % self.counts[axis] * self.steps[axis]) as i32;
            index /= self.counts[axis];
            let at = usize::try_from(at).ok().filter(|&at| at < self.dims[axis])?;
            place += at * if axis == 0 { self.size() } else { strides[axis - 1] };
        }
        Some(place)
    }

    /// Where a byte of the box lies in shared memory: its chunk of 16 bytes changes places within
    /// the row of the pattern, by the number of the row of 128 bytes.
    fn place(&self, byte: usize) -> usize {
        let (row, chunk) = (byte / 128, byte / 16 % 8);
        let chunk = chunk
            ^ match self.swizzle {
                Swizzle::None => 0,
                Swizzle::B32 => row % 2,
                Swizzle::B64 => row % 4,
                Swizzle::B128 => row % 8,
            };
        row * 128 + chunk * 16 + byte % 16
    }

    fn map(&self, address: u64) -> TensorMap {
        let wide = |values: &[usize]| values.iter().map(|&value| value as u64).collect::<Vec<_>>();
        let narrow =
            |values: &[usize]| values.iter().map(|&value| value as u32).collect::<Vec<_>>();
        let boxes: Vec<usize> = self.counts.iter().zip(&self.steps).map(|(c, s)| c * s).collect();
        let strides = wide(&self.strides());
        let tiled = Tiled {
            data_type: self.ty,
            address,
            dims: &wide(&self.dims),
            strides: &strides[..self.dims.len() - 1],
            box_dims: &narrow(&boxes),
            element_strides: &narrow(&self.steps),
            interleave: Interleave::None,
            swizzle: self.swizzle,
            l2_promotion: L2Promotion::B256,
            fill: self.fill,
        };
        TensorMap::encode_tiled(&tiled).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a kernel on a tensor and `out`; what both hold afterwards.
    fn run(&self, direction: &str, tensor: &[u8], out: &[u8]) -> [Vec<u8>; 2] {
        let kernel = kernel(self.dims.len(), direction);
        let device = device();
        let (address, out) = (upload(&device, tensor), upload(&device, out));
        let mut block = vec![0; kernel.param_bytes()];
        let at: Vec<u8> = self.at.iter().flat_map(|at| at.bytes()).collect();
        let values =
            [self.map(address).bytes().to_vec(), at, (self.bytes() as u32).bytes(), out.bytes()];
        for (param, value) in kernel.params().iter().zip(values) {
            block[param.offset..][..value.len()].copy_from_slice(&value);
        }
        let shape = Launch { block: [32, 1, 1], ..Launch::default() };
        device.launch(&kernel, &shape, &block).unwrap_or_else(|error| panic!("{error}"));
        [(address, tensor.len()), (out, BOX_BYTES)].map(|(at, count)| download(&device, at, count))
    }

    fn tensor(&self) -> Vec<u8> {
        // Each byte differs from its neighbours, and no element is a NaN or zero.
        (0..*self.strides().last().unwrap()).map(|i| (i % 113 + 1) as u8).collect()
    }
}

/// Tensors of a rank, boxes inside and over every edge.
fn cases(ty: TensorType, rank: usize, swizzle: Swizzle, fill: OutOfBoundsFill) -> Vec<Case> {
    let row = match swizzle {
        Swizzle::None => 48,
        Swizzle::B32 => 32,
        Swizzle::B64 => 64,
        Swizzle::B128 => 128,
    };
    let inner = row / ty.bytes() as usize;
    let take = |values: [usize; 5]| values[..rank].to_vec();
    let places =
        [[0; 5], [1, 2, 1, 1, 0], [-3, -1, 1, -1, 1], [7, 4, -1, 2, 2], [-1000, 9, 0, 0, 0]];
    let case = |at: &[i32; 5]| Case {
        ty,
        dims: take([inner + 5, 7, 3, 3, 4]),
        counts: take([inner, 4, 2, 2, 2]),
        steps: take([1, 2, 1, 1, 1]),
        at: at[..rank].to_vec(),
        swizzle,
        fill,
    };
    places.iter().map(case).collect()
}

const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

#[test]
fn boxes_are_loaded() {
    use TensorType::{Bf16, F16, F32, F64, S32, U8, U16};
    let zero = OutOfBoundsFill::Zero;
    let types = [(U8, zero), (U16, zero), (S32, zero), (F64, zero), (F32, zero)];
    let nans = [F16, Bf16, F32].map(|ty| (ty, OutOfBoundsFill::Nan));
    for (ty, fill) in types.into_iter().chain(nans) {
        for (rank, swizzle) in (1..=5).flat_map(|rank| SWIZZLES.map(|swizzle| (rank, swizzle))) {
            for case in cases(ty, rank, swizzle, fill) {
                let (tensor, size) = (case.tensor(), case.size());
                let [_, out] = case.run("load", &tensor, &[0; BOX_BYTES]);
                for index in 0..case.bytes() / size {
                    let at = case.place(index * size);
                    let got = &out[at..at + size];
                    let what = format!("{ty:?} rank {rank} {swizzle:?} {:?} {index}", case.at);
                    match (case.element(index), fill) {
                        (Some(place), _) => assert_eq!(got, &tensor[place..][..size], "{what}"),
                        (None, OutOfBoundsFill::Zero) => assert_eq!(got, &vec![0; size], "{what}"),
                        (None, OutOfBoundsFill::Nan) => assert!(is_nan(ty, got), "{what}"),
                    }
                }
            }
        }
    }
}

fn is_nan(ty: TensorType, bytes: &[u8]) -> bool {
    match ty {
        TensorType::F16 => half::f16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
        TensorType::Bf16 => half::bf16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
        _ => f32::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
    }
}

#[test]
fn boxes_are_stored_and_reduced() {
    type Combine = fn(u32, u32) -> u32;
    let operations: [(&str, Combine); 9] = [
        ("store", |_, new| new),
        ("add", u32::wrapping_add),
        ("min", u32::min),
        ("max", u32::max),
        ("inc", |old, new| if old >= new { 0 } else { old + 1 }),
        ("dec", |old, new| if old == 0 || old > new { new } else { old - 1 }),
        ("and", |old, new| old & new),
        ("or", |old, new| old | new),
        ("xor", |old, new| old ^ new),
    ];
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let image: Vec<u8> = (0..BOX_BYTES).map(|i| (i * 7 % 109 + 1) as u8).collect();
    for (index, (direction, combine)) in operations.into_iter().enumerate() {
        let swizzle = SWIZZLES[index % 4];
        for case in (1..=5).flat_map(|r| cases(TensorType::U32, r, swizzle, OutOfBoundsFill::Zero))
        {
            let mut want = case.tensor();
            let [got, _] = case.run(direction, &want, &image);
            for index in 0..case.bytes() / 4 {
                let Some(place) = case.element(index) else { continue };
                let new = combine(word(&want, place), word(&image, case.place(index * 4)));
                want[place..place + 4].copy_from_slice(&new.to_le_bytes());
            }
            assert!(got == want, "{direction} {swizzle:?} {:?}", case.at);
        }
    }
}
