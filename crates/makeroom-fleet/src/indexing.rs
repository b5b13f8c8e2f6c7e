//! Indexes the objects of a source: fetch to a temporary file, reduce to rows, write one index file.
//!
//! The listing is a stream, and at most `--jobs` objects are read at a time, so memory does not depend on the number of
//! objects, apart from the 16-byte names of those that are indexed already. An object is indexed as it is when it is
//! fetched, not as it was when it was listed. Nothing is recorded about an object that could not be fetched, so that the next
//! run tries it again.

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use indicatif::ProgressBar;
use makeroom_core::Bytes;
use makeroom_index::{OBJECTS, Object, encode, is_recording_name, summarize_file};
use object_store::{GetOptions, GetResultPayload, ObjectMeta, ObjectStore as _, ObjectStoreExt as _};
use serde::Serialize;
use tempfile::NamedTempFile;
use tokio::sync::Semaphore;

use crate::cli::Index;
use crate::failure::{Failure, reason};
use crate::store::{Location, is_same, without_secrets};
use crate::{compact, layout, output};

/// How often an object is fetched if its body breaks off.
const ATTEMPTS: u32 = 4;
/// The pause before the second attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(200);
/// Objects of one kind that are listed in the result.
const MOST_LISTED: usize = 20;

/// An object that is not in the index as it should be.
#[derive(Clone, Debug, Serialize)]
struct Problem {
    object: String,
    reason: String,
}

/// The result of a run.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    source: String,
    index: String,
    indexed: u64,
    indexed_bytes: u64,
    already_indexed: u64,
    recordings: u64,
    /// Indexed as unreadable.
    unreadable: Vec<Problem>,
    /// Not indexed.
    failed: Vec<Problem>,
    /// Deleted after they were listed.
    gone: Vec<String>,
    seconds: f64,
}

/// What became of an object.
enum Fate {
    Indexed { bytes: u64, recordings: u64, unreadable: Option<String> },
    Already,
    Gone,
    Failed(String),
}

/// Runs `makeroom index`.
pub(crate) async fn run(arguments: &Index) -> Result<ExitCode, Failure> {
    let index = Location::open(&arguments.output, true)?;
    let mut code = ExitCode::SUCCESS;
    if let Some(source) = &arguments.source {
        let outcome = index_source(arguments, &Location::open(source, false)?, &index).await?;
        if !outcome.failed.is_empty() {
            code = ExitCode::FAILURE;
        }
        if arguments.json { output::json(&outcome)? } else { output::result(&text(&outcome))? }
    }
    if arguments.compact {
        let compacted = compact::run(&index).await?;
        output::remark(&compacted.to_string());
    }
    Ok(code)
}

struct Indexer {
    source: Location,
    index: Location,
    names: HashSet<u128>,
    /// Objects whose rows are made at the same time: one per core.
    cores: Semaphore,
}

async fn index_source(arguments: &Index, source: &Location, index: &Location) -> Result<Outcome, Failure> {
    let began = Instant::now();
    let cores = available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(cores, usize::from);
    let indexer = Arc::new(Indexer {
        source: source.clone(),
        index: index.clone(),
        names: layout::names(index).await?,
        cores: Semaphore::new(jobs),
    });
    let mut outcome =
        Outcome { source: source.name.clone(), index: index.name.clone(), ..Outcome::default() };
    let progress = output::progress();
    // Twice as many are fetched as are reduced to rows, so that no core waits for the network.
    let shard = arguments.shard;
    let listed = list(source).await;
    let mut done = listed
        .filter(|meta| std::future::ready(is_wanted(source, meta, shard)))
        .map(|meta| {
            let indexer = Arc::clone(&indexer);
            async move {
                match meta {
                    Ok(meta) => {
                        let name = indexer.source.object(&meta).source;
                        let task = tokio::spawn(async move { indexer.object(&meta).await });
                        Ok((name, task.await.unwrap_or_else(|_| Fate::Failed("makeroom crashed".to_owned()))))
                    }
                    Err(error) => Err(error),
                }
            }
        })
        .buffer_unordered(2 * jobs);
    let mut has_listed = false;
    let mut unlisted = Vec::new();
    while let Some(result) = done.next().await {
        match result {
            Ok((name, fate)) => {
                has_listed = true;
                outcome.add(&name, fate);
            }
            // A folder that cannot be read, for example. The others can.
            Err(error) => unlisted.push(error),
        }
        show(&progress, &outcome);
    }
    progress.finish_and_clear();
    if let Some(error) = unlisted.first().filter(|_| !has_listed) {
        return Err(Failure::store(&source.name, error));
    }
    for error in unlisted {
        outcome.add(&source.name, Fate::Failed(reason(&error)));
    }
    outcome.unreadable.sort_by(|one, two| one.object.cmp(&two.object));
    outcome.failed.sort_by(|one, two| one.object.cmp(&two.object));
    outcome.gone.sort();
    outcome.seconds = began.elapsed().as_secs_f64();
    Ok(outcome)
}

