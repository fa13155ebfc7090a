//! Instruction forms: each file of `tests/ptx` stores results and says beside each what it is.

use crate::expectation::{Expectation, OUT_BYTES, entries, expectations, files, shapes};
use crate::run::{device, launch, line};
use kiln_sim::Module;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx")
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
    for shape in shapes(name, source) {
        let device = device();
        let out = device.alloc(OUT_BYTES as u64).unwrap();
        device.write(out, &[0; OUT_BYTES]).unwrap();
        launch(&device, &kernel, line(shape.grid, shape.block), &[out]);
        let mut bytes = vec![0; OUT_BYTES];
        device.read(out, &mut bytes).unwrap();
        let wrong = |expectation: &Expectation| expectation.check(&bytes, shape);
        failures.extend(expectations.iter().filter_map(wrong));
    }
    failures
}

#[test]
fn every_store_holds_what_its_file_says() {
    let failures: Vec<String> =
        files(&folder()).iter().flat_map(|(name, source)| failures(name, source)).collect();
    assert!(failures.is_empty(), "{}\n{} in all", failures.join("\n"), failures.len());
}

/// Whether a character can be in a name of the language.
fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// The words of all files' instructions: opcodes, modifiers, names.
fn words_tested() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for (_, source) in files(&folder()) {
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

/// Words that no file can use: a tensor map is encoded outside of a kernel (see `copies` and
/// `pixels`).
const ELSEWHERE: [&str; 4] = ["tensor", "tile", "im2col", "im2col_no_offs"];

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
    let files = files(&folder());
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

/// Operand lists that an instruction's own is mistaken for: cut off at either end, and with each
/// operand in turn of another kind.
fn mistaken(operands: &[&str]) -> Vec<String> {
    let mut lists = Vec::new();
    for count in 0..operands.len() {
        lists.push(operands[..count].join(", "));
        lists.push(operands[operands.len() - count..].join(", "));
        for other in ["{}", "{%r1, %r1, %r1}", "7", "0f3f800000", "[%r1]", "_", "%p1", "nobody"] {
            let mut list = operands.to_vec();
            list[count] = other;
            lists.push(list.join(", "));
        }
    }
    lists.push([operands, &["%r1"]].concat().join(", "));
    lists
}

/// Operands between commas outside of brackets.
fn operands(list: &str) -> Vec<&str> {
    let mut depth = 0;
    let comma = |c: char| {
        depth += i32::from("{[(".contains(c)) - i32::from("}])".contains(c));
        c == ',' && depth == 0
    };
    list.split(comma).map(str::trim).collect()
}

#[test]
fn wrong_operands_are_errors() {
    let mut seen = BTreeSet::new();
    for (name, source) in files(&folder()) {
        for line in source.lines() {
            let code = line.split("//").next().unwrap_or_default().trim();
            let Some((opcode, list)) = code.split_once(' ') else { continue };
            let Some(list) = list.strip_suffix(';') else { continue };
            let first = opcode.starts_with(|c: char| c.is_ascii_lowercase());
            if !first || !seen.insert(opcode.to_string()) {
                continue;
            }
            for wrong in mistaken(&operands(list)) {
                let text = source.replacen(line, &format!("{opcode} {wrong};"), 1);
                let answer = std::panic::catch_unwind(|| Module::load(&text).map(drop));
                match answer {
                    Ok(Err(error)) => assert!(error.line().is_some(), "{name}: {error}"),
                    Ok(Ok(())) => {}
                    Err(_) => panic!("{name}: `{opcode} {wrong}` ended in a panic"),
                }
            }
        }
    }
    assert!(seen.len() > 1000, "{}", seen.len());
}
