//! Explains an error text together with a recording of the memory that was live.

use makeroom_core::Trace;
use makeroom_explain::{Explanation, Room, TraceQuestion, explain_memory};

use crate::answer::explain_text;

/// Explains an error message together with the memory that was live when it was raised, such as JAX's memory profile: the
/// text has the cause, the profile has the lines.
pub fn explain_text_with(text: &str, live: &Trace) -> Explanation {
    let mut explanation = explain_text(text);
    let device = explanation.request.as_ref().and_then(|request| request.device);
    let device = device.filter(|device| live.devices.iter().any(|known| known.device == *device));
    let held = explain_memory(live, &TraceQuestion { room: Room::Unknown, device });
    if explanation.sites.is_empty() {
        explanation.sites = held.sites;
        explanation.other_sites = held.other_sites;
    }
    explanation.notes.extend(held.notes);
    explanation
}

#[cfg(test)]
mod tests {
    use makeroom_core::{
        Address, Block, BlockState, Bytes, DeviceIndex, DeviceTrace, Frame, Segment, TraceKind,
    };

    use super::*;

    /// A profile of one live buffer per device, allocated at a line of the device's number.
    fn profile(devices: &[(u32, u64)]) -> Trace {
        let mut trace = Trace::new(TraceKind::JaxProfile);
        for &(device, mebibytes) in devices {
            let (function, file) = (trace.stacks.name("step"), trace.stacks.name("/home/user/train.py"));
            let frame = trace.stacks.frame(Frame { function, file, line: device + 1, ..Frame::default() });
            let stack = trace.stacks.stack(&[frame]);
            let (address, size) = (Address(1 << 21), Bytes::mib(mebibytes));
            let block = Block { address, size, requested: Some(size), state: BlockState::Live, stack };
            let segment = Segment { address, size, blocks: vec![block], stack, ..Segment::default() };
            trace.devices.push(DeviceTrace {
                device: DeviceIndex(device),
                segments: vec![segment],
                ..DeviceTrace::default()
            });
        }
        trace.notes.push("largest live arrays: one".to_owned());
        trace
    }

    const TEXT: &str = "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate \
                        8589934592 bytes.";

    #[test]
    fn the_text_has_the_cause_and_the_profile_the_lines() {
        let plain = explain_text(TEXT);
        let both = explain_text_with(TEXT, &profile(&[(0, 7)]));
        assert_eq!((both.verdict.cause, both.request), (plain.verdict.cause, plain.request));
        assert_eq!(both.sites[0].bytes, Bytes::mib(7));
        assert!(both.sites[0].place.contains("train.py:1 step"), "{}", both.sites[0].place);
        assert!(both.notes.contains(&"largest live arrays: one".to_owned()), "{:?}", both.notes);
    }

    #[test]
    fn the_fullest_device_is_shown_if_the_text_names_none() {
        let both = explain_text_with(TEXT, &profile(&[(0, 7), (1, 9)]));
        assert_eq!(both.sites[0].bytes, Bytes::mib(9));
    }
}
