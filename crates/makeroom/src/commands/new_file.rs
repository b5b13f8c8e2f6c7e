//! Files that are made new, under a name that nobody can know before: what somebody planted in a shared folder, a link, a
//! pipe, is neither written to nor waited for.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// How often a name is drawn that is there already, which chance alone does not do.
const ATTEMPTS: u32 = 16;

/// Makes a file in the folder of `path`, for its content to be written to and moved to `path` when it is whole.
pub(crate) fn beside(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
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

/// Opens a plain file to read it: no link, and nothing that would have to be waited for.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    let not_plain = || io::Error::other("this is not a plain file");
    // Checked before it is opened too: opening a device can have effects.
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Err(not_plain());
    }
    let options = flags(OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY);
    let file = OpenOptions::new().read(true).custom_flags(options).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_plain()) }
}

/// Flags of the system as the standard library takes them.
pub(crate) fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// 16 hexadecimal digits that nobody can foresee.
pub(crate) fn random() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn files_are_new_and_links_are_not_followed() {
        let folder = std::env::temp_dir().join(format!("makeroom-new-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("result");
        let (one, file) = beside(&path, 0o600).unwrap();
        let (two, _) = beside(&path, 0o600).unwrap();
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
