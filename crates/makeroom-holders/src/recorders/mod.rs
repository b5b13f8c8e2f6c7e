//! Which programs makeroom records at the moment, whether their recorders are alive, and which ran out of memory.
//!
//! ```text
//! tail     follows one recording while it is written
//! tally    counts by cause, and the latest failures with their processes
//! ```
//!
//! A recorder writes at least once per second, so the time at which its file last changed is its heartbeat. Failed
//! allocations that follow each other closely are one failure of the program: allocators retry. A failure is reported
//! when no further allocation has failed for a moment, or when the process ends.
//!
//! The files belong to other users and may be on a file system that does not respond. They are read on helper threads,
//! the smallest backlog first, within a budget of time and bytes for all of them.

mod tail;
mod tally;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use makeroom_core::SortCompact as _;
use makeroom_ordered::OrderedMap;

use crate::account::Account;
use crate::helper::within;
use crate::processes::{Process, Stat, State};
use tail::{LEAST_TURN, Tail};
pub use tally::{LatestFailure, Tally};

/// Maximum number of recordings that are followed.
const MOST_RECORDERS: usize = 256;
/// Time and bytes for all recordings in one turn.
const TURN: Duration = Duration::from_millis(200);
const TURN_BYTES: u64 = 48 << 20;
/// Timeout for opening a file and reading its length.
const MEASURING: Duration = Duration::from_millis(20);
/// A failure is over if no allocation failed for this long.
const SETTLED: Duration = Duration::from_millis(1500);
/// How long to try to read the rest of a process's recording after it has ended.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Allocations of one process that fail within this time of each other are one failure.
const APART: Duration = Duration::from_secs(10);

/// A recorded process.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The process.
    pub process: Process,
    /// When its recording was last seen to change.
    pub heartbeat: SystemTime,
}

/// A program that ran out of memory.
#[derive(Debug)]
pub struct OutOfMemory {
    /// The process.
    pub process: Process,
    /// When that was seen.
    pub at: SystemTime,
    /// Failed allocations.
    pub allocations: u64,
    /// Its recording. The position of the descriptor is not defined.
    pub recording: File,
}

/// Follows the recordings of all processes.
#[derive(Debug)]
pub struct Recorders {
    root: PathBuf,
    followed: OrderedMap<(u32, u64), Followed>,
    /// Whether there was a turn: recordings found in the first one are older than this program.
    has_turned: bool,
}

#[derive(Debug)]
struct Followed {
    recorder: Recorder,
    path: PathBuf,
    tail: Arc<Mutex<Tail>>,
    burst: Option<Burst>,
    /// When the process was seen to have ended.
    ended: Option<Instant>,
    /// Whether its header was read and names the process. A file that cannot be read in time is not yet a recording.
    is_confirmed: bool,
    /// Whether everything that was written before this turn was read.
    is_read: bool,
}

/// Failed allocations that follow each other closely.
#[derive(Clone, Copy, Debug)]
struct Burst {
    began: Instant,
    last: Instant,
    allocations: u64,
    is_reported: bool,
}

impl Recorders {
    /// Follows the recordings of the processes under `root` (`/proc`).
    pub fn new(root: PathBuf) -> Self {
        Self { root, followed: OrderedMap::new(), has_turned: false }
    }

    /// The recorded processes.
    pub fn list(&self) -> Vec<Recorder> {
        let alive =
            self.followed.values().filter(|followed| followed.is_confirmed && followed.ended.is_none());
        alive.map(|followed| followed.recorder.clone()).collect()
    }

    /// Reads what was written since the last turn. Returns the programs that ran out of memory since then.
    pub fn turn(&mut self, account: &Account) -> Vec<OutOfMemory> {
        self.find(account);
        self.has_turned = true;
        for (&(pid, started), followed) in &mut self.followed {
            if !is_alive(&self.root, pid, started) {
                followed.ended.get_or_insert_with(Instant::now);
            }
        }
        self.read();
        let now = Instant::now();
        let failures = self.followed.values_mut().filter_map(|followed| followed.failure(now)).collect();
        self.followed.retain(|_, followed| !followed.is_over(now));
        failures
    }

