//! Programs that are written for oneDNN's C++ interface: a program of our own on a GPU's engine,
//! and the one that made the committed vectors with oneDNN's own library, as it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use kiln::DType;
use kiln::onednn::{Arg, PropKind, Tensor};
use kiln::reference::Expected;

use crate::harness::{compile_cpp, own, run_on, scratch, succeeded};
use crate::onednn_cases::{Case, cases, integer_cases, integer_type, plain_integers};
use crate::onednn_integer_lstm::{Of, lstm};

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

fn write(folder: &Path, name: &str, values: &[f64]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
    fs::write(folder.join(format!("{name}.bin")), bytes).unwrap();
}

fn read(folder: &Path, arg: Arg, dtype: DType) -> Vec<f64> {
    let bytes = fs::read(folder.join(format!("{}.bin", arg.name()))).unwrap();
    bytes.chunks_exact(dtype.bytes()).map(|of| dtype.read(of)).collect()
}

/// The place of a direction in oneDNN's order.
fn way(case: &Case) -> usize {
    let ways = ["left2right", "right2left", "bidirectional_concat", "bidirectional_sum"];
    ways.iter().position(|way| *way == case.direction).unwrap()
}

/// Where programs that are written for oneDNN find `dnnl.hpp`, which here is two lines.
static INCLUDE: LazyLock<String> = LazyLock::new(|| {
    let shim = scratch("shim");
    let text = "#include <kiln/dnnl_rnn.hpp>\nnamespace dnnl = kiln::dnnl;\n";
    fs::write(shim.join("dnnl.hpp"), text).unwrap();
    format!("-I{}", shim.display())
});

/// A program of `tests/c` by every compiler of C++ that there is: g++ must be.
fn compiled(name: &str) -> Vec<PathBuf> {
    let source = own().join(format!("tests/c/{name}.cpp"));
    let is_there = |compiler: &&str| Command::new(compiler).arg("--version").output().is_ok();
    let compilers = ["g++"].into_iter().chain(["clang++"].into_iter().filter(is_there));
    let flags = ["-std=c++11", "-pedantic", &INCLUDE];
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
            case.of_arg(arg).iter().for_each(|values| write(&folder, &arg.name(), values));
        }
        let numbers = [case.steps, case.batch, case.input, case.hidden, way(case) as i64];
        let numbers = numbers.map(|number| number.to_string());
        let mut arguments = vec![folder.to_str().unwrap()];
        arguments.extend(numbers.iter().map(String::as_str));
        let told = on_simulator(&programs[at % programs.len()], &arguments);
        let refused = "2 mcdnnKilnFinalizePrimitive: onednn lstm forward_inference: \
                       gates(weights_layer) is 3, expected 4 (lstm)\n";
        assert_eq!(told, refused);
        for (arg, expected) in &case.expected() {
            compare(
                &format!("{}: {}", case.name, arg.name()),
                &read(&folder, *arg, DType::F32),
                expected,
            );
        }
        ran += 1;
    }
    assert_eq!(ran, 4);
}

/// oneDNN's cases of 8-bit integers by a program for oneDNN, from numbers that it quantises:
/// what the document says, which oneDNN's own results are but for its habits.
#[test]
fn an_lstm_of_integers_as_programs_for_onednn_run_it() {
    let programs = compiled("onednn_int8");
    let cases = integer_cases();
    assert_eq!(cases.len(), 32);
    for (at, case) in cases.iter().enumerate() {
        let folder = scratch("onednn").join(&case.name);
        fs::create_dir_all(&folder).unwrap();
        let attr = case.attr();
        let data = attr.data.unwrap();
        for tensor in Tensor::ALL.into_iter().filter(|tensor| !tensor.is_dst()) {
            let Some(mut values) = case.of_arg(Arg::Of(tensor)) else { continue };
            if matches!(tensor, Tensor::SrcLayer | Tensor::SrcIter) {
                let number =
                    |value: &mut f64| *value = (*value - data.shift.get()) / data.scale.get();
                values.iter_mut().for_each(number);
            }
            write(&folder, &Arg::Of(tensor).name(), &values);
        }
        let scales: Vec<f64> = attr.weights.unwrap().scales.iter().map(|of| of.get()).collect();
        write(&folder, "scales", &scales);
        let name = |dtype: DType| if dtype == DType::I8 { "s8" } else { dtype.name() };
        let result = integer_type(case, Arg::TO);
        let numbers = [case.steps, case.batch, case.input, case.hidden, way(case) as i64];
        let mut arguments = vec![folder.to_str().unwrap().to_owned()];
        arguments.extend(numbers.map(|number| number.to_string()));
        arguments.extend([case.integers(), result].map(|dtype| name(dtype).to_owned()));
        arguments.extend([data.scale, data.shift].map(|number| number.to_string()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_eq!(on_simulator(&programs[at % programs.len()], &arguments), "");
        let desc = case.desc(PropKind::ForwardInference, &plain_integers(case));
        let given = case.integers_of(|arg| case.of_arg(arg));
        let result = |tensor: Tensor| {
            let arg = Arg::Of(tensor);
            (arg, read(&folder, arg, integer_type(case, arg)))
        };
        let results =
            Tensor::ALL.into_iter().filter(|tensor| tensor.is_dst()).map(result).collect();
        lstm(&desc, &given, Of::Document).check(&case.name, &results);
        let theirs = format!("oneDNN's {}", case.name);
        lstm(&desc, &given, Of::Avx2).check(&theirs, &case.results_of_onednn());
    }
}

/// The program that ran oneDNN's library runs this one: it includes `dnnl.hpp`.
#[test]
fn the_program_of_the_vectors_gives_the_vectors() {
    let source = own().join("../tests/data/onednn/vectors.cpp");
    // It has a name for a type that it does not use.
    let flags = ["-std=c++17", "-O1", "-Wno-unused-local-typedefs", &INCLUDE];
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
    // Those of 8-bit integers, which come last, have other inputs.
    let cases = integer_cases();
    assert_eq!(cases.len(), 32);
    for case in &cases {
        // Nine digits say which number of f32 it is.
        let numbers = |arg: Arg| -> Option<Vec<f64>> {
            let name = arg.name();
            let own = printed.get(&(case.name.as_str(), name.as_str()))?;
            Some(own.iter().map(|value| DType::F32.round(*value)).collect())
        };
        let desc = case.desc(PropKind::ForwardInference, &plain_integers(case));
        let results = Tensor::ALL.into_iter().filter(|tensor| tensor.is_dst());
        let results = results.map(|of| (Arg::Of(of), numbers(Arg::Of(of)).unwrap())).collect();
        lstm(&desc, &case.integers_of(numbers), Of::Document).check(&case.name, &results);
    }
    assert_eq!(told.lines().filter(|line| line.starts_with("none ")).count(), 0);
}
