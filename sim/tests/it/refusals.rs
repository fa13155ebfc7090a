//! Modules and launches that are refused before anything runs: the exact texts.

use crate::run::{device, line, params};
use kiln_sim::{Checks, Device, DeviceConfig, ErrorKind, Launch, Module};

const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// The message for a module whose items begin on line 4.
fn refuse(items: &str) -> String {
    let error = Module::load(&format!("{HEAD}{items}")).map(|_| ()).unwrap_err();
    assert!(error.line().is_some(), "{error}");
    error.to_string()
}

/// The message for a kernel whose body begins on line 7.
fn refuse_body(body: &str) -> String {
    refuse(&format!(".visible .entry k()\n{{\n.reg .pred %p<3>; .reg .b32 %r<4>;\n{body}\n}}\n"))
}

#[test]
fn text_that_is_cut_off() {
    assert_eq!(
        refuse(".visible .entry k()\n{\nret;"),
        "ptx line 6: expected a statement, found the end of the text"
    );
    assert_eq!(
        refuse(".visible .entry k(.param .u64"),
        "ptx line 4: expected a name, found the end of the text"
    );
    assert_eq!(refuse("/* and so on\n"), "ptx line 4: a comment is not closed");
    assert_eq!(refuse(".file 1 \"k.cu\n"), "ptx line 4: a string is not closed");
    for number in ["1.5e", "1.5e-", "1.5e\u{e9}"] {
        let word = number.trim_end_matches('\u{e9}');
        assert_eq!(refuse(number), format!("ptx line 4: bad number `{word}`"));
    }
    assert_eq!(refuse_body("add.s32 %r1, %r2,"), "ptx line 8: expected an operand, found `}`");
}

#[test]
fn parameters_of_kernels_are_in_memory() {
    let text = "ptx line 4: a kernel returns nothing, and its parameters are in memory";
    assert_eq!(refuse(".visible .entry k(.reg .b32 x) { ret; }"), text);
    assert_eq!(refuse(".visible .entry k(.param .u64 p, .reg .b32 x) { ret; }"), text);
    assert_eq!(refuse(".visible .entry (.param .b32 r) k() { ret; }"), text);
    assert_eq!(
        refuse(".visible .entry k(.param .u64 p .param .u64 q) { ret; }"),
        "ptx line 4: expected `)`, found `.param`"
    );
}

#[test]
fn text_that_is_no_ptx() {
    let error = Module::load("\u{7f}ELF\u{2}\u{1}").unwrap_err();
    assert_eq!(error.to_string(), "ptx line 1: invalid byte 0x7f");
    assert_eq!(refuse("\n\0.visible"), "ptx line 5: invalid byte 0x00");
    assert_eq!(refuse("// é is fine here\né"), "ptx line 5: invalid byte 0xc3");
    assert_eq!(refuse_body("mov.u32 %r1, 12ab;"), "ptx line 7: bad number `12ab`");
    assert_eq!(refuse("hello"), "ptx line 4: expected a directive, found `hello`");
    assert_eq!(refuse(".texref t;"), "ptx line 4: unknown directive `.texref`");
    assert_eq!(
        Module::load(".version 8.0\n.target sm_90\n.address_size 32\n").unwrap_err().to_string(),
        "ptx line 3: addresses of 32 bits, not 64"
    );
    let deep = format!("{}{}", "{".repeat(10_000), "}".repeat(10_000));
    assert_eq!(refuse_body(&deep), "ptx line 7: nesting deeper than 64");
    let deep = format!(".global .b32 x = {}1;", "{".repeat(10_000));
    assert_eq!(refuse(&deep), "ptx line 4: nesting deeper than 64");
    let deep = format!("mov.pred %p1, {}%p2;", "!".repeat(10_000));
    assert_eq!(refuse_body(&deep), "ptx line 7: nesting deeper than 64");
}

