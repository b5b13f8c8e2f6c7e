//! What the recorder has to say: each thing once, into the file as a note and, where the user must know, to `run`, which
//! prints it, or to stderr where nobody listens.
//!
//! Hooks only set a bit; the writer turns bits into notes. So saying something costs nothing and takes no lock. Nothing is
//! written to number 2 unless it is still the file that it was when the process began: a daemon closes it, and its next
//! file gets the number.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use makeroom_trace::room::Severity;

use crate::files::{Identity, identity};
use crate::{errno, writer};

macro_rules! notices {
    ($($(#[$description:meta])* $name:ident = $bit:literal $severity:ident $text:literal;)*) => {
        /// Something to say once.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Notice {
            $($(#[$description])* $name = 1 << $bit,)*
        }

        impl Notice {
            const ALL: &[Self] = &[$(Self::$name),*];

            /// The sentence.
            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// How much it matters.
            pub(crate) const fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }
        }
    };
}

notices! {
    /// A library binds its symbols to itself first.
    DeepBind = 0 Warning "a library was loaded with RTLD_DEEPBIND; CUDA calls that it makes directly are not seen";
    /// The driver answered an address that no name leads to.
    UnknownAddress = 1 Warning "cuGetProcAddress answered a function that dlsym does not know; calls through it are not seen";
    /// The interpreter is none of those that were tested.
    UnknownPython = 2 Warning "this version of Python was not tested with the recorder: native stacks only";
    /// The table of stacks is full.
    StacksFull = 3 Warning "more different stacks than the recorder keeps: further ones are left out";
    /// More threads at once than rings.
    ThreadsFull = 4 Warning "more threads use CUDA at once than the recorder follows: events of further ones are counted as dropped";
    /// A bug of the recorder.
    Panicked = 5 Error "the recorder failed and stepped aside; the program goes on without it";
    /// Only the stacks are missing.
    NoMemory = 6 Warning "no memory for the recorder's tables: stacks are left out";
    /// A bug of the pool.
    PoolFailed = 7 Error "the pool failed and is off; the driver serves the program from now on";
    /// No virtual memory, or no driver that can be called.
    PoolUnavailable = 8 Error "the pool cannot be used on this GPU: the driver serves the program";
    /// No host memory can be mapped for the device.
    NoSpill = 9 Error "this GPU cannot use host memory in place of its own: nothing is spilled";
    /// A peer got no access.
    NoPeer = 10 Warning "another GPU was denied access to the pool's memory";
    /// Memory of the pool has no handle for other processes.
    PoolCannotExport = 11 Error "the program shares GPU memory with another process, which does not work with memory of makeroom's pool: run it without --pool";
    /// The pool is in the context that CUDA's runtime uses.
    PoolOtherContext = 12 Warning "the driver serves contexts that the program created itself: the pool serves only the primary context, which CUDA's runtime uses";
    /// The system forbids what PyTorch's expandable segments need to be shared.
    CannotShareSegments = 13 Error "PyTorch shares a tensor with another process. With expandable segments that needs pidfd_getfd, which this system restricts: if it fails, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False";
    /// The program has limited its descriptors.
    NoDescriptors = 14 Warning "the program cannot open more files, so the files of its libraries could not be read: function names are missing";
}

static RAISED: AtomicU32 = AtomicU32::new(0);
/// Those that the user must know, and those of them that `run` is to print.
static LOUD: AtomicU32 = AtomicU32::new(0);
static FOR_RUN: AtomicU32 = AtomicU32::new(0);
/// The standard error that the process began with: the number may be another file's later.
static STDERR: OnceLock<Option<Identity>> = OnceLock::new();
/// What the writer could not print, for the next thread of the program that comes by.
static LATER: Mutex<String> = Mutex::new(String::new());
static HAS_LATER: AtomicBool = AtomicBool::new(false);

/// Says something, once.
pub(crate) fn raise(notice: Notice) {
    // Some are raised by every call of a program: once it is said, that writes to nothing.
    if RAISED.load(Ordering::Relaxed) & notice as u32 == 0 {
        RAISED.fetch_or(notice as u32, Ordering::Relaxed);
    }
}

/// Says something, once, to the user too: through `run`, or at the terminal.
pub(crate) fn raise_loudly(notice: Notice) {
    raise(notice);
    if LOUD.fetch_or(notice as u32, Ordering::Relaxed) & notice as u32 != 0 {
        return;
    }
    if writer::reports_to_run() {
        FOR_RUN.fetch_or(notice as u32, Ordering::Release);
    } else {
        print(notice.text());
    }
}

/// What was raised and is not in `said`, which then holds it.
pub(crate) fn unsaid(said: &mut u32) -> impl Iterator<Item = Notice> {
    news(&RAISED, said)
}

/// The same for what `run` is to print.
pub(crate) fn unsaid_to_user(said: &mut u32) -> impl Iterator<Item = Notice> {
    news(&FOR_RUN, said)
}

fn news(raised: &AtomicU32, said: &mut u32) -> impl Iterator<Item = Notice> {
    let raised = raised.load(Ordering::Acquire);
    let new = raised & !*said;
    *said = raised;
    Notice::ALL.iter().copied().filter(move |&notice| new & notice as u32 != 0)
}

/// Remembers which file standard error is.
pub(crate) fn remember_stderr() {
    STDERR.get_or_init(|| identity(libc::STDERR_FILENO));
}

/// Writes a line to stderr in one piece, if that is still what it was when the process began.
pub(crate) fn print(text: &str) {
    remember_stderr();
    let stderr = STDERR.get().copied().flatten();
    if stderr.is_none() || stderr != identity(libc::STDERR_FILENO) {
        return;
    }
    let line = format!("makeroom: {text}\n");
    // SAFETY: the buffer is valid for its length. A stderr that fails is an error that nobody can be told of.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Leaves a line to a thread of the program: the writer has no standard error.
pub(crate) fn print_later(text: String) {
    // A fork may have copied the lock while it was held: then nobody gives it back, and the line is lost.
    let Ok(mut later) = LATER.try_lock() else { return };
    *later = text;
    HAS_LATER.store(true, Ordering::Release);
}

/// Prints what was left, on a thread of the program.
#[inline]
pub(crate) fn print_what_is_left() {
    if HAS_LATER.load(Ordering::Relaxed) {
        print_left();
    }
}

#[cold]
fn print_left() {
    let _errno = errno::Kept::new();
    // A signal handler may come here while its own thread holds the lock: the next call prints it.
    let Ok(mut left) = LATER.try_lock() else { return };
    if HAS_LATER.swap(false, Ordering::AcqRel) {
        print(&std::mem::take(&mut *left));
    }
}
