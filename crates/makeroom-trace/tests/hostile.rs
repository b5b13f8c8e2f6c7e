//! Hostile files: nothing is executed, memory is bounded by the file, and every error has an offset.

use std::time::Duration;

use crate::support::pickler::{Data, Writer, dict, int, list, pickle, read_trace, text};
use makeroom_core::Bytes;
use makeroom_trace::Error;

fn refusal(bytes: &[u8]) -> String {
    match read_trace(bytes) {
        Err(error @ Error::AsksToCall { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn os_system_is_refused_and_nothing_runs() {
    let witness = std::env::temp_dir().join(format!("makeroom-trace-{}", std::process::id()));
    let command = format!("touch {}", witness.display());
    let short = [&[command.len() as u8][..], command.as_bytes()].concat();
    let protocol_0 = format!("cos\nsystem\np0\n(V{command}\np1\ntp2\nRp3\n.").into_bytes();
    let protocol_2 =
        [b"\x80\x02cos\nsystem\nq\x00X", &short[..1], b"\0\0\0", &short[1..], b"\x85R."].concat();
    let protocol_4 =
        [b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c", &short[..], b"\x94\x85\x94R."].concat();
    for (bytes, offset) in [(protocol_0, 0), (protocol_2, 2), (protocol_4, 16)] {
        assert_eq!(
            refusal(&bytes),
            format!(
                "the file calls `os.system` at byte {offset}; memory snapshots contain only data, so makeroom does not read it"
            )
        );
    }
    assert!(!witness.exists());
}

#[test]
fn a_call_hidden_in_a_snapshot_is_refused() {
    let mut bytes = pickle(&dict([("segments", list([]))]), Writer::Protocol4);
    bytes.pop();
    let offset = bytes.len();
    bytes.extend(b"cbuiltins\neval\n(V1\ntR.");
    assert!(refusal(&bytes).contains(&format!("`builtins.eval` at byte {offset}")));
}

#[test]
fn every_opcode_that_could_call_is_refused() {
    for opcode in [
        &b"R"[..],
        b"b",
        b"o",
        b"\x81",
        b"\x92",
        b"\x82\x01",
        b"\x83\x01\0",
        b"\x84\x01\0\0\0",
        b"Pid\n",
        b"Q",
        b"\x97",
        b"\x98",
        b"\x93",
        b"ios\nsystem\n",
    ] {
        let bytes = [b"\x80\x02((NN", opcode, b"."].concat();
        assert!(refusal(&bytes).contains("at byte 6"), "{opcode:x?}");
    }
}

/// Lists with two references each to the previous list ("billion laughs"): 2³⁰⁰⁰ leaves if expanded.
fn laughs(open: &[u8], close: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x80\x02]q\x00".to_vec();
    for level in 0..3000_u32 {
        bytes.extend(open);
        for _ in 0..2 {
            bytes.push(b'j');
            bytes.extend(level.to_le_bytes());
        }
        bytes.extend(close);
        bytes.push(b'r');
        bytes.extend((level + 1).to_le_bytes());
    }
    bytes
}

#[test]
fn a_billion_laughs_are_never_expanded() {
    let start = cpu_time();
    for (open, close) in [(&b"]("[..], &b"e"[..]), (b"(", b"t"), (b"}(U\x08segments", b"u"), (b"(", b"l")] {
        let mut bytes = laughs(open, close);
        bytes.push(b'.');
        assert!(read_trace(&bytes).is_err());
    }
    // The same under keys of a snapshot, as events and as segments.
    for key in ["device_traces", "segments"] {
        let mut bytes = laughs(b"](", b"e");
        bytes.extend(b"}X");
        bytes.extend((key.len() as u32).to_le_bytes());
        bytes.extend(key.as_bytes());
        bytes.extend(b"j\xb8\x0b\0\0s.");
        let trace = read_trace(&bytes).expect("a strange snapshot");
        assert_eq!(trace.event_count(), 0);
    }
    assert!(cpu_time().saturating_sub(start) < Duration::from_secs(5));
}

#[test]
fn a_shared_list_of_events_is_used_once() {
    let event = dict([("action", text("alloc")), ("addr", int(1))]);
    let events = Data::List(vec![event; 1000]);
    let mut bytes = b"\x80\x02}U\x0ddevice_traces](".to_vec();
    let mut inner = pickle(&events, Writer::Cpp);
    inner.pop();
    // Number 0 is the list, memoized before it is filled.
    bytes.extend(&inner[2..]);
    bytes.extend(b"h\x00".repeat(100_000));
    bytes.extend(b"es.");
    let trace = read_trace(&bytes).expect("a snapshot");
    assert_eq!(trace.event_count(), 1000);
}

#[test]
fn shared_blocks_are_used_once() {
    let block = dict([("address", int(0)), ("size", int(1)), ("state", text("inactive"))]);
    let mut bytes = b"\x80\x02}U\x08segments](".to_vec();
    let mut blocks = pickle(&Data::List(vec![block; 1000]), Writer::Cpp);
    blocks.pop();
    bytes.extend(&blocks[2..]);
    for _ in 0..10_000 {
        bytes.extend(b"}U\x06blocksh\x00s");
    }
    bytes.extend(b"es.");
    let trace = read_trace(&bytes).expect("a snapshot");
    let blocks: usize = trace.devices[0].segments.iter().map(|segment| segment.blocks.len()).sum();
    assert_eq!((trace.devices[0].segments.len(), blocks), (10_000, 1000));
}

#[test]
fn memo_numbers_and_lengths_are_not_believed() {
    let sound = b"}U\x08segments]s.";
    let far = [b"\x80\x02Nr\xff\xff\xff\xffNr\x00\x00\x00\xf00", &sound[..]].concat();
    assert!(read_trace(&[b"\x80\x02Nr\xff\xff\xff\xff0", &sound[..]].concat()).is_ok());
    assert!(read_trace(&[&far[..], b""].concat()).is_ok());
    for (claim, offset) in [
        (&b"\x80\x02X\xff\xff\xff\xffabc"[..], 10),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc", 14),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc", 14),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc", 14),
        (b"\x80\x02\x8b\xff\xff\xff\xff\x01", 8),
        (b"\x80\x02\x8a\xff\x01", 5),
        (b"\x80\x02K", 3),
        (b"\x80\x02j\x01\x02", 5),
        (b"\x80\x02X\x01", 4),
        (b"\x80\x02I12", 5),
        (b"\x80\x02", 2),
        (b"\x80", 1),
    ] {
        match read_trace(claim) {
            Err(Error::Truncated { offset: found, .. }) => assert_eq!(found, offset, "{claim:x?}"),
            Err(Error::Unrecognised { .. }) if claim.len() == 1 => {}
            other => panic!("{claim:x?}: {other:?}"),
        }
    }
}

#[test]
fn remembering_one_thing_over_and_over_is_refused() {
    let bytes = [&b"\x80\x04}"[..], &b"\x94".repeat(4 << 20), b"."].concat();
    let error = read_trace(&bytes).expect_err("a bomb");
    assert!(matches!(error, Error::TooMany { offset: ..=524_288, .. }), "{error}");
    // A list of empty lists, all memoized: the most memo entries per byte.
    let bytes = [&b"\x80\x04]("[..], &b"]\x94".repeat(1 << 20), b"e0}\x8c\x08segments]s."].concat();
    assert!(read_trace(&bytes).is_ok());
}

#[test]
fn repeated_keys_and_shared_histories_take_no_more_than_their_bytes() {
    let start = cpu_time();
    // A dict that repeats a key a hundred thousand times, and a list of many devices.
    let devices = |count: usize| {
        let mut bytes = b"\x80\x04}(\x8c\x08segments\x94]\x94".to_vec();
        bytes.extend(b"h\0h\x01".repeat(100_000));
        bytes.extend(b"\x8c\x0ddevice_traces](");
        bytes.extend(b"](}\x8c\x06action\x8c\x08snapshotse".repeat(count));
        bytes.extend(b"eu.");
        read_trace(&bytes)
    };
    assert_eq!(devices(1024).expect("a snapshot").devices.len(), 1024);
    let refused = devices(30_000).map(|_| ()).map_err(|error| error.to_string());
    assert!(refused.is_err_and(|error| error.contains("more than 1024 devices")));

    // One history list, shared by twenty thousand blocks.
    let mut bytes = b"\x80\x04](}\x8c\x09real_sizeK\x05s\x94".to_vec();
    bytes.extend(b"h\0".repeat(20_000));
    bytes.extend(b"e\x940}\x8c\x08segments](}\x8c\x06blocks](");
    bytes.extend(b"}(\x8c\x05state\x8c\x08inactive\x8c\x07historyh\x01u".repeat(20_000));
    bytes.extend(b"eses.");
    let trace = read_trace(&bytes).expect("a snapshot");
    let blocks = &trace.devices[0].segments[0].blocks;
    assert!(blocks.len() == 20_000 && blocks.iter().all(|block| block.requested == Some(Bytes::new(5))));
    assert!(
        cpu_time().saturating_sub(start) < Duration::from_secs(5),
        "{:?}",
        cpu_time().saturating_sub(start)
    );
}

#[test]
fn sizes_below_zero_are_left_out_and_counted() {
    let event = |action: &str, size: i128| dict([("action", text(action)), ("size", Data::Int(size))]);
    let block = |size: i128| {
        dict([("size", Data::Int(size)), ("requested_size", int(-1)), ("state", text("active_allocated"))])
    };
    let segment = |size: i128, blocks| dict([("total_size", Data::Int(size)), ("blocks", blocks)]);
    let data = dict([
        ("segments", list([segment(512, list([block(512), block(-512)])), segment(-1, list([]))])),
        ("device_traces", list([list([event("alloc", 512), event("alloc", -1), event("oom", 1 << 56)])])),
    ]);
    let trace = read_trace(&pickle(&data, Writer::Protocol4)).expect("a snapshot");
    let device = &trace.devices[0];
    assert_eq!((device.events.len(), device.segments.len(), device.segments[0].blocks.len()), (1, 1, 1));
    assert_eq!(device.segments[0].blocks[0].requested, None);
    assert!(
        trace.notes.contains(&"entries with an impossible size, skipped: 4".to_owned()),
        "{:?}",
        trace.notes
    );
}

#[test]
fn machines_in_an_impossible_state_are_reported_with_the_place() {
    for (bytes, message) in [
        (&b"\x80\x02."[..], "byte 2: expected a value on the stack, found none"),
        (b"\x80\x020", "byte 2: expected a value on the stack, found none"),
        (b"\x80\x02e", "byte 2: expected a mark on the stack, found none"),
        (b"\x80\x02](N(.", "byte 6: expected a value on the stack, found none"),
        (b"\x80\x02(e.", "byte 3: expected a value on the stack, found none"),
        (b"\x80\x02}(Nu.", "byte 5: expected a value for each key, found a key without a value"),
        (b"\x80\x02NNa.", "byte 4: expected a list to append to, found something else"),
        (b"\x80\x02]NNs.", "byte 5: expected a dict to put keys into, found something else"),
        (b"\x80\x02}Na.", "byte 4: expected a list to append to, found something else"),
        (b"\x80\x02h\x07.", "byte 2: expected a known memo number, found number 7"),
        (b"\x80\x02\xff.", "byte 2: expected a pickle opcode, found the byte 0xff"),
        (b"\x80\x02Iabc\n.", "byte 2: expected an integer, found `abc`"),
        (b"\x80\x02Sabc\n.", "byte 2: expected a quoted string, found `abc`"),
        (b"\x80\x02Npx\n.", "byte 3: expected a memo number, found `x`"),
        (b"\x80\x02\x80\x09.", "byte 2: expected a pickle protocol from 0 to 5, found protocol 9"),
    ] {
        let error = read_trace(bytes).expect_err("it is damaged");
        assert_eq!(error.to_string(), message, "{bytes:x?}");
    }
}

#[test]
fn circles_are_refused() {
    for bytes in [
        &b"\x80\x02]q\x00h\x00a."[..],
        b"\x80\x02}q\x00(Nh\x00u.",
        b"\x80\x02]q\x00]q\x01h\x00ah\x00h\x01a.",
        b"\x80\x02]q\x00(h\x00te.",
    ] {
        let error = read_trace(bytes).expect_err("a circle");
        assert!(matches!(error, Error::Malformed { .. } | Error::NotASnapshot { .. }), "{bytes:x?}: {error}");
    }
}

#[test]
fn deep_nesting_neither_recurses_nor_stops_the_reader() {
    let mut bytes = b"\x80\x02".to_vec();
    bytes.extend(b"]".repeat(500_000));
    bytes.extend(b"a".repeat(499_999));
    bytes.extend(b".");
    assert!(matches!(read_trace(&bytes), Err(Error::NotASnapshot { .. })));
    let marks = [&b"\x80\x02"[..], &b"(".repeat(2_000_000)].concat();
    assert!(matches!(read_trace(&marks), Err(Error::TooMany { what: "open containers", .. })));
}

#[test]
fn a_stream_for_every_event_takes_no_longer_than_one_for_all() {
    let event = |stream: i32| dict([("action", text("alloc")), ("stream", int(stream))]);
    let events: Vec<_> = (0..200_000).map(event).collect();
    let data = dict([("device_traces", list([Data::List(events)]))]);
    let trace = read_trace(&pickle(&data, Writer::Protocol4)).unwrap();
    assert_eq!(trace.devices[0].events.streams().len(), 200_000);
}

/// CPU time of this thread, which other work on the machine does not change.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