#[test]
fn operands_of_another_type() {
    let of_cell = |line: &str| {
        refuse(&format!(".global .b32 cell[4];\n.entry k() {{ .reg .b32 %r1;\n{line} ret; }}\n"))
    };
    assert_eq!(
        of_cell("red.global.add.u32 [cell], cell;"),
        "ptx line 6: the address of a variable is not of type .u32"
    );
    assert_eq!(
        of_cell("add.s32 %r1, cell+4, 1;"),
        "ptx line 6: the address of a variable is not of type .s32"
    );
    assert_eq!(
        refuse_body("setp.eq.and.u32 %p1, %r1, %r2, %tid.x;"),
        "ptx line 7: `%tid.x` is no predicate"
    );
}

#[test]
fn names_that_are_defined_twice_or_not_at_all() {
    assert_eq!(refuse_body("L: ret;\nL: ret;"), "ptx line 8: `L` is defined twice");
    assert!(Module::load(&format!("{HEAD}.entry k() {{ L: {{ L: ret; }} }}")).is_ok());
    assert_eq!(refuse_body(".reg .b32 %r<8>;"), "ptx line 7: `%r` is defined twice");
    assert_eq!(refuse_body(".reg .b32 %r2;"), "ptx line 7: `%r2` is defined twice");
    assert_eq!(refuse_body(".reg .b32 x3;\n.reg .b32 x<4>;"), "ptx line 8: `x` is defined twice");
    assert_eq!(refuse_body(".shared .b32 s;\n.local .b64 s;"), "ptx line 8: `s` is defined twice");
    assert_eq!(refuse(".global .b32 g;\n.global .b64 g;"), "ptx line 5: `g` is defined twice");
    assert_eq!(
        refuse(".entry k() { ret; }\n.entry k() { ret; }"),
        "ptx line 5: `k` is defined twice"
    );
    assert_eq!(refuse(".extern .global .b32 g;"), "ptx line 4: `g` is declared and not defined");
    assert!(Module::load(&format!("{HEAD}.extern .global .b32 g;\n.global .b32 g;")).is_ok());
    assert_eq!(
        refuse(".global .b64 g = h;"),
        "ptx line 4: `h`, in `g`, is not a variable in global memory"
    );
    assert_eq!(refuse_body("mov.u32 %r1, %r4;"), "ptx line 7: unknown register `%r4`");
    assert_eq!(refuse_body("@%p3 ret;"), "ptx line 7: unknown predicate `%p3`");
    assert_eq!(refuse_body("bra L;"), "ptx line 7: unknown label `L`");
    assert_eq!(refuse_body("call f;"), "ptx line 7: unknown function `f`");
    assert_eq!(refuse_body("ld.shared.u32 %r1, [s];"), "ptx line 7: unknown name `s`");
}

#[test]
fn calls_that_come_back() {
    let cycle = ".func f();\n.func g() { call f; }\n.func f() { call g; }\n.entry k() { call f; }";
    assert_eq!(refuse(cycle), "ptx line 5: recursive call of `f`");
    // Each calls the next twice: 2^40 copies of the last.
    let mut chain = ".func f0() { .reg .b32 %r<2>; mov.u32 %r1, 1; }\n".to_string();
    for at in 1..=20 {
        chain += &format!(".func f{at}() {{ call f{0}; call f{0}; }}\n", at - 1);
    }
    let mut deep = ".func f0() { ret; }\n".to_string();
    for at in 1..40 {
        deep += &format!(".func f{at}() {{ call f{}; }}\n", at - 1);
    }
    let text = refuse(&format!("{deep}.entry k() {{ call f39; }}"));
    assert_eq!(text, "ptx line 13: calls nest deeper than 32");
    let text = refuse(&format!("{chain}.entry k() {{ call f20; }}"));
    assert_eq!(text, "ptx line 4: more than 524288 ops, calls inlined");
}

