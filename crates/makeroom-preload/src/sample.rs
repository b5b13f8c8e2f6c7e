//! Samples the device's free and total memory, so that the accounts add up.
//!
//! Sampling runs on the program's threads, because the driver reports on the calling thread's context, and only after
//! a recorded call: at most four times a second, after a context is created (to see its overhead), and after a failed
//! allocation. Never during a stream capture, and with the thread in relaxed capture mode so as not to break a
//! capture that no hook saw begin.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use makeroom_trace::room::EventKind;

use crate::clock;
use crate::driver::types::SUCCESS;
use crate::driver::{capture, place, real};
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
/// Devices whose graph and pool memory is sampled.
const MOST_DEVICES: usize = 64;

/// Whether a graph contains an allocation, so that graphs take memory that no call reports.
static HAS_GRAPH_MEMORY: AtomicBool = AtomicBool::new(false);
/// Graph memory of each device at the last sample.
static GRAPH_MEMORY: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// Whether the program allocated stream-ordered memory, so that the driver's pool reserves more than calls report.
static HAS_POOL_MEMORY: AtomicBool = AtomicBool::new(false);
/// Memory reserved by each device's default pool at the last sample.
static POOL_MEMORY: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// Samples the driver's default pool from now on.
pub(crate) fn expect_pool_memory() {
    HAS_POOL_MEMORY.store(true, Ordering::Relaxed);
}

/// Samples graph memory from now on: graphs take it when they are launched.
pub(crate) fn expect_graph_memory() {
    HAS_GRAPH_MEMORY.store(true, Ordering::Relaxed);
}

/// Whether graphs take memory.
#[inline]
pub(crate) fn has_graph_memory() -> bool {
    HAS_GRAPH_MEMORY.load(Ordering::Relaxed)
}

/// Samples if the interval is over.
#[inline]
pub(crate) fn if_due(now_ns: u64) {
    let last = LAST_NS.load(Ordering::Relaxed);
    if now_ns.wrapping_sub(last) >= INTERVAL_NS
        && LAST_NS.compare_exchange(last, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        && !take()
    {
        // No sample (a capture, no context, or a driver error): the next call tries again.
        LAST_NS.store(last, Ordering::Relaxed);
    }
}

/// Samples now.
pub(crate) fn now() {
    if take() {
        LAST_NS.store(clock::monotonic_ns(), Ordering::Relaxed);
    }
}

/// Samples after a context was created. A primary context becomes current later; the next recorded call then samples.
pub(crate) fn after_context() {
    if !take() {
        LAST_NS.store(0, Ordering::Relaxed);
    }
}

/// Returns whether the driver answered.
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
    // SAFETY: the driver's own functions with valid out-parameters; the thread's capture mode is restored.
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

/// Samples the graph memory of a device and records it if it changed. The thread is in relaxed capture mode.
fn ask_graphs(device: u8) {
    let (Some(ask), Some(last)) = (real::graph_memory(), GRAPH_MEMORY.get(usize::from(device))) else {
        return;
    };
    let mut taken = 0;
    // SAFETY: the driver's own function with a valid out-parameter.
    let result = unsafe { ask(device.into(), GRAPHS_RESERVED, &raw mut taken) };
    if result == SUCCESS {
        tell_if_changed(EventKind::GraphMemory, device, last, taken);
    }
}

/// Samples the memory reserved by a device's default pool. The program's own pools are skipped: another thread may
/// destroy one during the query. The thread is in relaxed capture mode.
fn ask_pool(device: u8) {
    let (Some(find), Some(ask), Some(last)) =
        (real::default_pool(), real::pool_attribute(), POOL_MEMORY.get(usize::from(device)))
    else {
        return;
    };
    let (mut pool, mut taken) = (std::ptr::null_mut(), 0);
    // SAFETY: the driver's own functions with valid out-parameters; the default pool is never destroyed.
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
