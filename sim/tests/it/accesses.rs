//! Loads and stores wherever the lanes go: to one place, one after the other, in groups, anywhere.

use crate::run::{device, download, line, params, upload};
use kiln_sim::{Checks, Device, Kernel, Launch, Module};
use proptest::prelude::*;

const LANES: usize = 32;
/// Bytes of the memory that lanes access.
const BOX_BYTES: usize = 1024;
/// What the instructions add to each lane's offset.
const IMMEDIATE: usize = 16;
/// Bytes of a lane's result.
const RESULT_BYTES: usize = 16;

/// What an instruction moves: the modifiers after its window, bytes of an element, their count, and
/// how it names the registers.
type Form = (&'static str, usize, usize, &'static str);
const FORMS: [Form; 6] = [
    (".u8", 1, 1, "%r10"),
    (".u16", 2, 1, "%r10"),
    (".u32", 4, 1, "%r10"),
    (".u64", 8, 1, "%rd10"),
    (".v2.u32", 4, 2, "{%r10, %r11}"),
    (".v4.u32", 4, 4, "{%r10, %r11, %r12, %r13}"),
];

/// A window and the register of the address in it.
const WINDOWS: [(&str, &str); 5] =
    [(".shared", "%r4"), (".shared", "%rd4"), (".global", "%rd5"), ("", "%rd5"), ("", "%rd6")];

/// A kernel whose lanes load from a box at `offsets` where they take part, and write what they
/// have to `out`; then they store there. `data` gives the box and receives it.
fn kernel((ty, .., registers): Form, (window, address): (&str, &str), loads: bool) -> Kernel {
    let access = match loads {
        true => format!("ld{window}{ty} {registers}, [{address}+{IMMEDIATE}];"),
        false => format!("st{window}{ty} [{address}+{IMMEDIATE}], {registers};"),
    };
    // The box is in both memories; the one that was written goes to `data`.
    let back = match address {
        "%rd5" => "",
        _ => "ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd8], %r6;",
    };
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 data, .param \
         .u64 offsets, .param .u64 out)\n{{\n.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 \
         %rd<16>; .shared .align 16 .b8 box[{BOX_BYTES}];\nld.param.u64 %rd1, [data]; ld.param.u64 \
         %rd2, [offsets]; ld.param.u64 %rd3, [out];\nmov.u32 %r0, %tid.x; mul.wide.u32 %rd7, %r0, \
         4; add.u64 %rd2, %rd2, %rd7; ld.global.u32 %r1, [%rd2]; setp.ne.u32 %p1, %r1, -1;\n\
         mov.u32 %r7, 0;\nIN: mad.lo.u32 %r5, %r7, 32, %r0; mul.wide.u32 %rd8, %r5, 4; add.u64 \
         %rd8, %rd8, %rd1; mov.u32 %r6, box; mad.lo.u32 %r5, %r5, 4, %r6; ld.global.u32 %r6, \
         [%rd8]; st.shared.u32 [%r5], %r6; add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, {words}; \
         @%p2 bra IN;\nbar.sync 0;\nmov.u32 %r4, box; add.u32 %r4, %r4, %r1; cvt.u64.u32 %rd4, \
         %r4; cvt.u64.u32 %rd5, %r1; add.u64 %rd5, %rd5, %rd1; cvta.shared.u64 %rd6, %rd4;\nmul.lo\
         .u32 %r10, %r0, 0x01010101; add.u32 %r11, %r10, 1; add.u32 %r12, %r10, 2; add.u32 %r13, \
         %r10, 3; mov.b64 %rd10, {{%r10, %r11}};\n@%p1 {access}\nbar.sync 0;\nmul.wide.u32 %rd7, \
         %r0, {RESULT_BYTES}; add.u64 %rd7, %rd7, %rd3; st.global{ty} [%rd7], {registers};\nmov\
         .u32 %r7, 0;\nBACK: mad.lo.u32 %r5, %r7, 32, %r0; mul.wide.u32 %rd8, %r5, 4; add.u64 \
         %rd8, %rd8, %rd1; mov.u32 %r6, box; mad.lo.u32 %r5, %r5, 4, %r6; {back} add.u32 %r7, %r7, \
         1; setp.lt.u32 %p2, %r7, {words}; @%p2 bra BACK;\nret;\n}}\n",
        words = BOX_BYTES / 4 / LANES,
    );
    Module::load(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).kernel("k").unwrap()
}

