//! One object's bytes to its index file: the same reader and the same rows as `makeroom job`.

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::Path;

use makeroom_gather::read_object;
use makeroom_job::Unread;

use crate::{Entry, IndexError, Object, encode};

/// The index file of an object that lies at a path. A foreign or damaged object gives a file too, which names the reason; an
/// error means that the path could not be read.
pub fn index_file(object: Object, path: &Path) -> Result<Vec<u8>, IndexError> {
    encode(&[summarize_file(object, path)?])
}

/// The index file of an object in memory.
pub fn index_bytes(object: Object, bytes: &[u8]) -> Result<Vec<u8>, IndexError> {
    encode(&[summarize(object, Cursor::new(bytes))])
}

/// The rows of an object that lies at a path.
pub fn summarize_file(object: Object, path: &Path) -> Result<Entry, IndexError> {
    Ok(summarize(object, File::open(path)?))
}

fn summarize(object: Object, contents: impl Read + Seek) -> Entry {
    let mut rows = read_object(&object.source, contents);
    if rows.recordings.is_empty() && rows.unread.is_empty() {
        let reason = "it contains no recording".to_owned();
        rows.unread.push(Unread { file: object.source.clone(), reason });
    }
    Entry { object, rows }
}
