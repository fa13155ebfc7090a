//! Matrix instructions, against the element positions that the PTX specification lists.

use crate::run::{device, download, launch, line, upload};
use kiln_sim::Module;

const HEAD: &str = ".version 8.4\n.target sm_90a\n.address_size 64\n";

/// Where element `i` of a lane's fragment is: row, column. `g` is the lane's group of four, `t` its
/// place in the group.
type Position = fn(g: usize, t: usize, i: usize) -> (usize, usize);

/// One form of `mma.sync`.
struct Form {
    types: &'static str,
    shape: [usize; 3],
    /// Bits of the elements of A and B, of C and D.
    bits: [usize; 2],
    a: Position,
    b: Position,
    c: Position,
    /// An integer to an element's bits.
    encode: fn(i64) -> u64,
    /// An element of the sum from an integer, and back.
    encode_sum: fn(i64) -> u64,
    decode_sum: fn(u64) -> i64,
}

fn f16(value: i64) -> u64 {
    half::f16::from_f32(value as f32).to_bits().into()
}
fn bf16(value: i64) -> u64 {
    half::bf16::from_f32(value as f32).to_bits().into()
}
fn f32_bits(value: i64) -> u64 {
    (value as f32).to_bits().into()
}
fn f64_bits(value: i64) -> u64 {
    (value as f64).to_bits()
}
fn int(value: i64) -> u64 {
    value as u32 as u64
}
/// The e4m3 codes of -8 to 8.
fn e4m3(value: i64) -> u64 {
    const CODES: [u64; 9] = [0, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e, 0x50];
    CODES[value.unsigned_abs() as usize] | if value < 0 { 0x80 } else { 0 }
}
/// The e5m2 codes of the integers that e4m3's test uses, where e5m2 has them.
fn e5m2(value: i64) -> u64 {
    f16(value) >> 8
}
fn from_f16(bits: u64) -> i64 {
    half::f16::from_bits(bits as u16).to_f32() as i64
}
fn from_f32(bits: u64) -> i64 {
    f32::from_bits(bits as u32) as i64
}
fn from_f64(bits: u64) -> i64 {
    f64::from_bits(bits) as i64
}
fn from_int(bits: u64) -> i64 {
    i64::from(bits as i32)
}

const A_F16_K16: Position =
    |g, t, i| (g + [0, 0, 8, 8][i % 4], t * 2 + i % 2 + if i < 4 { 0 } else { 8 });
const B_F16_K16: Position = |g, t, i| (t * 2 + i % 2 + if i < 2 { 0 } else { 8 }, g);
const A_F16_K8: Position = |g, t, i| (if i < 2 { g } else { g + 8 }, t * 2 + i % 2);
const B_F16_K8: Position = |g, t, i| (t * 2 + i, g);
const C_M16: Position = |g, t, i| (if i < 2 { g } else { g + 8 }, t * 2 + i % 2);
const C_M8: Position = |g, t, i| (g, t * 2 + i);
const A_WORD: Position =
    |g, t, i| (if i % 2 == 0 { g } else { g + 8 }, if i < 2 { t } else { t + 4 });
const B_WORD: Position = |g, t, i| (if i == 0 { t } else { t + 4 }, g);
const A_BYTE_K32: Position =
    |g, t, i| (g + [0, 8][i / 4 % 2], t * 4 + i % 4 + if i < 8 { 0 } else { 16 });
const B_BYTE_K32: Position = |g, t, i| (t * 4 + i % 4 + if i < 4 { 0 } else { 16 }, g);
const A_BYTE_K16: Position = |g, t, i| (if i < 4 { g } else { g + 8 }, t * 4 + i % 4);
const B_BYTE_K16: Position = |g, t, i| (t * 4 + i, g);
const A_M8_BYTE: Position = |g, t, i| (g, t * 4 + i);
const A_M8_DOUBLE: Position = |g, t, _| (g, t);
const B_DOUBLE: Position = |g, t, _| (t, g);

