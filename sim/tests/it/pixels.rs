//! Tensor copies of im2col mode: pixels of images of every rank, with every step, over every edge.

use crate::run::{Plain, device, download, upload};
use kiln_sim::{
    Error, Interleave, Kernel, L2Promotion, Launch, Module, OutOfBoundsFill, Swizzle, TensorMap,
    TensorType, Tiled,
};

/// Elements of shared memory.
const WORDS: usize = 1024;

/// Loads the pixels at coordinates and offsets `x` to `out`, or stores those of `out` at `x`.
fn kernel(rank: usize, loads: bool) -> Kernel {
    let list = |count: usize, name: &str| {
        let names: Vec<String> = (0..count).map(|axis| format!("%{name}{axis}")).collect();
        names.join(", ")
    };
    let (at, offsets) = (list(rank, "x"), list(rank - 2, "o"));
    let read: String = (0..rank)
        .map(|axis| format!("ld.param.s32 %x{axis}, [x+{}];\n", axis * 4))
        .chain((0..rank - 2).map(|axis| format!("ld.param.u16 %o{axis}, [x+{}];\n", 20 + axis * 4)))
        .collect();
    let work = match loads {
        true => format!(
            "@%p1 mbarrier.init.shared.b64 [full], 1;\n@%p1 mbarrier.arrive.expect_tx.shared.b64 \
             _, [full], %r5;\nbar.warp.sync -1;\n@%p1 cp.async.bulk.prefetch.tensor.{rank}d.L2\
             .global.im2col [%rd3, {{{at}}}], {{{offsets}}};\n@%p1 cp.async.bulk.tensor.{rank}d\
             .shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd3, {{{at}}}], \
             [full], {{{offsets}}};\nWAIT: mbarrier.try_wait.parity.shared.b64 %p0, [full], 0; \
             @!%p0 bra WAIT;\nCOPY: mad.lo.u32 %r3, %r0, 4, %r1; ld.shared.u32 %r2, [%r3]; \
             mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], %r2; \
             add.u32 %r0, %r0, 32; shl.b32 %r4, %r0, 2; setp.lt.u32 %p0, %r4, %r5; @%p0 bra COPY;\n"
        ),
        false => format!(
            "COPY: mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd1; ld.global.u32 %r2, [%rd2]; \
             mad.lo.u32 %r3, %r0, 4, %r1; st.shared.u32 [%r3], %r2; add.u32 %r0, %r0, 32; \
             setp.lt.u32 %p0, %r0, {WORDS}; @%p0 bra COPY;\nfence.proxy.async.shared::cta; \
             bar.warp.sync -1;\n@%p1 cp.async.bulk.tensor.{rank}d.global.shared::cta\
             .im2col_no_offs.bulk_group [%rd3, {{{at}}}], [%r1];\n\
             cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"
        ),
    };
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .align 64 .b8 \
         map[128], .param .align 4 .b8 x[32], .param .u32 bytes, .param .u64 out)\n{{\n.reg .pred \
         %p<4>; .reg .b32 %r<9>, %x<5>; .reg .b16 %o<3>; .reg .b64 %rd<9>; .shared .align 1024 .b8 \
         box[4096]; .shared .align 8 .b8 full[8];\n{read}ld.param.u64 %rd1, [out]; mov.u64 %rd3, \
         map; cvta.param.u64 %rd3, %rd3; mov.u32 %r0, %tid.x; mov.u32 %r1, box; ld.param.u32 %r5, \
         [bytes]; setp.eq.u32 %p1, %r0, 0;\n{work}ret;\n}}\n"
    );
    Module::load(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).kernel("k").unwrap()
}

/// Images of words, and the pixels that a copy moves.
#[derive(Debug, Clone)]
struct Case {
    /// Channels, width, height, depth, images.
    dims: Vec<usize>,
    lower: Vec<i32>,
    upper: Vec<i32>,
    steps: Vec<u32>,
    channels: u32,
    pixels: u32,
    swizzle: Swizzle,
    nan: bool,
    /// Coordinates: those of channels and images, and the number of the first position.
    channel: i32,
    image: i32,
    first: usize,
    offsets: Vec<u16>,
}

impl Case {
    fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Positions of an image's walk: a nest of loops, the width innermost.
    fn positions(&self) -> Vec<Vec<i32>> {
        let mut positions = vec![vec![]];
        for axis in (0..self.rank() - 2).rev() {
            let last = self.dims[axis + 1] as i32 - 1 + self.upper[axis];
            let step = self.steps[axis + 1] as usize;
            let along = (self.lower[axis]..=last).step_by(step);
            let longer = |outer: Vec<i32>| {
                along.clone().map(move |at| [&[at], &outer[..]].concat()).collect::<Vec<_>>()
            };
            positions = positions.into_iter().flat_map(longer).collect();
        }
        positions
    }

