//! Compresses the debug sections of the command.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        // `makeroom why` reads the line tables of the demonstrations from this binary, so debug sections stay, but
        // compressed: the standard library adds its own.
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