/// Elements of each lane's fragment, packed into words.
fn pack(
    rows: usize,
    columns: usize,
    bits: usize,
    position: Position,
    element: impl Fn(usize, usize) -> u64,
) -> Vec<u32> {
    let count = rows * columns / 32;
    let mut words = Vec::new();
    for lane in 0..32 {
        let mut bytes = Vec::new();
        for i in 0..count {
            let (row, column) = position(lane / 4, lane % 4, i);
            bytes.extend_from_slice(&element(row, column).to_le_bytes()[..bits / 8]);
        }
        words.extend(bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())));
    }
    words
}

/// A body that loads `words` registers `%{name}0..` from the buffer of a parameter.
fn loads(name: &str, words: usize) -> String {
    let mut out = format!(
        "ld.param.u64 %rd1, [{name}]; mul.wide.u32 %rd2, %lane, {}; add.s64 %rd1, %rd1, %rd2;\n",
        words * 4
    );
    for word in 0..words {
        out += &format!("ld.global.b32 %{name}{word}, [%rd1+{}];\n", word * 4);
    }
    out
}

/// The register list of an operand, joined to 64-bit registers where elements are wide.
fn operand(name: &str, words: usize, wide: bool) -> String {
    let count = if wide { words / 2 } else { words };
    let names: Vec<String> =
        (0..count).map(|i| format!("%{}{name}{i}", if wide { "w" } else { "" })).collect();
    format!("{{{}}}", names.join(", "))
}

fn check(form: &Form) {
    let [m, n, k] = form.shape;
    let wide = form.bits[0] == 64;
    let words = |rows: usize, columns: usize, bits: usize| rows * columns * bits / 32 / 32;
    let counts = [words(m, k, form.bits[0]), words(k, n, form.bits[0]), words(m, n, form.bits[1])];
    let mut body = String::from("mov.u32 %lane, %tid.x;\n");
    for (name, count) in ["a", "b", "c"].into_iter().zip(counts) {
        body += &loads(name, count);
        for i in (0..count / 2).filter(|_| wide) {
            let (low, high) = (2 * i, 2 * i + 1);
            body += &format!("mov.b64 %w{name}{i}, {{%{name}{low}, %{name}{high}}};\n");
        }
    }
    let [a, b, c] = [("a", counts[0]), ("b", counts[1]), ("c", counts[2])]
        .map(|(name, count)| operand(name, count, wide));
    let d = operand("d", counts[2], wide);
    body += &format!(
        "mma.sync.aligned.m{m}n{n}k{k}.row.col.{} {d}, {a}, {b}, {c};\nld.param.u64 %rd1, [d]; \
         mul.wide.u32 %rd2, %lane, {}; add.s64 %rd1, %rd1, %rd2;\n",
        form.types,
        counts[2] * 4
    );
    for i in 0..counts[2] {
        match (wide, i % 2) {
            (true, 1) => {}
            (true, _) => body += &format!("st.global.b64 [%rd1+{}], %wd{};\n", i * 4, i / 2),
            _ => body += &format!("st.global.b32 [%rd1+{}], %d{i};\n", i * 4),
        }
    }
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n{{\n\
         .reg .b32 %lane, %a<9>, %b<9>, %c<9>, %d<9>; .reg .b64 %rd<4>, %wa<9>, %wb<9>, %wc<9>, \
         %wd<9>;\n{body}ret;\n}}\n"
    );
    let module = Module::load(&text).unwrap_or_else(|error| panic!("{}: {error}", form.types));
    // Values that tell the elements apart and whose sums every format holds.
    let hash =
        |x: usize, y: usize, salt: usize| (((x * 37 + y * 11 + salt * 5) * 2_654_435) >> 7) % 7;
    let in_a =
        |row, column| hash(row, column, 1) as i64 - if form.types.contains('u') { 0 } else { 3 };
    let in_b =
        |row, column| hash(row, column, 2) as i64 - if form.types.contains('u') { 0 } else { 3 };
    let in_c = |row, column| (row * 8 + column) as i64 - 20;
    let encode = form.encode;
    let device = device();
    let buffers = [
        pack(m, k, form.bits[0], form.a, |r, c| encode(in_a(r, c))),
        pack(k, n, form.bits[0], form.b, |r, c| encode(in_b(r, c))),
        pack(m, n, form.bits[1], form.c, |r, c| (form.encode_sum)(in_c(r, c))),
        vec![0; counts[2] * 32],
    ];
    let addresses = buffers.map(|buffer| upload(&device, &buffer));
    launch(&device, &module.kernel("k").unwrap(), line(1, 32), &addresses);
    let bytes: Vec<u8> = download(&device, addresses[3], counts[2] * 128);
    let size = form.bits[1] / 8;
    for lane in 0..32 {
        for i in 0..m * n / 32 {
            let (row, column) = (form.c)(lane / 4, lane % 4, i);
            let mut bits = [0; 8];
            bits[..size].copy_from_slice(&bytes[(lane * m * n / 32 + i) * size..][..size]);
            let got = (form.decode_sum)(u64::from_le_bytes(bits));
            let want =
                (0..k).map(|k| in_a(row, k) * in_b(k, column)).sum::<i64>() + in_c(row, column);
            assert_eq!(got, want, "{} m{m}n{n}k{k} row {row} column {column}", form.types);
        }
    }
}

