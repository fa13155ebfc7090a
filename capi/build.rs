//! The shared library's own name, which is what programs that are linked with it ask for.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmcdnn.so.8");
    // A library with threads and thread-locals does not survive being unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
