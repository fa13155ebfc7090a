//! The instruction files, what they launch and what their stores must hold: see their README.

use half::{bf16, f16};
use std::path::{Path, PathBuf};

/// Bytes of the buffer that a file's entry gets; zeros.
pub const OUT_BYTES: usize = 1 << 16;

/// The entries of a directory, in order.
pub fn entries(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// The files of the folder `ptx`, as `opcode/form`, and their text.
pub fn files(ptx: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for path in entries(ptx).iter().filter(|path| path.is_dir()).flat_map(|path| entries(path)) {
        if path.extension().is_some_and(|extension| extension == "ptx") {
            let name = path.with_extension("").strip_prefix(ptx).unwrap().to_string_lossy().into();
            files.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    files
}

/// What to launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub grid: u32,
    pub block: u32,
}

/// What the line `// launch:` asks for; without it, blocks of 1 and of 32 threads.
pub fn shapes(name: &str, source: &str) -> Vec<Shape> {
    let Some(asked) = source.lines().find_map(|line| line.strip_prefix("// launch: ")) else {
        return vec![Shape { grid: 1, block: 1 }, Shape { grid: 1, block: 32 }];
    };
    let mut shape = Shape { grid: 1, block: 1 };
    let words: Vec<&str> = asked.split_whitespace().collect();
    for pair in words.chunks(2) {
        match (pair[0], pair[1].parse()) {
            ("grid", Ok(count)) => shape.grid = count,
            ("block", Ok(count)) => shape.block = count,
            _ => panic!("{name}.ptx: launch: {asked}"),
        }
    }
    vec![shape]
}

/// How far a value may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    Ulps(f64),
    Relative(f64),
    Absolute(f64),
}

#[derive(Debug, Clone, PartialEq)]
enum Want {
    /// One value, or one for each thread.
    Exact(Vec<u64>),
    /// The true value; whether 16 bits are a `bf16`.
    Near { value: f64, bound: Bound, brain: bool },
}

/// A store and what it must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// `file:line` and the instruction before the store.
    place: String,
    offset: usize,
    bytes: usize,
    want: Want,
}

/// Bytes between the values of two threads.
const THREAD_BYTES: usize = 8;

/// The expectations of a file; a list goes on over lines that only say `// = ..`.
pub fn expectations(name: &str, source: &str) -> Vec<Expectation> {
    let mut found: Vec<Expectation> = Vec::new();
    let mut previous = "";
    for (index, line) in source.lines().enumerate() {
        let place = format!("{name}.ptx:{}", index + 1);
        match (line.trim().strip_prefix("// = "), found.last_mut()) {
            (Some(values), Some(Expectation { want: Want::Exact(list), .. })) => {
                list.extend(exact(values, &place));
                continue;
            }
            _ => found.extend(expectation(line, previous, &place)),
        }
        previous = line.trim();
    }
    found
}

fn exact(values: &str, place: &str) -> Vec<u64> {
    let value = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => word.parse::<i64>().map(|value| value as u64),
    };
    let values = values.split_whitespace().map(|word| value(word).expect(place));
    values.collect()
}

fn near(text: &str) -> Option<Want> {
    let mut words = text.split_whitespace();
    let value = words.next()?.parse().ok()?;
    let kind = words.next()?;
    let bound = match kind.strip_suffix("ulp") {
        Some(count) => Bound::Ulps(count.parse().ok()?),
        None => {
            let power: f64 = words.next()?.strip_prefix("2^")?.parse().ok()?;
            match kind {
                "rel" => Bound::Relative(power.exp2()),
                "abs" => Bound::Absolute(power.exp2()),
                _ => return None,
            }
        }
    };
    Some(Want::Near { value, bound, brain: words.next() == Some("bf16") })
}

fn expectation(line: &str, previous: &str, place: &str) -> Option<Expectation> {
    let (code, comment) = line.split_once("// ")?;
    let (_, address) = code.split_once(" [%o")?;
    let want = match comment.split_once(' ')? {
        ("=", values) => Want::Exact(exact(values, place)),
        ("~", text) => near(text).unwrap_or_else(|| panic!("{place}: {comment}")),
        _ => return None,
    };
    let offset = address.split_once(']').expect(place).0.split_once('+').map_or("0", |at| at.1);
    let bits = code.split_once(' ').and_then(|_| {
        let opcode = code.split_whitespace().find(|word| word.starts_with("st."))?;
        opcode.rsplit('.').next()?.get(1..)?.parse::<usize>().ok()
    });
    Some(Expectation {
        place: format!("{place}: {previous}"),
        offset: offset.parse().expect(place),
        bytes: bits.expect(place) / 8,
        want,
    })
}

