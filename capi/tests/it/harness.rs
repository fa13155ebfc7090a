//! Programs in C: how they are compiled, and run on the simulated device.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::{env, fs};

/// This crate's folder.
pub fn own() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder of the build's for files that tests make.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi").join(name);
    fs::create_dir_all(&folder).expect("the build's folder is there");
    folder
}

/// A folder with the libraries by the names that programs ask for.
static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = scratch("lib");
    let built = env::current_exe().expect("a test has a file");
    let libraries = [
        ("libmcdnn.so.8", "libmcdnn.so"),
        ("libmcdnn.so", "libmcdnn.so"),
        ("libcuda.so.1", "libkiln_sim_driver.so"),
        ("libcuda.so", "libkiln_sim_driver.so"),
    ];
    for (name, file) in libraries {
        let link = folder.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(built.with_file_name(file), link).expect("links can be made");
    }
    folder
});

/// Compiles a program of `tests/c`.
pub fn compile(name: &str) -> PathBuf {
    compile_file(name, &own().join("tests/c").join(format!("{name}.c")))
}

/// Compiles a program that a test makes.
pub fn compile_text(name: &str, text: &str) -> PathBuf {
    let source = scratch("made").join(format!("{name}.c"));
    fs::write(&source, text).expect("the build's folder can be written");
    compile_file(name, &source)
}

/// Compiles a file.
pub fn compile_file(name: &str, source: &Path) -> PathBuf {
    let flags = ["-std=c99", "-Wno-unused", "-pedantic"];
    compile_with("cc", &scratch("bin").join(name), source, &flags)
}

/// Compiles a program in C++ with a compiler.
pub fn compile_cpp(compiler: &str, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
    compile_with(compiler, &scratch("bin").join(format!("{name}_{compiler}")), source, flags)
}

/// Compiles a file with a compiler, to which every warning is an error.
fn compile_with(compiler: &str, program: &Path, source: &Path, flags: &[&str]) -> PathBuf {
    let output = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Werror", "-g", "-o"])
        .arg(program)
        .arg(source)
        .arg("-I")
        .arg(own().join("include"))
        .arg("-I")
        .arg(own().join("tests/cases"))
        .arg("-I")
        .arg(own().join("tests/c"))
        .arg("-L")
        .arg(&*LIBRARIES)
        .args(["-lmcdnn", "-lm", "-lpthread", "-Wl,--as-needed", "-l:libcuda.so.1"])
        .output()
        .expect("there is a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program.to_owned()
}

/// Runs a program on the simulated device.
pub fn run(program: &Path, arguments: &[&str]) -> Output {
    run_on(None, program, arguments)
}

/// Runs a program on a device that the environment names, or on that of the simulated driver.
pub fn run_on(device: Option<&str>, program: &Path, arguments: &[&str]) -> Output {
    let mut command = match env::var_os("KILN_MEMCHECK") {
        None => Command::new(program),
        // `make memcheck`: a wrong access is a failure, as is memory that is lost at the end.
        Some(_) => {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--quiet", "--error-exitcode=99", "--num-callers=30"]);
            valgrind.args(["--leak-check=full", "--show-leak-kinds=definite"]);
            valgrind.args(["--errors-for-leak-kinds=definite"]);
            let known = own().join("tests/valgrind.supp");
            valgrind.arg(format!("--suppressions={}", known.display())).arg(program);
            valgrind
        }
    };
    command
        .args(arguments)
        .env("KILN_DEVICE", device.unwrap_or_default())
        .env("LD_LIBRARY_PATH", &*LIBRARIES)
        .env("CUDA_FORCE_PTX_JIT", "1")
        // The simulator needs no machine code.
        .env("KILN_PTX_ONLY", if device.is_some() { "1" } else { "0" })
        .env("KILN_CACHE_DIR", scratch("cache"))
        .output()
        .expect("the program starts")
}

/// Runs a program that is to succeed, and gives what it prints.
pub fn succeed(program: &Path, arguments: &[&str]) -> String {
    succeeded(run(program, arguments), arguments)
}

/// What a program printed that has succeeded.
pub fn succeeded(output: Output, arguments: &[&str]) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{arguments:?}: {}\n{out}{error}", output.status);
    out.into_owned()
}
