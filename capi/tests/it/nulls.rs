//! Every function with NULL, with what was destroyed, and with what is of another kind in the place
//! of each pointer: a status, and the process lives.

use std::fmt::Write;

use mcdnn::chapters::{KILN, MCDNN};
use mcdnn::declare::Function;

use crate::harness::{compile_text, succeed};

/// What a parameter of a C type is given: a valid argument.
fn valid(declaration: &str, name: &str) -> String {
    let of = declaration.strip_suffix("[]").unwrap_or(declaration);
    let c_type = of.strip_suffix(name).unwrap_or(of).trim();
    match c_type {
        _ if declaration.ends_with("[]") || c_type.ends_with('*') => "(void *)place".to_owned(),
        "mcdnnHandle_t" => "h".to_owned(),
        "mcdnnTensorDescriptor_t" => "t".to_owned(),
        "mcdnnFilterDescriptor_t" => "f".to_owned(),
        "mcdnnDropoutDescriptor_t" => "d".to_owned(),
        "mcdnnRNNDescriptor_t" => "r".to_owned(),
        "mcdnnRNNDataDescriptor_t" => "x".to_owned(),
        "mcdnnSeqDataDescriptor_t" => "s".to_owned(),
        "mcdnnAttnDescriptor_t" => "a".to_owned(),
        "size_t" => "sizeof(place)".to_owned(),
        "int" | "unsigned" | "int64_t" => "1".to_owned(),
        "float" | "double" => "0".to_owned(),
        "unsigned long long" => "1".to_owned(),
        c_type if c_type.starts_with("mcdnn") && !is_enumeration(c_type) => {
            format!("({c_type})NULL")
        }
        c_type => format!("({c_type})0"),
    }
}

fn is_enumeration(c_type: &str) -> bool {
    let chapters = MCDNN.iter().chain(KILN);
    chapters.flat_map(|chapter| chapter.enumerations).any(|table| table.name == c_type)
}

fn is_pointer(declaration: &str, argument: &str) -> bool {
    let opaque = ["h", "t", "f", "d", "r", "x", "s", "a"].contains(&argument);
    opaque || declaration.contains('*') || declaration.ends_with("[]")
}

fn functions() -> impl Iterator<Item = &'static Function> {
    MCDNN.iter().chain(KILN).flat_map(|chapter| chapter.functions())
}

#[test]
fn pointers_that_are_none_are_answered() {
    let mut program = "#include \"facts.h\"\n#include \"mcdnn_kiln.h\"\n\n".to_owned();
    program += "static char place[4096];\n\n";
    program += "static void told(const char *what, int status)\n{\n    \
                printf(\"%s %d\\n\", what, status);\n    fflush(stdout);\n}\n\n";
    program += "int main(void)\n{\n    mcdnnCreate(&h);\n";
    let mut calls = 0;
    for function in functions() {
        // A pointer to a text is taken as it is, and this one ends what others need.
        if (function.result)("").contains("void") || function.name == "mcdnnDestroy" {
            continue;
        }
        let status = (function.result)("") == "mcdnnStatus_t";
        let declared = function.parameters.iter().map(|(name, declare)| (*name, declare(name)));
        let declared: Vec<(&str, String)> = declared.collect();
        let arguments: Vec<String> = declared.iter().map(|(name, of)| valid(of, name)).collect();
        for (at, (name, of)) in declared.iter().enumerate() {
            if !status || !is_pointer(of, &arguments[at]) {
                continue;
            }
            let bare = of.strip_suffix("[]").unwrap_or(of);
            let c_type = bare.strip_suffix(name).unwrap_or(bare).trim();
            let opaque = !c_type.contains('*') && !of.ends_with("[]");
            let others: &[&str] = match opaque {
                true => &["NULL", "(void *)0x10", "(void *)-1", "gone", "(void *)h"],
                false => &["NULL"],
            };
            for other in others {
                let mut given = arguments.clone();
                given[at] = format!("(void *){other}");
                let (call, what) = (given.join(", "), format!("{} {name} {other}", function.name));
                writeln!(
                    program,
                    "    make();\n    {{\n        void *gone = tn;\n        \
                     mcdnnDestroyTensorDescriptor(tn);\n        (void)gone;\n        \
                     mcdnnCreateTensorDescriptor(&tn);\n        \
                     told(\"{what}\", {}({call}));\n    }}\n    drop();",
                    function.name
                )
                .unwrap();
                calls += 1;
            }
        }
    }
    program += "    return 0;\n}\n";
    let output = succeed(&compile_text("nulls", &program), &[]);
    assert_eq!(output.lines().count(), calls, "{output}");
    assert!(calls > 500, "{calls} calls");
    for line in output.lines() {
        let mut words = line.split(' ');
        let (name, status) = (words.next().unwrap(), words.next_back().unwrap());
        let status: i32 = status.parse().unwrap();
        assert!((0..=14).contains(&status), "{line}");
        assert_ne!(status, 4, "a bug in the library: {line}");
        // What is no handle is never taken for one.
        if line.contains(" handle ") && !line.contains(" (void *)h ") {
            assert_ne!(status, 0, "{name}: {line}");
        }
    }
}
