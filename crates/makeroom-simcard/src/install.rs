//! A folder that contains `libcuda.so.1` and `libnvidia-ml.so.1`: what a program needs to find the simulated
//! card.
//!
//! Cargo builds the two libraries under their crates' names, because a file called `libcuda.so` in the target
//! folder would be found by every program that cargo runs. A crate whose tests need the simulated card names
//! `makeroom-simgpu` and `makeroom-simnvml` under its `[dev-dependencies]`, which makes cargo build the
//! libraries, and calls [`beside`]:
//!
//! ```no_run
//! let folder = std::env::temp_dir().join("simulated");
//! makeroom_simcard::install::beside(&std::env::current_exe()?, &folder)?;
//! std::process::Command::new("./program").env("LD_LIBRARY_PATH", &folder).status()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A program that is shipped has no target folder; it carries the bytes of both libraries and calls
//! [`write()`].

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Each library: the name under which programs open it, and the name under which cargo builds it.
const LIBRARIES: [(&str, &str); 2] =
    [("libcuda.so.1", "libmakeroom_simgpu.so"), ("libnvidia-ml.so.1", "libmakeroom_simnvml.so")];

/// Links the libraries that cargo built beside `program`, or in the folder above it, into `folder`.
pub fn beside(program: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, built) in LIBRARIES {
        let source = find(program, built)?;
        let link = folder.join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => std::os::unix::fs::symlink(source, link)?,
        }
    }
    Ok(())
}

/// Writes libraries whose bytes the program carries into `folder`.
pub fn write(folder: &Path, driver: &[u8], management: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for ((name, _), bytes) in LIBRARIES.iter().zip([driver, management]) {
        // Another process may have the old file open: it keeps it, and the new one takes the name.
        let fresh = folder.join(format!("{name}.{}", std::process::id()));
        fs::write(&fresh, bytes)?;
        fs::rename(&fresh, folder.join(name))?;
    }
    Ok(())
}

fn find(program: &Path, built: &str) -> io::Result<PathBuf> {
    let folders = program.ancestors().skip(1).take(3);
    let places = folders.flat_map(|folder| [folder.join(built), folder.join("deps").join(built)]);
    // Of several the newest: cargo leaves older ones where an earlier build put them.
    let newest = places.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path))).max();
    newest.map(|(_, path)| path).ok_or_else(|| {
        let message = format!(
            "{built} is not beside {}\n\nhint: cargo build -p makeroom-simgpu -p makeroom-simnvml",
            program.display()
        );
        io::Error::new(ErrorKind::NotFound, message)
    })
}