    /// Adds recordings that are new.
    fn find(&mut self, account: &Account) {
        let holders = account.devices.iter().flat_map(|device| &device.holders);
        let processes = holders.filter_map(|holder| holder.process.as_ref()).chain(&account.users);
        for process in processes {
            let key = (process.stat.pid, process.stat.started);
            let Some((path, _)) = &process.files.recording else { continue };
            let known = self.followed.get_mut(&key);
            // A program that replaces itself with another one starts a second recording.
            if let Some(known) = known.filter(|known| known.path == *path) {
                known.recorder.process = process.clone();
                continue;
            }
            if self.followed.len() >= MOST_RECORDERS {
                continue;
            }
            let tail = Arc::new(Mutex::new(Tail::new(path.clone(), !self.has_turned)));
            let recorder = Recorder { process: process.clone(), heartbeat: SystemTime::now() };
            let followed = Followed {
                recorder,
                path: path.clone(),
                tail,
                burst: None,
                ended: None,
                is_confirmed: false,
                is_read: false,
            };
            self.followed.insert(key, followed);
        }
    }

    /// Reads the recordings, the smallest backlog first.
    fn read(&mut self) {
        let ends = Instant::now() + TURN;
        let mut backlog: Vec<(u64, (u32, u64))> = Vec::new();
        let mut foreign = Vec::new();
        for (key, followed) in &mut self.followed {
            followed.is_read = false;
            let timeout = MEASURING.min(ends.saturating_duration_since(Instant::now()));
            match work_within(&followed.tail, timeout, Tail::measure) {
                Some(Some(measure)) if followed.records(measure.pid) => {
                    followed.is_confirmed = true;
                    if measure.has_grown {
                        followed.recorder.heartbeat = SystemTime::now();
                    }
                    followed.is_read = measure.unread == 0;
                    backlog.push((measure.unread, *key));
                }
                // It is not a recording, or records another process, such as one that is being viewed.
                Some(_) => foreign.push(*key),
                None => {}
            }
        }
        for key in foreign {
            self.followed.remove(&key);
        }
        backlog.sort_compact_by(Ord::cmp);
        let mut bytes_left = TURN_BYTES;
        for (unread, key) in backlog {
            let share = ends.saturating_duration_since(Instant::now()) / 2;
            let followed = self.followed.get_mut(&key).filter(|_| unread > 0 && bytes_left >= LEAST_TURN);
            let Some(followed) = followed else { continue };
            let (most, until) = (bytes_left, Instant::now() + share);
            bytes_left -= unread.min(bytes_left);
            let read = work_within(&followed.tail, share, move |tail| tail.read(most, until));
            followed.is_read = read.is_some() && unread <= most && Instant::now() < until;
        }
    }
}

impl Followed {
    /// Whether the process has this PID, in its own namespace or another one.
    fn records(&self, pid: u32) -> bool {
        let process = &self.recorder.process;
        pid == process.stat.pid || process.inner_pids.contains(&pid)
    }

    /// Whether the process has ended and its recording was read to the end.
    fn is_over(&self, now: Instant) -> bool {
        self.ended.is_some_and(|ended| self.is_read || now - ended > LONGEST_REST)
    }

    /// The failure to report now.
    fn failure(&mut self, now: Instant) -> Option<OutOfMemory> {
        let has_ended = self.is_over(now);
        let mut tail = match self.tail.try_lock() {
            Ok(tail) => tail,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // A read that hangs, or that is late: what it reads counts in a later turn.
                self.is_read = false;
                return None;
            }
        };
        let allocations = tail.take_failures();
        if self.burst.is_some_and(|burst| burst.is_reported && now - burst.last > APART) {
            self.burst = None;
        }
        if allocations > 0 {
            let new = Burst { began: now, last: now, allocations: 0, is_reported: false };
            let burst = self.burst.get_or_insert(new);
            burst.last = now;
            burst.allocations += allocations;
        }
        let burst = self.burst.as_mut().filter(|burst| !burst.is_reported)?;
        if !has_ended && now - burst.last < SETTLED && now - burst.began < APART {
            return None;
        }
        burst.is_reported = true;
        let process = self.recorder.process.clone();
        Some(OutOfMemory {
            process,
            at: SystemTime::now(),
            allocations: burst.allocations,
            recording: tail.file()?,
        })
    }
}

fn is_alive(root: &Path, pid: u32, started: u64) -> bool {
    let stat = Stat::read(&root.join(pid.to_string()));
    stat.is_some_and(|stat| stat.started == started && stat.state != State::Zombie)
}

/// Works on a tail on another thread; `None` on timeout, and while earlier work on it has not ended.
fn work_within<Result: Send + 'static>(
    tail: &Arc<Mutex<Tail>>,
    time: Duration,
    work: impl FnOnce(&mut Tail) -> Result + Send + 'static,
) -> Option<Result> {
    if matches!(tail.try_lock(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let tail = Arc::clone(tail);
    // It unlocks before it returns: the caller uses the tail next.
    within(time, move || work(&mut tail.lock().unwrap_or_else(PoisonError::into_inner)))
}

#[cfg(test)]
mod tests;