    /// Where in the images a channel of a pixel is, if it is inside.
    fn element(&self, pixel: usize, channel: usize) -> Option<usize> {
        let positions = self.positions();
        let number = self.first + pixel;
        let mut at = vec![self.channel + channel as i32];
        let position = &positions[number % positions.len()];
        at.extend(position.iter().zip(&self.offsets).map(|(at, offset)| at + i32::from(*offset)));
        at.push(self.image + (number / positions.len()) as i32);
        let (mut place, mut stride) = (0, 1);
        for (at, dim) in at.iter().zip(&self.dims) {
            let at = usize::try_from(*at).ok().filter(|at| at < dim)?;
            place += at * stride;
            stride *= dim;
        }
        Some(place)
    }

    fn map(&self, address: u64) -> Result<TensorMap, Error> {
        let dims: Vec<u64> = self.dims.iter().map(|dim| *dim as u64).collect();
        let strides: Vec<u64> =
            (1..self.rank()).map(|axis| dims[..axis].iter().product::<u64>() * 4).collect();
        let images = Tiled {
            data_type: if self.nan { TensorType::F32 } else { TensorType::U32 },
            address,
            dims: &dims,
            strides: &strides,
            box_dims: &[self.channels, self.pixels],
            element_strides: &self.steps,
            interleave: Interleave::None,
            swizzle: self.swizzle,
            l2_promotion: L2Promotion::B256,
            fill: if self.nan { OutOfBoundsFill::Nan } else { OutOfBoundsFill::Zero },
        };
        TensorMap::encode_im2col(&images, [&self.lower, &self.upper])
    }

    fn tensor(&self) -> Vec<u8> {
        let words = 0..self.dims.iter().product::<usize>() as u32;
        words.flat_map(|word| (word + 1).to_le_bytes()).collect()
    }

    /// Runs a copy on the images and `out`; what both hold afterwards.
    fn run(
        &self,
        loads: bool,
        map: impl Fn(u64) -> TensorMap,
        [tensor, out]: [&[u8]; 2],
    ) -> Result<[Vec<u8>; 2], String> {
        let (device, kernel) = (device(), kernel(self.rank(), loads));
        let (address, out) = (upload(&device, tensor), upload(&device, out));
        let mut at = [0_i32; 8];
        at[0] = self.channel;
        at[self.rank() - 1] = self.image;
        let positions = self.positions();
        at[1..self.rank() - 1].copy_from_slice(&positions[self.first]);
        for (at, offset) in at[5..].iter_mut().zip(&self.offsets) {
            *at = (*offset).into();
        }
        let mut block = vec![0; kernel.param_bytes()];
        let values = [
            map(address).bytes().to_vec(),
            at.iter().flat_map(|at| at.bytes()).collect(),
            (self.channels * self.pixels * 4).bytes(),
            out.bytes(),
        ];
        for (param, value) in kernel.params().iter().zip(values) {
            block[param.offset..][..value.len()].copy_from_slice(&value);
        }
        let shape = Launch { block: [32, 1, 1], ..Launch::default() };
        device.launch(&kernel, &shape, &block).map_err(|error| error.to_string())?;
        Ok([(address, tensor.len()), (out, WORDS * 4)]
            .map(|(at, count)| download(&device, at, count)))
    }

    /// Where a word of the pixels lies in shared memory.
    fn place(&self, word: usize) -> usize {
        let (row, chunk) = (word / 32, word / 4 % 8);
        let mask = match self.swizzle {
            Swizzle::None => 0,
            Swizzle::B32 => row % 2,
            Swizzle::B64 => row % 4,
            Swizzle::B128 => row % 8,
        };
        row * 32 + (chunk ^ mask) * 4 + word % 4
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at * 4..at * 4 + 4].try_into().unwrap())
}

/// Convolutions of every rank: padding, dilation, strides, and pixels beyond the last image.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for rank in 3..=5 {
        let spatial = rank - 2;
        let dims = [&[16][..], &[5, 4, 3][..spatial], &[2]].concat();
        for (pad, step, taps, dilation) in
            [(0, 1, 1, 1), (1, 1, 3, 1), (2, 2, 3, 2), (0, 3, 2, 1), (1, 8, 3, 1)]
        {
            let reach = (taps - 1) * dilation;
            for offset in [0, dilation, reach] {
                let mut case = Case {
                    dims: dims.clone(),
                    lower: vec![-pad; spatial],
                    upper: vec![pad - reach; spatial],
                    steps: vec![step; rank],
                    channels: 8,
                    pixels: 19,
                    swizzle: [Swizzle::None, Swizzle::B32][offset as usize % 2],
                    nan: step == 3,
                    channel: 8 * (offset % 2),
                    image: 0,
                    first: 0,
                    offsets: vec![offset as u16; spatial],
                };
                // A depth of 3 is less than what some windows reach over.
                if (0..spatial).any(|axis| dims[axis + 1] as i32 + 2 * pad <= reach) {
                    continue;
                }
                case.first = case.positions().len() * 2 / 3;
                cases.push(case.clone());
                // Ends behind the last image; its channels end behind the last one.
                cases.push(Case { image: 1, channel: 12, ..case });
            }
        }
        let wide = Case {
            dims: [&[32][..], &[3, 3, 3][..spatial], &[40]].concat(),
            lower: vec![-1; spatial],
            upper: vec![-1; spatial],
            steps: vec![1; rank],
            channels: 32,
            pixels: 32,
            swizzle: Swizzle::B128,
            nan: false,
            channel: 0,
            image: 1,
            first: 2,
            offsets: vec![1; spatial],
        };
        cases.push(Case { channels: 16, swizzle: Swizzle::B64, pixels: 64, ..wide.clone() });
        cases.push(Case { channels: 4, swizzle: Swizzle::None, pixels: 256, ..wide.clone() });
        cases.push(wide);
    }
    cases
}

