//! Embeds shared libraries: `libraries!(makeroom_preload, makeroom_simgpu)` is the content of two that cargo builds as
//! dependencies, `libmakeroom_preload.so` and `libmakeroom_simgpu.so`. `path!(makeroom_preload)` is the path of one, for tests.
//!
//! The feature `lzma` adds `lzma_libraries!` and `lzma_file!("src/page.html")`, whose content is compressed. Only the released
//! command uses them, because the LZMA crate takes about 10 s to compile. The libraries share one stream, because each contains
//! the standard library: the stream is less than two thirds of the size of three zlib streams.
//!
//! For a library, a binary crate lists the library in its `[dependencies]` and never names it in its code. Cargo then builds the library
//! once, in the same build and with the same options (`--locked`, `--offline`, `--target`, the profile), and rustc links
//! no part of it into the binary. The library's crate types are `cdylib`, for the file, and `rlib`, so that cargo accepts
//! the dependency.
//!
//! Cargo has no stable way to name that file: artifact dependencies need a nightly compiler, a build script runs before
//! the library is built, and the layout of the target directory is not documented. The compiler's command line names its
//! neighbor, though: `--extern makeroom_preload=DIRECTORY/libmakeroom_preload.rlib`, or `…/libmakeroom_preload-HASH.rlib` if
//! the library comes from a registry. rustc writes all crate types of a library in one run, to the same directory and with the
//! same name except for the extension. The macros read the arguments of the process that expands them.
//!
//! Commands that only check (`cargo check`, `cargo clippy`, `cargo doc`, editors) build no library. There the macros
//! expand to empty slices and an empty path.

mod command_line;
#[cfg(feature = "lzma")]
mod lzma;

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro::{Literal, TokenStream};

use command_line::CommandLine;

/// The shared libraries of dependencies, by the names of their crates, as a `[(&'static [u8], u64); N]`: the content of each, and
/// its FNV-1a hash. The contents are empty if this command builds no libraries.
#[proc_macro]
pub fn libraries(names: TokenStream) -> TokenStream {
    expand(libraries_of(&names))
}

fn libraries_of(names: &TokenStream) -> Result<String, String> {
    let rows = found(names)?.into_iter().map(|path| match path {
        Some(path) => Ok(format!("({}, {})", include(&path), hash(&read(&path)?))),
        None => Ok(format!("(&[], {})", hash(&[]))),
    });
    Ok(format!("[{}]", rows.collect::<Result<Vec<_>, String>>()?.join(", ")))
}

/// [`libraries`], compressed, as a `(&'static [u8], [(usize, u64); N])`: one stream in the `.lzma` format that contains them in
/// this order, and for each library its end in the decompressed content and its FNV-1a hash. The stream is empty if this command
/// builds no libraries.
#[cfg(feature = "lzma")]
#[proc_macro]
pub fn lzma_libraries(names: TokenStream) -> TokenStream {
    expand(lzma_libraries_of(&names))
}

/// Cargo recompiles the embedding crate when a library has changed, because it is a dependency.
#[cfg(feature = "lzma")]
fn lzma_libraries_of(names: &TokenStream) -> Result<String, String> {
    let (mut content, mut parts) = (Vec::new(), Vec::new());
    for path in found(names)? {
        let library = path.map_or_else(|| Ok(Vec::new()), |path| read(&path))?;
        content.extend(&library);
        parts.push((content.len(), hash(&library)));
    }
    let stream = if content.is_empty() { Vec::new() } else { lzma::compress(&content)? };
    Ok(format!("({}, {parts:?})", Literal::byte_string(&stream)))
}

