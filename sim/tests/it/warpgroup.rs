//! `wgmma`: products of matrices that lie in shared memory in every layout.

use crate::run::{device, download, launch, line, upload};
use kiln_sim::{Error, Module};

/// How a matrix of rows by k lies in shared memory.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    /// Core matrices of 8 rows of 16 bytes: next along k after `128`, next along rows after 256.
    Plain,
    /// Rows of so many bytes of k, their 16-byte chunks swizzled.
    Swizzled(usize),
    /// Core matrices of 8 values of k, each 16 bytes of rows.
    PlainRows,
    /// Values of k of so many bytes of rows, their chunks swizzled.
    SwizzledRows(usize),
}

/// The chunk that a swizzle puts in the place of another, in a row of `width` bytes.
fn swizzle(width: usize, row: usize, chunk: usize) -> usize {
    match width {
        128 => chunk ^ (row % 8),
        64 => chunk ^ (row / 2 % 4),
        _ => chunk ^ (row / 4 % 2),
    }
}

impl Layout {
    /// The byte at which the element of a row and k begins; `size` is an element's.
    fn place(self, row: usize, k: usize, rows: usize, size: usize) -> usize {
        let in_chunk = 16 / size;
        match self {
            Layout::Plain => {
                row / 8 * 256 + row % 8 * 16 + k / in_chunk * 128 + k % in_chunk * size
            }
            Layout::Swizzled(width) => {
                let chunk = swizzle(width, row, k / in_chunk);
                row * width + chunk * 16 + k % in_chunk * size
            }
            Layout::PlainRows => k / 8 * (rows * 16) + row / 8 * 128 + k % 8 * 16 + row % 8 * size,
            Layout::SwizzledRows(width) => {
                let (block, within) = (row * size / width, row * size % width);
                let chunk = swizzle(width, k, within / 16);
                block * (16 * width) + k * width + chunk * 16 + within % 16
            }
        }
    }

    /// Leading and stride byte offsets and the swizzle's number.
    fn descriptor(self, start: usize, rows: usize) -> u64 {
        let number = |width| match width {
            128 => 1,
            64 => 2,
            _ => 3,
        };
        let (leading, stride, mode) = match self {
            Layout::Plain => (128, 256, 0),
            Layout::Swizzled(width) => (16, 8 * width, number(width)),
            Layout::PlainRows => (rows * 16, 128, 0),
            Layout::SwizzledRows(width) => (16 * width, 8 * width, number(width)),
        };
        let field = |bytes: usize| (bytes / 16) as u64;
        field(start) | field(leading) << 16 | field(stride) << 32 | (mode as u64) << 62
    }

    fn transposed(self) -> bool {
        matches!(self, Layout::PlainRows | Layout::SwizzledRows(_))
    }
}

/// Layouts with k contiguous.
const STRAIGHT: [Layout; 4] =
    [Layout::Plain, Layout::Swizzled(32), Layout::Swizzled(64), Layout::Swizzled(128)];

/// One kind of product.
#[derive(Clone, Copy)]
struct Form {
    types: &'static str,
    k: usize,
    size: usize,
    encode: fn(i32) -> u32,
    /// Whether the sum is in f16 pairs, and whether it is an integer.
    narrow: bool,
    integer: bool,
    /// What follows the scale of D.
    literals: &'static str,
}

const HALF: Form = Form {
    types: "f32.f16.f16",
    k: 16,
    size: 2,
    encode: |value| half::f16::from_f32(value as f32).to_bits().into(),
    narrow: false,
    integer: false,
    literals: ", 1, 1",
};

/// Offset of B in shared memory.
const B_AT: usize = 16384;

fn text(form: &Form, n: usize, literals: &str) -> String {
    let registers = if form.narrow { n / 4 } else { n / 2 };
    let list: Vec<String> = (0..registers).map(|i| format!("%d{i}")).collect();
    let list = list.join(", ");
    let (types, k) = (form.types, form.k);
    let product = |scale: &str| {
        format!(
            "wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} {{{list}}}, %rd2, %rd3, \
             {scale}{literals};\n"
        )
    };
    let stores: String =
        (0..registers).map(|i| format!("st.global.b32 [%rd5+{}], %d{i};\n", i * 4)).collect();
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 image, \
         .param .u64 a, .param .u64 b, .param .u64 out)\n{{\n.reg .pred %p<3>; .reg .b32 %r<9>, \
         %d<130>; .reg .b64 %rd<9>; .shared .align 1024 .b8 s[65536];\nld.param.u64 %rd1, \
         [image]; ld.param.u64 %rd2, [a]; ld.param.u64 %rd3, [b]; ld.param.u64 %rd5, [out];\n\
         mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2; \
         cvt.u64.u32 %rd4, %r2; add.u64 %rd1, %rd1, %rd4; mov.u32 %r3, 0;\nL: \
         ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd1]; st.shared.v4.u32 [%r1], {{%r4, %r5, \
         %r6, %r7}}; add.u64 %rd1, %rd1, 2048; add.u32 %r1, %r1, 2048; add.u32 %r3, %r3, 1; \
         setp.lt.u32 %p1, %r3, 32; @%p1 bra L;\nbar.sync 0; fence.proxy.async.shared::cta;\n\
         setp.ne.u32 %p1, %r0, %r0; not.pred %p2, %p1;\nwgmma.fence.sync.aligned;\n{}{}\
         wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nmul.lo.u32 %r2, %r0, \
         {}; cvt.u64.u32 %rd4, %r2; add.u64 %rd5, %rd5, %rd4;\n{stores}ret;\n}}\n",
        product("%p1"),
        product("%p2"),
        registers * 4
    )
}

