//! Programs into which the recorder cannot be loaded. This is reported before they run, because afterward they would
//! look as if they allocated no memory.
//!
//! The dynamic linker does not preload libraries into programs that run with privileges other than their caller's, and
//! statically linked programs have no dynamic linker.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
/// `PT_INTERP`: the segment that names the dynamic linker.
const INTERPRETER: u64 = 3;

/// The reason, as text that follows the program's name.
pub(crate) fn find(program: &OsStr) -> Option<&'static str> {
    let path = search(program)?;
    if has_other_rights(&path) {
        Some(
            "runs with privileges that you do not have (setuid or file capabilities), so the recorder cannot be loaded into it",
        )
    } else if is_static(&path) == Some(true) {
        Some(
            "is statically linked, so the recorder cannot be loaded into it, only into programs that it starts",
        )
    } else {
        None
    }
}

/// The program's file, found as the shell finds it.
pub(super) fn search(program: &OsStr) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        return Some(PathBuf::from(program));
    }
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|folder| folder.join(program)).find(|path| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

fn has_other_rights(path: &Path) -> bool {
    let (Ok(file), Ok(own)) = (fs::metadata(path), fs::metadata("/proc/self")) else { return false };
    let sets_user = file.mode() & SET_USER != 0 && file.uid() != own.uid();
    let sets_group = file.mode() & SET_GROUP != 0 && file.gid() != own.gid();
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0; 64]).is_ok();
    // Root already has all capabilities.
    sets_user || sets_group || has_capabilities && own.uid() != 0
}

/// Whether a program has no dynamic linker; `None` for files other than 64-bit programs, such as scripts.
fn is_static(path: &Path) -> Option<bool> {
    let file = File::open(path).ok()?;
    let read = |start: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, start).ok().map(|()| bytes)
    };
    let number = |bytes: &[u8], start: usize, length: usize| {
        let field = bytes.get(start..start + length)?;
        Some(field.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte)))
    };
    let head = read(0, 64)?;
    if head.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (start, size, count) = (number(&head, 32, 8)?, number(&head, 54, 2)?, number(&head, 56, 2)?);
    let mut segments = (0..count).map(|index| number(&read(start + index * size, 4)?, 0, 4));
    Some(!segments.any(|kind| kind == Some(INTERPRETER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_programs_are_no_obstacle() {
        assert_eq!(find(OsStr::new("sh")), None);
        assert_eq!(is_static(&env::current_exe().unwrap()), Some(false));
        assert_eq!(is_static(Path::new("/proc/self/maps")), None);
        assert_eq!(find(OsStr::new("no-such-program")), None);
    }
}