/// The content of a file as a `&'static [u8]` in the `.lzma` format, given its path in the crate's directory.
#[cfg(feature = "lzma")]
#[proc_macro]
pub fn lzma_file(path: TokenStream) -> TokenStream {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let path = Path::new(&root).join(path.to_string().trim_matches('"'));
    // The compiler does not know which files a macro reads; `include_bytes` makes it compile again after a change.
    let content = read(&path).and_then(|content| lzma::compress(&content));
    expand(content.map(|stream| {
        format!("{{ const _: &[u8] = {}; {} }}", include(&path), Literal::byte_string(&stream))
    }))
}

/// The paths of the named libraries; `None` for each if this command builds no libraries.
fn found(names: &TokenStream) -> Result<Vec<Option<PathBuf>>, String> {
    let line = command_line::of_this_process()?;
    names.to_string().split(',').map(|name| find(&line, name.trim())).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn include(path: &Path) -> String {
    format!("::core::include_bytes!({})", Literal::string(&path.to_string_lossy()))
}

/// FNV-1a.
fn hash(content: &[u8]) -> u64 {
    content
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The path of a dependency's shared library, by the name of its crate, as a `&'static str`.
#[proc_macro]
pub fn path(name: TokenStream) -> TokenStream {
    expand(path_of(&name).map(|path| Literal::string(&path.unwrap_or_default()).to_string()))
}

fn path_of(name: &TokenStream) -> Result<Option<String>, String> {
    let path = find(&command_line::of_this_process()?, &name.to_string())?;
    path.map(|path| {
        path.into_os_string().into_string().map_err(|path| format!("{} is not UTF-8", path.display()))
    })
    .transpose()
}

/// The path of the library, or `None` if this command builds no libraries.
fn find(line: &CommandLine, name: &str) -> Result<Option<PathBuf>, String> {
    if !line.links {
        return Ok(None);
    }
    let Some((_, file)) = line.externs.iter().find(|(found, _)| found == name) else {
        return Err(format!("{name} is not a dependency of this crate"));
    };
    if file.extension().is_some_and(|extension| extension == "rmeta") {
        return Err(format!("{name} may not be built yet: only a binary crate can embed it"));
    }
    let path = file.with_extension("so");
    // Cargo may pass a path relative to where the compiler runs; tests run elsewhere.
    let path = std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !path.exists() {
        return Err(format!("cargo did not build {}: is cdylib a crate type of {name}?", path.display()));
    }
    Ok(Some(path))
}

/// The tokens of an expression; an error becomes an error of the compiler.
fn expand(expression: Result<String, String>) -> TokenStream {
    let expression =
        expression.unwrap_or_else(|message| format!("::core::compile_error!({})", Literal::string(&message)));
    expression.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn line(arguments: &[&str]) -> CommandLine {
        CommandLine::parse(arguments.iter().map(ToString::to_string)).unwrap()
    }

    #[test]
    fn a_command_that_only_checks_has_no_library() {
        let checks = line(&["--emit=dep-info,metadata", "--extern", "one=/deps/libone-1.rmeta"]);
        assert_eq!(find(&checks, "one"), Ok(None));
        // An editor's server of macros has no such arguments.
        assert_eq!(find(&line(&[]), "one"), Ok(None));
    }

    #[test]
    fn the_library_has_the_name_of_the_rlib() {
        let directory = std::env::temp_dir().join(format!("embed-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // From a registry, names contain a hash.
        for stem in ["libone", "libone-1"] {
            let rlib = format!("one={}/{stem}.rlib", directory.display());
            let builds = line(&["--emit=dep-info,link", "--extern", &rlib]);
            assert!(find(&builds, "one").unwrap_err().contains("cargo did not build"));
            let library = directory.join(format!("{stem}.so"));
            std::fs::write(&library, "content").unwrap();
            assert_eq!(find(&builds, "one"), Ok(Some(library)));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn mistakes_are_named() {
        let builds = line(&["--emit=dep-info,metadata,link", "--extern", "one=/deps/libone-1.rmeta"]);
        assert!(find(&builds, "one").unwrap_err().contains("only a binary crate"));
        assert!(find(&builds, "two").unwrap_err().contains("not a dependency"));
    }
}