type Listing = stream::BoxStream<'static, object_store::Result<ObjectMeta>>;

/// The objects of a source: all below it, or itself if it is one.
async fn list(source: &Location) -> Listing {
    if !source.prefix.as_ref().is_empty()
        && let Ok(meta) = source.store.head(&source.prefix).await
    {
        return stream::iter([Ok(meta)]).boxed();
    }
    source.store.list(Some(&source.prefix))
}

/// An error of the listing is wanted: without it, the index would look complete.
fn is_wanted(source: &Location, meta: &object_store::Result<ObjectMeta>, shard: Option<(u64, u64)>) -> bool {
    let Ok(meta) = meta else { return true };
    let is_named = meta.location == source.prefix;
    let name = source.object(meta).source;
    (is_named || is_recording_name(&name)) && shard.is_none_or(|(part, of)| Object::shard(&name, of) == part)
}

impl Indexer {
    async fn object(&self, meta: &ObjectMeta) -> Fate {
        if self.is_indexed(&self.source.object(meta)) {
            return Fate::Already;
        }
        let mut pause = PAUSE;
        for attempt in 1.. {
            match self.attempt(meta).await {
                Err(object_store::Error::NotFound { .. }) => return Fate::Gone,
                Err(error) if attempt == ATTEMPTS || is_final(&error) => return Fate::Failed(reason(&error)),
                Err(_) => tokio::time::sleep(pause).await,
                Ok(fate) => return fate,
            }
            pause *= 2;
        }
        Fate::Failed("it could not be fetched".to_owned())
    }

    fn is_indexed(&self, object: &Object) -> bool {
        layout::hash(&object.file_name()).is_some_and(|hash| self.names.contains(&hash))
    }

    async fn attempt(&self, meta: &ObjectMeta) -> object_store::Result<Fate> {
        let found = self.source.store.get_opts(&meta.location, GetOptions::default()).await?;
        // The object may have changed since it was listed. If not, the listing counts: the next one must find it indexed.
        let object = self.source.object(if is_same(meta, &found.meta) { meta } else { &found.meta });
        if self.is_indexed(&object) {
            return Ok(Fate::Already);
        }
        let (local, fetched) = match found.payload {
            GetResultPayload::File(_, path) => (path, None),
            GetResultPayload::Stream(mut body) => {
                let mut file = NamedTempFile::new().map_err(other)?;
                let mut size = 0;
                while let Some(piece) = body.next().await {
                    let piece = piece?;
                    size += piece.len() as u64;
                    std::io::Write::write_all(&mut file, &piece).map_err(other)?;
                }
                if size != object.size {
                    return Err(other(std::io::Error::other(format!(
                        "received {size} of {} bytes",
                        object.size
                    ))));
                }
                (file.path().to_owned(), Some(file))
            }
        };
        let Ok(_core) = self.cores.acquire().await else { return Ok(Fate::Failed("interrupted".to_owned())) };
        let (name, bytes) = (object.file_name(), object.size);
        let reduced = tokio::task::spawn_blocking(move || {
            let entry = summarize_file(object, &local)?;
            let recordings = entry.rows.recordings.len() as u64;
            let unreadable = entry.rows.unread.first().map(|unread| unread.reason.clone());
            drop(fetched);
            encode(&[entry]).map(|file| (file, recordings, unreadable))
        });
        let (file, recordings, unreadable) = match reduced.await {
            Ok(Ok(reduced)) => reduced,
            Ok(Err(error)) => return Ok(Fate::Failed(error.to_string())),
            Err(_) => {
                return Ok(Fate::Failed("makeroom crashed on this object; please report the bug".to_owned()));
            }
        };
        let path = self.index.child(OBJECTS).join(name.as_str());
        self.index.store.put(&path, file.into()).await?;
        Ok(Fate::Indexed { bytes, recordings, unreadable })
    }
}

