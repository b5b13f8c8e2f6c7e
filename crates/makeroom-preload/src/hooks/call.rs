//! One call of a hooked function: guard, call, record, return.
//!
//! The guard makes the driver's own calls back into hooked functions pass straight through. It is the address of the
//! outermost hook's frame, with a mark in that frame: a `longjmp` over a hook leaves the address behind but not the
//! mark, so a guard that was jumped over does not hold.

use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use makeroom_trace::room::EventKind;

use super::capture;
use crate::config::{StackMode, config};
use crate::driver::types::{self, CuResult, Device, Handle, OUT_OF_MEMORY, SUCCESS};
use crate::driver::{devices, place};
use crate::errno;
use crate::notices::{Notice, raise_loudly};
use crate::record::event::RawEvent;
use crate::record::threads;
use crate::{clock, cost, limit, sample, stacks, state, writer};

thread_local! {
    // Constant and without destructors: usable at any moment of a thread's life.
    static OUTERMOST: Cell<usize> = const { Cell::new(0) };
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// Calls that came, in a signal handler, while their thread was recording another.
static NESTED: AtomicU64 = AtomicU64::new(0);

/// The calls lost since the last time because they came while their thread was recording.
pub(crate) fn take_nested() -> u64 {
    NESTED.swap(0, Ordering::Relaxed)
}

/// No thread's stack is larger.
const LARGEST_STACK: usize = 1 << 30;
const MARK: usize = 0x6d61_6b65_726f_6f6d;

/// The frame of a hook.
pub(crate) struct Call {
    mark: Cell<usize>,
}

/// Whether a call is to be recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is the program's.
    Outermost,
    /// The driver makes it while it serves another, or the recorder is off.
    Passing,
}

impl Call {
    /// A frame that guards nothing yet.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { mark: Cell::new(0) }
    }

    /// Begins the call. The frame must not move afterwards.
    #[inline]
    pub(crate) fn enter(&self) -> Role {
        if state::steps_aside() {
            return Role::Passing;
        }
        let here = std::ptr::from_ref(self) as usize;
        let outermost = OUTERMOST.get();
        if outermost > here && outermost - here < LARGEST_STACK && is_marked(outermost) {
            if IS_RECORDING.get() {
                NESTED.fetch_add(1, Ordering::Relaxed);
            }
            return Role::Passing;
        }
        self.mark.set(here ^ MARK);
        OUTERMOST.set(here);
        IS_RECORDING.set(false);
        Role::Outermost
    }

    /// Runs what a hook does besides calling the driver. Nothing that happens in there reaches the program: neither a
    /// panic nor `errno`.
    pub(crate) fn aside(work: impl FnOnce()) {
        let _errno = errno::Kept::new();
        IS_RECORDING.set(true);
        if catch_unwind(AssertUnwindSafe(|| cost::of_call(work))).is_err() {
            state::disable();
            raise_loudly(Notice::Panicked);
        }
        IS_RECORDING.set(false);
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if self.mark.get() != 0 {
            self.mark.set(0);
            OUTERMOST.set(0);
        }
    }
}

/// Whether the frame at an address of this thread's stack is a hook's that still runs.
fn is_marked(frame: usize) -> bool {
    // SAFETY: the address lies in this thread's stack above the calling frame (checked by the caller), so it can be
    // read; it may hold anything, which is why it is read as a plain number and compared.
    let found = unsafe { std::ptr::read_volatile(frame as *const usize) };
    found == frame ^ MARK
}

/// How a call went, and so which of its parameters may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done(pub(crate) CuResult);

impl Done {
    /// Whether the driver did it.
    pub(crate) fn is_ok(self) -> bool {
        self.0 == SUCCESS
    }

    /// What an out-parameter holds; zero after a failure, or if the program passed none.
    ///
    /// # Safety
    ///
    /// `pointer` is an out-parameter of this call.
    pub(crate) unsafe fn out<T: Copy + Default>(self, pointer: *const T) -> T {
        let filled = if self.is_ok() { pointer } else { std::ptr::null() };
        // SAFETY: null, or filled by the driver.
        unsafe { types::out(filled) }
    }

