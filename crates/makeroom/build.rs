//! Builds the embedded libraries, so that `cargo run` and `cargo install` need no extra step: the recorder that
//! `makeroom run` injects, and the software GPU of `makeroom demo`. This is a separate cargo build, because nothing
//! may link these libraries: one exports `dlsym`, and the others take the place of CUDA's.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARIES: [&str; 3] = ["makeroom-preload", "makeroom-simgpu", "makeroom-simnvml"];

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let output = PathBuf::from(env::var("OUT_DIR")?);
    watch(&here)?;
    let is_linux = env::var("CARGO_CFG_TARGET_OS")? == "linux";
    if is_linux {
        // `makeroom why` reads the line tables of the demonstrations from this binary, so debug sections stay, but
        // compressed: the standard library adds its own.
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
    let built = if is_linux { Some(build(&here, &output)?) } else { None };
    for name in LIBRARIES {
        let file = format!("lib{}.so", name.replace('-', "_"));
        let embedded = output.join(&file);
        match &built {
            Some(folder) => drop(fs::copy(folder.join(file), embedded)?),
            // With an empty library, `run` and `demo` report that they work on Linux only.
            None => fs::write(embedded, [])?,
        }
    }
    Ok(())
}

/// A change in any crate may change a library. The inner cargo decides, and is fast if nothing changed.
fn watch(here: &Path) -> Result<(), Box<dyn Error>> {
    for folder in fs::read_dir(here.join(".."))? {
        let folder = folder?.path();
        let parts = ["src", "Cargo.toml", "build.rs"].map(|part| folder.join(part));
        for part in parts.iter().filter(|part| part.exists() && !folder.ends_with("makeroom")) {
            println!("cargo::rerun-if-changed={}", part.display());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}

/// Builds all libraries and returns their directory.
fn build(here: &Path, output: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let target = env::var("TARGET")?;
    let is_release = env::var("PROFILE")? == "release";
    let (profile, folder) = if is_release { ("release", "release") } else { ("dev", "debug") };
    let target_folder = output.join("libraries");
    let status = Command::new(env::var("CARGO")?)
        .args(["build", "--lib", "--quiet", "--target", &target, "--profile", profile])
        .args(LIBRARIES.iter().flat_map(|name| ["--package", name]))
        // They catch their own panics before those reach the host program.
        .args(["--config", &format!("profile.{profile}.panic='unwind'")])
        .args(["--config", &format!("profile.{profile}.strip='symbols'")])
        .arg("--manifest-path")
        .arg(here.join("../../Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_folder)
        // Do not run the outer build's lints on this one.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .status()?;
    if !status.success() {
        return Err(format!("the embedded libraries could not be built: {status}").into());
    }
    Ok(target_folder.join(target).join(folder))
}
