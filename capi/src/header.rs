//! The header files, made from the tables.

use std::fmt::Write;

use crate::chapters::{Chapter, KILN, MCDNN};
use crate::declare::{Enumeration, Function};

/// The widest line.
const WIDTH: usize = 100;

/// Header files by their path in `include`.
pub fn files() -> Vec<(String, String)> {
    let mut files = vec![
        ("mcdnn.h".to_owned(), main()),
        ("mcdnn_kiln.h".to_owned(), kiln()),
        ("compat/cudnn.h".to_owned(), compat()),
    ];
    for part in PARTS {
        let include = |name: &str| format!("#include \"{name}.h\"\n");
        files.push((format!("mcdnn_{part}.h"), include("mcdnn")));
        files.push((format!("compat/cudnn_{part}.h"), include("cudnn")));
    }
    files
}

/// Headers that cuDNN 8 has beside its first one.
const PARTS: [&str; 8] = [
    "version",
    "ops_infer",
    "ops_train",
    "adv_infer",
    "adv_train",
    "cnn_infer",
    "cnn_train",
    "backend",
];

const PROLOGUE: &str = "\
/* The interface of cuDNN 8.7 under the names of mcDNN, on Kiln.
 *
 * Made from the tables in capi/src: `make golden` writes it.
 */
#ifndef MCDNN_H_
#define MCDNN_H_

#include <stddef.h>
#include <stdint.h>

/* CUDA is not needed; with its header, the types are CUDA's. */
#ifdef __has_include
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#define MCDNN_HAS_CUDA_RUNTIME_API_ 1
#endif
#endif
#ifndef MCDNN_HAS_CUDA_RUNTIME_API_
typedef struct CUstream_st *cudaStream_t;
typedef enum libraryPropertyType_t {
    MAJOR_VERSION,
    MINOR_VERSION,
    PATCH_LEVEL
} libraryPropertyType;
#endif

/* With MCDNN_WARN_DEPRECATED, the compiler warns of functions of the old interface. */
#ifndef MCDNN_DEPRECATED
#if defined(MCDNN_WARN_DEPRECATED) && defined(__GNUC__)
#define MCDNN_DEPRECATED __attribute__((deprecated))
#else
#define MCDNN_DEPRECATED
#endif
#endif
";

const OPEN: &str = "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
const CLOSE: &str = "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";

fn main() -> String {
    let chapters: String = MCDNN.iter().map(chapter).collect();
    format!("{PROLOGUE}{OPEN}{chapters}{CLOSE}")
}

fn kiln() -> String {
    let start = "/* What Kiln has beyond mcdnn.h. */\n#ifndef MCDNN_KILN_H_\n\
                 #define MCDNN_KILN_H_\n\n#include \"mcdnn.h\"\n";
    let chapters: String = KILN.iter().map(chapter).collect();
    format!("{start}{OPEN}{chapters}{CLOSE}")
}

/// Defines each name of cuDNN's as ours.
fn compat() -> String {
    let mut text =
        "/* The names of cuDNN 8 for those of mcdnn.h. */\n#ifndef MCDNN_COMPAT_CUDNN_H_\n\
                    #define MCDNN_COMPAT_CUDNN_H_\n\n#include \"../mcdnn.h\"\n\n"
            .to_owned();
    for name in names() {
        let theirs = name.replacen("mcdnn", "cudnn", 1).replacen("MCDNN", "CUDNN", 1);
        if theirs != name {
            writeln!(text, "#define {theirs} {name}").expect("a string has room");
        }
    }
    text + "\n#endif\n"
}

/// All names that `mcdnn.h` declares.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    for chapter in MCDNN {
        names.extend(chapter.constants.iter().map(|(name, _)| (*name).to_owned()));
        names.extend(chapter.pointers.iter().map(|name| (*name).to_owned()));
        names.extend(chapter.named.iter().map(|name| (*name).to_owned()));
        for table in chapter.enumerations {
            names.push(table.name.to_owned());
            names.extend(table.values.iter().map(|(name, _)| format!("{}{name}", table.prefix)));
        }
        names.extend(chapter.functions().map(|function| function.name.to_owned()));
    }
    names
}

fn chapter(chapter: &Chapter) -> String {
    let mut text = format!("\n/* {}\n * {} */\n", chapter.title, "=".repeat(chapter.title.len()));
    if !chapter.constants.is_empty() {
        text += "\n";
    }
    for (name, value) in chapter.constants {
        writeln!(text, "#define {name} {value}").expect("a string has room");
    }
    if !chapter.pointers.is_empty() {
        text += "\n";
    }
    for name in chapter.pointers {
        let structure = name.strip_suffix("_t").unwrap_or(name);
        writeln!(text, "typedef struct {structure}Struct *{name};").expect("a string has room");
    }
    for table in chapter.enumerations.iter().filter(|table| table.name.starts_with("mcdnn")) {
        text += &enumeration(table);
    }
    for declaration in chapter.declarations {
        writeln!(text, "\n{declaration}").expect("a string has room");
    }
    for function in chapter.functions() {
        text += &prototype(function, chapter.deprecated);
    }
    text
}

fn comment(lines: &[&str]) -> String {
    match lines {
        [] => "\n".to_owned(),
        lines => {
            let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
            format!("\n/* {} */\n", lines.join("\n * "))
        }
    }
}

fn enumeration(table: &Enumeration) -> String {
    let values: Vec<String> = table
        .values
        .iter()
        .map(|(name, number)| format!("    {}{name} = {number}", table.prefix))
        .collect();
    let comment = comment(table.documentation);
    format!("{comment}typedef enum {{\n{}\n}} {};\n", values.join(",\n"), table.name)
}

fn prototype(function: &Function, deprecated: bool) -> String {
    let mark = if deprecated { "MCDNN_DEPRECATED " } else { "" };
    let comment = comment(function.documentation);
    let line = format!("{mark}{};", function.prototype());
    if line.len() <= WIDTH {
        return format!("{comment}{line}\n");
    }
    let (head, rest) = line.split_once('(').expect("a prototype has parameters");
    let parameters = rest.strip_suffix(");").expect("a prototype ends so");
    let parameters = parameters.replace(", ", ",\n    ");
    format!("{comment}{head}(\n    {parameters});\n")
}
