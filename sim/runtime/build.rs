//! The library stands in for `libcudart.so.12` and for `.13`: it has the version nodes of both, by
//! which clients ask for its functions.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=versions.map");
    println!("cargo:rustc-check-cfg=cfg(versioned)");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcudart.so.13");
    // Threads' values outlive a client that closes the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if links_with_lld() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/versions.map");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={script}");
        println!("cargo:rustc-cfg=versioned");
    }
}

/// GNU ld takes no version script beside rustc's own. What it links has no versions: clients run,
/// and the loader warns them.
fn links_with_lld() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let minor = version.ok().and_then(|text| text.split('.').nth(1)?.parse::<u32>().ok());
    let target = std::env::var("TARGET").unwrap_or_default();
    target == "x86_64-unknown-linux-gnu" && minor.is_some_and(|minor| minor >= 90)
}
