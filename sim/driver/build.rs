//! The library's own name is the driver's: once it is loaded, asking for `libcuda.so.1` finds it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
