//! The ledger, lock-free counters in shared memory: how many pages of which GPU each process of the simulated
//! machine holds.
//!
//! Allocating and freeing pages are a few atomic operations on the shared file, without a system call, so that a
//! simulated allocation costs no more than its bookkeeping. Joining, leaving and cleaning up after dead processes
//! happen under the file's lock.
//!
//! `/proc` shows which processes are alive. A process in another PID namespace is not visible there, or its PID
//! belongs to another process. Such a process is alive while it holds the lock of its row, which the kernel releases
//! when it ends. The lock alone would not be enough, because forked children hold it too.
//!
//! Pages are counted first on the GPU, then on the process. A process that is killed in between leaves pages without
//! an owner; they are freed once no process is left.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::process::{Process, own_numbering};
use crate::table::{MAGIC, Mapping, ProcessSlot, Table};
use crate::{Description, PAGE};

/// The shared ledger of a machine's GPUs.
pub struct Ledger {
    mapping: Mapping,
    file: Option<File>,
    pages: u64,
}

/// A process that holds memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its PID.
    pub process: u32,
    /// Bytes it holds.
    pub bytes: u64,
}

/// This process's row in the ledger. Its pages are freed on drop.
pub struct Member {
    ledger: Ledger,
    row: usize,
}

impl Ledger {
    /// Opens the machine's shared file, and creates it if it is missing.
    pub fn open(description: &Description) -> io::Result<Self> {
        Self::open_at(&description.ledger_path(), description)
    }

    fn open_at(path: &Path, description: &Description) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mapping = Mapping::of_file(&file)?;
        let ledger = Self { mapping, file: Some(file), pages: description.pages() };
        ledger.locked(|table| {
            let magic = table.magic.load(Acquire);
            table.magic.store(MAGIC, Release);
            if magic == 0 || magic == MAGIC {
                return Ok(());
            }
            table.magic.store(magic, Release);
            Err(io::Error::new(io::ErrorKind::InvalidData, "the shared file is not a table of cards"))
        })??;
        Ok(ledger)
    }

    /// A ledger for this process only.
    pub fn private(description: &Description) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::private()?, file: None, pages: description.pages() })
    }

    /// Takes a row for this process.
    pub fn join(self) -> io::Result<Member> {
        let own = Process::current();
        let row = self.locked(|table| {
            self.clear_dead(table);
            for row in table.rows.iter().filter(|row| is_of(row, own)) {
                clear(table, row);
            }
            if table.rows.iter().all(|row| row.process.load(Acquire) == 0) {
                table.used.iter().for_each(|used| used.store(0, Release));
            }
            let mut free = (0..table.rows.len()).filter(|&row| table.rows[row].process.load(Acquire) == 0);
            let free = free.find(|&row| self.lock_row(row, libc::F_WRLCK))?;
            let row = &table.rows[free];
            row.started.store(own.started, Relaxed);
            row.image.store(own.image, Relaxed);
            row.numbering.store(own.numbering, Relaxed);
            row.process.store(own.id, Release);
            Some(free)
        })?;
        let row = row.ok_or_else(|| io::Error::other("too many processes use the simulated cards"))?;
        Ok(Member { ledger: self, row })
    }

    /// Bytes of a GPU in use by live processes.
    pub fn used(&self, device: usize) -> u64 {
        self.clear_away(None);
        self.table().used[device].load(Acquire) * PAGE
    }

    /// The processes that hold a context or memory on a GPU.
    pub fn holders(&self, device: usize) -> Vec<Holder> {
        self.clear_away(None);
        let rows = self.table().rows.iter().filter(|row| row.process.load(Acquire) != 0);
        rows.filter(|row| row.contexts[device].load(Acquire) + row.pages[device].load(Acquire) > 0)
            .map(|row| Holder {
                process: row.process.load(Acquire) as u32,
                bytes: row.pages[device].load(Acquire) * PAGE,
            })
            .collect()
    }

    /// Frees the pages of dead processes. `alive` is a row that is known to be alive. The lock is taken only if there
    /// are dead processes.
    fn clear_away(&self, alive: Option<usize>) {
        let mut rows = (0..self.table().rows.len()).filter(|row| Some(*row) != alive);
        if rows.any(|row| self.is_dead(row)) {
            // If locking fails, the next call cleans up.
            let _ = self.locked(|table| self.clear_dead(table));
        }
    }

    fn clear_dead(&self, table: &Table) {
        for (number, row) in table.rows.iter().enumerate() {
            if self.is_dead(number) {
                clear(table, row);
            }
        }
    }

    fn is_dead(&self, row: usize) -> bool {
        let Some(process) = process(&self.table().rows[row]) else { return false };
        if process.numbering == own_numbering() { !process.lives() } else { !self.is_locked(row) }
    }

    /// Locks or unlocks a row's byte for this open file. Returns whether that succeeded.
    fn lock_row(&self, row: usize, kind: i32) -> bool {
        let Some(file) = &self.file else { return true };
        let mut lock = lock_of(row, kind);
        // SAFETY: the call takes a descriptor, which `file` keeps open, and a lock that lives as long as the call.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0 }
    }

    /// Whether a row's byte is locked through another open file.
    fn is_locked(&self, row: usize) -> bool {
        let Some(file) = &self.file else { return false };
        let mut lock = lock_of(row, libc::F_WRLCK);
        // SAFETY: as above; the result is written into the lock.
        let answered = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) == 0 };
        answered && i32::from(lock.l_type) != libc::F_UNLCK
    }

    fn table(&self) -> &Table {
        self.mapping.table()
    }

    fn locked<T>(&self, change: impl FnOnce(&Table) -> T) -> io::Result<T> {
        let Some(file) = &self.file else { return Ok(change(self.table())) };
        // SAFETY: flock takes a descriptor, which `file` keeps open, and touches no memory.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let result = change(self.table());
        // SAFETY: as above.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        Ok(result)
    }
}

