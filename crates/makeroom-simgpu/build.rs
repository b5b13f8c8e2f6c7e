//! Link options that make the library look like the real driver.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The soname: the dynamic linker compares it when a program loads the driver a second time.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Bind its own functions: a preloaded library that defines cuMemAlloc_v2 must not end up in the table of
    // cuGetProcAddress.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Never unload the library, because its handlers for fork and exit stay registered.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The command embeds it. Tests and debug builds keep the names of functions, for a debugger.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    println!("cargo:rustc-cdylib-link-arg=-Wl,{}", if is_release { "--strip-all" } else { "--strip-debug" });
}