#[test]
fn pixels_are_loaded() {
    let cases = cases();
    assert!(cases.len() > 60, "{}", cases.len());
    for case in cases {
        let tensor = case.tensor();
        let map = |address| case.map(address).unwrap_or_else(|error| panic!("{error}"));
        let result = case.run(true, map, [&tensor, &[0; WORDS * 4]]);
        let [_, out] = result.unwrap_or_else(|error| panic!("{error}\n{case:?}"));
        let channels = case.channels as usize;
        for index in 0..channels * case.pixels as usize {
            let got = word(&out, case.place(index));
            match case.element(index / channels, index % channels) {
                Some(place) => assert_eq!(got, word(&tensor, place), "{index} of {case:?}"),
                None if case.nan => assert!(f32::from_bits(got).is_nan(), "{index} of {case:?}"),
                None => assert_eq!(got, 0, "{index} of {case:?}"),
            }
        }
    }
}

#[test]
fn pixels_are_stored() {
    let image: Vec<u8> =
        (0..WORDS as u32).flat_map(|word| (word | 1 << 20).to_le_bytes()).collect();
    for mut case in cases().into_iter().filter(|case| case.lower[0] == 0 && !case.nan) {
        case.offsets.fill(0);
        let mut want = case.tensor();
        let map = |address| case.map(address).unwrap();
        let [got, _] = case.run(false, map, [&want, &image]).unwrap();
        let channels = case.channels as usize;
        for index in 0..channels * case.pixels as usize {
            let Some(place) = case.element(index / channels, index % channels) else { continue };
            let new = word(&image, case.place(index)).to_le_bytes();
            want[place * 4..place * 4 + 4].copy_from_slice(&new);
        }
        assert!(got == want, "{case:?}");
    }
}

fn case() -> Case {
    cases().into_iter().find(|case| case.rank() == 4 && case.lower[0] == -1).unwrap()
}

#[test]
fn misuse_of_pixels_is_found() {
    let fails = |case: &Case, loads: bool, map: &dyn Fn(u64) -> TensorMap, words: &str| {
        let error = case.run(loads, map, [&case.tensor(), &[0; WORDS * 4]]).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    let own = case();
    let map = |address| own.map(address).unwrap();
    fails(
        &Case { lower: vec![-2; 2], first: 0, ..own.clone() },
        true,
        &map,
        "outside the bounding",
    );
    fails(
        &Case { offsets: vec![0, 256], ..own.clone() },
        true,
        &map,
        "offset 256, more than 8 bits",
    );
    fails(&own, false, &map, "whose bounding box leaves the tensor");
    let three = cases().into_iter().find(|case| case.rank() == 3).unwrap();
    fails(&own, true, &|address| three.map(address).unwrap(), "a tensor map of rank 3, not 4");
    let boxes = |address| {
        TensorMap::encode_tiled(&Tiled {
            data_type: TensorType::U32,
            address,
            dims: &[16, 5, 4, 2],
            strides: &[64, 320, 1280],
            box_dims: &[8, 1, 1, 1],
            element_strides: &[1; 4],
            interleave: Interleave::None,
            swizzle: Swizzle::None,
            l2_promotion: L2Promotion::None,
            fill: OutOfBoundsFill::Zero,
        })
        .unwrap()
    };
    fails(&own, true, &boxes, "a tensor map of boxes, not of im2col mode");
}

#[test]
fn bad_maps_are_refused() {
    let own = case();
    let fails = |case: Case, words: &str| {
        let error = case.map(1 << 20).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    fails(Case { dims: vec![16, 2], ..own.clone() }, "rank 2 is not within 3 and 5");
    fails(Case { lower: vec![-1], ..own.clone() }, "1 positions of a corner for rank 4");
    fails(
        Case { lower: vec![-129, 0], ..own.clone() },
        "-129 of the lower corner is not of 8 bits",
    );
    fails(Case { upper: vec![0, 128], ..own.clone() }, "128 of the upper corner is not of 8 bits");
    fails(Case { upper: vec![-7, 0], ..own.clone() }, "from -1 to -3 of dimension 1 is empty");
    fails(Case { pixels: 1025, ..own.clone() }, "1025 pixels are not within 1 and 1024");
    fails(
        Case { channels: 260, ..own.clone() },
        "260 channels of a pixel are not within 1 and 256",
    );
    fails(
        Case { channels: 6, ..own.clone() },
        "inner dimension of 24 bytes is not a multiple of 16",
    );
    fails(Case { steps: vec![1, 9, 1, 1], ..own.clone() }, "step 9 of dimension 1");
    fails(Case { swizzle: Swizzle::B32, channels: 16, ..own }, "exceeds the swizzle's 32");
}
