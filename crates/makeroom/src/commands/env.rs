//! `makeroom env`: prints the variables that record every program, for launchers that cannot be wrapped.
//!
//! The recorder goes to a folder of its own in the recordings' directory, because every node must see it. If that
//! directory is mounted noexec or belongs to another user, it goes to the user's own, which may not be visible on other
//! nodes; then a note says so.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::cli::Env;
use crate::commands::run::{library, run_id};
use crate::failure::Failure;
use crate::output;

/// The name of a recording in the directory.
const NAME: &str = "%h.%r.%p.room";
/// The folder of the recorder in the directory.
pub(crate) const LIBRARY: &str = ".makeroom";

/// Prints the variables.
pub(crate) fn run(arguments: &Env) -> Result<(), Failure> {
    let directory = std::path::absolute(&arguments.to)?;
    let fixed = fixed_part(&directory);
    let failed = |error| Failure::Write { name: fixed.display().to_string(), error };
    fs::create_dir_all(&fixed).map_err(failed)?;
    let library = match place_in(&fixed) {
        Ok(library) => library,
        Err(reason) => {
            let library = library::place().map_err(Failure::Library)?;
            output::remark(&format!(
                "makeroom: the recorder was copied to {}, which other nodes may not see, because it could not be copied to {}: {reason}\n",
                library.display(),
                fixed.display()
            ));
            library
        }
    };
    output::script(script(arguments, &directory, &library).as_bytes())
}

/// The directory up to the first part with a placeholder.
fn fixed_part(directory: &Path) -> PathBuf {
    let has_placeholder = |part: &std::ffi::OsStr| part.as_bytes().contains(&b'%');
    directory.components().take_while(|part| !has_placeholder(part.as_os_str())).collect()
}

/// Copies the recorder to a folder in a directory. Only this user may write to it; the job may run as another one.
fn place_in(directory: &Path) -> io::Result<PathBuf> {
    let folder = directory.join(LIBRARY);
    match DirBuilder::new().mode(0o755).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)?;
    let is_private = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if !is_private || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} belongs to another user", folder.display())));
    }
    library::place_in(&folder)
}

/// The export lines. What the shell has in `LD_PRELOAD` stays, after the recorder.
fn script(arguments: &Env, directory: &Path, library: &Path) -> String {
    let mut script = String::new();
    let file = directory.join(NAME);
    let _ = writeln!(
        script,
        "export LD_PRELOAD={}\"${{LD_PRELOAD:+:$LD_PRELOAD}}\"",
        quoted(&library.to_string_lossy())
    );
    let mut export = |name: &str, value: &str| {
        let _ = writeln!(script, "export {name}={}", quoted(value));
    };
    export("MAKEROOM_FILE", &file.to_string_lossy());
    export("MAKEROOM_RUN_ID", &run_id());
    export("MAKEROOM_KEEP", &arguments.keep);
    if let Some(ring) = arguments.ring {
        export("MAKEROOM_RING", &ring.get().to_string());
    }
    if arguments.no_stacks {
        export("MAKEROOM_STACKS", "none");
    }
    if arguments.no_command_line {
        export("MAKEROOM_COMMAND_LINE", "off");
    }
    script
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(keep: &str) -> Env {
        Env { to: PathBuf::new(), keep: keep.to_owned(), ring: None, no_stacks: true, no_command_line: false }
    }

    #[test]
    fn placeholders_end_the_part_that_exists() {
        assert_eq!(fixed_part(Path::new("/shared/oom/%j/%r")), Path::new("/shared/oom"));
        assert_eq!(fixed_part(Path::new("/shared/oom")), Path::new("/shared/oom"));
    }

    #[test]
    fn a_shell_reads_the_values_as_they_are() {
        let script = script(&arguments("last=2"), Path::new("/it's $HOME/%j"), Path::new("/d/lib.so"));
        let shown = format!(
            "LD_PRELOAD=/other.so\n{script}\nprintf '%s\\n' \"$LD_PRELOAD\" \"$MAKEROOM_FILE\" $MAKEROOM_KEEP $MAKEROOM_STACKS"
        );
        // The preloaded names do not exist; only the shell's own variables are read.
        let output = std::process::Command::new("/bin/sh").arg("-c").arg(shown).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            ["/d/lib.so:/other.so", "/it's $HOME/%j/%h.%r.%p.room", "last=2", "none"]
        );
    }
}