fn in_a(row: usize, k: usize) -> i32 {
    (row * 7 + k * 5) as i32 % 11 - 5
}

fn in_b(column: usize, k: usize) -> i32 {
    (column * 3 + k * 13 + column / 8) as i32 % 9 - 4
}

/// Runs the product twice, into one sum, and compares it.
fn check(form: &Form, n: usize, a: Layout, b: Layout, literals: &str, sign: i32) {
    check_shifted(form, n, (a, b), literals, sign, 0);
}

/// As `check`, with matrices that begin so many rows of 128 bytes behind a multiple of 1 KiB, which
/// their descriptors say, and the swizzle's pattern with them.
fn check_shifted(
    form: &Form,
    n: usize,
    (a, b): (Layout, Layout),
    literals: &str,
    sign: i32,
    rows: usize,
) {
    let (a_at, b_at) = (rows * 128, B_AT + rows * 128);
    let base = (rows as u64) << 49;
    let module = Module::load(&text(form, n, literals)).unwrap_or_else(|error| panic!("{error}"));
    let mut image = vec![0_u8; 65536];
    let mut put = |at: usize, value: i32| {
        image[at..at + form.size].copy_from_slice(&(form.encode)(value).to_le_bytes()[..form.size]);
    };
    for k in 0..form.k {
        (0..64).for_each(|row| put(a_at + a.place(row, k, 64, form.size), in_a(row, k)));
        (0..n).for_each(|column| put(b_at + b.place(column, k, n, form.size), in_b(column, k)));
    }
    let registers = if form.narrow { n / 4 } else { n / 2 };
    let device = device();
    let out = upload(&device, &vec![0_u32; 128 * registers]);
    let descriptors = [a.descriptor(a_at, 64) | base, b.descriptor(b_at, n) | base];
    let arguments = [upload(&device, &image), descriptors[0], descriptors[1], out];
    launch(&device, &module.kernel("k").unwrap(), line(1, 128), &arguments);
    let words = download::<u32>(&device, out, 128 * registers);
    for row in 0..64 {
        for column in 0..n {
            let thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
            let got = if form.narrow {
                let word = words[thread * registers + column / 8 * 2 + row / 8 % 2];
                half::f16::from_bits((word >> (16 * (column % 2))) as u16).to_f32() as i32
            } else {
                let at = column / 8 * 4 + row / 8 % 2 * 2 + column % 2;
                let word = words[thread * registers + at];
                if form.integer { word as i32 } else { f32::from_bits(word) as i32 }
            };
            let want: i32 = (0..form.k).map(|k| in_a(row, k) * in_b(column, k)).sum();
            assert_eq!(
                got,
                2 * sign * want,
                "{} n{n} {a:?} {b:?} row {row} column {column}",
                form.types
            );
        }
    }
}

#[test]
fn every_layout_of_half_matrices() {
    let across = [
        Layout::PlainRows,
        Layout::SwizzledRows(32),
        Layout::SwizzledRows(64),
        Layout::SwizzledRows(128),
    ];
    for a in STRAIGHT.into_iter().chain(across) {
        for b in STRAIGHT.into_iter().chain(across) {
            let bits = |layout: Layout| i32::from(layout.transposed());
            let literals = format!(", 1, 1, {}, {}", bits(a), bits(b));
            check(&HALF, 64, a, b, &literals, 1);
        }
    }
}

#[test]
fn every_width_and_scale() {
    let layout = Layout::Swizzled(128);
    for n in (8..=256).step_by(8) {
        check(&HALF, n, layout, layout, ", 1, 1, 0, 0", 1);
    }
    check(&HALF, 16, layout, layout, ", -1, 1, 0, 0", -1);
    check(&HALF, 16, layout, layout, ", -1, -1, 0, 0", 1);
    let narrow = Form { types: "f16.f16.f16", narrow: true, ..HALF };
    check(&narrow, 48, layout, layout, ", 1, -1, 0, 0", -1);
}

const TF32: Form = Form {
    types: "f32.tf32.tf32",
    k: 8,
    size: 4,
    encode: |value| (value as f32).to_bits(),
    ..HALF
};

