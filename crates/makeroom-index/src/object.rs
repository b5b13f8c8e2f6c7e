//! The identity of an object, and the name of its index file.
//!
//! The name is a hash of the source, the size and the etag. Two runs that index the same object therefore write the same
//! file, and an object that changes gets another file; readers take the newest one per source.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The folder of an index with one file per object.
pub const OBJECTS: &str = "objects";
/// How the names of index files end.
pub const SUFFIX: &str = ".parquet";
/// Bytes of the hash in a name.
const HASH_BYTES: usize = 16;

/// An object that was indexed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its address: `s3://bucket/job/rank3.room`, or an absolute path.
    pub source: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its etag, or [`etag`] if its store has none.
    pub etag: String,
    /// When it was last modified, in microseconds since the epoch.
    pub modified_us: Option<u64>,
}

impl Object {
    /// The name of its index file, in [`OBJECTS`].
    #[must_use]
    pub fn file_name(&self) -> String {
        let mut hash = Sha256::new();
        // Lengths first, so that no two objects have the same bytes.
        for part in [self.source.as_bytes(), &self.size.to_le_bytes(), self.etag.as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hex(&hash.finalize()[..HASH_BYTES]) + SUFFIX
    }

    /// Which of `shards` parts of a listing it belongs to: a hash of its source only, so that a shard stays the same when
    /// an object changes.
    #[must_use]
    pub fn shard(source: &str, shards: u64) -> u64 {
        let hash = Sha256::digest(source.as_bytes());
        let first = hash.iter().take(8).fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
        first % shards.max(1)
    }
}

/// The etag of a file in a store without etags: its time of modification in microseconds, in hexadecimal digits.
#[must_use]
pub fn etag(modified_us: u64) -> String {
    format!("{modified_us:x}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(source: &str, size: u64, etag: &str) -> Object {
        Object { source: source.to_owned(), size, etag: etag.to_owned(), modified_us: None }
    }

    #[test]
    fn the_name_depends_on_source_size_and_etag_only() {
        let first = object("s3://bucket/a.room", 10, "x");
        assert_eq!(first.file_name(), "fdfd6e2e01a025902f3a07db93f61934.parquet");
        assert_eq!(first.file_name(), Object { modified_us: Some(7), ..first.clone() }.file_name());
        for other in [
            object("s3://bucket/a.roo", 10, "x"),
            object("s3://bucket/a.room", 11, "x"),
            object("s3://bucket/a.room", 10, "y"),
        ] {
            assert_ne!(first.file_name(), other.file_name());
        }
    }

    #[test]
    fn every_object_is_in_one_shard_and_shards_are_of_similar_size() {
        let mut counts = [0; 4];
        for number in 0..4000 {
            counts[Object::shard(&format!("s3://bucket/rank{number}.room"), 4) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (900..1100).contains(&count)), "{counts:?}");
    }
}
