//! How the library is linked: as the real driver looks from outside.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The name that the dynamic linker compares when a program asks for the driver a second time.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its own functions stay its own: a preloaded library that defines cuMemAlloc_v2 must not end up in the
    // table that cuGetProcAddress answers from.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Handlers for fork and exit stay registered: the library is never unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
