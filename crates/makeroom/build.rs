//! Builds the library that `makeroom run` injects, to be embedded: so `cargo run` and `cargo install` need no extra
//! step. It is a build of its own, because the library must not be linked by anything: it exports `dlsym`.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libmakeroom_preload.so";

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let output = PathBuf::from(env::var("OUT_DIR")?);
    for name in ["makeroom-preload", "makeroom-trace", "makeroom-core"] {
        for part in ["src", "Cargo.toml"] {
            println!("cargo::rerun-if-changed={}", here.join("..").join(name).join(part).display());
        }
    }
    let embedded = output.join(LIBRARY);
    if env::var("CARGO_CFG_TARGET_OS")? == "linux" {
        fs::copy(build(&here, &output)?, embedded)?;
    } else {
        // An empty library: `run` then says that it works on Linux only.
        fs::write(embedded, [])?;
    }
    Ok(())
}

fn build(here: &Path, output: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let target = env::var("TARGET")?;
    let is_release = env::var("PROFILE")? == "release";
    let (profile, folder) = if is_release { ("release", "release") } else { ("dev", "debug") };
    let target_folder = output.join("preload");
    let status = Command::new(env::var("CARGO")?)
        .args(["build", "--lib", "--quiet", "--target", &target, "--profile", profile])
        // The library catches its own panics before they reach the program that it is in.
        .args(["--config", &format!("profile.{profile}.panic='unwind'")])
        .args(["--config", &format!("profile.{profile}.strip='symbols'")])
        .arg("--manifest-path")
        .arg(here.join("../makeroom-preload/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_folder)
        // What lints the outer build must not lint this one.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .status()?;
    if !status.success() {
        return Err(format!("the library of `makeroom run` could not be built: {status}").into());
    }
    Ok(target_folder.join(target).join(folder).join(LIBRARY))
}
