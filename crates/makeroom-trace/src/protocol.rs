//! Messages from a recorded process to `makeroom run`, one datagram each: `KIND PID REST`.
//!
//! The recorder encodes them and `run` parses them. Any process that knows the socket can send anything, so a datagram
//! that is not a message is ignored.

use std::time::Duration;

use makeroom_core::Bytes;

/// Maximum length of a datagram: a few numbers, and a path or a sentence.
pub const LONGEST_MESSAGE: usize = 8 << 10;

/// What a process reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// It writes this file.
    Recording {
        /// The path, as the process names it.
        file: Vec<u8>,
    },
    /// An allocation failed.
    Refused {
        /// Its size.
        bytes: Bytes,
        /// The device; `None` is the host.
        device: Option<u32>,
        /// The recording that contains it.
        file: Vec<u8>,
    },
    /// It could not create its recording, for this reason.
    Unrecorded(String),
    /// Its recording stopped early.
    Stopped {
        /// How long it had recorded.
        after: Duration,
        /// Why it stopped.
        reason: String,
    },
    /// A notice for the user.
    Notice(String),
    /// It is not recorded, because it contains the runtime of this sanitizer.
    Sanitized(String),
    /// Its current memory.
    Status(LiveMemory),
}

/// The current memory of a process, for the status line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveMemory {
    /// Device memory allocated from the driver, without contexts.
    pub device: u64,
    /// Pinned host memory.
    pub pinned: u64,
    /// Memory allocated as tensors by a framework.
    pub tensors: u64,
    /// Number of allocations of any kind.
    pub allocations: u64,
}

impl Message {
    /// The datagram that a process sends.
    pub fn encode(&self, process: u32) -> Vec<u8> {
        let line = |kind: &str, rest: String| format!("{kind} {process} {rest}").into_bytes();
        match self {
            Self::Recording { file } => [line("recording", String::new()).as_slice(), file].concat(),
            Self::Refused { bytes, device, file } => {
                let place = device.map_or_else(|| "host".to_owned(), |device| device.to_string());
                [line("refused", format!("{} {place} ", bytes.get())).as_slice(), file].concat()
            }
            Self::Unrecorded(reason) => line("unrecorded", reason.clone()),
            Self::Stopped { after, reason } => line("stopped", format!("{} {reason}", after.as_millis())),
            Self::Notice(text) => line("notice", text.clone()),
            Self::Sanitized(name) => line("sanitized", name.clone()),
            Self::Status(LiveMemory { device, pinned, tensors, allocations }) => {
                line("status", format!("{device} {pinned} {tensors} {allocations}"))
            }
        }
    }

    /// The message in a datagram, and the PID of its sender.
    pub fn parse(datagram: &[u8]) -> Option<(u32, Self)> {
        let (kind, rest) = next_word(datagram)?;
        let (process, rest) = next_word(rest)?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        let message = match kind {
            b"recording" => Self::Recording { file: rest.to_vec() },
            b"refused" => {
                let (bytes, rest) = next_word(rest)?;
                let (device, file) = next_word(rest)?;
                Self::Refused {
                    bytes: Bytes::new(number(bytes)?),
                    device: if device == b"host" { None } else { Some(number(device)?) },
                    file: file.to_vec(),
                }
            }
            b"unrecorded" => Self::Unrecorded(text()),
            b"stopped" => {
                let (after, reason) = next_word(rest)?;
                let reason = String::from_utf8_lossy(reason).into_owned();
                Self::Stopped { after: Duration::from_millis(number(after)?), reason }
            }
            b"notice" => Self::Notice(text()),
            b"sanitized" => Self::Sanitized(text()),
            b"status" => {
                let mut words = rest.split(|&byte| byte == b' ').map(number);
                let mut next = || words.next().flatten();
                let (device, pinned, tensors, allocations) = (next()?, next()?, next()?, next()?);
                Self::Status(LiveMemory { device, pinned, tensors, allocations })
            }
            _ => return None,
        };
        Some((number(process)?, message))
    }
}

/// Splits at the next space.
fn next_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = text.iter().position(|&byte| byte == b' ')?;
    Some((text.get(..space)?, text.get(space + 1..)?))
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_message() -> impl Strategy<Value = Message> {
        let file = || proptest::collection::vec(any::<u8>(), 0..100);
        let device = proptest::option::of(any::<u32>());
        prop_oneof![
            file().prop_map(|file| Message::Recording { file }),
            (any::<u64>(), device, file()).prop_map(|(bytes, device, file)| Message::Refused {
                bytes: Bytes::new(bytes),
                device,
                file
            }),
            any::<String>().prop_map(Message::Unrecorded),
            (any::<u64>(), any::<String>())
                .prop_map(|(ms, reason)| Message::Stopped { after: Duration::from_millis(ms), reason }),
            any::<String>().prop_map(Message::Notice),
            any::<String>().prop_map(Message::Sanitized),
            any::<[u64; 4]>().prop_map(|[device, pinned, tensors, allocations]| Message::Status(
                LiveMemory { device, pinned, tensors, allocations }
            )),
        ]
    }

    proptest! {
        #[test]
        fn a_message_survives_its_datagram(message in any_message(), process: u32) {
            prop_assert_eq!(Message::parse(&message.encode(process)), Some((process, message)));
        }

        #[test]
        fn anything_may_arrive(datagram in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Message::parse(&datagram);
        }
    }

    /// A library of another version may be loaded: the words are fixed.
    #[test]
    fn the_words_of_a_datagram_do_not_change() {
        let refused = Message::Refused { bytes: Bytes::new(4096), device: None, file: b"a b.room".to_vec() };
        assert_eq!(refused.encode(42), b"refused 42 4096 host a b.room");
        let stopped = Message::Stopped { after: Duration::from_millis(1200), reason: "disk full".to_owned() };
        assert_eq!(stopped.encode(42), b"stopped 42 1200 disk full");
        let status = LiveMemory { device: 1, pinned: 2, tensors: 3, allocations: 4 };
        assert_eq!(Message::parse(b"status 42 1 2 3 4 x.room"), Some((42, Message::Status(status))));
        for nonsense in [
            &b"status 42 1 2 3"[..],
            b"\xff",
            b"",
            b"over 1",
            b"notice",
            b"stopped 42 x y",
            b"refused 42 many 1 x.room",
            b"notice x y",
        ] {
            assert_eq!(Message::parse(nonsense), None);
        }
    }
}