fn other(error: std::io::Error) -> object_store::Error {
    object_store::Error::Generic { store: "download", source: Box::new(error) }
}

/// Errors that another attempt does not change.
fn is_final(error: &object_store::Error) -> bool {
    use object_store::Error;
    matches!(
        error,
        Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::InvalidPath { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
    )
}

impl Outcome {
    fn add(&mut self, object: &str, fate: Fate) {
        let object = without_secrets(object);
        match fate {
            Fate::Already => self.already_indexed += 1,
            Fate::Gone => self.gone.push(object),
            Fate::Failed(reason) => {
                output::remark(&format!("{object}: {reason}"));
                self.failed.push(Problem { object, reason });
            }
            Fate::Indexed { bytes, recordings, unreadable } => {
                self.indexed += 1;
                self.indexed_bytes += bytes;
                self.recordings += recordings;
                self.unreadable.extend(unreadable.map(|reason| Problem { object, reason }));
            }
        }
    }
}

fn show(progress: &ProgressBar, outcome: &Outcome) {
    progress.set_message(format!(
        "{} indexed ({}), {} already indexed, {} failed",
        outcome.indexed,
        Bytes::new(outcome.indexed_bytes),
        outcome.already_indexed,
        outcome.failed.len()
    ));
}

/// The result as text: problems first, and in the last line whether the index is whole.
fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    let mut list = |title: &str, lines: &mut dyn Iterator<Item = String>, count: usize| {
        if count == 0 {
            return;
        }
        out.push_str(&format!("{title}\n"));
        lines.take(MOST_LISTED).for_each(|line| out.push_str(&format!("  {line}\n")));
        if count > MOST_LISTED {
            out.push_str(&format!("  … and {} more (--json lists all)\n", count - MOST_LISTED));
        }
        out.push('\n');
    };
    let line = |problem: &Problem| format!("{}: {}", problem.object, problem.reason);
    list("Unreadable", &mut outcome.unreadable.iter().map(line), outcome.unreadable.len());
    list("Not indexed", &mut outcome.failed.iter().map(line), outcome.failed.len());
    list("Deleted while indexing", &mut outcome.gone.iter().cloned(), outcome.gone.len());
    let objects = |count: u64| if count == 1 { "1 object".to_owned() } else { format!("{count} objects") };
    out.push_str(&format!(
        "Indexed {} ({}) with {} in {:.1} s",
        objects(outcome.indexed),
        Bytes::new(outcome.indexed_bytes),
        if outcome.recordings == 1 {
            "1 recording".to_owned()
        } else {
            format!("{} recordings", outcome.recordings)
        },
        outcome.seconds
    ));
    if outcome.already_indexed > 0 {
        out.push_str(&format!("; {} already indexed", objects(outcome.already_indexed)));
    }
    if outcome.failed.is_empty() {
        out.push_str(".\n");
    } else {
        let failed = objects(outcome.failed.len() as u64);
        out.push_str(&format!(
            ".\nThe index is incomplete: {failed} failed. Run the command again to retry.\n"
        ));
    }
    out
}