macro_rules! form {
    ($types:literal, $shape:expr, $bits:expr, $a:ident, $b:ident, $c:ident, $encode:ident,
     $encode_sum:ident, $decode_sum:ident) => {
        check(&Form {
            types: $types,
            shape: $shape,
            bits: $bits,
            a: $a,
            b: $b,
            c: $c,
            encode: $encode,
            encode_sum: $encode_sum,
            decode_sum: $decode_sum,
        })
    };
}

#[test]
fn half_products() {
    let k16 = [16, 8, 16];
    let k8 = [16, 8, 8];
    form!("f32.f16.f16.f32", k16, [16, 32], A_F16_K16, B_F16_K16, C_M16, f16, f32_bits, from_f32);
    form!("f16.f16.f16.f16", k16, [16, 16], A_F16_K16, B_F16_K16, C_M16, f16, f16, from_f16);
    form!(
        "f32.bf16.bf16.f32",
        k16,
        [16, 32],
        A_F16_K16,
        B_F16_K16,
        C_M16,
        bf16,
        f32_bits,
        from_f32
    );
    form!("f32.f16.f16.f32", k8, [16, 32], A_F16_K8, B_F16_K8, C_M16, f16, f32_bits, from_f32);
    form!("f16.f16.f16.f16", k8, [16, 16], A_F16_K8, B_F16_K8, C_M16, f16, f16, from_f16);
    form!("f32.bf16.bf16.f32", k8, [16, 32], A_F16_K8, B_F16_K8, C_M16, bf16, f32_bits, from_f32);
}

#[test]
fn single_and_double_products() {
    let (k4, k8) = ([16, 8, 4], [16, 8, 8]);
    form!("f32.tf32.tf32.f32", k4, [32, 32], A_WORD, B_WORD, C_M16, f32_bits, f32_bits, from_f32);
    form!("f32.tf32.tf32.f32", k8, [32, 32], A_WORD, B_WORD, C_M16, f32_bits, f32_bits, from_f32);
    let m8 = [8, 8, 4];
    form!(
        "f64.f64.f64.f64",
        m8,
        [64, 64],
        A_M8_DOUBLE,
        B_DOUBLE,
        C_M8,
        f64_bits,
        f64_bits,
        from_f64
    );
    form!("f64.f64.f64.f64", k8, [64, 64], A_WORD, B_WORD, C_M16, f64_bits, f64_bits, from_f64);
}