fn process(row: &ProcessSlot) -> Option<Process> {
    let id = row.process.load(Acquire);
    let (started, image) = (row.started.load(Relaxed), row.image.load(Relaxed));
    let process = Process { id, started, image, numbering: row.numbering.load(Relaxed) };
    (id != 0).then_some(process)
}

/// Whether a row belongs to a process, whatever program it runs.
fn is_of(row: &ProcessSlot, own: Process) -> bool {
    process(row).is_some_and(|process| (process.id, process.numbering) == (own.id, own.numbering))
}

/// The lock byte of a row. It is past the end of the table and never written.
fn lock_of(row: usize, kind: i32) -> libc::flock {
    let place = size_of::<Table>() + row;
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::try_from(place).unwrap_or(libc::off_t::MAX),
        l_len: 1,
        l_pid: 0,
    }
}

fn clear(table: &Table, row: &ProcessSlot) {
    for (used, pages) in table.used.iter().zip(&row.pages) {
        used.fetch_sub(pages.swap(0, Relaxed), Release);
    }
    row.contexts.iter().for_each(|contexts| contexts.store(0, Relaxed));
    row.process.store(0, Release);
}

impl Member {
    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Bytes of a GPU in use by live processes. Without other processes, this makes no system call.
    pub fn used(&self, device: usize) -> u64 {
        self.ledger.clear_away(Some(self.row));
        self.ledger.table().used[device].load(Acquire) * PAGE
    }

    /// Allocates pages of a GPU for this process, all or none.
    pub fn take(&self, device: usize, pages: u64) -> bool {
        if !self.try_take(device, pages) {
            self.ledger.clear_away(Some(self.row));
            if !self.try_take(device, pages) {
                return false;
            }
        }
        self.row().pages[device].fetch_add(pages, Release);
        true
    }

    fn try_take(&self, device: usize, pages: u64) -> bool {
        let most = self.ledger.pages;
        let fits = |used: u64| used.checked_add(pages).filter(|used| *used <= most);
        self.ledger.table().used[device].fetch_update(Release, Acquire, fits).is_ok()
    }

    /// Frees pages of this process.
    pub fn give(&self, device: usize, pages: u64) {
        self.row().pages[device].fetch_sub(pages, Release);
        self.ledger.table().used[device].fetch_sub(pages, Release);
    }

    /// Adds a context to the count.
    pub fn add_context(&self, device: usize) {
        self.row().contexts[device].fetch_add(1, Release);
    }

    /// Removes a context from the count.
    pub fn remove_context(&self, device: usize) {
        self.row().contexts[device].fetch_sub(1, Release);
    }

    /// Frees everything of this process, and its row.
    pub fn leave(&self) {
        let own = Process::current();
        // If locking fails, another process frees the row once this one is dead.
        let _ = self.ledger.locked(|table| {
            let row = &table.rows[self.row];
            if is_of(row, own) {
                clear(table, row);
                self.ledger.lock_row(self.row, libc::F_UNLCK);
            }
        });
    }

    fn row(&self) -> &ProcessSlot {
        &self.ledger.table().rows[self.row]
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member {
        let description = Description::parse("devices=2,memory=20MiB").unwrap();
        Ledger::private(&description).unwrap().join().unwrap()
    }

    #[test]
    fn takes_until_a_card_is_full() {
        let member = member();
        assert!(member.take(0, 7));
        assert!(!member.take(0, 4));
        assert!(member.take(0, 3));
        assert!(member.take(1, 10));
        assert!(!member.take(1, u64::MAX));
        member.give(0, 5);
        assert_eq!(member.ledger().used(0), 5 * PAGE);
        let own = Holder { process: std::process::id(), bytes: 5 * PAGE };
        assert_eq!(member.ledger().holders(0), [own]);
    }

    #[test]
    fn a_dead_process_holds_nothing() {
        let member = member();
        let table = member.ledger().table();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let row = &table.rows[9];
        row.process.store(u64::from(child.id()), Release);
        row.started.store(1, Release);
        row.numbering.store(own_numbering(), Release);
        row.pages[0].store(9, Release);
        table.used[0].store(9, Release);
        child.wait().unwrap();
        assert!(member.take(0, 8), "what the dead one held can be taken");
        assert_eq!(member.ledger().used(0), 8 * PAGE);
    }

    #[test]
    fn a_process_of_another_namespace_lives_while_it_has_its_lock() {
        let description = Description::parse("memory=20MiB").unwrap();
        let path = std::env::temp_dir().join(format!("makeroom-simcard-{}", std::process::id()));
        let member = Ledger::open_at(&path, &description).unwrap().join().unwrap();
        assert!(member.take(0, 3));
        // A process in another namespace: a PID that does not exist here, from another /proc.
        let row = member.row();
        row.process.store(999_999_999, Release);
        row.numbering.fetch_add(1, Release);
        let looking = Ledger::open_at(&path, &description).unwrap();
        assert_eq!(looking.holders(0), [Holder { process: 999_999_999, bytes: 3 * PAGE }]);
        assert_eq!(looking.used(0), 3 * PAGE);
        // As if it were killed: its file is closed, and nothing else happens.
        drop(member);
        // A child that another test forks now has the file open until it calls exec.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while looking.used(0) != 0 && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!((looking.holders(0), looking.used(0)), (Vec::new(), 0));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn leaving_gives_everything_back() {
        let member = member();
        member.take(0, 4);
        member.add_context(0);
        member.leave();
        assert_eq!(member.ledger().used(0), 0);
        assert!(member.ledger().holders(0).is_empty());
    }
}
