//! Frees in stream order, and when their memory is known to be back.

use makeroom_core::{Action, Bytes, StreamId};
use makeroom_trace::room::{ContextHandle, Event, EventKind};

use super::recording::{PYTHON, Recording, actions, by, event, refused};

#[test]
fn stream_ordered_frees_complete_at_once_unless_a_record_says_when() {
    use EventKind::{StreamAlloc, StreamFree, StreamFreeCompleted};
    let on = |stream, event| Event { stream: StreamId(stream), ..event };
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                on(1, event(StreamAlloc, 0x1000, 10)),
                on(2, event(StreamFree, 0x1000, 0)),
                on(1, event(StreamAlloc, 0x1000, 20)),
                on(1, event(StreamFree, 0x1000, 0)),
                on(1, event(StreamAlloc, 0x2000, 30)),
                event(StreamFreeCompleted, 0x1000, 0),
            ],
        )
        .read();
    assert_eq!(
        actions(&trace),
        [
            (Action::Alloc, 0x1000, 10),
            (Action::FreeRequested, 0x1000, 10),
            (Action::FreeCompleted, 0x1000, 10),
            (Action::Alloc, 0x1000, 20),
            (Action::FreeRequested, 0x1000, 20),
            (Action::Alloc, 0x2000, 30),
            (Action::FreeCompleted, 0x1000, 20),
        ]
    );
    assert_eq!(trace.devices[0].events.get(1).unwrap().stream, StreamId(2));
}

#[test]
fn frees_in_stream_order_wait_until_they_are_known_to_be_back() {
    use EventKind::{DeviceAlloc, StreamAlloc, StreamFree, StreamFreeCompleted};
    let on = |stream, event| Event { stream: StreamId(stream), ..event };
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                on(1, event(StreamAlloc, 0x1000, 0x100)),
                on(2, event(StreamAlloc, 0x2000, 0x200)),
                on(3, event(StreamAlloc, 0x3000, 0x400)),
                on(3, event(StreamAlloc, 0x4000, 0x800)),
                on(1, event(StreamFree, 0x1000, 0)),
                on(2, event(StreamFree, 0x2000, 0)),
                on(3, event(StreamFree, 0x3000, 0)),
                by(PYTHON, event(DeviceAlloc, 0x9000, 0x5000)),
                by(PYTHON, event(DeviceAlloc, 0xf000, 0x10)),
                // Reused in two parts, and recorded as complete.
                on(2, event(StreamAlloc, 0x2000, 0x80)),
                event(StreamFreeCompleted, 0x3000, 0),
                refused(event(DeviceAlloc, 0, 0x9000)),
                on(3, event(StreamFree, 0x4000, 0)),
            ],
        )
        .read();
    let pending =
        |bytes, frees, streams| makeroom_core::PendingFrees { bytes: Bytes::new(bytes), frees, streams };
    let [frees] = trace.process.as_ref().unwrap().stream_frees[..] else { panic!("one device has some") };
    assert_eq!(frees.at_end, pending(0x900, 2, 2));
    assert_eq!(frees.at_refusal, Some(pending(0x100, 1, 1)));
    let asked = frees.asked.unwrap();
    assert_eq!((asked.size, asked.pending), (Bytes::new(0x5000), pending(0x700, 3, 3)));
    assert_eq!(trace.stacks.frames_of(asked.stack).len(), 1);
}

/// Each synchronization covers the frees on its stream from before it began, and no others.
#[test]
fn a_wait_ends_what_was_freed_before_it_began() {
    use EventKind::{ContextCreate, ContextWait, StreamAlloc, StreamDestroy, StreamFree, StreamWait};
    let on = |stream, event| Event { stream: StreamId(stream), ..event };
    let within = |context, event| Event { context: ContextHandle(context), ..event };
    let ago = |extra, event| Event { extra, ..event };
    let left_after = |contexts: &[u64], thread, last: &[Event]| {
        let mut events: Vec<Event> =
            contexts.iter().map(|&context| within(context, event(ContextCreate, 0, 0))).collect();
        for (number, stream) in [0, 1, 2, 0x50, 0x60].into_iter().enumerate() {
            let block = 0x1000 << number;
            events.push(on(stream, within(0xa, event(StreamAlloc, block, 1 << number))));
            events.push(on(stream, within(0xa, event(StreamFree, block, 0))));
        }
        let recording = Recording::new().events(7, 10, &events).events(thread, 1000, last);
        let frees = recording.read().process.unwrap().stream_frees;
        frees.first().map_or(0, |frees| frees.at_end.bytes.get())
    };
    let left = |contexts: &[u64], thread, last: Event| left_after(contexts, thread, &[last]);
    let stream = |handle, context| on(handle, within(context, event(StreamWait, 0, 0)));
    let one = [0xa];
    assert_eq!(left(&one, 7, stream(0x50, 0xa)), 0b10111);
    assert_eq!(left(&one, 8, stream(0x50, 0xb)), 0b10111, "a made stream is the same everywhere");
    assert_eq!(left(&one, 8, stream(0, 0xa)), 0b11100, "0 and 1 are one stream");
    assert_eq!(left(&one, 8, stream(0, 0xb)), 0b11111, "and another in another context");
    assert_eq!(left(&one, 7, stream(2, 0xa)), 0b11011);
    assert_eq!(left(&one, 8, stream(2, 0xa)), 0b11111, "another thread has another");
    assert_eq!(left(&one, 7, stream(0x70, 0xa)), 0b11111);
    assert_eq!(left(&one, 7, ago(990_000, stream(0x50, 0xa))), 0b11111, "it began before the free");
    let context = |context| within(context, event(ContextWait, 0, 0));
    assert_eq!(left(&one, 8, context(0xa)), 0);
    assert_eq!(left(&[0xa, 0xb], 8, context(0xa)), 0b11000, "made streams may be another context's");
    assert_eq!(left(&[0xa, 0xb], 8, context(0xb)), 0b11111);
    let gone = on(0x50, event(StreamDestroy, 0, 0));
    assert_eq!(left_after(&one, 7, &[gone, stream(0x50, 0xa)]), 0b11111, "that is another stream");
    assert_eq!(left_after(&one, 7, &[gone, context(0xa)]), 0);
}

#[test]
fn a_wait_that_comes_first_in_the_file_hides_no_device() {
    let trace = Recording::new()
        .events(8, 100, &[event(EventKind::StreamWait, 0, 0)])
        .events(7, 10, &[event(EventKind::DeviceAlloc, 64, 5)])
        .read();
    assert_eq!(actions(&trace), [(Action::Alloc, 64, 5)]);
}
