//! Frees on streams of other contexts: of another device, or made with `cuCtxCreate`.
//!
//! The pool tells how far the GPU has come by events of its own context, which cannot be put on such a stream. So an
//! event of the stream's context is, and a stream of the pool's waits for it: freed there, the memory is used again
//! after all that the program's stream had to do. Nobody waits on the host.

use makeroom_core::StreamId;
use makeroom_cuda::{CaptureModeGuard, Driver, Result};
use makeroom_pool::Allocator as _;

use super::calls::is_captured;
use super::devices::DevicePool;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const UNTIMED: u32 = 2;

/// A stream of the pool's that comes after what a stream of another context has to do now; `None` where the driver does
/// not let it.
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
    // SAFETY: the result has a place.
    unsafe { driver.stream_create(&raw mut stream, NON_BLOCKING) }?;
    Ok(stream)
}

fn follow(pool: &DevicePool, driver: &Driver, context: u64, stream: StreamId, relay: u64) -> Result<()> {
    let (mut event, mut left) = (0, 0);
    // SAFETY: the program names the stream in a call of its own, so its context is live; what is pushed is popped, and the
    // results have places.
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
        // SAFETY: made above. The driver keeps what waits for it.
        unsafe { driver.event_destroy(event) }?;
    }
    waits
}
