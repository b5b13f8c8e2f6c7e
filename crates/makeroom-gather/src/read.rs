//! Reads the files of a job and reduces each to rows, on two threads. One file per thread is open at a time, and a
//! recording is dropped as soon as its rows exist, so memory does not depend on the number of files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use makeroom_core::Trace;
use makeroom_core::identity::{JobIdentity, identities_of_set};
use makeroom_job::{LogReader, Rows, Source, Unread, summarize};
use makeroom_trace::{Error, is_archive_name, read_streaming, visit_archive};

use crate::find::{Files, Found, MOST_FILES, open_plain};

/// Threads that read. More would hold more recordings in memory at once.
const THREADS: usize = 2;

/// What the caller knows about files, and wants to know while they are read.
pub trait Watcher: Sync {
    /// Whether the program that writes this recording is still running.
    fn is_running(&self, trace: &Trace, path: &Path) -> bool;
    /// A file was read.
    fn on_file(&self, path: &Path);
}

/// Reads all files.
pub fn read(found: &Files, watcher: &dyn Watcher) -> Rows {
    let mut rows = reduce(&found.files, |file| {
        let read = read_file(file, watcher);
        watcher.on_file(&file.path);
        read
    });
    rows.unread.extend_from_slice(&found.left_out);
    rows
}

/// The rows of all items, in any order.
pub fn reduce<T: Sync>(items: &[T], rows_of: impl Fn(&T) -> Rows + Sync) -> Rows {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Rows::default());
    thread::scope(|scope| {
        for _ in 0..THREADS.min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let read = rows_of(item);
                    rows.lock().unwrap_or_else(PoisonError::into_inner).extend(read);
                }
            });
        }
    });
    rows.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The rows of a file; that it could not be read, if so.
fn read_file(found: &Found, watcher: &dyn Watcher) -> Rows {
    guarded(&found.path.display().to_string(), || open(found, watcher))
}

/// The rows of one object, which need not be a file: a recording, snapshot, log or archive with this name. The process and
/// its rank are known only from this name and the contents, so the rows do not depend on other objects.
pub fn read_object(name: &str, contents: impl Read + Seek) -> Rows {
    guarded(name, || {
        if is_archive_name(name) {
            return archive(name, contents);
        }
        Ok(archived(name, JobIdentity::from_file_name(name), &mut { contents }))
    })
}

/// Reports an error as a file that could not be read. A bug in a reader must not cost the answer for all other files.
fn guarded(name: &str, read: impl FnOnce() -> Result<Rows, Error>) -> Rows {
    let rows = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Ok(unread(name, "makeroom crashed on this file; please report the bug".to_owned()))
    });
    rows.unwrap_or_else(|error| unread(name, error.to_string()))
}

fn open(found: &Found, watcher: &dyn Watcher) -> Result<Rows, Error> {
    let name = found.path.display().to_string();
    let failed = |cause| Error::Open { path: found.path.clone(), cause };
    // A file found in a folder may be a link or a pipe.
    let file = if found.is_named { File::open(&found.path) } else { open_plain(&found.path) };
    let file = file.map_err(failed)?;
    if found.is_archive {
        return archive(&name, file);
    }
    let mut source = Source { name, identity: found.identity.clone(), is_running: false };
    let mut log = LogReader::new(source.clone());
    match read_streaming(file, |bytes| log.push(bytes))? {
        Some(trace) => {
            source.is_running = watcher.is_running(&trace, &found.path);
            Ok(summarize(&trace, &source))
        }
        None => Ok(log.finish()),
    }
}

/// The rows of all members of an archive. One that cannot be read does not affect the others.
fn archive(name: &str, mut file: impl Read + Seek) -> Result<Rows, Error> {
    let mut rows = Rows::default();
    let mut members = 0;
    let identities = identities(&mut file);
    file.rewind().map_err(|cause| Error::Read { offset: 0, cause })?;
    let visited = visit_archive(file, &mut |member, contents| {
        members += 1;
        if members > MOST_FILES {
            rows.unread.push(Unread {
                file: format!("{name}: more members"),
                reason: format!("at most {MOST_FILES} are read"),
            });
            return ControlFlow::Break(());
        }
        let identity = identities.get(member).cloned().unwrap_or_default();
        rows.extend(archived(&format!("{name}!{member}"), identity, contents));
        ControlFlow::Continue(())
    });
    match visited {
        // What was read before the damage counts.
        Err(error) if !rows.recordings.is_empty() => rows.extend(unread(name, error.to_string())),
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    Ok(rows)
}

/// Reads the recording of a row: a file, or a member of an archive, as in `jobs.tar!rank3.room`. `None` for text, and if
/// there is no such member.
pub fn read_recording(name: &str) -> Result<Option<Trace>, Error> {
    let path = Path::new(name);
    let marks = name.match_indices('!').map(|(at, mark)| (&name[..at], &name[at + mark.len()..]));
    let mut archives = marks.filter(|(archive, _)| is_archive_name(archive) && Path::new(archive).is_file());
    let Some((archive, wanted)) = archives.next().filter(|_| !path.exists()) else {
        return makeroom_trace::open_streaming(path, |_| {});
    };
    let file = File::open(archive).map_err(|cause| Error::Open { path: archive.into(), cause })?;
    let mut found = Ok(None);
    visit_archive(file, &mut |member, contents| {
        if member != wanted {
            return ControlFlow::Continue(());
        }
        found = read_streaming(contents, |_| {});
        ControlFlow::Break(())
    })?;
    found
}

/// What the names of the members say about their processes. A number in which they differ is known only from all names, so
/// the archive is read twice.
fn identities(file: impl Read + Seek) -> BTreeMap<String, JobIdentity> {
    let mut names: Vec<String> = Vec::new();
    let visited = visit_archive(file, &mut |member, _| {
        names.push(member.to_owned());
        if names.len() < MOST_FILES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    // The second reading reports the damage; the names before it count.
    drop(visited);
    let found = identities_of_set(&names.iter().map(String::as_str).collect::<Vec<_>>());
    names.into_iter().zip(found).collect()
}

fn archived(name: &str, identity: JobIdentity, contents: &mut dyn Read) -> Rows {
    let source = Source { name: name.to_owned(), identity, is_running: false };
    let mut log = LogReader::new(source.clone());
    match read_streaming(contents, |bytes| log.push(bytes)) {
        Ok(Some(trace)) => summarize(&trace, &source),
        Ok(None) => log.finish(),
        Err(error) => unread(name, error.to_string()),
    }
}

fn unread(file: &str, reason: String) -> Rows {
    Rows { unread: vec![Unread { file: file.to_owned(), reason }], ..Rows::default() }
}
