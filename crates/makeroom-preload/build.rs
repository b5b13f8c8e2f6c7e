//! Link options of the library that the command embeds.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Tests and debug builds keep the names of functions, for a debugger.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let strip = if is_release { "--strip-all" } else { "--strip-debug" };
    println!("cargo::rustc-link-arg-cdylib=-Wl,{strip}");
}
