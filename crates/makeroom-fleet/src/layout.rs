//! The files of an index.
//!
//! ```text
//! INDEX/objects/HASH.parquet             one file per object, immutable
//! INDEX/CURRENT                          the name of the current generation; absent before the first compaction
//! INDEX/generations/NAME/part-N.parquet  the objects of all earlier files, sorted by job
//! INDEX/COMPACTING                       exists while a compaction is running
//! ```
//!
//! Readers take the files of the current generation and all of `objects`. A compaction deletes the files that are in its
//! generation only after CURRENT names it, so a reader that misses a file reads CURRENT again.

use std::collections::HashSet;
use std::fs::File;

use futures_util::TryStreamExt as _;
use makeroom_index::{Column, IndexFile, OBJECTS, Object, SUFFIX};
use object_store::ObjectStore as _;
use object_store::path::Path;

use crate::failure::Failure;
use crate::store::Location;

/// The file that names the current generation.
pub(crate) const CURRENT: &str = "CURRENT";
/// The folder of generations.
pub(crate) const GENERATIONS: &str = "generations";

/// How often the files are listed because a compaction deleted one after they were listed.
pub(crate) const ATTEMPTS: usize = 5;

/// The error if files of the index keep being deleted while it is read.
pub(crate) fn changing(index: &Location) -> Failure {
    let reason = "its files are deleted while they are read".to_owned();
    Failure::Store { name: index.name.clone(), reason, is_access: false }
}

/// The files of an index at one moment.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Files of the current generation, by name.
    pub(crate) parts: Vec<Path>,
    /// Files of single objects, by name.
    pub(crate) objects: Vec<Path>,
}

/// Lists the files.
pub(crate) async fn files(index: &Location) -> Result<Files, Failure> {
    let parts = match index.read(&index.child(CURRENT)).await? {
        Some(name) => {
            list(index, &index.child(GENERATIONS).join(String::from_utf8_lossy(&name).trim())).await?
        }
        None => Vec::new(),
    };
    Ok(Files { parts, objects: list(index, &index.child(OBJECTS)).await? })
}

/// The same; an error if it is not an index.
pub(crate) async fn existing(index: &Location) -> Result<Files, Failure> {
    let files = files(index).await?;
    if files.parts.is_empty() && files.objects.is_empty() {
        return Err(Failure::NotAnIndex { name: index.name.clone() });
    }
    Ok(files)
}

/// The Parquet files in a folder, by name.
pub(crate) async fn list(index: &Location, folder: &Path) -> Result<Vec<Path>, Failure> {
    let listed = index.store.list(Some(folder)).map_ok(|meta| meta.location);
    let mut found: Vec<Path> = match listed.try_collect().await {
        Ok(found) => found,
        Err(object_store::Error::NotFound { .. }) => Vec::new(),
        Err(error) => return Err(Failure::store(&index.name, &error)),
    };
    found.retain(|path| path.filename().is_some_and(|name| name.ends_with(SUFFIX)));
    found.sort();
    Ok(found)
}

/// Opens a file. `None` if it has been deleted since it was listed.
pub(crate) async fn open(index: &Location, path: &Path) -> Result<Option<IndexFile>, Failure> {
    let failed = |error| Failure::Index { name: format!("{path}"), error };
    if let Some(local) = index.file(path) {
        return match File::open(&local) {
            Ok(file) => IndexFile::from_file(file).map(Some).map_err(failed),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error.into())),
        };
    }
    match index.read(path).await? {
        Some(bytes) => IndexFile::from_bytes(bytes).map(Some).map_err(failed),
        None => Ok(None),
    }
}

/// The names of the index files of all objects: those that need not be indexed again. 16 bytes each.
pub(crate) async fn names(index: &Location) -> Result<HashSet<u128>, Failure> {
    let files = files(index).await?;
    let mut names: HashSet<u128> =
        files.objects.iter().filter_map(|path| path.filename().and_then(hash)).collect();
    for part in &files.parts {
        let Some(file) = open(index, part).await? else { continue };
        let columns = file.columns(&["source", "object_bytes", "etag"]);
        let columns = columns.map_err(|error| Failure::Index { name: part.to_string(), error })?;
        let [Column::Texts(sources), Column::Numbers(sizes), Column::Texts(etags)] = columns.as_slice()
        else {
            continue;
        };
        for ((source, size), etag) in sources.iter().zip(sizes).zip(etags) {
            let (Some(source), Some(size), Some(etag)) = (source, size, etag) else { continue };
            let object =
                Object { source: source.clone(), size: *size, etag: etag.clone(), modified_us: None };
            names.extend(hash(&object.file_name()));
        }
    }
    Ok(names)
}

/// The hash in the name of an index file.
pub(crate) fn hash(name: &str) -> Option<u128> {
    u128::from_str_radix(name.strip_suffix(SUFFIX)?, 16).ok()
}
