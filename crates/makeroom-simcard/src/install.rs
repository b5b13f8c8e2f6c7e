//! Creates a directory with `libcuda.so.1` and `libnvidia-ml.so.1`, from which programs load the simulated GPU.
//!
//! Cargo builds both libraries under their crates' names, because every program that cargo runs would find a file
//! called `libcuda.so` in the target directory. A crate whose tests need the simulated GPU lists `makeroom-simgpu`
//! and `makeroom-simnvml` in its `[dev-dependencies]`, so that cargo builds the libraries, and calls [`link_next_to`]:
//!
//! ```no_run
//! let directory = std::env::temp_dir().join("simulated");
//! makeroom_simcard::install::link_next_to(&std::env::current_exe()?, &directory)?;
//! std::process::Command::new("./program").env("LD_LIBRARY_PATH", &directory).status()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A released program has no target directory. It embeds both libraries and writes them to files with these [`NAMES`].

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The names by which programs load the driver and the management library.
pub const NAMES: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

/// The names by which cargo builds them.
const BUILT: [&str; 2] = ["libmakeroom_simgpu.so", "libmakeroom_simnvml.so"];

/// Links the libraries that cargo built next to `program`, or one directory above, into `directory`.
pub fn link_next_to(program: &Path, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (name, built) in NAMES.into_iter().zip(BUILT) {
        let source = find(program, built)?;
        let link = directory.join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => std::os::unix::fs::symlink(source, link)?,
        }
    }
    Ok(())
}

pub(crate) fn find(program: &Path, built: &str) -> io::Result<PathBuf> {
    let directories = program.ancestors().skip(1).take(3);
    let places =
        directories.flat_map(|directory| [directory.join(built), directory.join("deps").join(built)]);
    // The newest one: cargo leaves older ones from earlier builds.
    let newest = places.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path))).max();
    newest.map(|(_, path)| path).ok_or_else(|| {
        let message = format!(
            "{built} is not next to {}\n\nhint: list its crate in [dev-dependencies]",
            program.display()
        );
        io::Error::new(ErrorKind::NotFound, message)
    })
}
