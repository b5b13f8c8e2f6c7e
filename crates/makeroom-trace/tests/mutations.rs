//! Real recordings with random damage: always a result or an error, never a panic.

use std::sync::LazyLock;

use crate::support::pickler::unpacked;
use makeroom_trace::{Error, Input};
use proptest::prelude::*;

static SEEDS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [unpacked("seed001"), unpacked("graphs")]);
static PACKED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    std::fs::read(crate::support::pickler::real("seed004")).expect("the recording is there")
});

/// The offset in an error, if it has one.
fn offset(error: &Error) -> Option<u64> {
    match error {
        Error::Read { offset, .. }
        | Error::AsksToCall { offset, .. }
        | Error::Truncated { offset, .. }
        | Error::Malformed { offset, .. }
        | Error::TooMany { offset, .. }
        | Error::NotASnapshot { offset, .. } => Some(*offset),
        _ => None,
    }
}

fn answers(bytes: &[u8]) {
    match makeroom_trace::read(bytes) {
        Ok(Input::Trace(trace)) => assert!(trace.event_count() <= bytes.len()),
        Ok(Input::Text(text)) => assert!(text.len() <= 2 * bytes.len()),
        Err(error) => {
            if let Some(offset) = offset(&error) {
                assert!(offset <= bytes.len() as u64, "{error} in {} bytes", bytes.len());
            }
            assert!(error.hint().is_some(), "{error}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn cut_off_anywhere(seed in 0..2_usize, cut in any::<prop::sample::Index>()) {
        let whole = &SEEDS[seed];
        let length = cut.index(whole.len());
        match makeroom_trace::read(&whole[..length]) {
            Err(Error::Truncated { offset, .. }) => prop_assert_eq!(offset, length as u64),
            Err(Error::Empty | Error::Unrecognised { .. }) => prop_assert!(length < 2),
            other => prop_assert!(false, "{:?}", other.map(drop)),
        }
    }

    #[test]
    fn bytes_changed(
        seed in 0..2_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = SEEDS[seed].clone();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        answers(&bytes);
    }

    #[test]
    fn bytes_inserted(
        seed in 0..2_usize,
        place in any::<prop::sample::Index>(),
        inserted in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut bytes = SEEDS[seed].clone();
        let place = place.index(bytes.len());
        bytes.splice(place..place, inserted);
        answers(&bytes);
    }

    #[test]
    fn pieces_moved(
        seed in 0..2_usize,
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        length in 1..400_usize,
    ) {
        let mut bytes = SEEDS[seed].clone();
        let from = from.index(bytes.len());
        let piece: Vec<_> = bytes.drain(from..(from + length).min(bytes.len())).collect();
        let to = to.index(bytes.len());
        bytes.splice(to..to, piece);
        answers(&bytes);
    }

    #[test]
    fn compressed_bytes_changed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = PACKED.clone();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let _ = makeroom_trace::read(&bytes[..]);
        let _ = makeroom_trace::read(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn opcodes_at_random(bytes in prop::collection::vec(
        prop::sample::select(&b"(]}e)lautdsqhK\x85\x86\x94N02.U\x8c\x8aR\x01\x02\x06actionframes"[..]), 0..200)
    ) {
        answers(&[b"\x80\x04", &bytes[..]].concat());
    }

    #[test]
    fn lines_at_random(lines in prop::collection::vec("[0-9:.,a-z x()]{0,60}", 0..20)) {
        let log = format!("Thread,Time,Action,Pointer,Size,Stream\n{}", lines.join("\n"));
        answers(log.as_bytes());
    }

    #[test]
    fn anything(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        answers(&bytes);
    }
}
