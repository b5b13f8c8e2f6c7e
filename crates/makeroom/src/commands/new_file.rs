//! Creates files under unpredictable names, so that nothing another user planted in a shared directory, such as a
//! link or a pipe, is written to or waited for.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// How many names to try. Random names do not collide by chance.
const ATTEMPTS: u32 = 16;

/// Creates a draft file next to `path`. The caller writes the content and renames it to `path`.
pub(crate) fn draft(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let mut problem = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..ATTEMPTS {
        let draft = path.with_file_name(format!(".makeroom-{}.part", random()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode).custom_flags(flags(OFlags::NOFOLLOW));
        match options.open(&draft) {
            Ok(file) => return Ok((draft, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => problem = error,
            Err(error) => return Err(error),
        }
    }
    Err(problem)
}

/// `OFlags` as the standard library's `custom_flags` takes them.
pub(crate) fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// 16 unpredictable hexadecimal digits.
pub(crate) fn random() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use makeroom_gather::open_plain;

    use super::*;

    #[test]
    fn files_are_new_and_links_are_not_followed() {
        let folder = std::env::temp_dir().join(format!("makeroom-new-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("result");
        let (one, file) = draft(&path, 0o600).unwrap();
        let (two, _) = draft(&path, 0o600).unwrap();
        assert_ne!(one, two);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        symlink(&one, folder.join("link")).unwrap();
        assert!(open_plain(&folder.join("link")).is_err());
        assert!(open_plain(&folder).is_err());
        assert!(open_plain(Path::new("/dev/null")).is_err());
        assert!(open_plain(&one).is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }
}
