//! Private directories of the user, for the libraries that programs load and for sockets.
//!
//! No other user may control which library is loaded. The directory must belong to the user, and each of its parents to
//! the user or to root, because anyone who can write to a parent could replace its contents (unless it has the sticky
//! bit, like `/tmp`). Directories are named by their real path, so that no symbolic link in it can be changed later.
//! Parents are not created: a `TMPDIR` that does not exist is skipped like an unusable one.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Directories for temporary files that exist on most systems.
const USUAL: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Maximum length of a socket path, without the terminating NUL byte.
const LONGEST_SOCKET: usize = 107;

/// A candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    path: PathBuf,
    /// Whether to create the parent too, as programs do with `~/.cache`.
    makes_parent: bool,
}

/// The first private directory in which `work` succeeds, or the last error.
pub(crate) fn first<T>(mut work: impl FnMut(&Path) -> io::Result<T>) -> io::Result<T> {
    let mut problem = io::Error::other("there is no directory for temporary files");
    for candidate in candidates(|name| std::env::var_os(name).map(PathBuf::from)) {
        match own(&candidate).and_then(|folder| work(&folder)) {
            Ok(found) => return Ok(found),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// Returns an error for a directory from which `LD_PRELOAD` cannot load a library: it cannot quote separators, or `$`,
/// which starts a variable (`$LIB`).
pub(crate) fn loadable(folder: &Path) -> io::Result<()> {
    let is_separator = |byte: &u8| matches!(byte, b':' | b';' | b'$') || byte.is_ascii_whitespace();
    if folder.as_os_str().as_bytes().iter().any(is_separator) {
        let name = folder.display();
        return Err(io::Error::other(format!(
            "cannot preload a library from {name}: the path contains a space, a colon, a semicolon or $"
        )));
    }
    Ok(())
}

/// Returns an error for a path that is too long for a socket.
pub(crate) fn short(socket: &Path) -> io::Result<()> {
    if socket.as_os_str().as_bytes().len() > LONGEST_SOCKET {
        return Err(io::Error::other(format!("{}: the name is too long for a socket", socket.display())));
    }
    Ok(())
}

fn candidates(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<Candidate> {
    let variable = |name: &str| variable(name).filter(|folder| !folder.as_os_str().is_empty());
    let user = rustix::process::geteuid().as_raw();
    let in_temporary = |folder: &Path| folder.join(format!("makeroom-{user}"));
    let of_session = variable("XDG_RUNTIME_DIR").map(|folder| (folder.join("makeroom"), false));
    let temporary = variable("TMPDIR").map(|folder| (in_temporary(&folder), false));
    let of_user = variable("XDG_CACHE_HOME")
        .map(|folder| (folder.join("makeroom"), false))
        .or_else(|| Some((variable("HOME")?.join(".cache/makeroom"), true)));
    let usual = USUAL.map(|folder| Some((in_temporary(Path::new(folder)), false)));
    let [first, rest @ ..] = usual;
    let all = [of_session, temporary, first, of_user].into_iter().chain(rest).flatten();
    // An absolute path, which does not depend on the program's working directory.
    all.filter_map(|(path, makes_parent)| {
        Some(Candidate { path: std::path::absolute(path).ok()?, makes_parent })
    })
    .collect()
}

/// Creates a private directory, or checks that an existing one is private. Returns its real path.
fn own(candidate: &Candidate) -> io::Result<PathBuf> {
    let (Some(parent), Some(name)) = (candidate.path.parent(), candidate.path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if candidate.makes_parent {
        make(parent)?;
    }
    let parent = fs::canonicalize(parent)?;
    let user = rustix::process::geteuid().as_raw();
    for folder in parent.ancestors() {
        if !is_kept(&fs::symlink_metadata(folder)?, user) {
            return Err(io::Error::other(format!(
                "{}: other users can replace its contents",
                folder.display()
            )));
        }
    }
    let folder = parent.join(name);
    make(&folder)?;
    let found = fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != user || found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(io::Error::other(format!("{} belongs to another user", folder.display())));
    }
    Ok(folder)
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Whether only the user and root can replace the contents of a directory.
fn is_kept(folder: &Metadata, user: u32) -> bool {
    let is_trusted = folder.uid() == user || folder.uid() == 0 || is_outside(folder.uid());
    folder.is_dir() && is_trusted && (folder.mode() & WRITABLE_BY_OTHERS == 0 || folder.mode() & STICKY != 0)
}

/// Whether an owner has no id in this user namespace, as root's directories do in a rootless container.
fn is_outside(owner: u32) -> bool {
    let number = |path| fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    let has_all_users = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    !has_all_users && number("/proc/sys/kernel/overflowuid") == Some(owner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn scratch(test: &str) -> PathBuf {
        let folder = fs::canonicalize(std::env::temp_dir()).unwrap();
        let folder = folder.join(format!("makeroom-folders-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn asked(path: PathBuf) -> io::Result<PathBuf> {
        own(&Candidate { path, makes_parent: false })
    }

    #[test]
    fn a_folder_is_made_without_its_parents() {
        let folder = scratch("parents");
        assert_eq!(asked(folder.join("mine")).unwrap(), folder.join("mine"));
        assert_eq!(fs::metadata(folder.join("mine")).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(asked(folder.join("no/such")).is_err() && !folder.join("no").exists());
        let cache = Candidate { path: folder.join(".cache/makeroom"), makes_parent: true };
        assert!(own(&cache).is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_folder_above_counts_and_links_are_resolved() {
        let folder = scratch("above");
        fs::create_dir_all(folder.join("open/below")).unwrap();
        fs::set_permissions(folder.join("open"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(asked(folder.join("open/below/mine")).is_err());
        symlink("open/below", folder.join("link")).unwrap();
        assert!(asked(folder.join("link/mine")).is_err());
        fs::set_permissions(folder.join("open"), fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(asked(folder.join("link/mine")).unwrap(), folder.join("open/below/mine"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_that_cannot_be_loaded_from_or_bound_are_refused() {
        for name in ["/a b", "/a:b", "/a;b", "/$LIB", "/a\tb"] {
            assert!(loadable(Path::new(name)).is_err(), "{name}");
        }
        assert!(loadable(Path::new("/tmp/makeroom-0,é")).is_ok());
        assert!(short(Path::new(&"x".repeat(107))).is_ok());
        assert!(short(Path::new(&"x".repeat(108))).is_err());
    }

    #[test]
    fn folders_are_absolute_and_the_environment_comes_first() {
        let variables = |name: &str| match name {
            "TMPDIR" => Some(PathBuf::from("below")),
            "XDG_RUNTIME_DIR" => Some(PathBuf::new()),
            "HOME" => Some(PathBuf::from("/home/me")),
            _ => None,
        };
        let found = candidates(variables);
        let here = std::env::current_dir().unwrap();
        assert!(found[0].path.starts_with(here.join("below")), "{found:?}");
        assert!(found[1].path.starts_with("/tmp"), "{found:?}");
        assert_eq!(found[2], Candidate { path: "/home/me/.cache/makeroom".into(), makes_parent: true });
        assert!(found.iter().all(|candidate| candidate.path.is_absolute()));
    }
}
