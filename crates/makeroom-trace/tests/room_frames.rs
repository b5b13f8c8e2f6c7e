//! Torn, damaged and invalid files, single frames, clocks and lengths.

use crate::support::content::{Content, Part, golden, put_together, take_apart};
use crate::support::rooms;
use makeroom_core::{Address, Bytes, DeviceIndex, StreamId};
use makeroom_trace::Error;
use makeroom_trace::room::{
    ContextHandle, Encoder, Event, EventKind, FRAME_HEAD, LONGEST_EVENT, PoolHandle, Record, StackNumber,
    ThreadNumber, beginning, frame_head, seal,
};

#[test]
fn a_file_torn_at_any_byte_gives_all_whole_frames() {
    let whole = golden("example.room");
    let (content, _) = take_apart(&whole).unwrap();
    let mut ends = vec![beginning(&content.header).len()];
    for frame in 1..=content.frames.len() {
        ends.push(
            put_together(&Content { frames: content.frames[..frame].to_vec(), ..content.clone() }).len(),
        );
    }
    for length in 0..=whole.len() {
        let frames = ends.iter().filter(|&&end| end <= length).count();
        match take_apart(&whole[..length]) {
            Err(Error::NothingRecorded { offset }) => {
                assert_eq!((frames, offset), (0, length as u64));
            }
            Err(error) => panic!("{length}: {error}"),
            Ok((torn, unread)) => {
                assert_eq!(torn.frames, content.frames[..frames - 1]);
                assert_eq!(unread, (length - ends[frames - 1]) as u64);
            }
        }
    }
}

#[test]
fn a_changed_byte_ends_the_reading_before_its_frame() {
    let whole = golden("example.room");
    let (content, _) = take_apart(&whole).unwrap();
    let first = beginning(&content.header).len();
    let second = put_together(&Content { frames: content.frames[..1].to_vec(), ..content.clone() }).len();
    for place in first..whole.len() {
        for flipped in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[place] ^= flipped;
            let (damaged, unread) = take_apart(&bytes).unwrap();
            let frames = usize::from(place >= second);
            assert_eq!(damaged.frames, content.frames[..frames], "byte {place}");
            assert_eq!(unread, (whole.len() - if frames == 0 { first } else { second }) as u64);
        }
    }
}

#[test]
fn sense_is_asked_of_frames_that_are_intact() {
    for (payload, message) in [
        (&b""[..], "expected a thread, found the end of the record"),
        (b"\x01\x00", "expected a record, found the byte 0x00"),
        (b"\x01\x01\x05\x01ab", "expected a record of that length, found the byte 0x01"),
        (b"\x01\x01\x01\x00", "expected the number of a name, found the byte 0x00"),
        (b"\x01\x03\x02\x01\x01", "expected a frame, found the byte 0x01"),
        (b"\x01\x80\x00", "expected a time, found the end of the record"),
        (b"\x01\xbf\x05\x00\x00", "expected a kind of event from 63 on, found the byte 0x05"),
        (b"\x01\x05\x02\x00\x20", "expected known fields of a sample, found the byte 0x20"),
        (b"\x01\x08\x04\x00\x00\x00\x07", "expected the end of the record, found the byte 0x07"),
    ] {
        let mut bytes = beginning(&rooms::header());
        let start = bytes.len() + FRAME_HEAD;
        assert!(seal(payload, &mut bytes));
        let error = take_apart(&bytes).unwrap_err();
        let text = error.to_string();
        assert!(text.ends_with(message), "{payload:x?}: {text}");
        let Error::Malformed { offset, .. } = error else { panic!("{text}") };
        assert!((start as u64..=bytes.len() as u64).contains(&offset), "{text}");
    }
}

#[test]
fn each_frame_can_be_read_without_the_others() {
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
    let events = rooms::synthetic(40);
    let header = beginning(&rooms::header());
    for half in events.chunks(20) {
        for event in half {
            encoder.event(event);
        }
        assert_eq!(encoder.events(), 20);
        let batch = encoder.replace(Vec::new());
        let mut alone = header.clone();
        alone.extend_from_slice(&frame_head(&batch).unwrap());
        alone.extend_from_slice(&batch);
        let (content, _) = take_apart(&alone).unwrap();
        let expected = half.iter().map(|&event| Record::Event(event)).collect();
        assert_eq!(content.frames, [Part::Records { thread: ThreadNumber(1), records: expected }]);
    }
}

#[test]
fn the_clock_may_wrap_and_step_back() {
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
    let times = [u64::MAX - 1, 1, 0, u64::MAX, 1 << 63, 0];
    for time_ns in times {
        encoder.event(&Event { time_ns, ..Event::default() });
    }
    let mut bytes = beginning(&rooms::header());
    assert!(seal(encoder.bytes(), &mut bytes));
    let (content, _) = take_apart(&bytes).unwrap();
    let [Part::Records { records, .. }] = &content.frames[..] else { panic!("{content:?}") };
    for (record, time_ns) in records.iter().zip(times) {
        assert!(matches!(record, Record::Event(event) if event.time_ns == time_ns), "{record:?}");
    }
    // Across the wrap, the difference is still three nanoseconds: tag, fields, one byte of time.
    assert_eq!(bytes[beginning(&rooms::header()).len() + FRAME_HEAD + 1 + 3..][..3], [0x80, 0, 6]);
}

#[test]
fn an_event_never_needs_more_than_the_longest() {
    let extreme = |value: u64| Event {
        kind: EventKind::Other(255),
        time_ns: value,
        device: DeviceIndex(value as u32),
        context: ContextHandle(value),
        address: Address(value),
        size: Bytes::new(value),
        stream: StreamId(value),
        pool: PoolHandle(value),
        stack: StackNumber(value as u32),
        result: u32::MAX,
        extra: u64::MAX,
    };
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::with_capacity(LONGEST_EVENT + 1));
    assert!(encoder.has_room());
    let before = encoder.len();
    encoder.event(&extreme(1 << 63 | 1 << 31));
    assert!(encoder.len() - before <= LONGEST_EVENT);
    assert!(!encoder.has_room());
    encoder.event(&extreme(0));
    assert_eq!(encoder.events(), 2);
    encoder.clear();
    assert!(encoder.is_empty());
}

#[test]
fn a_batch_too_long_for_a_frame_is_refused() {
    let mut output = Vec::new();
    assert!(!seal(&vec![0; (16 << 20) + 1], &mut output));
    assert!(output.is_empty());
}

#[test]
fn a_real_run_takes_less_than_24_bytes_an_event() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/gpt2_varlen.pickle.gz");
    let Ok(makeroom_trace::Input::Trace(trace)) = makeroom_trace::open(path.as_ref()) else { panic!() };
    let (file, events) = rooms::record_snapshot(&trace);
    assert!(file.len() < 12 * events, "{} bytes for {events} events", file.len());
}