#[test]
fn integer_products() {
    let (k32, k16, m8) = ([16, 8, 32], [16, 8, 16], [8, 8, 16]);
    form!("s32.s8.s8.s32", k32, [8, 32], A_BYTE_K32, B_BYTE_K32, C_M16, int, int, from_int);
    form!("s32.u8.s8.s32", k32, [8, 32], A_BYTE_K32, B_BYTE_K32, C_M16, int, int, from_int);
    form!(
        "satfinite.s32.s8.s8.s32",
        k16,
        [8, 32],
        A_BYTE_K16,
        B_BYTE_K16,
        C_M16,
        int,
        int,
        from_int
    );
    form!("s32.u8.u8.s32", k16, [8, 32], A_BYTE_K16, B_BYTE_K16, C_M16, int, int, from_int);
    form!("s32.s8.s8.s32", m8, [8, 32], A_M8_BYTE, B_BYTE_K16, C_M8, int, int, from_int);
}

#[test]
fn eight_bit_floating_products() {
    let k32 = [16, 8, 32];
    form!(
        "f32.e4m3.e4m3.f32",
        k32,
        [8, 32],
        A_BYTE_K32,
        B_BYTE_K32,
        C_M16,
        e4m3,
        f32_bits,
        from_f32
    );
    form!(
        "f32.e5m2.e5m2.f32",
        k32,
        [8, 32],
        A_BYTE_K32,
        B_BYTE_K32,
        C_M16,
        e5m2,
        f32_bits,
        from_f32
    );
    form!("f16.e4m3.e4m3.f16", k32, [8, 16], A_BYTE_K32, B_BYTE_K32, C_M16, e4m3, f16, from_f16);
}

#[test]
fn integer_sums_stop_at_their_bounds() {
    let text = |satfinite: &str| {
        format!(
            "{HEAD}.visible .entry k(.param .u64 o)\n{{\n.reg .b32 %r<9>; .reg .b64 %rd<4>;\n\
             ld.param.u64 %rd1, [o]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.s64 \
             %rd1, %rd1, %rd2;\nmov.b32 %r1, 0x7f7f7f7f; mov.b32 %r2, 0x7fffffff;\n\
             mma.sync.aligned.m8n8k16.row.col{satfinite}.s32.s8.s8.s32 {{%r3, %r4}}, {{%r1}}, \
             {{%r1}}, {{%r2, %r2}};\nst.global.u32 [%rd1], %r3;\nret;\n}}\n"
        )
    };
    let device = device();
    for (satfinite, want) in [(".satfinite", i32::MAX), ("", i32::MAX.wrapping_add(16 * 127 * 127))]
    {
        let module = Module::load(&text(satfinite)).unwrap();
        let out = upload(&device, &[0_i32; 32]);
        launch(&device, &module.kernel("k").unwrap(), line(1, 32), &[out]);
        assert_eq!(download::<i32>(&device, out, 32), [want; 32]);
    }
}

/// Runs a body whose shared memory `s` of 1 KiB holds its own 16-bit indices; `%r0` is the lane,
/// `%r1` to `%r4` are the result.
fn moved(body: &str) -> Vec<[u32; 4]> {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 o)\n{{\n.reg .b32 %r<20>; .reg .b64 %rd<4>; .shared \
         .align 16 .b8 s[1024];\nld.param.u64 %rd1, [o]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, \
         %r0, 16; add.s64 %rd1, %rd1, %rd2;\nmov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0; \
         mov.b32 %r4, 0; mov.u32 %r10, s; mov.u32 %r11, %r0;\n{{ .reg .pred p; .reg .b32 a, v; \
         FILL: shl.b32 v, %r11, 17; mad.lo.u32 v, %r11, 2, v; add.u32 v, v, 65536; shl.b32 a, \
         %r11, 2; add.u32 a, a, %r10; st.shared.u32 [a], v; add.u32 %r11, %r11, 32; setp.lt.u32 \
         p, %r11, 256; @p bra FILL; }}\nbar.warp.sync -1;\n{body}\nst.global.v4.u32 [%rd1], \
         {{%r1, %r2, %r3, %r4}};\nret;\n}}\n"
    );
    let module = Module::load(&text).unwrap_or_else(|error| panic!("{error}"));
    let device = device();
    let out = upload(&device, &[0_u32; 128]);
    launch(&device, &module.kernel("k").unwrap(), line(1, 32), &[out]);
    let words: Vec<u32> = download(&device, out, 128);
    words.chunks(4).map(|chunk| chunk.try_into().unwrap()).collect()
}

