//! `mma.sp`, against the places of elements and metadata that the PTX specification lists.

use crate::run::{device, download, launch, line, upload};
use kiln_sim::{ErrorKind, Kernel, Module};

/// A type of elements: its name, its bits, and its codes of -2 to 2, or of 0 to 4 if unsigned.
struct Elements {
    name: &'static str,
    bits: usize,
    codes: [u32; 5],
    signed: bool,
}

const fn elements(name: &'static str, bits: usize, (codes, signed): ([u32; 5], bool)) -> Elements {
    Elements { name, bits, codes, signed }
}

const F16: Elements = elements("f16", 16, ([0xc000, 0xbc00, 0, 0x3c00, 0x4000], true));
const BF16: Elements = elements("bf16", 16, ([0xc000, 0xbf80, 0, 0x3f80, 0x4000], true));
const TF32: Elements =
    elements("tf32", 32, ([0xc000_0000, 0xbf80_0000, 0, 0x3f80_0000, 0x4000_0000], true));
const E4M3: Elements = elements("e4m3", 8, ([0xc0, 0xb8, 0, 0x38, 0x40], true));
const E5M2: Elements = elements("e5m2", 8, ([0xc0, 0xbc, 0, 0x3c, 0x40], true));
const S8: Elements = elements("s8", 8, ([0xfe, 0xff, 0, 1, 2], true));
const U8: Elements = elements("u8", 8, ([0, 1, 2, 3, 4], false));
const S4: Elements = elements("s4", 4, ([0xe, 0xf, 0, 1, 2], true));
const U4: Elements = elements("u4", 4, ([0, 1, 2, 3, 4], false));

impl Elements {
    fn value(&self, at: usize) -> i32 {
        at as i32 - if self.signed { 2 } else { 0 }
    }

    /// Neighbours of which half are stored.
    fn chunk(&self) -> usize {
        match self.bits {
            32 => 2,
            4 => 8,
            _ => 4,
        }
    }
}

/// A linear congruential generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

struct Form {
    k: usize,
    a: &'static Elements,
    b: &'static Elements,
    sum: &'static str,
}

impl Form {
    fn name(&self) -> String {
        let Form { k, a, b, sum } = self;
        format!("m16n8k{k}.row.col.{sum}.{}.{}.{sum}", a.name, b.name)
    }

    /// Four bits of metadata for each chunk of 16 rows, as the words of the lanes that hold them.
    fn metadata(&self, bits: &[Vec<u32>], selector: usize) -> Vec<u32> {
        let chunks = self.k / self.a.chunk();
        let mut words = vec![0; 32];
        for (row, bits) in bits.iter().enumerate() {
            for (chunk, bits) in bits.iter().enumerate() {
                let (below, column) = (row / 8, chunk);
                let (thread, place) = match (self.a.bits >= 16, chunks) {
                    (true, 4) => (selector, below * 4 + column),
                    (true, _) => (selector * 2 + column / 4, below * 4 + column % 4),
                    (false, 8) => (selector * 2 + below, column),
                    (false, _) => (column / 8 * 2 + below, column % 8),
                };
                words[row % 8 * 4 + thread] |= bits << (4 * place);
            }
        }
        words
    }

