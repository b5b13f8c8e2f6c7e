//! A pool with the layers that its options request.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;

use makeroom_cuda::Driver;
use makeroom_pool::layers::{History, Recorded, Spill, SpillOptions};
use makeroom_pool::{Allocator, Options, Pool, SnapshotOf, Stats, Watcher, write_torch_snapshot};

use crate::abi::{self, RawStats};
use crate::failure::{Failure, Result};
use crate::options::Wishes;
use crate::registry;

/// A pool with its layers.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) pool: Pool,
    pub(crate) allocator: Arc<dyn Allocator>,
    history: Option<Arc<History>>,
    spill: Option<Arc<Spill<Arc<dyn Allocator>>>>,
}

impl Entry {
    /// Creates a pool on a device.
    pub(crate) fn new(device: i32, wishes: Wishes) -> Result<Self> {
        let history = (wishes.history > 0).then(|| History::new(wishes.history));
        Self::watched(device, wishes, history.clone(), history.map(|history| history as Arc<dyn Watcher>))
    }

    /// Creates a pool with a watcher, which must forward to the history if it is not the history itself.
    pub(crate) fn watched(
        device: i32,
        wishes: Wishes,
        history: Option<Arc<History>>,
        watcher: Option<Arc<dyn Watcher>>,
    ) -> Result<Self> {
        registry::in_parent()?;
        registry::watch_forks();
        let driver = Driver::load().map_err(makeroom_pool::PoolError::from)?;
        let options = Options { limit: wishes.limit, watcher, ..Options::default() };
        let pool = Pool::new(driver, device, options)?;
        let allocator: Arc<dyn Allocator> = match &history {
            Some(history) => Arc::new(Recorded::new(pool.clone(), history.clone())),
            None => Arc::new(pool.clone()),
        };
        // The history is below the spill layer, because it and the snapshot describe device memory.
        let spill = match wishes.spill {
            Some(quota) => {
                let options = SpillOptions::with_quota(quota);
                Some(Arc::new(Spill::new(allocator.clone(), device, options)?))
            }
            None => None,
        };
        let allocator = spill.clone().map_or(allocator, |spill| spill as Arc<dyn Allocator>);
        Ok(Self { pool, allocator, history, spill })
    }

    /// The pool for a snapshot, under one of PyTorch's ids.
    pub(crate) fn snapshot(&self, id: (u64, u64)) -> SnapshotOf<'_> {
        SnapshotOf { pool: &self.pool, history: self.history.as_deref(), id }
    }

    /// Its statistics.
    pub(crate) fn stats(&self) -> RawStats {
        let Stats {
            live, pending, rounding, reserved, cached, peak_live, peak_reserved, blocks, done, ..
        } = self.allocator.stats();
        let spilled = self.spill.as_ref().map(|spill| spill.spilled()).unwrap_or_default();
        RawStats {
            size: size_of::<RawStats>(),
            live,
            pending,
            rounding,
            reserved,
            cached,
            peak_live,
            peak_reserved,
            blocks,
            allocations: done.allocations,
            refusals: done.refusals,
            spilled: spilled.now.get(),
            peak_spilled: spilled.peak.get(),
            driver_nanoseconds: self.pool.driver_time().as_nanos() as u64,
        }
    }
}

/// Writes a snapshot to a file. Readers of the path see the old file or the complete new one.
pub(crate) fn save(path: &Path, pools: &[SnapshotOf<'_>]) -> Result<()> {
    let failed = |error: io::Error| {
        Failure::new(abi::FILE, format!("could not write the snapshot to {}: {error}", path.display()))
    };
    // An unpredictable new name, so that a planted symlink is not followed.
    let number = RandomState::new().hash_one(std::process::id());
    let draft = path.with_file_name(format!(".makeroom-{number:016x}.part"));
    let file = File::options().write(true).create_new(true).open(&draft).map_err(failed)?;
    let written =
        write_torch_snapshot(BufWriter::new(file), pools).and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        // Remove the partial file, if possible.
        let _ = std::fs::remove_file(&draft);
    }
    written.map_err(failed)
}
