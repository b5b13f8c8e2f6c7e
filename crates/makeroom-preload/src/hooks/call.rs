//! One call of a hooked function: guard, call, record, return.
//!
//! The guard is a reentrancy check: when the driver itself calls hooked functions, they pass straight through. It is
//! the address of the outermost hook's stack frame, with a canary in that frame. A `longjmp` over a hook leaves the
//! address behind but not the canary, so a stale guard has no effect.

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
    // Const-initialized and without destructors, so they can be used at any point in a thread's life.
    static OUTERMOST: Cell<usize> = const { Cell::new(0) };
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// Calls made in a signal handler while their thread was recording another.
static NESTED: AtomicU64 = AtomicU64::new(0);

/// Calls lost since the last time because they came while their thread was recording.
pub(crate) fn take_nested() -> u64 {
    NESTED.swap(0, Ordering::Relaxed)
}

/// Upper bound on the size of a thread's stack.
const LARGEST_STACK: usize = 1 << 30;
const MARK: usize = 0x6d61_6b65_726f_6f6d;

/// The frame of a hook.
pub(crate) struct Call {
    mark: Cell<usize>,
}

/// Whether to record a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Made by the program.
    Outermost,
    /// Made by the driver inside another call, or the recorder is off.
    Passing,
}

impl Call {
    /// A frame that does not guard yet.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { mark: Cell::new(0) }
    }

    /// Begins the call. The frame must not move after this.
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

    /// Runs a hook's own work, apart from the driver call. Neither a panic nor a changed `errno` reaches the program.
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

/// Whether the frame at an address of this thread's stack belongs to a hook that is still running.
fn is_marked(frame: usize) -> bool {
    // SAFETY: the caller checked that the address lies in this thread's stack above the calling frame, so it is
    // readable; it may hold anything, which is why it is read as a plain number and compared.
    let found = unsafe { std::ptr::read_volatile(frame as *const usize) };
    found == frame ^ MARK
}

/// The result of a call, which decides which of its parameters can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done(pub(crate) CuResult);

impl Done {
    /// Whether the call succeeded.
    pub(crate) fn is_ok(self) -> bool {
        self.0 == SUCCESS
    }

    /// The value of an out-parameter; zero after a failure, or if the program passed null.
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
        // SAFETY: same requirements; a handle is one word.
        unsafe { self.out(pointer.cast::<u64>()) }
    }

    /// A structure passed to the driver; null if the driver rejected it. Out of memory counts as accepted: the driver
    /// validates all parameters before it allocates.
    pub(crate) fn given(self, structure: *const c_void) -> *const c_void {
        if matches!(self.0, SUCCESS | OUT_OF_MEMORY) { structure } else { std::ptr::null() }
    }

    /// The structure of a failed launch; null after errors that the driver may return without reading it, such as those
    /// of a missing context or of an earlier fault. These errors are about what it contains.
    pub(crate) fn launched(self, structure: *const c_void) -> *const c_void {
        const INVALID_VALUE: CuResult = 1;
        const LAUNCH_OUT_OF_RESOURCES: CuResult = 701;
        const COOPERATIVE_LAUNCH_TOO_LARGE: CuResult = 720;
        let is_read = matches!(
            self.0,
            OUT_OF_MEMORY | INVALID_VALUE | LAUNCH_OUT_OF_RESOURCES | COOPERATIVE_LAUNCH_TOO_LARGE
        );
        if is_read { structure } else { std::ptr::null() }
    }

    /// The first of a list of launches that failed; null for an empty list, which the driver rejects without reading it.
    pub(crate) fn first_launched(self, list: *const c_void, count: u32) -> *const c_void {
        if count == 0 { std::ptr::null() } else { self.launched(list) }
    }

    /// Whether a structure's location is a device, and which one.
    ///
    /// # Safety
    ///
    /// `structure` is null or a parameter of this call with a `CUmemLocation` at this offset.
    pub(crate) unsafe fn location(self, structure: *const c_void, offset: usize) -> (bool, Device) {
        // SAFETY: guaranteed by the caller; `given` excludes structures that the driver rejected.
        unsafe { types::location(self.given(structure), offset) }
    }
}

/// When an event is considered to have happened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before the call: for calls that release memory.
    Before(u64),
    /// After the call: for calls that allocate memory.
    After,
}

/// Records a call that returned. Starts the recorder if this is the first call that shows CUDA in use.
pub(crate) fn record(event: RawEvent, result: CuResult, moment: Moment) {
    let is_in_use = matches!(result, SUCCESS | OUT_OF_MEMORY);
    let mut event = event;
    event.result = u16::try_from(result).unwrap_or(u16::MAX);
    // A limit, and the state kept for contexts, apply without a recording too.
    limit::book(&event);
    if !(state::is_recording() || is_in_use && state::start()) {
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

/// Invalidates the cached place: a new context may get the same handle on another device.
fn forget_context(event: &RawEvent) {
    if matches!(EventKind::from_number(event.kind), EventKind::ContextDestroy | EventKind::PrimaryReset) {
        place::context_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call from a deeper frame, like one that the driver makes.
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
