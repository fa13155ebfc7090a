//! Instruction forms: each file of `tests/ptx` stores results and says beside each what it is.
//!
//! A file is one entry, `test`, with one parameter: the address of a buffer of zeros. What follows
//! a store is what its word must hold afterwards:
//!
//! - `// = 0x3c00`: exactly that. A list has one value for each thread, 8 bytes apart.
//! - `// ~ 0.5 rel 2^-11`: that, but for the error that the specification allows: so many units in
//!   the last place (`2ulp`), relative (`rel`) or absolute (`abs`), and one rounding.
//!
//! A line `// launch: grid 2 block 64` says what to launch; without it blocks of 1 and of 32
//! threads run, which all store the same. See the folder's README.

use crate::expectation::{Expectation, expectations};
use crate::run::{device, launch, line, text};
use kiln_sim::{Launch, Module};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Bytes of a file's buffer.
const OUT_BYTES: usize = 1 << 16;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx")
}

/// The entries of a directory, in order.
fn entries(path: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// The files, as `opcode/form`, and their text.
fn files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for opcode in entries(&folder()).iter().filter(|path| path.is_dir()) {
        for path in
            entries(opcode).iter().filter(|path| path.extension().is_some_and(|e| e == "ptx"))
        {
            let stem = path.with_extension("");
            let name = stem.strip_prefix(folder()).unwrap().to_str().unwrap().to_string();
            let source = text(&format!("ptx/{name}.ptx"));
            files.push((name, source));
        }
    }
    files
}

/// What the line `// launch:` asks for.
fn launches(source: &str) -> Vec<Launch> {
    let Some(asked) = source.lines().find_map(|line| line.strip_prefix("// launch: ")) else {
        return vec![line(1, 1), line(1, 32)];
    };
    let mut shape = line(1, 1);
    let words: Vec<&str> = asked.split_whitespace().collect();
    for pair in words.chunks(2) {
        let count: u32 = pair[1].parse().unwrap();
        match pair[0] {
            "grid" => shape.grid[0] = count,
            "block" => shape.block[0] = count,
            "shared" => shape.shared_bytes = count,
            other => panic!("a launch has no `{other}`"),
        }
    }
    vec![shape]
}

/// The lines of a file that hold something else than they say.
fn failures(name: &str, source: &str) -> Vec<String> {
    let expectations = expectations(name, source);
    if expectations.is_empty() {
        return vec![format!("{name}.ptx: says nothing of what it stores")];
    }
    let module = match Module::load(source) {
        Ok(module) => module,
        Err(error) => return vec![format!("{name}.ptx: {error}")],
    };
    let kernel = module.kernel("test").unwrap();
    let mut failures = Vec::new();
    for shape in launches(source) {
        let device = device();
        let out = device.alloc(OUT_BYTES as u64).unwrap();
        device.write(out, &[0; OUT_BYTES]).unwrap();
        launch(&device, &kernel, shape, &[out]);
        let mut bytes = vec![0; OUT_BYTES];
        device.read(out, &mut bytes).unwrap();
        let threads = u64::from(shape.grid[0]) * u64::from(shape.block[0]);
        let wrong = |expectation: &Expectation| expectation.check(&bytes, threads);
        failures.extend(expectations.iter().filter_map(wrong));
    }
    failures
}

#[test]
fn every_store_holds_what_its_file_says() {
    let failures: Vec<String> =
        files().iter().flat_map(|(name, source)| failures(name, source)).collect();
    assert!(failures.is_empty(), "{}\n{} in all", failures.join("\n"), failures.len());
}

/// Whether a character can be in a name of the language.
fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// The words of all files' instructions: opcodes, modifiers, names.
fn words_tested() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for (_, source) in files() {
        let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
        words.extend(code.flat_map(|line| line.split(|c| !in_word(c)).map(str::to_string)));
    }
    words
}

/// The words between quotes in a file of the decoder: opcodes, modifiers, special registers.
fn words_decoded(path: &Path) -> BTreeSet<String> {
    let source = std::fs::read_to_string(path).unwrap();
    let texts = source.split('"').skip(1).step_by(2);
    texts.filter(|text| !text.is_empty() && text.chars().all(in_word)).map(str::to_string).collect()
}

/// Words that no file can use: a tensor map is encoded outside of a kernel (see `copies`).
const ELSEWHERE: [&str; 2] = ["tensor", "tile"];

#[test]
fn every_word_of_the_decoder_is_tested() {
    let tested = words_tested();
    let decoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/decode");
    let mut missing = Vec::new();
    for path in entries(&decoder) {
        let known = |word: &String| match word.strip_suffix("::") {
            Some(_) => tested.iter().any(|tested| tested.starts_with(word)),
            None => tested.contains(word) || ELSEWHERE.contains(&word.as_str()),
        };
        let untested = words_decoded(&path).into_iter().filter(|word| !known(word));
        missing.extend(untested.map(|word| format!("{}: {word}", path.display())));
    }
    assert!(missing.is_empty(), "no file of tests/ptx uses\n{}", missing.join("\n"));
}

#[test]
fn every_opcode_has_a_folder_of_files_that_use_it() {
    let dispatch = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/decode/mod.rs");
    let mut opcodes = words_decoded(&dispatch);
    // A modifier that tells two forms of one opcode apart.
    opcodes.remove("async");
    let files = files();
    let uses = |source: &str, opcode: &str| {
        let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
        code.flat_map(str::split_whitespace)
            .any(|word| word.split(['.', ';']).next() == Some(opcode))
    };
    for (name, source) in &files {
        let opcode = name.split_once('/').unwrap().0;
        assert!(uses(source, opcode), "{name}.ptx has no `{opcode}`");
        assert!(opcodes.contains(opcode), "the decoder does not know `{opcode}`");
    }
    let folders: BTreeSet<&str> =
        files.iter().map(|(name, _)| name.split_once('/').unwrap().0).collect();
    let missing: Vec<&String> =
        opcodes.iter().filter(|opcode| !folders.contains(opcode.as_str())).collect();
    assert!(missing.is_empty(), "no folder of tests/ptx for {missing:?}");
}
