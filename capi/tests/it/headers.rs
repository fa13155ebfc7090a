//! The header files are those of the tables, and every compiler takes them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use mcdnn::chapters::{KILN, MCDNN};

use crate::harness::{own, run, scratch};

#[test]
fn files_are_those_of_the_tables() {
    for (name, text) in mcdnn::header::files() {
        golden(&own().join("include").join(name), &text);
    }
}

#[test]
fn the_document_has_all_functions() {
    let path = own().join("../docs/c.md");
    let document = fs::read_to_string(&path).unwrap();
    golden(&path, &mcdnn::documentation::document(&document));
}

/// Compares a file with what it should be, or makes it that while golden files are rewritten.
fn golden(path: &Path, text: &str) {
    if env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let file = fs::read_to_string(path).unwrap_or_default();
    assert!(file == text, "{} is not what the tables say: run `make golden`", path.display());
}

/// Compiles a text, with what warnings there are as errors.
fn compile(compiler: &str, standard: &str, name: &str, text: &str, link: bool) {
    let folder = scratch("headers");
    let extension = if compiler == "c++" { "cpp" } else { "c" };
    let source = folder.join(format!("{name}_{}.{extension}", standard.replace('+', "p")));
    fs::write(&source, text).unwrap();
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(["-Wall", "-Wextra", "-pedantic", "-Werror"]);
    command.arg("-I").arg(own().join("include")).arg("-I").arg(own().join("include/compat"));
    if !link {
        command.arg("-c");
    }
    let output = command.arg("-o").arg(folder.join(name)).arg(&source).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} -std={standard}, {name}: {error}");
}

const STANDARDS: [(&str, &str); 6] = [
    ("cc", "c99"),
    ("cc", "c11"),
    ("cc", "gnu17"),
    ("c++", "c++11"),
    ("c++", "c++17"),
    ("c++", "c++20"),
];

#[test]
fn every_standard_takes_every_header_twice() {
    for (compiler, standard) in STANDARDS {
        for (file, _) in mcdnn::header::files() {
            let name = file.replace(['/', '.'], "_");
            let text = format!("#include \"{file}\"\n#include \"{file}\"\nint one;\n");
            compile(compiler, standard, &name, &text, false);
        }
    }
}

#[test]
fn enumerations_are_types_of_their_own() {
    let mut text = "#include \"cudnn.h\"\n#include \"mcdnn.h\"\n".to_owned();
    for table in MCDNN.iter().flat_map(|chapter| chapter.enumerations) {
        text += &format!("int number({name} value) {{ return value; }}\n", name = table.name);
    }
    text += "cudnnStatus_t same = MCDNN_STATUS_SUCCESS;\n";
    for standard in ["c++11", "c++20"] {
        compile("c++", standard, "overloads", &text, false);
    }
}

#[test]
fn numbers_and_sizes_are_those_of_the_tables() {
    let mut text = "#include <stdio.h>\n#include \"mcdnn.h\"\nint main(void) {\n".to_owned();
    let mut expected = String::new();
    for table in MCDNN.iter().flat_map(|chapter| chapter.enumerations) {
        for (name, number) in table.values {
            let name = format!("{}{name}", table.prefix);
            text += &format!("    printf(\"{name} %d\\n\", (int){name});\n");
            expected += &format!("{name} {number}\n");
        }
        text += &format!("    printf(\"{0} %zu\\n\", sizeof({0}));\n", table.name);
        expected += &format!("{} 4\n", table.name);
    }
    for name in ["mcdnnHandle_t", "mcdnnTensorDescriptor_t", "mcdnnRNNDescriptor_t"] {
        text += &format!("    printf(\"{name} %zu\\n\", sizeof({name}));\n");
        expected += &format!("{name} 8\n");
    }
    text += "    printf(\"mcdnnDebug_t %zu\\n\", sizeof(mcdnnDebug_t));\n";
    expected += &format!("mcdnnDebug_t {}\n", mcdnn::DEBUG_BYTES);
    text += "    return 0;\n}\n";
    compile("cc", "c99", "numbers", &text, true);
    let output = run(&scratch("headers").join("numbers"), &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

/// What the shared library exports is what the headers declare.
#[test]
fn symbols_are_those_of_the_tables() {
    let library = std::env::current_exe().unwrap().with_file_name("libmcdnn.so");
    let exported = symbols(&library);
    let declared = MCDNN.iter().chain(KILN).flat_map(|chapter| chapter.functions());
    let declared: BTreeSet<String> = declared.map(|function| function.name.to_owned()).collect();
    assert_eq!(exported, declared);
}

fn symbols(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next_back()).map(str::to_owned).collect()
}
