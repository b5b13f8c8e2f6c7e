//! Atomic bit sets of notices: each message is reported once, as a note in the recording and, if the user must know,
//! through `run`, or on stderr if `run` is not listening.
//!
//! Hooks only set a bit and the writer turns bits into notes, so a notice costs nothing and takes no lock. Nothing is
//! written to descriptor 2 unless it is still the file that it was at startup: a daemon closes it, and the next file
//! it opens gets the number.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use makeroom_trace::room::Severity;

use crate::errno;
use crate::files::{Identity, identity};

macro_rules! notices {
    ($($(#[$description:meta])* $name:ident = $bit:literal $severity:ident $text:literal;)*) => {
        /// A message that is reported once.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Notice {
            $($(#[$description])* $name = 1 << $bit,)*
        }

        impl Notice {
            const ALL: &[Self] = &[$(Self::$name),*];

            /// The message.
            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Its severity.
            pub(crate) const fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }
        }
    };
}

notices! {
    /// A library resolves its own symbols before the global ones.
    DeepBind = 0 Warning "a library was loaded with RTLD_DEEPBIND; its direct CUDA calls are not recorded";
    /// The driver returned an address that no known name resolves to.
    UnknownAddress = 1 Warning "cuGetProcAddress returned a function that dlsym does not know; calls through it are not recorded";
    /// The interpreter is not a tested version.
    UnknownPython = 2 Warning "the recorder does not support this version of Python: native stacks only";
    /// The stack table is full.
    StacksFull = 3 Warning "the stack table is full: new stacks are not recorded";
    /// More concurrent threads than rings.
    ThreadsFull = 4 Warning "too many threads use CUDA at the same time: the events of some are dropped and counted";
    /// A bug in the recorder.
    Panicked = 5 Error "the recorder failed and was turned off; the program continues without it";
    /// Only the stacks are missing.
    NoMemory = 6 Warning "no memory for the recorder's tables: stacks are not recorded";
    /// A bug in the pool.
    PoolFailed = 7 Error "the pool failed and was turned off; the program now allocates from the driver";
    /// No virtual memory management, or no usable driver.
    PoolUnavailable = 8 Error "the pool does not work on this GPU: the program allocates from the driver";
    /// No host memory can be mapped for the device.
    NoSpill = 9 Error "this GPU cannot use host memory: nothing is spilled";
    /// A peer device got no access.
    NoPeer = 10 Warning "another GPU was denied access to the pool's memory";
    /// The pool's memory cannot be exported to other processes.
    PoolCannotExport = 11 Error "the program shares GPU memory with another process, which does not work with memory from makeroom's pool: run it without --pool";
    /// The pool serves only the primary context, which the CUDA runtime uses.
    PoolOtherContext = 12 Warning "the program created its own CUDA context, which allocates from the driver: the pool serves only the primary context, which the CUDA runtime uses";
    /// The system forbids the call that sharing PyTorch's expandable segments needs.
    CannotShareSegments = 13 Error "PyTorch shares a tensor with another process. With expandable segments, that needs pidfd_getfd, which this system restricts: if it fails, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False";
    /// The program lowered its descriptor limit.
    NoDescriptors = 14 Warning "the program cannot open more files, so the files of its libraries could not be read: function names are missing";
    /// The driver cannot prove that pages are not in use, or has no virtual memory.
    PagesUnavailable = 15 Warning "paging does not work with this GPU or its driver (CUDA 12.5 or later is needed): PyTorch runs with plain expandable segments";
    /// Another process broke the commit rule.
    PagesOnHost = 16 Warning "the GPU is full, because other memory was allocated on it: some PyTorch tensors are in host memory, which is slow, until they are freed";
    /// Neither the device nor the host has memory for a tensor that PyTorch has allocated.
    PagesMissing = 17 Error "neither the GPU nor the host has memory for a PyTorch tensor: using the tensor will be an illegal memory access. Leave more GPU memory free, or run with --pool=expandable";
    /// Memory that is made of several handles cannot be shared by one.
    PagesNotShared = 18 Error "the program shares a PyTorch tensor with another process or library, which does not work for paged memory: run it with --pool=expandable";
    /// `--spill`: the device is full.
    PagesSpilled = 19 Warning "the GPU is full: some PyTorch tensors are in host memory, as --spill allows, and kernels read them over the bus";
    /// An access to memory that PyTorch had freed is harmless without paging, and an illegal access with it.
    PagesIllegalAccess = 20 Warning "an illegal memory access occurred while PyTorch's memory was paged. A use-after-free that goes unnoticed without paging causes an illegal access with it; to check, run with --pool=expandable";
    /// Memory may be registered with a device by its physical addresses.
    PagesKept = 21 Warning "a network or storage device that may have registered GPU memory is open (RDMA, GPUDirect Storage or GDRCopy): paging does not move the memory of large tensors";
    /// `--spill` without pages.
    PagesNotSpilled = 22 Error "none of PyTorch's memory is spilled, because it is not paged: to spill it, run with --pool=expandable --spill SIZE";
}

static RAISED: AtomicU32 = AtomicU32::new(0);
/// Notices for the user, and those of them that `run` prints.
static LOUD: AtomicU32 = AtomicU32::new(0);
static FOR_RUN: AtomicU32 = AtomicU32::new(0);
/// Whether the writer forwards the user's notices to `run`.
static HAS_LISTENER: AtomicBool = AtomicBool::new(false);
/// The standard error that the process started with: the number may become another file's.
static STDERR: OnceLock<Option<Identity>> = OnceLock::new();
/// A line that the writer could not print, for the program's next thread to print.
static LATER: Mutex<String> = Mutex::new(String::new());
static HAS_LATER: AtomicBool = AtomicBool::new(false);

/// Reports a notice once.
pub(crate) fn raise(notice: Notice) {
    // Every call of a program may raise the same notice: after the first time this is a load, not a write.
    if RAISED.load(Ordering::Relaxed) & notice as u32 == 0 {
        RAISED.fetch_or(notice as u32, Ordering::Relaxed);
    }
}

/// Reports a notice once, also to the user: through `run`, or on stderr.
pub(crate) fn warn_once(notice: Notice) {
    raise(notice);
    if LOUD.fetch_or(notice as u32, Ordering::Relaxed) & notice as u32 != 0 {
        return;
    }
    if HAS_LISTENER.load(Ordering::Acquire) {
        FOR_RUN.fetch_or(notice as u32, Ordering::Release);
    } else {
        print(notice.text());
    }
}

/// Sets whether the writer forwards the user's notices to `run`.
pub(crate) fn set_listener(is_listening: bool) {
    HAS_LISTENER.store(is_listening, Ordering::Release);
}

/// Notices raised and not yet in `said`, which is updated.
pub(crate) fn unsaid(said: &mut u32) -> impl Iterator<Item = Notice> {
    news(&RAISED, said)
}

/// The same for notices that `run` prints.
pub(crate) fn unsaid_to_user(said: &mut u32) -> impl Iterator<Item = Notice> {
    news(&FOR_RUN, said)
}

fn news(raised: &AtomicU32, said: &mut u32) -> impl Iterator<Item = Notice> {
    let raised = raised.load(Ordering::Acquire);
    let new = raised & !*said;
    *said = raised;
    Notice::ALL.iter().copied().filter(move |&notice| new & notice as u32 != 0)
}

/// Remembers which file is standard error.
pub(crate) fn remember_stderr() {
    STDERR.get_or_init(|| identity(libc::STDERR_FILENO));
}

/// Writes a line to stderr with a single `write`, if stderr is still the same file as at startup.
pub(crate) fn print(text: &str) {
    remember_stderr();
    let stderr = STDERR.get().copied().flatten();
    if stderr.is_none() || stderr != identity(libc::STDERR_FILENO) {
        return;
    }
    let line = format!("makeroom: {text}\n");
    // SAFETY: the buffer is valid for its length. A failed write is ignored: there is nowhere to report it.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Leaves a line for a thread of the program to print: the writer has no standard error.
pub(crate) fn print_later(text: String) {
    // A fork may have copied the lock while it was held. It is then never released, and the line is lost.
    let Ok(mut later) = LATER.try_lock() else { return };
    *later = text;
    HAS_LATER.store(true, Ordering::Release);
}

/// Prints the pending line, on a thread of the program.
#[inline]
pub(crate) fn print_what_is_left() {
    if HAS_LATER.load(Ordering::Relaxed) {
        print_left();
    }
}

#[cold]
fn print_left() {
    let _errno = errno::ErrnoGuard::new();
    // A signal handler may get here while its own thread holds the lock: the next call prints the line.
    let Ok(mut left) = LATER.try_lock() else { return };
    if HAS_LATER.swap(false, Ordering::AcqRel) {
        print(&std::mem::take(&mut *left));
    }
}
