//! Programs that are written for oneDNN's C++ interface: a program of our own on a GPU's engine,
//! and the one that made the committed vectors with oneDNN's own library, as it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln::onednn::Arg;
use kiln::reference::Expected;

use crate::harness::{compile_cpp, own, run_on, scratch, succeeded};
use crate::onednn_cases::cases;

/// Panics where a result is further off than an implementation may be.
fn compare(what: &str, actual: &[f64], expected: &Expected) {
    if let Some(worst) = expected.worst(actual) {
        assert!(worst.ratio <= 1.0, "{what}: {worst:?}");
    }
}

/// The argument of a name in the vectors.
fn argument(name: &str) -> Option<Arg> {
    let name = name.replace("attention", "augru_attention");
    Arg::all().find(|arg| arg.name() == name)
}

fn on_simulator(program: &Path, arguments: &[&str]) -> String {
    succeeded(run_on(Some("sim"), program, arguments), arguments)
}

fn write(folder: &Path, arg: Arg, values: &[f64]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
    fs::write(folder.join(format!("{}.bin", arg.name())), bytes).unwrap();
}

fn read(folder: &Path, arg: Arg) -> Vec<f64> {
    let bytes = fs::read(folder.join(format!("{}.bin", arg.name()))).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|of| f32::from_le_bytes(*of).into()).collect()
}

/// A program of `tests/c` by every compiler of C++ that there is: g++ must be.
fn compiled(name: &str) -> Vec<PathBuf> {
    let source = own().join(format!("tests/c/{name}.cpp"));
    let is_there = |compiler: &&str| Command::new(compiler).arg("--version").output().is_ok();
    let compilers = ["g++"].into_iter().chain(["clang++"].into_iter().filter(is_there));
    let flags = ["-std=c++11", "-pedantic"];
    compilers.map(|compiler| compile_cpp(compiler, name, &source, &flags)).collect()
}

#[test]
fn constructors_of_both_generations_compile() {
    let told = "2 mcdnnKilnFinalizePrimitive: onednn vanilla_rnn forward_training: src_layer is \
                missing\n";
    for program in compiled("onednn_constructors") {
        assert_eq!(on_simulator(&program, &[]), told);
    }
}

#[test]
fn an_lstm_on_a_gpus_engine() {
    let programs = compiled("onednn");
    let cases = cases();
    let plain = cases.iter().filter(|case| case.cell == "lstm" && case.layers == 1);
    let mut ran = 0;
    for (at, case) in plain.enumerate() {
        let folder = scratch("onednn").join(&case.name);
        fs::create_dir_all(&folder).unwrap();
        let is_given = |arg: Arg| match arg {
            Arg::Of(tensor) => !tensor.is_dst(),
            Arg::Diff(tensor) => tensor.is_dst(),
            Arg::Workspace => false,
        };
        for arg in Arg::all().filter(|arg| is_given(*arg)) {
            case.of_arg(arg).iter().for_each(|values| write(&folder, arg, values));
        }
        let way = ["left2right", "right2left", "bidirectional_concat", "bidirectional_sum"];
        let way = way.iter().position(|way| *way == case.direction).unwrap() as i64;
        let numbers = [case.steps, case.batch, case.input, case.hidden, way];
        let numbers = numbers.map(|number| number.to_string());
        let mut arguments = vec![folder.to_str().unwrap()];
        arguments.extend(numbers.iter().map(String::as_str));
        let told = on_simulator(&programs[at % programs.len()], &arguments);
        let refused = "2 mcdnnKilnFinalizePrimitive: onednn lstm forward_inference: \
                       gates(weights_layer) is 3, expected 4 (lstm)\n";
        assert_eq!(told, refused);
        for (arg, expected) in &case.expected() {
            compare(&format!("{}: {}", case.name, arg.name()), &read(&folder, *arg), expected);
        }
        ran += 1;
    }
    assert_eq!(ran, 4);
}

/// The program that ran oneDNN's library runs this one: it includes `dnnl.hpp`, which here is two
/// lines.
#[test]
fn the_program_of_the_vectors_gives_the_vectors() {
    let shim = scratch("shim");
    let text = "#include <kiln/dnnl_rnn.hpp>\nnamespace dnnl = kiln::dnnl;\n";
    fs::write(shim.join("dnnl.hpp"), text).unwrap();
    let source = own().join("../tests/data/onednn/vectors.cpp");
    let include = format!("-I{}", shim.display());
    // It has a name for a type that it does not use.
    let flags = ["-std=c++17", "-O1", "-Wno-unused-local-typedefs", &include];
    let program = compile_cpp("g++", "onednn_vectors", &source, &flags);
    let told = on_simulator(&program, &[]);
    let mut printed: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for line in told.lines().filter_map(|line| line.strip_prefix("tensor ")) {
        let (name, rest) = line.split_once(' ').unwrap();
        let (case, name) = name.split_once('/').unwrap();
        let (_, values) = rest.split_once(':').unwrap();
        let values = values.split_whitespace().map(|value| value.parse().unwrap());
        printed.insert((case, name), values.collect());
    }
    let cases = cases();
    assert_eq!(cases.len(), 74);
    let mut results = 0;
    // What oneDNN has no primitive for, AUGRU in other directions, draws numbers here, so the case
    // behind it has other inputs.
    for case in cases.iter().filter(|case| case.cell != "lbr_augru") {
        let expected = case.expected();
        for ((_, name), own) in printed.iter().filter(|((of, _), _)| *of == case.name) {
            let arg = argument(name).unwrap_or_else(|| panic!("{name} is no argument"));
            let what = format!("{}: {name}", case.name);
            match expected.get(&arg) {
                Some(expected) => {
                    compare(&what, own, expected);
                    results += 1;
                }
                None => {
                    let given = case.of_arg(arg).expect("the case has it");
                    let exact = own
                        .iter()
                        .zip(&given)
                        .all(|(own, given)| (*own as f32).to_bits() == (*given as f32).to_bits());
                    assert!(exact, "{what} is not the same input");
                }
            }
        }
        for (arg, _) in expected {
            let name = arg.name().replace("augru_attention", "attention");
            let is_there = printed.contains_key(&(case.name.as_str(), name.as_str()));
            assert!(is_there, "{}: {name} was not computed", case.name);
        }
    }
    assert!(results > 600, "{results} results");
    // 8-bit integers have no engine.
    assert_eq!(told.lines().filter(|line| line.starts_with("none int8_")).count(), 32);
}