const BYTE: Form = Form {
    types: "s32.s8.s8",
    k: 32,
    size: 1,
    encode: |value| value as u32,
    integer: true,
    literals: "",
    ..HALF
};

const E4M3: Form = Form {
    types: "f32.e4m3.e4m3",
    k: 32,
    size: 1,
    encode: |value| {
        let codes = [0, 0x38, 0x40, 0x44, 0x48, 0x4a];
        codes[value.unsigned_abs() as usize] | if value < 0 { 0x80 } else { 0 }
    },
    ..HALF
};

#[test]
fn every_type() {
    let layout = Layout::Swizzled(64);
    let bf16 = Form {
        types: "f32.bf16.bf16",
        encode: |value| half::bf16::from_f32(value as f32).to_bits().into(),
        ..HALF
    };
    check(&bf16, 32, layout, Layout::Plain, ", 1, 1, 0, 0", 1);
    check(&bf16, 40, Layout::SwizzledRows(64), Layout::SwizzledRows(32), ", -1, 1, 1, 1", -1);
    let short = Form { types: "f16.e4m3.e4m3", narrow: true, ..E4M3 };
    check(&short, 8, Layout::Plain, Layout::Swizzled(32), ", -1, 1", -1);
    for form in [TF32, BYTE, E4M3] {
        for (a, b) in STRAIGHT.into_iter().flat_map(|a| STRAIGHT.map(|b| (a, b))) {
            check(&form, 24, a, b, form.literals, 1);
        }
    }
    for n in (8..=256).step_by(8).filter(|n| n % 16 == 0 || *n <= 24) {
        check(&BYTE, n, layout, layout, BYTE.literals, 1);
    }
}

#[test]
fn every_offset_of_a_pattern() {
    for rows in 0..8 {
        for width in [32, 64, 128] {
            let straight = (Layout::Swizzled(width), Layout::Swizzled(width));
            check_shifted(&HALF, 16, straight, ", 1, 1, 0, 0", 1, rows);
            let across = (Layout::SwizzledRows(width), Layout::SwizzledRows(width));
            check_shifted(&HALF, 64, across, ", 1, 1, 1, 1", 1, rows);
        }
    }
}

/// Runs a body of a block of `threads`, with a descriptor of 1 KiB of shared memory in `%rd1`.
fn fail(body: &str, threads: u32) -> Error {
    let text = format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{{\n.reg .pred %p; \
         .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>; .shared .align 1024 .b8 s[4096];\n\
         mov.u64 %rd1, 0x0000001000080000; mov.b32 %f0, 0f00000000; mov.b32 %f1, %f0; mov.b32 \
         %f2, %f0; mov.b32 %f3, %f0; setp.eq.f32 %p, %f0, %f0;\n{body}\nret;\n}}\n"
    );
    let module = Module::load(&text).unwrap_or_else(|error| panic!("{error}"));
    let kernel = module.kernel("k").unwrap();
    device().launch(&kernel, &line(1, threads), &[]).unwrap_err()
}

#[test]
fn rules_are_enforced() {
    const PRODUCT: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, \
                           %rd1, %rd1, %p, 1, 1, 0, 0;";
    const FENCE: &str = "wgmma.fence.sync.aligned;";
    let check = |body: &str, threads: u32, want: &str| {
        let error = fail(body, threads).to_string();
        assert_eq!(error.split("; kernel").next().unwrap(), want);
    };
    check(PRODUCT, 128, "wgmma.mma_async without a wgmma.fence before it");
    check(&format!("{FENCE}{PRODUCT}"), 32, "wgmma in warp 0 of a block of 32 threads");
    check(
        &format!("{FENCE} mov.u64 %rd1, 0x4000;{PRODUCT}"),
        128,
        "the matrix descriptor 0x4000 has reserved bits",
    );
    check(
        &format!("{FENCE} mov.u64 %rd1, 0x00000010000800f8;{PRODUCT}"),
        128,
        "the matrix descriptor 0x10000800f8 reaches shared offset 0x1080 of 4096 bytes",
    );
    check(
        &format!("{FENCE} cvt.u64.u32 %rd1, %laneid;{PRODUCT}"),
        128,
        "the lanes of a warp have different matrix descriptors",
    );
    check(
        &format!(
            "{FENCE}{PRODUCT} mov.b32 %f4, %f0; mov.b32 %f5, %f1; mov.b32 %f6, %f2; mov.b32 %f7, \
             %f3;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f4, %f5, %f6, %f7}}, \
             %rd1, %rd1, %p, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; \
             wgmma.wait_group.sync.aligned 0;"
        ),
        128,
        "wgmma adds to accumulators that were copied before they were waited for",
    );
    check(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, \
         {%r2}, {%f0, %f1, %f2, %f3};",
        16,
        "a matrix instruction needs the 32 lanes of a warp and has 16",
    );
}