    /// [`Self::out`] for handles.
    ///
    /// # Safety
    ///
    /// As for [`Self::out`].
    pub(crate) unsafe fn handle(self, pointer: *const Handle) -> u64 {
        // SAFETY: the same conditions; a handle has the size of a word.
        unsafe { self.out(pointer.cast::<u64>()) }
    }

    /// A structure that the driver was given, null if it did not accept it: it looks at all parameters before it can
    /// run out of memory.
    pub(crate) fn given(self, structure: *const c_void) -> *const c_void {
        if matches!(self.0, SUCCESS | OUT_OF_MEMORY) { structure } else { std::ptr::null() }
    }

    /// Whether a structure's location is a device, and which.
    ///
    /// # Safety
    ///
    /// `structure` is null or a parameter of this call with a `CUmemLocation` at this offset.
    pub(crate) unsafe fn location(self, structure: *const c_void, offset: usize) -> (bool, Device) {
        // SAFETY: by the caller's word; `given` leaves out what the driver refused.
        unsafe { types::location(self.given(structure), offset) }
    }
}

/// When an event counts as having happened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before the call: what gives memory back.
    Before(u64),
    /// After it: what takes memory.
    After,
}

/// Records a call that returned. Starts the recorder if this is the first that says that CUDA is in use.
pub(crate) fn record(event: RawEvent, result: CuResult, moment: Moment) {
    let is_in_use = matches!(result, SUCCESS | OUT_OF_MEMORY);
    let mut event = event;
    event.result = u16::try_from(result).unwrap_or(u16::MAX);
    if !(state::is_recording() || is_in_use && state::start()) {
        // A limit holds without a recording too, and so does what is known of contexts.
        limit::book(&event);
        forget_context(&event);
        return;
    }
    match moment {
        Moment::Before(time_ns) => {
            event.time_ns = time_ns;
            if matches!(EventKind::from_number(event.kind), EventKind::DeviceFree | EventKind::StreamFree) {
                let place = place::current();
                (event.context, event.device) = (place.context, place.device);
            }
        }
        Moment::After => {
            event.time_ns = clock::monotonic_ns();
            let place = place::current();
            if event.context == 0 {
                event.context = place.context;
            }
            if event.device == 0 {
                event.device = place.device;
            }
            if config().stacks != StackMode::Off {
                event.stack = stacks::capture(stacks::Depth::Full);
            }
        }
    }
    devices::meet(event.device);
    limit::book(&event);
    threads::send(&event);
    forget_context(&event);
    let kind = EventKind::from_number(event.kind);
    if result == SUCCESS && (kind == EventKind::GraphAlloc || capture::is_open()) {
        sample::expect_graph_memory();
    }
    if kind == EventKind::StreamAlloc {
        sample::expect_pool_memory();
    }
    if result == OUT_OF_MEMORY {
        sample::now();
        writer::wake();
    } else if result == SUCCESS && matches!(kind, EventKind::ContextCreate | EventKind::PrimaryRetain) {
        sample::after_context();
    } else if kind == EventKind::GraphTrim {
        sample::now();
    } else if moment == Moment::After {
        sample::if_due(event.time_ns);
    }
}

/// A context that ended may come back under its name on another device.
fn forget_context(event: &RawEvent) {
    if matches!(EventKind::from_number(event.kind), EventKind::ContextDestroy | EventKind::PrimaryReset) {
        place::context_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call from a deeper frame, as the driver makes one.
    #[inline(never)]
    fn role_of_inner_call() -> Role {
        let call = Call::new();
        std::hint::black_box(&call).enter()
    }

    #[test]
    fn a_panic_stays_inside_and_turns_the_recorder_off() {
        let call = Call::new();
        assert!(call.enter() == Role::Outermost);
        assert!(role_of_inner_call() == Role::Passing);
        drop(call);
        Call::aside(|| panic!("a bug"));
        assert!(state::is_disabled());
        assert!(Call::new().enter() == Role::Passing);
    }

    #[test]
    fn errno_survives_what_happens_aside() {
        // SAFETY: the calling thread's own `errno`.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *errno = 42 };
        Call::aside(|| {
            let _ = std::fs::read("/no/such/file");
        });
        // SAFETY: as above.
        assert_eq!(unsafe { *errno }, 42);
    }
}
