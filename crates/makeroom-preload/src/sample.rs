//! What the device says of its own memory, so that an account of it closes.
//!
//! Asked on the program's threads, because the driver answers for the context of the calling one, and only after a
//! recorded call: at most four times a second, after a context was made, which tells what it takes, and at refusals.
//! Never while a stream is being captured, and with the thread in relaxed mode, so that a capture that began unseen is
//! not broken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use makeroom_trace::room::EventKind;

use crate::clock;
use crate::driver::types::SUCCESS;
use crate::driver::{place, real};
use crate::hooks::capture;
use crate::record::event::{RawEvent, SAMPLE};
use crate::record::threads;

const INTERVAL_NS: u64 = 250_000_000;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: i32 = 2;

static LAST_NS: AtomicU64 = AtomicU64::new(0);

/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
const GRAPHS_RESERVED: i32 = 2;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const POOL_RESERVED: i32 = 5;
/// Devices whose graphs and pools are asked about.
const MOST_DEVICES: usize = 64;

/// Whether a graph was given an allocation, so that graphs take memory which no call names.
static HAS_GRAPH_MEMORY: AtomicBool = AtomicBool::new(false);
/// What the graphs of each device had taken when they were last asked about.
static GRAPH_MEMORY: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// Whether stream-ordered memory was asked for, so that the driver's pool takes more than calls name.
static HAS_POOL_MEMORY: AtomicBool = AtomicBool::new(false);
/// What the pool that each device always has had taken when it was last asked.
static POOL_MEMORY: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// From now on the driver's pools take memory.
pub(crate) fn expect_pool_memory() {
    HAS_POOL_MEMORY.store(true, Ordering::Relaxed);
}

/// From now on graphs take memory when they are launched.
pub(crate) fn expect_graph_memory() {
    HAS_GRAPH_MEMORY.store(true, Ordering::Relaxed);
}

/// Whether graphs take memory.
#[inline]
pub(crate) fn has_graph_memory() -> bool {
    HAS_GRAPH_MEMORY.load(Ordering::Relaxed)
}

/// Asks, if it is time to.
#[inline]
pub(crate) fn if_due(now_ns: u64) {
    let last = LAST_NS.load(Ordering::Relaxed);
    if now_ns.wrapping_sub(last) >= INTERVAL_NS
        && LAST_NS.compare_exchange(last, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        && !take()
    {
        // Nobody could be asked: the next call may be in a context.
        LAST_NS.store(last, Ordering::Relaxed);
    }
}

/// Asks now.
pub(crate) fn now() {
    if take() {
        LAST_NS.store(clock::monotonic_ns(), Ordering::Relaxed);
    }
}

/// Asks after a context was made; a primary one becomes current later, and the next recorded call asks.
pub(crate) fn after_context() {
    if !take() {
        LAST_NS.store(0, Ordering::Relaxed);
    }
}

/// Says whether there was an answer.
#[cold]
fn take() -> bool {
    let place = place::current();
    if capture::is_open() || place.context == 0 {
        return false;
    }
    let (Some(memory_info), Some(exchange)) = (real::memory_info(), real::exchange_capture_mode()) else {
        return false;
    };
    let (mut free, mut total, mut mode) = (0, 0, RELAXED);
    // SAFETY: the driver's own functions with valid places for their answers; the mode that the thread had goes back.
    let result = unsafe {
        exchange(&raw mut mode);
        let result = memory_info(&raw mut free, &raw mut total);
        if has_graph_memory() {
            ask_graphs(place.device);
        }
        if HAS_POOL_MEMORY.load(Ordering::Relaxed) {
            ask_pool(place.device);
        }
        exchange(&raw mut mode);
        result
    };
    if result == SUCCESS {
        threads::send(&RawEvent {
            kind: SAMPLE,
            time_ns: clock::monotonic_ns(),
            device: place.device,
            context: place.context,
            address: free as u64,
            size: total as u64,
            ..RawEvent::default()
        });
    }
    result == SUCCESS
}

/// Asks what graphs have taken of a device, and tells it if that has changed. The thread is in relaxed mode.
fn ask_graphs(device: u8) {
    let (Some(ask), Some(last)) = (real::graph_memory(), GRAPH_MEMORY.get(usize::from(device))) else {
        return;
    };
    let mut taken = 0;
    // SAFETY: the driver's own function with a valid place for its answer.
    let result = unsafe { ask(device.into(), GRAPHS_RESERVED, &raw mut taken) };
    if result == SUCCESS {
        tell_if_changed(EventKind::GraphMemory, device, last, taken);
    }
}

/// Asks what the pool that a device always has took of it. Pools that programs make are left alone: one may be
/// destroyed by another thread while it is asked. The thread is in relaxed mode.
fn ask_pool(device: u8) {
    let (Some(find), Some(ask), Some(last)) =
        (real::default_pool(), real::pool_attribute(), POOL_MEMORY.get(usize::from(device)))
    else {
        return;
    };
    let (mut pool, mut taken) = (std::ptr::null_mut(), 0);
    // SAFETY: the driver's own functions with valid places for their answers; that pool lives as long as the driver.
    let result = unsafe {
        match find(&raw mut pool, device.into()) {
            SUCCESS => ask(pool, POOL_RESERVED, &raw mut taken),
            other => other,
        }
    };
    if result == SUCCESS {
        tell_if_changed(EventKind::PoolMemory, device, last, taken);
    }
}

fn tell_if_changed(kind: EventKind, device: u8, last: &AtomicU64, taken: u64) {
    if last.swap(taken, Ordering::Relaxed) != taken {
        let event = RawEvent::new(kind).size(taken).on_device(device.into());
        threads::send(&RawEvent { time_ns: clock::monotonic_ns(), ..event });
    }
}
