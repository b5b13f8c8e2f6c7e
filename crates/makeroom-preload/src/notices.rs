//! What the recorder has to say: each thing once, into the file as a note and, where the user must know, to stderr.
//!
//! Hooks only set a bit; the writer turns bits into notes. So saying something costs nothing and takes no lock.

use std::sync::atomic::{AtomicU32, Ordering};

use makeroom_trace::room::Severity;

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
}

static RAISED: AtomicU32 = AtomicU32::new(0);
static PRINTED: AtomicU32 = AtomicU32::new(0);

/// Says something, once.
pub(crate) fn raise(notice: Notice) {
    // Some are raised by every call of a program: once it is said, that writes to nothing.
    if RAISED.load(Ordering::Relaxed) & notice as u32 == 0 {
        RAISED.fetch_or(notice as u32, Ordering::Relaxed);
    }
}

/// Says something, once, to the user at the terminal too.
pub(crate) fn raise_loudly(notice: Notice) {
    raise(notice);
    if PRINTED.fetch_or(notice as u32, Ordering::Relaxed) & notice as u32 == 0 {
        print(notice.text());
    }
}

/// What was raised and is not in `said`, which then holds it.
pub(crate) fn unsaid(said: &mut u32) -> impl Iterator<Item = Notice> {
    let raised = RAISED.load(Ordering::Relaxed);
    let new = raised & !*said;
    *said = raised;
    Notice::ALL.iter().copied().filter(move |&notice| new & notice as u32 != 0)
}

/// Writes a line to stderr in one piece.
pub(crate) fn print(text: &str) {
    let line = format!("makeroom: {text}\n");
    // SAFETY: the buffer is valid for its length. A closed stderr is an error that nobody can be told of.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