impl Expectation {
    /// What is wrong with the bytes that a launch left, if anything is.
    pub fn check(&self, bytes: &[u8], shape: Shape) -> Option<String> {
        let threads = shape.grid * shape.block;
        let at = |index: usize| {
            let mut word = [0; 8];
            let start = self.offset + index * THREAD_BYTES;
            word[..self.bytes].copy_from_slice(&bytes[start..][..self.bytes]);
            u64::from_le_bytes(word)
        };
        match &self.want {
            Want::Near { value, bound, brain } => self.distance(at(0), *value, *bound, *brain),
            Want::Exact(list) if list.len() == 1 || list.len() as u32 == threads => {
                let mask = u64::MAX >> (64 - 8 * self.bytes);
                list.iter().enumerate().find(|&(thread, want)| at(thread) != want & mask).map(
                    |(thread, want)| {
                        let (got, place) = (at(thread), &self.place);
                        format!("{place}: thread {thread}: {got:#x}, not {:#x}", want & mask)
                    },
                )
            }
            Want::Exact(list) => {
                Some(format!("{}: {} values for {threads} threads", self.place, list.len()))
            }
        }
    }

    /// Compares the value of `bits` with the true one.
    fn distance(&self, bits: u64, want: f64, bound: Bound, brain: bool) -> Option<String> {
        let (got, mantissa, least) = match (self.bytes, brain) {
            (2, false) => (f16::from_bits(bits as u16).to_f64(), 10, -14),
            (2, true) => (bf16::from_bits(bits as u16).to_f64(), 7, -126),
            (4, _) => (f64::from(f32::from_bits(bits as u32)), 23, -126),
            _ => (f64::from_bits(bits), 52, -1022),
        };
        let exponent = want.abs().log2().floor().max(f64::from(least));
        let ulp = (exponent - f64::from(mantissa)).exp2();
        let allowed = match bound {
            Bound::Ulps(count) => count * ulp,
            Bound::Relative(bound) => bound * want.abs() + ulp / 2.0,
            Bound::Absolute(bound) => bound + ulp / 2.0,
        };
        // A NaN is not within any bound.
        let within = (got - want).abs() <= allowed;
        (!within).then(|| format!("{}: {got:e}, not {want:e} within {allowed:e}", self.place))
    }
}

#[test]
fn wrong_values_are_found() {
    let source = "mov.b32 %r0, 5;\nst.global.b32 [%out+4], %r0; // = 6\n\
                  ex2.approx.f32 %f0, %f1;\nst.global.f32 [%out+8], %f0; // ~ 1.5 1ulp\n\
                  st.global.b16 [%own+16], %h0; // = 1 -1\n// = 2\n";
    let found = expectations("add/s32", source);
    let mut bytes = vec![0; 64];
    bytes[4] = 5;
    bytes[8..12].copy_from_slice(&f32::from_bits(1.5_f32.to_bits() + 2).to_le_bytes());
    bytes[16] = 1;
    bytes[24..28].fill(0xff);
    let wrong: Vec<Option<String>> =
        found.iter().map(|e| e.check(&bytes, Shape { grid: 1, block: 3 })).collect();
    let said = |text: &str| Some(text.to_string());
    assert_eq!(wrong[0], said("add/s32.ptx:2: mov.b32 %r0, 5;: thread 0: 0x5, not 0x6"));
    assert!(wrong[1].as_ref().unwrap().starts_with("add/s32.ptx:4: ex2.approx.f32 %f0, %f1;: 1.5"));
    assert!(wrong[2].as_ref().unwrap().ends_with("thread 2: 0x0, not 0x2"));
    assert!(
        found[2]
            .check(&bytes, Shape { grid: 2, block: 1 })
            .unwrap()
            .ends_with("3 values for 2 threads")
    );
    bytes[8..12].copy_from_slice(&f32::from_bits(1.5_f32.to_bits() + 1).to_le_bytes());
    bytes[32] = 2;
    assert_eq!(found[1].check(&bytes, Shape { grid: 3, block: 1 }), None);
    assert_eq!(found[2].check(&bytes, Shape { grid: 3, block: 1 }), None);
}
