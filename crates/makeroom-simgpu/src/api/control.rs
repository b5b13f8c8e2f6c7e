//! Functions that no real driver has, with which tests control the clock and inject faults.

use makeroom_simcard::Fault;

use crate::abi::Text;
use crate::call::driver_functions;
use crate::driver::Session;
use crate::faults;
use crate::status::Status;

driver_functions! {
    /// Keeps a stream busy for some simulated time.
    fn makeroom_simgpu_enqueue_work(stream: u64, nanoseconds: u64) |call| {
        let (mut session, context) = call.in_context()?;
        let stream = session.machine.stream(context, call.stream(stream))?;
        session.machine.enqueue(stream, nanoseconds)
    }

    /// Moves the clock forward.
    fn makeroom_simgpu_advance(nanoseconds: u64) |_| {
        let mut session = Session::open()?;
        let then = session.machine.now().saturating_add(nanoseconds);
        session.machine.advance_to(then);
        Ok(())
    }

    /// Makes a future call fail: `number` 1 is the next one.
    fn makeroom_simgpu_fail(function: Text, number: u64, error: u32) |_| {
        let function = std::str::from_utf8(function.bytes()?).map_err(|_| Status::INVALID_VALUE)?.to_owned();
        if number == 0 {
            return Err(Status::INVALID_VALUE);
        }
        faults::add(vec![Fault { function, call: number, error }]);
        Ok(())
    }
}

/// Reads the clock; 0 if the driver is not initialized.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_simgpu_now() -> u64 {
    Session::open().map_or(0, |session| session.machine.now())
}

/// Removes the pending faults and returns their number.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_simgpu_forget_faults() -> u64 {
    faults::clear() as u64
}
