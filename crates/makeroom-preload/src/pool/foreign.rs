//! Frees on streams of other contexts: of another device, or created with `cuCtxCreate`.
//!
//! The pool tracks the GPU's progress with events of its own context, which cannot be recorded on such a stream. So
//! an event of the stream's context is recorded instead, and a relay stream of the pool waits for it. Memory freed on
//! the relay stream is reused only after the program's stream has finished its current work. The host does not wait.

use makeroom_core::StreamId;
use makeroom_cuda::{CaptureModeGuard, Driver, Result};
use makeroom_pool::Allocator as _;

use super::calls::is_captured;
use super::devices::DevicePool;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const UNTIMED: u32 = 2;

/// A stream of the pool that is ordered after the current work of another context's stream; `None` if the driver
/// fails.
pub(super) fn relay(pool: &DevicePool, context: u64, stream: StreamId) -> Option<StreamId> {
    if is_captured(pool, stream) {
        return None;
    }
    let driver = pool.pool.driver();
    let _relaxed = CaptureModeGuard::relaxed(driver).ok()?;
    let relay = *pool.relay.get_or_init(|| own_stream(pool, driver).ok());
    follow(pool, driver, context, stream, relay?).ok()?;
    relay.map(StreamId)
}

fn own_stream(pool: &DevicePool, driver: &Driver) -> Result<u64> {
    let _entered = pool.pool.context().enter()?;
    let mut stream = 0;
    // SAFETY: the out-parameter is valid.
    unsafe { driver.stream_create(&raw mut stream, NON_BLOCKING) }?;
    Ok(stream)
}

fn follow(pool: &DevicePool, driver: &Driver, context: u64, stream: StreamId, relay: u64) -> Result<()> {
    let (mut event, mut left) = (0, 0);
    // SAFETY: the program itself passes this stream to the driver, so its context is live; the push is undone by the
    // pop, and the out-parameters are valid.
    let recorded = unsafe {
        driver.context_push(context)?;
        let recorded =
            driver.event_create(&raw mut event, UNTIMED).and_then(|()| driver.event_record(event, stream.0));
        driver.context_pop(&raw mut left)?;
        recorded
    };
    let _entered = pool.pool.context().enter()?;
    // SAFETY: the event and the stream are live.
    let waits = recorded.and_then(|()| unsafe { driver.stream_wait(relay, event, 0) });
    if event != 0 {
        // SAFETY: created above. The driver keeps an event alive while a stream waits for it.
        unsafe { driver.event_destroy(event) }?;
    }
    waits
}
