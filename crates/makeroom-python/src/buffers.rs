//! Removes buffers from a profile of live memory. A profile lists every buffer that a program refers to; the caller knows
//! which of them have no memory.

use makeroom_core::{BlockState, Bytes, DeviceIndex, StackId, Stacks, Trace};

/// A buffer: its device, its bytes, and file and line of each frame, innermost first.
pub(crate) type Buffer = (u32, u64, Vec<(String, u32)>);

/// Removes one block for each buffer: of the same device and size, from the same stack if there is one.
pub(crate) fn remove(trace: &mut Trace, buffers: &[Buffer]) {
    let Trace { devices, stacks, .. } = trace;
    for (device, bytes, frames) in buffers {
        let Some(device) = devices.iter_mut().find(|known| known.device == DeviceIndex(*device)) else {
            continue;
        };
        let size = Bytes::new(*bytes);
        let is_meant = |stack: Option<StackId>| stack.is_none_or(|stack| is_same(stacks, stack, frames));
        let position = |checks_stack: bool| {
            device.segments.iter().position(|segment| {
                segment.blocks.last().is_some_and(|block| {
                    block.state == BlockState::Live
                        && block.size == size
                        && is_meant(checks_stack.then_some(block.stack))
                })
            })
        };
        let Some(found) = position(true).or_else(|| position(false)) else { continue };
        // The blocks of a segment of a profile are equal, so any of them can go.
        let segment = &mut device.segments[found];
        segment.blocks.pop();
        segment.size = segment.size - size;
        if segment.blocks.is_empty() {
            device.segments.remove(found);
        }
    }
}

/// Removes all blocks of devices.
pub(crate) fn remove_devices(trace: &mut Trace, devices: &[u32]) {
    trace.devices.retain(|known| !devices.contains(&known.device.0));
}

fn is_same(stacks: &Stacks, stack: StackId, frames: &[(String, u32)]) -> bool {
    let known = stacks.frames_of(stack);
    known.len() == frames.len()
        && known.iter().zip(frames).all(|(&frame, (file, line))| {
            let frame = stacks.frame_at(frame);
            frame.line == *line && stacks.name_text(frame.file) == file
        })
}