/// Where each lane goes, in elements; those that take no part go nowhere.
type Lanes = [Option<usize>; LANES];

/// Lanes in groups that have a pattern, one lane out of line now and then, and masks of all kinds.
fn lanes() -> impl Strategy<Value = Lanes> {
    let group = (0..40_usize, 0..3_usize);
    let groups = prop::collection::vec(group, 4);
    let alike = prop_oneof![Just(None), (0..3_usize).prop_map(Some)];
    let stray = prop_oneof![Just(None), (0..LANES, 0..40_usize).prop_map(Some)];
    let whole = any::<[bool; 4]>().prop_map(|groups| {
        (0..LANES).fold(0, |mask, lane| mask | u32::from(groups[lane / 8]) << lane)
    });
    let mask = prop_oneof![2 => Just(u32::MAX), 1 => whole, 1 => any::<u32>()];
    (groups, alike, stray, mask).prop_map(|(groups, alike, stray, mask)| {
        std::array::from_fn(|lane| {
            let (first, step) = groups[lane / 8];
            let straight = first + alike.unwrap_or(step) * (lane % 8);
            let at = stray.filter(|&(which, _)| which == lane).map_or(straight, |(_, at)| at);
            (mask >> lane & 1 != 0).then_some(at)
        })
    })
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

/// The bytes that `values` have after one another.
fn run(
    device: &Device,
    kernel: &Kernel,
    lanes: &Lanes,
    bytes: usize,
    shape: Launch,
) -> [Vec<u8>; 2] {
    let data: Vec<u8> = (0..BOX_BYTES).map(|i| (i * 7 % 251) as u8).collect();
    let offsets = lanes.map(|at| at.map_or(u32::MAX, |at| (at * bytes) as u32));
    let out = LANES * RESULT_BYTES;
    let [data, offsets, out] =
        [upload(device, &data), upload(device, &offsets), upload(device, &vec![0_u8; out])];
    let params = params(kernel, &[data, offsets, out]);
    device.launch(kernel, &shape, &params).unwrap_or_else(|error| panic!("{error}"));
    [download(device, data, BOX_BYTES), download(device, out, LANES * RESULT_BYTES)]
}

/// What the lanes' registers hold before a load, and what they store.
fn held(lane: usize) -> [u8; RESULT_BYTES] {
    let word = |k: u32| lane as u32 * 0x0101_0101 + k;
    std::array::from_fn(|byte| word(byte as u32 / 4).to_le_bytes()[byte % 4])
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lanes_move_what_is_where_they_go(lanes in lanes(), form in 0..FORMS.len()) {
        let device = device();
        let (_, element, count, _) = FORMS[form];
        let bytes = element * count;
        for (window, loads) in WINDOWS.into_iter().flat_map(|w| [(w, true), (w, false)]) {
            let kernel = kernel(FORMS[form], window, loads);
            let mut memory: Vec<u8> = (0..BOX_BYTES).map(|i| (i * 7 % 251) as u8).collect();
            let mut results = vec![0; LANES * RESULT_BYTES];
            for (lane, at) in lanes.iter().enumerate() {
                let mut value = held(lane);
                let place = at.map(|at| at * bytes + IMMEDIATE);
                match place {
                    Some(at) if loads => value[..bytes].copy_from_slice(&memory[at..at + bytes]),
                    Some(at) => memory[at..at + bytes].copy_from_slice(&value[..bytes]),
                    None => {}
                }
                results[lane * RESULT_BYTES..][..bytes].copy_from_slice(&value[..bytes]);
            }
            for checks in [Checks::NONE, Checks::ALL] {
                let shape = Launch { checks, ..line(1, LANES as u32) };
                let [data, out] = run(&device, &kernel, &lanes, bytes, shape);
                prop_assert_eq!(&data, &memory, "{:?} {:?} {}", FORMS[form], window, loads);
                prop_assert_eq!(&out, &results, "{:?} {:?} {}", FORMS[form], window, loads);
            }
        }
    }
}