/// Rows 48 bytes apart, in the order of the lanes.
const ROWS: &str = "mad.lo.u32 %r12, %r0, 32, %r10; and.b32 %r13, %r0, 7; mad.lo.u32 %r12, %r13, \
                    -16, %r12;";

/// Where the row that a lane names begins, in elements.
fn row_at(lane: usize) -> usize {
    (lane * 32 - lane % 8 * 16) / 2
}

#[test]
fn matrices_are_loaded() {
    for (count, list) in [(1, "%r1"), (2, "%r1, %r2"), (4, "%r1, %r2, %r3, %r4")] {
        for trans in ["", ".trans"] {
            let got = moved(&format!(
                "{ROWS} ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{list}}}, [%r12];"
            ));
            for (lane, got) in got.iter().enumerate() {
                for (matrix, &word) in got[..count].iter().enumerate() {
                    let element = |i: usize| {
                        let (row, column) = (lane / 4, lane % 4 * 2 + i);
                        let (row, column) =
                            if trans.is_empty() { (row, column) } else { (column, row) };
                        (row_at(matrix * 8 + row) + column) as u32
                    };
                    assert_eq!(word, element(0) | element(1) << 16, "x{count}{trans} {lane}");
                }
            }
        }
    }
}

#[test]
fn matrices_are_stored() {
    for trans in ["", ".trans"] {
        // Each lane stores 1000 + 2 lane and the next, then reads its words back in order.
        let got = moved(&format!(
            "shl.b32 %r5, %r0, 1; add.u32 %r5, %r5, 1000; add.u32 %r6, %r5, 1; shl.b32 %r6, %r6, \
             16; or.b32 %r5, %r5, %r6; add.u32 %r6, %r5, 0x00640064; shl.b32 %r12, %r0, 4; \
             add.u32 %r12, %r12, %r10; stmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 [%r12], \
             {{%r5, %r6}}; bar.warp.sync -1; shl.b32 %r12, %r0, 2; add.u32 %r12, %r12, %r10; \
             ld.shared.u32 %r1, [%r12]; ld.shared.u32 %r2, [%r12+128];"
        ));
        for (lane, got) in got.iter().enumerate() {
            for (matrix, &word) in got[..2].iter().enumerate() {
                let element = |i: usize| {
                    let (row, column) = (lane / 4, lane % 4 * 2 + i);
                    let (row, column) =
                        if trans.is_empty() { (row, column) } else { (column, row) };
                    (1000 + row * 8 + column + 100 * matrix) as u32
                };
                assert_eq!(word, element(0) | element(1) << 16, "{trans} {lane}");
            }
        }
    }
}

#[test]
fn fragments_are_transposed() {
    let got = moved(
        "shl.b32 %r5, %r0, 1; add.u32 %r6, %r5, 1; shl.b32 %r6, %r6, 16; or.b32 %r5, %r5, %r6; \
         movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r5;",
    );
    for (lane, got) in got.iter().enumerate() {
        let element = |i: usize| ((lane % 4 * 2 + i) * 8 + lane / 4) as u32;
        assert_eq!(got[0], element(0) | element(1) << 16, "{lane}");
    }
}
