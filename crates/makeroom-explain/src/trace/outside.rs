//! What other crates ask of a recording without wanting it explained.

use makeroom_core::{Bytes, DeviceTrace, StackId, Start, Trace};

use super::{Measured, Places};

/// What a device held that this process did not ask for: contexts, code, the driver's own, other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The device's memory.
    pub total: Bytes,
    /// The most of it that was held beside what the process asked for.
    pub held: Bytes,
}

/// The most that a device was seen to hold beside what the process asked for; `None` where it was never asked.
pub fn held_beside(trace: &Trace, device: &DeviceTrace) -> Option<Beside> {
    Measured::new(trace.process.as_ref()?, device, &Start::new(device)).most_beside()
}

/// The place in the program that a stack names.
pub fn place_of(trace: &Trace, stack: StackId) -> Option<String> {
    Places::new(trace).of(stack)
}
