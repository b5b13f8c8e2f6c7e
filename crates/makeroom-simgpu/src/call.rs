//! The wrapper of every exported function: injects faults, provides the calling thread's state, and catches panics.
//!
//! `driver_functions!` generates the exported functions. Each is `fn name(arguments) |call| { … }` and may have more
//! names: `= other` for an older version with the same behavior, `/ name_ptsz` for the version in which a null stream
//! is the per-thread default stream.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::Session;
use crate::faults;
use crate::machine::{CaptureMode, ContextId, DefaultStream, StreamName};
use crate::status::{Result, Status};

/// The driver's state of a thread.
pub(crate) struct Thread {
    id: u64,
    contexts: RefCell<Vec<ContextId>>,
    capture_mode: Cell<CaptureMode>,
}

impl Thread {
    fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            contexts: RefCell::default(),
            capture_mode: Cell::new(CaptureMode::Global),
        }
    }
}

thread_local! {
    static THREAD: Thread = Thread::new();
}

/// A call in progress.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    default: DefaultStream,
    thread: &'a Thread,
}

/// Runs the body of an exported function, unless a fault is due. Not generic, so that it is compiled once and not for each of
/// hundreds of functions.
pub(crate) fn run(
    function: &'static str,
    default: DefaultStream,
    body: &dyn Fn(Call<'_>) -> Result<()>,
) -> u32 {
    let on_thread = |thread: &Thread| match faults::due(function) {
        None => body(Call { default, thread }),
        Some(status) => Err(status),
    };
    // The state of an exiting thread is gone: it calls like a new thread.
    let guarded = || THREAD.try_with(on_thread).unwrap_or_else(|_| on_thread(&Thread::new()));
    match catch_unwind(AssertUnwindSafe(guarded)) {
        Ok(Ok(())) => Status::SUCCESS.0,
        Ok(Err(status)) => status.0,
        Err(_) => Status::UNKNOWN.0,
    }
}

impl Call<'_> {
    /// Locks the driver and returns the current context, which must exist.
    pub(crate) fn in_context(self) -> Result<(Session, ContextId)> {
        let session = Session::open()?;
        let context = self.current().ok_or(Status::INVALID_CONTEXT)?;
        session.machine.context_device(context)?;
        Ok((session, context))
    }

    /// The same for a call that is illegal during a capture.
    pub(crate) fn outside_capture(self) -> Result<(Session, ContextId)> {
        let (mut session, context) = self.in_context()?;
        session.machine.refuse_in_capture(self.thread(), self.capture_mode())?;
        Ok((session, context))
    }

    /// A stream as the program passed it.
    pub(crate) fn stream(self, handle: u64) -> StreamName {
        StreamName { handle, default: self.default, thread: self.thread() }
    }

    /// The calling thread's ID.
    pub(crate) fn thread(self) -> u64 {
        self.thread.id
    }

    /// The thread's current context.
    pub(crate) fn current(self) -> Option<ContextId> {
        self.thread.contexts.borrow().last().copied()
    }

    /// Pushes a context onto the thread's stack.
    pub(crate) fn push(self, context: ContextId) {
        self.thread.contexts.borrow_mut().push(context);
    }

    /// Pops a context from the thread's stack.
    pub(crate) fn pop(self) -> Option<ContextId> {
        self.thread.contexts.borrow_mut().pop()
    }

    /// The thread's capture mode, which determines which of its calls a capture forbids.
    pub(crate) fn capture_mode(self) -> CaptureMode {
        self.thread.capture_mode.get()
    }

    /// Sets the capture mode and returns the previous one.
    pub(crate) fn exchange_capture_mode(self, mode: CaptureMode) -> CaptureMode {
        self.thread.capture_mode.replace(mode)
    }
}

/// Generates exported functions. See the top of this file.
macro_rules! driver_functions {
    ($(
        $(#[$note:meta])*
        fn $name:ident $(= $other:ident)* $(/ $per_thread:ident)*
        ($($argument:ident: $kind:ty),* $(,)?) |$call:pat_param| $body:block
    )*) => {
        $(
            $crate::call::driver_functions!(
                @one Legacy, [$(#[$note])*], [$name $($other)*], ($($argument: $kind),*), $call, $body
            );
            $crate::call::driver_functions!(
                @one PerThread, [$(#[$note])*], [$($per_thread)*], ($($argument: $kind),*), $call, $body
            );
        )*
    };
    (@one $default:ident, $notes:tt, [$($name:ident)*], $arguments:tt, $call:pat_param, $body:block) => {
        $($crate::call::driver_functions!(@write $default, $notes, $name, $arguments, $call, $body);)*
    };
    (
        @write $default:ident, [$(#[$note:meta])*], $name:ident, ($($argument:ident: $kind:ty),*),
        $call:pat_param, $body:block
    ) => {
        $(#[$note])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $kind),*) -> u32 {
            let body = |$call: $crate::call::Call<'_>| -> $crate::status::Result<()> { $body };
            $crate::call::run(stringify!($name), $crate::machine::DefaultStream::$default, &body)
        }
    };
}

pub(crate) use driver_functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let answer = run("cuNothing", DefaultStream::Legacy, &|_| panic!("expected in this test"));
        assert_eq!(answer, Status::UNKNOWN.0);
    }
}