#[test]
fn more_than_a_device_has() {
    assert_eq!(
        refuse(".entry k(.param .b8 p[4360]) { ret; }"),
        "ptx line 4: the parameters of `k` take 4360 bytes where 4352 fit"
    );
    let new = |bytes| {
        let text = format!(".version 8.1\n.entry k(.param .b8 p[{bytes}]) {{ ret; }}");
        Module::load(&text).map(|module| module.kernel("k").unwrap().param_bytes())
    };
    assert_eq!(new(32764).unwrap(), 32764);
    assert_eq!(
        new(32765).unwrap_err().to_string(),
        "ptx line 2: the parameters of `k` take 32765 bytes where 32764 fit"
    );
    assert_eq!(
        refuse(".entry k(.param .align 2147483648 .b8 p[1], .param .align 2147483648 .b8 q[1]) {}"),
        "ptx line 4: the parameters of `k` take 2147483649 bytes where 4352 fit"
    );
    assert_eq!(
        refuse_body(".local .b8 x[600000];"),
        "ptx line 4: more than 524288 bytes of local memory"
    );
    assert_eq!(refuse_body(".reg .b32 x<2000000>;"), "ptx line 7: more than 1048576 registers");
    assert_eq!(refuse(".global .b8 g[4294967296];"), "ptx line 4: `g` is too large");
    assert_eq!(
        refuse(".global .align 3 .b8 g[4];"),
        "ptx line 4: alignment 3 of `g` is not a power of two"
    );
    assert_eq!(
        refuse(".global .b8 g[2] = {1, 2, 3};"),
        "ptx line 4: 3 bytes of values for the 2 of `g`"
    );
    assert_eq!(refuse_body(".shared .b32 s = 1;"), "ptx line 7: `s` cannot have an initial value");
}

#[test]
fn instructions_that_are_not_known() {
    assert_eq!(refuse_body("ret %r1;"), "ptx line 7: `ret` has 1 operands instead of 0");
    assert_eq!(refuse_body("trap.uni;"), "ptx line 7: `trap.uni` has an unknown modifier `.uni`");
    assert_eq!(refuse_body("fence;"), "ptx line 7: `fence` is not a supported form");
    assert_eq!(
        refuse_body("membar.cluster;"),
        "ptx line 7: `membar.cluster` is not a supported form"
    );
    assert_eq!(
        refuse_body("prefetch.global.L3 [%r1];"),
        "ptx line 7: `prefetch.global.L3` is not a supported form"
    );
    assert_eq!(
        refuse_body("griddepcontrol;"),
        "ptx line 7: `griddepcontrol` is not a supported form"
    );
    assert_eq!(
        refuse_body("mov.u32 %r1, %laneid.x;"),
        "ptx line 7: unknown special register `%laneid.x`"
    );
    assert_eq!(refuse_body("mov.u32 %r1, %tid;"), "ptx line 7: unknown special register `%tid`");
    assert_eq!(refuse_body("add. %r1, %r2, %r3;"), "ptx line 7: `add.` has no known type");
}

#[test]
fn launches_that_do_not_fit() {
    let device = Device::new(DeviceConfig { shared_bytes_max: 1 << 16, ..DeviceConfig::default() });
    let text = format!(
        "{HEAD}.entry free() {{ ret; }}\n.entry exact() .reqntid 32, 2 {{ ret; }}\n\
         .entry most() .maxntid 16, 4, 2 {{ ret; }}\n\
         .entry pair() .reqnctapercluster 2 {{ ret; }}\n\
         .entry full() {{ .shared .b8 s[60000]; ret; }}\n"
    );
    let module = Module::load(&text).unwrap();
    assert!(module.kernel("none").is_none());
    let refuse = |name: &str, shape: Launch| {
        let kernel = module.kernel(name).unwrap();
        let error = device.launch(&kernel, &shape, &params(&kernel, &[])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadLaunch);
        let text = error.to_string();
        text.strip_prefix(&format!("failed to launch `{name}`: ")).unwrap().to_string()
    };
    let one = line(1, 1);
    let shaped = |block| Launch { block, ..one };
    assert_eq!(refuse("free", shaped([0, 1, 1])), "block (0, 1, 1) is not within 1024 threads");
    assert_eq!(refuse("free", shaped([1, 1, 65])), "block (1, 1, 65) is not within 1024 threads");
    // The product is 64 in 64 bits.
    let wraps = [1 << 31, 1 << 31, 4];
    assert_eq!(
        refuse("free", shaped(wraps)),
        "block (2147483648, 2147483648, 4) is not within 1024 threads"
    );
    assert_eq!(
        refuse("exact", shaped([64, 1, 1])),
        "block (64, 1, 1) where .reqntid says (32, 2, 1)"
    );
    assert_eq!(
        refuse("exact", shaped([32, 1, 1])),
        "block (32, 1, 1) where .reqntid says (32, 2, 1)"
    );
    assert_eq!(refuse("most", shaped([129, 1, 1])), "129 threads where .maxntid allows 128");
    assert_eq!(
        refuse("full", Launch { shared_bytes: 6000, ..one }),
        "66000 bytes of shared memory of 65536"
    );
    assert_eq!(
        refuse("free", Launch { grid: [1, 65536, 1], ..one }),
        "grid (1, 65536, 1) is not within (2147483647, 65535, 65535)"
    );
    assert_eq!(refuse("pair", line(3, 1)), "grid (3, 1, 1) is not a multiple of cluster (2, 1, 1)");
    assert_eq!(
        refuse("pair", Launch { cluster: [4, 1, 1], ..line(4, 1) }),
        "cluster (4, 1, 1) where .reqnctapercluster says (2, 1, 1)"
    );
    let odd = [1 << 31, 1 << 31, 4];
    assert_eq!(
        refuse("free", Launch { cluster: odd, ..one }),
        "cluster (2147483648, 2147483648, 4) is not within 16 blocks"
    );
    assert_eq!(
        refuse("free", Launch { cluster: [3, 0, 1], ..line(3, 1) }),
        "cluster (3, 0, 1) is not within 16 blocks"
    );
}

