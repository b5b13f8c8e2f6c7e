//! Merges the files of an index into a new generation: few large files, sorted by job.
//!
//! A new generation has the newest version of every source of the old one and of `objects`, also of recordings that have been
//! deleted. CURRENT names it only when it is complete; only then are the merged files deleted. A compaction that is
//! interrupted leaves the old index as it was, and a folder that no reader looks at.

use std::collections::HashMap;
use std::fmt;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use makeroom_index::{Entry, IndexWriter, job_name};
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions};
use sha2::{Digest as _, Sha256};

use crate::failure::Failure;
use crate::layout::{self, CURRENT, Files, GENERATIONS};
use crate::store::Location;

/// Objects of a row group.
const GROUP: usize = 2000;
/// Row groups of a file.
const GROUPS: usize = 25;
/// The file that exists while a compaction is running.
const LOCK: &str = "COMPACTING";
/// Files that are read or deleted at the same time.
const FILES: usize = 16;

/// What a compaction did.
pub(crate) struct Compacted {
    merged: usize,
    objects: usize,
    parts: usize,
}

impl fmt::Display for Compacted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.merged == 0 {
            return out.write_str("the index is compact already");
        }
        let plural = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let (merged, objects) = (plural(self.merged, "file"), plural(self.objects, "object"));
        write!(out, "merged {merged} into {}: {objects}", plural(self.parts, "file"))
    }
}

/// Compacts an index.
pub(crate) async fn run(index: &Location) -> Result<Compacted, Failure> {
    let lock = index.child(LOCK);
    let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match index.store.put_opts(&lock, "".into(), create).await {
        Ok(_) => {}
        Err(object_store::Error::AlreadyExists { .. }) => {
            let lock = format!("{}/{LOCK}", index.name.trim_end_matches('/'));
            return Err(Failure::Compacting { name: index.name.clone(), lock });
        }
        Err(error) => return Err(Failure::store(&index.name, &error)),
    }
    let compacted = merge(index).await;
    // If it cannot be deleted, the next compaction reports it.
    let _ = index.store.delete(&lock).await;
    compacted
}

async fn merge(index: &Location) -> Result<Compacted, Failure> {
    let files = layout::existing(index).await?;
    if files.objects.is_empty() {
        return Ok(Compacted { merged: 0, objects: 0, parts: files.parts.len() });
    }
    let order = order(index, &files).await?;
    let name = generation(&files);
    let folder = index.child(GENERATIONS).join(name.as_str());
    let parts = write(index, &folder, &files, &order).await?;
    index.write(&index.child(CURRENT), format!("{name}\n").into_bytes()).await?;
    // From here on readers use the new generation.
    let old = files.parts.iter().chain(&files.objects).cloned();
    let delete = |path: Path| async move {
        match index.store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Failure::store(&index.name, &error)),
        }
    };
    stream::iter(old.map(delete)).buffer_unordered(FILES).try_collect::<Vec<()>>().await?;
    Ok(Compacted { merged: files.objects.len() + files.parts.len(), objects: order.len(), parts })
}

/// The name of the generation that is made from these files.
fn generation(files: &Files) -> String {
    let mut hash = Sha256::new();
    for path in files.parts.iter().chain(&files.objects) {
        hash.update(path.as_ref());
        hash.update([0]);
    }
    let first = hash.finalize().iter().take(8).fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
    format!("{first:016x}")
}

/// Where an object is: the file, the row group and its number in it.
type Place = (usize, usize, usize);

/// The places of the newest version of every source, by job and source.
async fn order(index: &Location, files: &Files) -> Result<Vec<Place>, Failure> {
    let mut found: HashMap<String, (u64, String, String, Place)> = HashMap::new();
    for (number, path) in files.parts.iter().chain(&files.objects).enumerate() {
        let failed = |error| Failure::Index { name: path.to_string(), error };
        let file = layout::open(index, path).await?.ok_or_else(|| missing(path))?;
        for group in 0..file.groups() {
            for (position, entry) in file.entries(group).map_err(failed)?.into_iter().enumerate() {
                let job = entry.rows.recordings.first().map(|row| job_name(row, &entry.object));
                let object = entry.object;
                let version = (object.modified_us.unwrap_or(0), object.etag);
                let place = (number, group, position);
                let newest = found.entry(object.source).or_insert_with(|| {
                    (version.0, version.1.clone(), job.clone().unwrap_or_default(), place)
                });
                if (newest.0, &newest.1) < (version.0, &version.1) {
                    *newest = (version.0, version.1, job.unwrap_or_default(), place);
                }
            }
        }
    }
    let mut sorted: Vec<(String, String, Place)> =
        found.into_iter().map(|(source, (_, _, job, place))| (job, source, place)).collect();
    sorted.sort();
    Ok(sorted.into_iter().map(|(_, _, place)| place).collect())
}

fn missing(path: &Path) -> Failure {
    Failure::Store { name: path.to_string(), reason: "it has been deleted".to_owned(), is_access: false }
}

/// Writes the objects in this order. Returns the number of files.
async fn write(index: &Location, folder: &Path, files: &Files, order: &[Place]) -> Result<usize, Failure> {
    let paths: Vec<&Path> = files.parts.iter().chain(&files.objects).collect();
    // The last row group that was read of each file of the old generation, which is sorted too.
    let mut read: HashMap<usize, (usize, Vec<Entry>)> = HashMap::new();
    let mut parts = 0;
    for of_file in order.chunks(GROUP * GROUPS) {
        let failed = |error| Failure::Index { name: folder.to_string(), error };
        let mut writer = IndexWriter::new(Vec::new()).map_err(failed)?;
        for of_group in of_file.chunks(GROUP) {
            let mut entries = Vec::with_capacity(of_group.len());
            for &(number, group, position) in of_group {
                let is_old = number < files.parts.len();
                let known = read.get(&number).is_some_and(|(known, _)| *known == group);
                if !known {
                    let path = paths[number];
                    let failed = |error| Failure::Index { name: path.to_string(), error };
                    let file = layout::open(index, path).await?.ok_or_else(|| missing(path))?;
                    read.insert(number, (group, file.entries(group).map_err(failed)?));
                }
                let entry = read.get(&number).and_then(|(_, entries)| entries.get(position));
                entries.push(entry.cloned().ok_or_else(|| missing(paths[number]))?);
                if !is_old {
                    read.remove(&number);
                }
            }
            writer.push(&entries).map_err(failed)?;
        }
        let bytes = writer.finish().map_err(failed)?;
        index.write(&folder.clone().join(format!("part-{parts:05}.parquet")), bytes).await?;
        parts += 1;
    }
    Ok(parts)
}
