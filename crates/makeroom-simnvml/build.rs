//! Link options: the soname by which programs load the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The command embeds it. Tests and debug builds keep the names of functions, for a debugger.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    println!("cargo:rustc-cdylib-link-arg=-Wl,{}", if is_release { "--strip-all" } else { "--strip-debug" });
}
