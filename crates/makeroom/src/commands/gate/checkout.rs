//! The path of a source file in the checkout that `gate` runs in. Recordings name a file by its last directory, and GitHub
//! shows an annotation next to a line only if the path is relative to the root of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Entries of directories that are examined, so that a huge checkout does not delay the result.
const MOST_ENTRIES: usize = 100_000;
/// Directories that contain files of other projects.
const SKIPPED: [&str; 3] = ["target", "node_modules", "site-packages"];

/// The path of `file` relative to `root`, if there is exactly one such file.
pub(super) fn path_in(root: &Path, file: &str) -> Option<String> {
    if !Path::new(file).is_relative() {
        return None;
    }
    if root.join(file).is_file() {
        return Some(file.to_owned());
    }
    // The last directory of a file at the top of the checkout is the checkout itself.
    let of_root = file.split_once('/').filter(|(directory, name)| {
        root.file_name().is_some_and(|root| root.to_str() == Some(directory)) && root.join(name).is_file()
    });
    if let Some((_, name)) = of_root {
        return Some(name.to_owned());
    }
    let mut found = files(root, file).into_iter();
    let (first, second) = (found.next()?, found.next());
    let path = first.strip_prefix(root).ok()?.to_str()?.to_owned();
    second.is_none().then_some(path)
}

/// The files below a directory whose path ends with `file`.
fn files(root: &Path, file: &str) -> Vec<PathBuf> {
    let (mut found, mut directories, mut entries) = (Vec::new(), vec![root.to_owned()], 0);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            entries += 1;
            if entries > MOST_ENTRIES {
                return Vec::new();
            }
            let (name, path) = (entry.file_name(), entry.path());
            // Links are not followed: they could form a cycle.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    let is_skipped =
                        name.to_str().is_none_or(|name| name.starts_with('.') || SKIPPED.contains(&name));
                    directories.extend((!is_skipped).then_some(path));
                }
                Ok(kind) if kind.is_file() && path.ends_with(file) => found.push(path),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_below_the_checkout() {
        let scratch = std::env::temp_dir().join(format!("makeroom-checkout-{}", std::process::id()));
        let root = scratch.join("project");
        for file in ["train.py", "src/net/model.py", "a/x/loss.py", "b/x/loss.py", "target/y/skipped.py"] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        let found = |file: &str| path_in(&root, file);
        let results = [
            found("train.py"),
            found("project/train.py"),
            found("net/model.py"),
            found("x/loss.py"),
            found("y/skipped.py"),
            found("other/train.py"),
            found("/etc/passwd"),
        ];
        fs::remove_dir_all(&scratch).unwrap();
        let [top, of_root, nested, ambiguous, skipped, other, absolute] = results;
        assert_eq!((top.as_deref(), of_root.as_deref()), (Some("train.py"), Some("train.py")));
        assert_eq!(nested.as_deref(), Some("src/net/model.py"));
        assert_eq!([ambiguous, skipped, other, absolute], [const { None }; 4]);
    }
}