#[test]
fn a_launch_that_does_not_end_says_where_it_is() {
    let text = format!(
        "{HEAD}.entry k() {{\n.reg .pred %p; .reg .b32 %r;\nmov.u32 %r, %ctaid.x;\n\
         setp.eq.u32 %p, %r, 0;\n@%p ret;\nL:\nadd.u32 %r, %r, 1;\nbra L;\n}}\n"
    );
    let kernel = Module::load(&text).unwrap().kernel("k").unwrap();
    for workers in [1, 2] {
        let device = Device::new(DeviceConfig { workers, ..DeviceConfig::default() });
        for checks in [Checks::NONE, Checks::ALL] {
            let shape = Launch { warp_instructions_max: Some(100_000), checks, ..line(3, 64) };
            let error = device.launch(&kernel, &shape, &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InstructionLimit);
            let text = error.to_string();
            let start = "the launch has not ended after 100000 warp instructions, at ptx lines ";
            assert!(text.starts_with(start), "{text}");
            assert!(text.contains("kernel `k`, block (1, 0, 0), thread ("), "{text}");
        }
    }
    // What ends in time is not refused.
    let whole = device().launch(&kernel, &line(1, 32), &[]).unwrap().warp_instructions;
    let at_most = |max| {
        let shape = Launch { warp_instructions_max: Some(max), ..line(1, 32) };
        device().launch(&kernel, &shape, &[])
    };
    assert_eq!(at_most(whole).unwrap().warp_instructions, whole);
    assert!(at_most(whole - 1).is_err());
    assert_eq!(
        at_most(3).unwrap_err().to_string(),
        "the launch has not ended after 3 warp instructions, at ptx lines 8; kernel `k`, block \
         (0, 0, 0), thread (0, 0, 0), ptx line 8: `@%p ret;`"
    );
}

#[test]
fn conversions_of_bits() {
    let body = |name: &str| format!("{name} %r1, %r2;");
    for name in
        ["cvt.rmi.b32.f64", "cvt.rm.b32.f64", "cvt.u32.b32", "cvt.b16.u32", "cvt.rn.f32.f16x2"]
    {
        let text = format!("ptx line 7: `{name}` is not a supported form");
        assert_eq!(refuse_body(&body(name)), text);
    }
}

#[test]
fn results_that_their_register_can_not_hold() {
    let text = "ptx line 7: the result does not fit its register";
    for line in [
        "cvt.rpi.s8.f64 %p1, 0dBFF8000000000000;",
        "cvt.u32.u64 %p1, 1;",
        "cvt.s64.s32 %r1, %r2;",
        "cvt.rn.f32.s32 %p1, %r2;",
        "ld.shared.u16 %p1, [0];",
        "ld.shared.u64 %r1, [0];",
    ] {
        assert_eq!(refuse_body(line), text, "{line}");
    }
}
