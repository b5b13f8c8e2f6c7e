//! The directories that an assistant may read.
//!
//! A path is resolved first, with all links in it, and must then be inside one of them. The resolved path is what is read.

use std::io;
use std::path::{Path, PathBuf};

/// Why a path cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It does not exist, or cannot be read.
    #[error("{path}: {error}")]
    Unreadable {
        /// As the assistant named it.
        path: String,
        /// The system's reason.
        error: io::Error,
    },
    /// It is elsewhere.
    #[error("{path}: not in a directory that this server may read ({allowed})")]
    Outside {
        /// As the assistant named it.
        path: String,
        /// The directories.
        allowed: String,
    },
}

/// Directories, resolved.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    roots: Vec<PathBuf>,
}

impl Folders {
    /// Resolves the directories. Each must exist.
    pub(crate) fn new(folders: &[PathBuf]) -> Result<Self, Refusal> {
        let resolve = |folder: &PathBuf| {
            let found = folder.canonicalize().and_then(|root| {
                if root.is_dir() { Ok(root) } else { Err(io::Error::from(io::ErrorKind::NotADirectory)) }
            });
            found.map_err(|error| Refusal::Unreadable { path: folder.display().to_string(), error })
        };
        Ok(Self { roots: folders.iter().map(resolve).collect::<Result<_, _>>()? })
    }

    /// Resolves a path that an assistant names. A relative one is looked up in each directory, in order.
    pub(crate) fn resolve(&self, path: &str) -> Result<PathBuf, Refusal> {
        let named = Path::new(path);
        let unreadable = |error| Refusal::Unreadable { path: path.to_owned(), error };
        let found = if named.is_absolute() {
            named.canonicalize()
        } else {
            let mut places = self.roots.iter().map(|root| root.join(named).canonicalize());
            let first = places.next().unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::NotFound)));
            first.or_else(|error| places.find_map(Result::ok).ok_or(error))
        };
        let found = found.map_err(unreadable)?;
        if self.roots.iter().any(|root| found.starts_with(root)) {
            return Ok(found);
        }
        Err(Refusal::Outside { path: path.to_owned(), allowed: self.to_string() })
    }
}

impl std::fmt::Display for Folders {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let roots: Vec<String> = self.roots.iter().map(|root| root.display().to_string()).collect();
        formatter.write_str(&roots.join(", "))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_paths_inside_are_resolved() {
        let place = tempfile::tempdir().unwrap();
        let (inside, outside) = (place.path().join("in"), place.path().join("out"));
        for folder in [&inside, &outside] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("log"), "text").unwrap();
        }
        symlink(outside.join("log"), inside.join("leaves")).unwrap();
        symlink(inside.join("log"), inside.join("stays")).unwrap();
        let folders = Folders::new(std::slice::from_ref(&inside)).unwrap();
        let real = inside.join("log").canonicalize().unwrap();
        for path in ["log", "stays", "../in/log", inside.join("log").to_str().unwrap()] {
            assert_eq!(folders.resolve(path).unwrap(), real, "{path}");
        }
        for path in ["leaves", "../out/log", outside.join("log").to_str().unwrap(), "/etc/passwd", ".."] {
            assert!(matches!(folders.resolve(path), Err(Refusal::Outside { .. })), "{path}");
        }
        assert!(matches!(folders.resolve("missing"), Err(Refusal::Unreadable { .. })));
        assert!(Folders::new(&[inside.join("log")]).is_err());
    }

    #[test]
    fn a_relative_path_is_looked_up_in_each_directory() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(two.path().join("log"), "text").unwrap();
        let folders = Folders::new(&[one.path().to_owned(), two.path().to_owned()]).unwrap();
        assert_eq!(folders.resolve("log").unwrap(), two.path().canonicalize().unwrap().join("log"));
    }
}