    fn kernel(&self, flavour: &str, selector: usize) -> Kernel {
        let a = 16 * self.k / 2 * self.a.bits / 1024;
        let b = 8 * self.k * self.b.bits / 1024;
        let c = if self.sum == "f16" { 2 } else { 4 };
        let list = |first: usize, count: usize| {
            let names: Vec<String> = (first..first + count).map(|r| format!("%r{r}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let loads = |first: usize, count: usize, at: usize| -> String {
            (0..count)
                .map(|r| format!("ld.global.b32 %r{}, [%rd1+{}];\n", first + r, (at + r) * 4))
                .collect()
        };
        let stores: String = (0..c)
            .map(|r| format!("st.global.b32 [%rd1+{}], %r{};\n", (9 + r) * 4, 20 + r))
            .collect();
        // 16 words of each lane: A, B, metadata, D.
        let zeros: String = (0..c).map(|r| format!("mov.b32 %r{}, 0;\n", 20 + r)).collect();
        let float = self.sum == "f32";
        let (sums, moves) = match float {
            true => (
                "{%f0, %f1, %f2, %f3}".to_string(),
                (0..4).map(|r| format!("mov.b32 %r{}, %f{r};\n", 20 + r)).collect::<String>(),
            ),
            false => (list(20, c), String::new()),
        };
        let zeros = match float {
            true => (0..4).map(|r| format!("mov.f32 %f{r}, 0f00000000;\n")).collect(),
            false => zeros,
        };
        let text = format!(
            ".version 8.7\n.target sm_89\n.address_size 64\n\
             .visible .entry k(.param .u64 data)\n{{\n\
             .reg .b32 %r<32>; .reg .f32 %f<4>; .reg .b64 %rd<3>;\n\
             ld.param.u64 %rd1, [data]; mov.u32 %r31, %tid.x; mul.wide.u32 %rd2, %r31, 64;\n\
             add.s64 %rd1, %rd1, %rd2;\n{}{}ld.global.b32 %r30, [%rd1+32];\n{zeros}\
             mma.{flavour}.sync.aligned.{} {sums}, {}, {}, {sums}, %r30, {selector};\n\
             {moves}{stores}ret;\n}}\n",
            loads(0, a, 0),
            loads(8, b, 4),
            self.name(),
            list(0, a),
            list(8, b),
        );
        let module = Module::load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        module.kernel("k").unwrap()
    }

    /// The elements of a register: of row or column `line`, from `first_k` on.
    fn word(&self, of: &Elements, line: &[u32], first_k: usize) -> u32 {
        let per = 32 / of.bits;
        (0..per).fold(0, |word, at| match of.bits {
            32 => line[first_k],
            bits => word | line[first_k + at] << (bits * at),
        })
    }

    fn check(&self, flavour: &str, selector: usize, draw: &mut Draw) {
        let (length, ordered) = (self.a.chunk(), flavour != "sp");
        let chunks = self.k / length;
        let mut dense = vec![vec![0_i32; self.k]; 16];
        let (mut stored, mut bits) = (vec![Vec::new(); 16], vec![Vec::new(); 16]);
        for row in 0..16 {
            for chunk in 0..chunks {
                let (first, second) = match length {
                    2 => [(0, 1), (2, 3)][draw.below(2)],
                    _ => loop {
                        let (first, second) = (draw.below(4), draw.below(4));
                        if first < second || first != second && !ordered {
                            break (first, second);
                        }
                    },
                };
                bits[row].push((first | second << 2) as u32);
                let within = match length {
                    2 => vec![first / 2],
                    4 => vec![first, second],
                    _ => vec![2 * first, 2 * first + 1, 2 * second, 2 * second + 1],
                };
                for place in within {
                    let code = draw.below(5);
                    dense[row][chunk * length + place] = self.a.value(code);
                    stored[row].push(self.a.codes[code]);
                }
            }
        }
        let b: Vec<Vec<usize>> =
            (0..8).map(|_| (0..self.k).map(|_| draw.below(5)).collect()).collect();
        let columns: Vec<Vec<u32>> =
            b.iter().map(|line| line.iter().map(|&at| self.b.codes[at]).collect()).collect();
        let metadata = self.metadata(&bits, selector);
        let mut data = vec![0_u32; 32 * 16];
        for lane in 0..32 {
            let (group, thread) = (lane / 4, lane % 4);
            let words = &mut data[lane * 16..][..16];
            for r in 0..16 * self.k / 2 * self.a.bits / 1024 {
                let first_k = r / 2 * (128 / self.a.bits) + thread * (32 / self.a.bits);
                words[r] = self.word(self.a, &stored[group + r % 2 * 8], first_k);
            }
            for r in 0..8 * self.k * self.b.bits / 1024 {
                let first_k = r * (128 / self.b.bits) + thread * (32 / self.b.bits);
                words[4 + r] = self.word(self.b, &columns[group], first_k);
            }
            words[8] = metadata[lane];
        }
        let device = device();
        let address = upload(&device, &data);
        launch(&device, &self.kernel(flavour, selector), line(1, 32), &[address]);
        let out: Vec<u32> = download(&device, address, data.len());
        for (row, dense) in dense.iter().enumerate() {
            for column in 0..8 {
                let index = row / 8 * 2 + column % 2;
                let words = &out[(row % 8 * 4 + column / 2) * 16 + 9..];
                let got = match self.sum {
                    "f16" => {
                        let pair = words[index / 2] >> (16 * (index % 2));
                        half::f16::from_bits(pair as u16).to_f32() as i32
                    }
                    "f32" => f32::from_bits(words[index]) as i32,
                    _ => words[index] as i32,
                };
                let factors = dense.iter().zip(&b[column]);
                let want: i32 = factors.map(|(a, &b)| a * self.b.value(b)).sum();
                assert_eq!(got, want, "{flavour} {} row {row} column {column}", self.name());
            }
        }
    }
}

#[test]
fn products_of_a_sparse_matrix() {
    let form = |k, a, b, sum| Form { k, a, b, sum };
    let mut forms = Vec::new();
    for k in [16, 32] {
        forms.extend([
            form(k, &F16, &F16, "f32"),
            form(k, &F16, &F16, "f16"),
            form(k, &BF16, &BF16, "f32"),
            form(k / 2, &TF32, &TF32, "f32"),
        ]);
    }
    for (a, b) in [(&S8, &S8), (&S8, &U8), (&U8, &S8), (&U8, &U8)] {
        forms.extend([form(32, a, b, "s32"), form(64, a, b, "s32")]);
    }
    for (a, b) in [(&S4, &S4), (&S4, &U4), (&U4, &S4), (&U4, &U4)] {
        forms.extend([form(64, a, b, "s32"), form(128, a, b, "s32")]);
    }
    for (a, b) in [(&E4M3, &E4M3), (&E4M3, &E5M2), (&E5M2, &E4M3), (&E5M2, &E5M2)] {
        forms.push(form(64, a, b, "f32"));
    }
    let mut draw = Draw(20);
    for form in &forms {
        for selector in 0..16 / (form.k / form.a.chunk()) {
            for flavour in ["sp", "sp::ordered_metadata"] {
                form.check(flavour, selector, &mut draw);
            }
        }
    }
}

/// The product of LLVM's integration test `sparse-mma-2-4-f16.mlir`, which it runs on a GPU: rows
/// of A are `row + column + 1`, at the even places; columns of B are `column - k`.
#[test]
fn a_published_product() {
    let form = Form { k: 32, a: &F16, b: &F16, sum: "f16" };
    let bits = |value: i32| u32::from(half::f16::from_f32(value as f32).to_bits());
    let pair = |low: i32, high: i32| bits(low) | bits(high) << 16;
    let mut data = vec![0_u32; 32 * 16];
    for lane in 0..32_i32 {
        let (group, thread) = (lane / 4, lane % 4 * 2);
        let words = &mut data[lane as usize * 16..][..16];
        for r in 0..4 {
            let (row, column) = (group + r % 2 * 8, r / 2 * 8 + thread);
            words[r as usize] = pair(row + column + 1, row + column + 2);
            let k = r * 8 + thread;
            words[4 + r as usize] = pair(group - k, group - k - 1);
        }
        words[8] = 0x8888_8888;
    }
    let device = device();
    let address = upload(&device, &data);
    launch(&device, &form.kernel("sp", 0), line(1, 32), &[address]);
    let out: Vec<u32> = download(&device, address, data.len());
    let at = |row: usize, column: usize| {
        let word = out[(row % 8 * 4 + column / 2) * 16 + 9 + row / 8];
        half::f16::from_bits((word >> (column % 2 * 16)) as u16).to_f32()
    };
    let rows = |row: usize| [0, 1, 2, 3, 4, 5, 6, 7].map(|column| at(row, column));
    assert_eq!(rows(0), [-2720., -2584., -2448., -2312., -2176., -2040., -1904., -1768.]);
    assert_eq!(rows(7), [-4400., -4152., -3904., -3656., -3408., -3160., -2912., -2664.]);
    assert_eq!(rows(8), [-4640., -4376., -4112., -3848., -3584., -3320., -3056., -2792.]);
    assert_eq!(rows(15), [-6320., -5944., -5568., -5192., -4816., -4440., -4064., -3688.]);
}

#[test]
fn metadata_of_no_pattern_is_an_error() {
    let message = |form: &Form, flavour: &str, metadata: u32| {
        let mut data = vec![0_u32; 32 * 16];
        for lane in 0..32 {
            data[lane * 16 + 8] = metadata;
        }
        let device = device();
        let address = upload(&device, &data);
        let error = device
            .launch(&form.kernel(flavour, 0), &line(1, 32), &address.to_le_bytes())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse);
        error.to_string().split("; kernel").next().unwrap().to_string()
    };
    let half = Form { k: 16, a: &F16, b: &F16, sum: "f32" };
    assert_eq!(
        message(&half, "sp", 0x4544_4444),
        "the metadata of row 8, chunk 2 is invalid: 0b0101"
    );
    let single = Form { k: 8, a: &TF32, b: &TF32, sum: "f32" };
    assert_eq!(message(&single, "sp", 0xe8e4), "the metadata of row 0, chunk 2 is invalid: 0b1000");
    // Plain metadata need not ascend.
    let byte = Form { k: 64, a: &S8, b: &S8, sum: "s32" };
    let ordered = message(&byte, "sp::ordered_metadata", 0x1444_4444);
    assert_eq!(ordered, "the metadata of row 0, chunk 7 is invalid: 0b0001");
}

#[test]
fn selectors_and_shapes_that_do_not_exist_are_refused() {
    let load = |instruction: &str| {
        let text = format!(
            ".version 8.7\n.target sm_89\n.address_size 64\n.visible .entry k()\n{{\n\
             .reg .b32 %r<9>; .reg .f32 %f<4>;\nmma.sp.sync.aligned.{instruction};\nret;\n}}\n"
        );
        Module::load(&text).unwrap_err().to_string()
    };
    let sums = "{%f0, %f1, %f2, %f3}";
    let refused = load(&format!(
        "m16n8k32.row.col.f32.f16.f16.f32 {sums}, {{%r0, %r1, %r2, %r3}}, {{%r0, %r1, %r2, %r3}}, \
         {sums}, %r4, 2"
    ));
    assert!(refused.ends_with("has an unsupported sparsity selector"), "{refused}");
    let refused =
        load(&format!("m16n8k8.row.col.f32.f16.f16.f32 {sums}, {{%r0}}, {{%r0}}, {sums}, %r4, 0"));
    assert!(refused.ends_with("is not a supported form"), "{refused}");
}
