//! Records one call that returned: stamps the event, adds device, context and stack, and passes it to the writer.

use makeroom_trace::room::EventKind;

use crate::config::{StackMode, config};
use crate::driver::types::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::driver::{capture, devices, place};
use crate::record::event::RawEvent;
use crate::record::{threads, wake};
use crate::{clock, limit, sample, stacks, startup, state};

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
    if !(state::is_recording() || is_in_use && startup::start()) {
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
        wake::wake();
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
