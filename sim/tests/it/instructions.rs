//! Instruction families: each file of `tests/ptx` stores results and says beside each what it is.

use crate::run::{device, launch, line, text};
use kiln_sim::Module;

/// A store's offset, its bytes and the value after `// =`.
fn expectation(line: &str) -> Option<(usize, usize, u64)> {
    let (code, want) = line.split_once("// = ")?;
    let want = want.trim();
    let want = match want.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => want.parse(),
    };
    let offset = code.split_once("[%out+")?.1.split_once(']')?.0;
    let bytes = match code.split('.').nth(2)?.split_whitespace().next()? {
        "u16" => 2,
        "u32" | "f32" => 4,
        _ => 8,
    };
    Some((offset.parse().unwrap(), bytes, want.unwrap()))
}

#[track_caller]
fn check(stem: &str) {
    let source = text(&format!("ptx/{stem}.ptx"));
    let module = Module::load(&source).unwrap_or_else(|error| panic!("{stem}: {error}"));
    let kernel = module.kernel(stem).unwrap();
    let mut failures = Vec::new();
    let mut checked = 0;
    for threads in [1, 32] {
        let device = device();
        let out = device.alloc(16384).unwrap();
        launch(&device, &kernel, line(1, threads), &[out]);
        let mut previous = "";
        for (index, line) in source.lines().enumerate() {
            if let Some((offset, bytes, want)) = expectation(line) {
                let mut got = [0; 8];
                device.read(out + offset as u64, &mut got[..bytes]).unwrap();
                let got = u64::from_le_bytes(got);
                checked += 1;
                if got != want {
                    failures.push(format!(
                        "{stem}.ptx:{}:{previous}: {got:#x}, not {want:#x}",
                        index + 1
                    ));
                }
            }
            previous = line;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(checked > 0, "{stem} checks nothing");
}

macro_rules! families {
    ($($stem:ident),*) => {$(
        #[test]
        fn $stem() {
            check(stringify!($stem));
        }
    )*};
}

families!(
    pairs, eight, atomic, bits, carry, control, memory, compare, convert, float, half, integer
);
