//! The folder for the recordings of ranks: one file each, `rank3.room`.
//!
//! | `-o` | folder |
//! |---|---|
//! | none | `makeroom.PID`, or `makeroom.JOB` if `run` itself is a process of a job that has an ID |
//! | `run.room` | `run`, next to it |
//! | a folder | that folder |
//! | a name with `%p` or `%r` | none: the name already differs for each process |
//!
//! The recorder creates the folder with the first rank, because only the program's processes know whether they have
//! ranks. Runs that are processes of a job themselves (`mpirun makeroom run`) share a folder; every other run gets a
//! new one.

use std::path::{Path, PathBuf};

use makeroom_core::identity::JobIdentity;

use super::destination::Destination;

/// The name of a rank's recording.
pub(super) const NAME: &str = "rank%r.room";
/// Folder names to try.
const MOST_NAMES: u32 = 1000;

/// The pattern of a run without `-o`. `None` if nothing says which runs belong together.
pub(super) fn usual(folder: &Path, job: &JobIdentity) -> Option<PathBuf> {
    match (&job.job_id, job.rank) {
        (Some(_), _) => Some(folder.join("makeroom.%j").join(NAME)),
        (None, Some(_)) => None,
        (None, None) => Some(unused(&folder.join(format!("makeroom.{}", std::process::id()))).join(NAME)),
    }
}

/// The pattern of a run that records to a file.
pub(super) fn beside(destination: &Destination, job: &JobIdentity) -> PathBuf {
    if job.rank.is_some() {
        // The other runs of the job use the same folder, whichever of them has the file.
        return without_extension(destination.taken.as_ref().unwrap_or(&destination.pattern)).join(NAME);
    }
    let name = destination.pattern.to_string_lossy().replace("%p", &std::process::id().to_string());
    let path = if destination.taken.is_some() { PathBuf::from(name) } else { destination.pattern.clone() };
    unused(&without_extension(&path)).join(NAME)
}

fn without_extension(path: &Path) -> PathBuf {
    // A folder cannot have the name of the file.
    if path.extension().is_some() { path.with_extension("") } else { path.with_extension("ranks") }
}

/// The folder, or one with a number if it exists.
fn unused(folder: &Path) -> PathBuf {
    let numbered = |number: u32| {
        let mut name = folder.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let names = std::iter::once(folder.to_owned()).chain((2..MOST_NAMES).map(numbered));
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    names.into_iter().find(is_free).unwrap_or_else(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_job_share_a_folder_and_others_do_not() {
        let folder = std::env::temp_dir().join(format!("makeroom-ranks-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("run")).unwrap();
        let alone = JobIdentity::default();
        let ranked = JobIdentity { rank: Some(1), ..JobIdentity::default() };
        let of_job = JobIdentity { job_id: Some("4711".to_owned()), ..ranked.clone() };
        let own = folder.join(format!("makeroom.{}/rank%r.room", std::process::id()));
        assert_eq!(usual(&folder, &alone), Some(own));
        assert_eq!(usual(&folder, &ranked), None);
        assert_eq!(usual(&folder, &of_job), Some(folder.join("makeroom.%j/rank%r.room")));
        let chosen =
            |name: &str, job: &JobIdentity| Destination::choose(Some(&folder.join(name)), job).unwrap().ranks;
        assert_eq!(chosen("new.room", &alone), Some(folder.join("new/rank%r.room")));
        assert_eq!(chosen("run.room", &alone), Some(folder.join("run.2/rank%r.room")));
        assert_eq!(chosen("run.room", &ranked), Some(folder.join("run/rank%r.room")));
        assert_eq!(chosen("plain", &alone), Some(folder.join("plain.ranks/rank%r.room")));
        assert_eq!(chosen("%r.room", &alone), None);
        assert_eq!(chosen("run", &alone), Some(folder.join("run/rank%r.room")), "a folder that exists");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
