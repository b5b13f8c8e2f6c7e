//! Random recordings survive a round trip, and random damage never panics.

use crate::support::content::{Content, Part, golden, put_together, take_apart};
use crate::support::rooms;
use makeroom_core::{Address, Bytes, DeviceIndex, StreamId};
use makeroom_trace::Error;
use makeroom_trace::room::{
    Compacted, ContextHandle, DeviceSample, Event, EventKind, FRAME_HEAD, FrameDefinition, FrameNumber,
    NameNumber, Note, Origin, PoolHandle, Record, Sample, Severity, StackNumber, ThreadNumber, beginning,
    seal, seal_as,
};
use proptest::prelude::*;

fn any_event() -> impl Strategy<Value = Event> {
    let near = |value: u64| prop_oneof![Just(0), 0..value, any::<u64>()];
    (
        (any::<u8>(), any::<u64>(), 0..3_u32, near(9)),
        (near(1 << 40), near(1 << 30), near(3), near(3)),
        (any::<u32>(), prop_oneof![Just(0), any::<u32>()], near(9), any::<bool>()),
    )
        .prop_map(
            |(
                (kind, time_ns, device, context),
                (address, size, stream, pool),
                (stack, result, extra, aligned),
            )| {
                let mask = if aligned { !511 } else { u64::MAX };
                Event {
                    kind: EventKind::from_number(kind),
                    time_ns,
                    device: DeviceIndex(device),
                    context: ContextHandle(context),
                    address: Address(address & mask),
                    size: Bytes::new(size & mask),
                    stream: StreamId(stream),
                    pool: PoolHandle(pool),
                    stack: StackNumber(stack),
                    result,
                    extra,
                }
            },
        )
}

fn any_record() -> impl Strategy<Value = Record> {
    let text = || prop::collection::vec(any::<u8>(), 0..200);
    let bytes = || prop::option::of(any::<u64>().prop_map(Bytes::new));
    prop_oneof![
        12 => any_event().prop_map(Record::Event),
        1 => (1..u32::MAX, text()).prop_map(|(number, text)| Record::Name { number: NameNumber(number), text }),
        1 => (1..u32::MAX, prop::collection::vec(any::<u32>().prop_map(FrameNumber), 0..60))
            .prop_map(|(number, frames)| Record::Stack { number: StackNumber(number), frames }),
        1 => (1..u32::MAX, 0..3_u8, any::<u32>(), any::<u64>()).prop_map(|(number, origin, line, offset)| {
            let origin = [Origin::Native, Origin::Python, Origin::Other(7)][usize::from(origin)];
            Record::Frame {
                number: FrameNumber(number),
                frame: FrameDefinition { origin, line, offset, ..FrameDefinition::default() },
            }
        }),
        1 => (any::<u64>(), bytes(), bytes(), bytes(), bytes(), any::<bool>()).prop_map(
            |(time_ns, resident, cgroup_usage, cgroup_limit, pinned, has_device)| Record::Sample(Sample {
                time_ns,
                device: has_device.then(DeviceSample::default),
                resident,
                cgroup_usage,
                cgroup_limit,
                pinned,
            })
        ),
        1 => (any::<u64>(), text()).prop_map(|(time_ns, text)| Record::Note(Note {
            time_ns,
            severity: Severity::Error,
            text,
        })),
        1 => any::<u64>().prop_map(|bytes| Record::Limit(Bytes::new(bytes))),
        1 => (text(), text()).prop_map(|(name, value)| Record::Variable { name, value }),
        1 => prop::collection::vec((any::<u64>(), text()), 0..5).prop_map(Record::Job),
        1 => (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(time_ns, events, failures)| {
            Record::Compacted(Compacted { time_ns, events, failures })
        }),
        1 => (any::<u64>(), prop::collection::vec(any::<(u64, u64)>(), 0..9))
            .prop_map(|(device, figures)| Record::Pages { device, figures }),
        1 => (14..128_u8, text()).prop_map(|(kind, body)| Record::Unknown { kind, body }),
    ]
}

fn any_content() -> impl Strategy<Value = Content> {
    let records = (any::<u64>(), prop::collection::vec(any_record(), 0..60))
        .prop_map(|(thread, records)| Part::Records { thread: ThreadNumber(thread), records });
    let unknown = (3..=255_u8, prop::collection::vec(any::<u8>(), 0..90))
        .prop_map(|(kind, payload)| Part::Unknown { kind, payload });
    prop::collection::vec(prop_oneof![5 => records, 1 => unknown], 0..5).prop_map(|frames| Content {
        version: 1,
        header: rooms::header(),
        frames,
    })
}

/// Any bytes give a result or an error: no panic, no more than the file contains, offsets inside the file.
fn answers(bytes: &[u8]) {
    match take_apart(bytes) {
        Ok((content, unread)) => assert!(content.frames.len() * FRAME_HEAD + unread as usize <= bytes.len()),
        Err(Error::Malformed { offset, .. } | Error::NothingRecorded { offset }) => {
            assert!(offset <= bytes.len() as u64);
        }
        Err(error) => panic!("{error}"),
    }
    let _ = makeroom_trace::read(bytes);
}

/// Fixes the checksums, so that changed payloads are decoded.
fn reseal(bytes: &[u8]) -> Vec<u8> {
    let mut output = bytes[..12.min(bytes.len())].to_vec();
    let mut rest = bytes.get(12..).unwrap_or_default();
    while let Some((&[first, second, third, fourth, _, _, _, _, kind], payload)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes([first, second, third, fourth]) as usize;
        let (payload, behind) = payload.split_at(length.min(payload.len()));
        seal_as(kind, payload, &mut output);
        rest = behind;
    }
    output
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn what_is_written_is_read(content in any_content()) {
        let bytes = put_together(&content);
        let (read, unread) = take_apart(&bytes).unwrap();
        prop_assert_eq!(&read, &content);
        prop_assert_eq!(unread, 0);
        prop_assert_eq!(put_together(&read), bytes);
    }

    #[test]
    fn damaged_files_have_an_answer(
        name in prop::sample::select(&["example.room", "everything.room", "later.room"][..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        with_right_checksums in any::<bool>(),
    ) {
        let mut bytes = golden(name);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if with_right_checksums {
            bytes = reseal(&bytes);
        }
        answers(&bytes);
        answers(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn any_payload_has_an_answer(payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = beginning(&rooms::header());
        seal(&payload, &mut bytes);
        answers(&bytes);
    }
}
