//! The CSV log of RMM's logging resource.
//!
//! ```text
//! Thread,Time,Action,Pointer,Size,Stream
//! 3412,10:14:01.000123,allocate,0x7f2a00000000,1048576,0x2
//! 3412,10:14:01.000456,free,0x7f2a00000000,1048576,0x2
//! 3412,10:14:02.017000,allocate failure,(nil),8589934592,0x2
//! ```
//!
//! Sizes are the requested ones. There is no device and no date: events belong to device 0, and times count from the
//! midnight before the first line. A free in RMM is complete when it returns, so it becomes a request and its
//! completion. A killed program leaves a partial last line, which is skipped with a note. Any other parse error is an
//! error, because a silent gap would make all later figures wrong.

use std::io::{BufRead, BufReader, Read};

use makeroom_core::{Action, Address, Bytes, DeviceTrace, Event, StackId, StreamId, Trace, TraceKind};

use crate::error::Error;
use crate::input::read_failed;

const HEADER: &[u8] = b"Thread,Time,Action,Pointer,Size,Stream";
const LONGEST_LINE: u64 = 4096;
const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Whether a line is the header of such a log.
pub(crate) fn is_header(line: &[u8]) -> bool {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii() == HEADER
}

/// Reads a log to its end.
pub(crate) fn read(stream: impl Read) -> Result<Trace, Error> {
    let mut trace = Trace::new(TraceKind::RmmLog);
    let mut device = DeviceTrace::default();
    let mut clock = Clock::default();
    let mut lines = Lines::new(stream);
    while lines.next()? {
        let line = lines.text();
        if line.is_empty() || is_header(line) {
            continue;
        }
        match RmmLogRow::parse(line) {
            Ok(row) => row.push_to(&mut device, &mut clock),
            Err(_) if !lines.is_complete() => {
                trace.notes.push(format!("line {} is truncated and was skipped", lines.number));
            }
            Err(expected) => return Err(lines.error(expected)),
        }
    }
    trace.devices.push(device);
    Ok(trace)
}

/// The lines of a stream, with their offsets.
struct Lines<R> {
    stream: BufReader<R>,
    line: Vec<u8>,
    number: u64,
    offset: u64,
}

impl<R: Read> Lines<R> {
    fn new(stream: R) -> Self {
        Self { stream: BufReader::with_capacity(64 << 10, stream), line: Vec::new(), number: 0, offset: 0 }
    }

    /// Advances to the next line; false at the end.
    fn next(&mut self) -> Result<bool, Error> {
        self.offset += self.line.len() as u64;
        self.number += 1;
        self.line.clear();
        let limited = &mut self.stream.by_ref().take(LONGEST_LINE);
        if let Err(cause) = limited.read_until(b'\n', &mut self.line) {
            return Err(read_failed(self.offset + self.line.len() as u64, cause));
        }
        if self.line.len() as u64 == LONGEST_LINE && !self.is_complete() {
            return Err(self.error("a line of at most 4096 bytes"));
        }
        Ok(!self.line.is_empty())
    }

    fn text(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    fn is_complete(&self) -> bool {
        self.line.ends_with(b"\n")
    }

    fn error(&self, expected: &'static str) -> Error {
        let shown = String::from_utf8_lossy(&self.line[..self.line.len().min(80)]);
        let found = shown.trim_ascii().escape_debug().to_string();
        Error::RmmLine { line: self.number, offset: self.offset, expected, found }
    }
}

/// Converts times of day to an increasing time.
#[derive(Default)]
struct Clock {
    midnight_us: u64,
    before_us: u64,
}

impl Clock {
    /// Microseconds since the first midnight. Threads log slightly out of order, so only a jump back by more than
    /// half a day starts a new day.
    fn since_first_midnight(&mut self, time_of_day_us: u64) -> u64 {
        if time_of_day_us + DAY_US / 2 < self.before_us {
            self.midnight_us += DAY_US;
        }
        self.before_us = time_of_day_us;
        self.midnight_us + time_of_day_us
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RmmAction {
    Allocate,
    AllocateFailure,
    Free,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RmmLogRow {
    time_of_day_us: u64,
    action: RmmAction,
    address: u64,
    size: u64,
    stream: u64,
}

impl RmmLogRow {
    /// Parses a line; the error is the expected item.
    fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let line = str::from_utf8(line).map_err(|_| "text")?;
        let mut fields = line.split(',').map(str::trim);
        let mut field = |expected| fields.next().ok_or(expected);
        field("a thread")?;
        let time_of_day_us = time_of_day(field(TIME)?).ok_or(TIME)?;
        let action = match field(ACTION)? {
            "allocate" => RmmAction::Allocate,
            "allocate failure" => RmmAction::AllocateFailure,
            "free" | "deallocate" => RmmAction::Free,
            _ => return Err(ACTION),
        };
        let address = hexadecimal(field(POINTER)?).ok_or(POINTER)?;
        let size = field(SIZE)?.parse().map_err(|_| SIZE)?;
        let stream = hexadecimal(field(STREAM)?).ok_or(STREAM)?;
        match fields.next() {
            None => Ok(Self { time_of_day_us, action, address, size, stream }),
            Some(_) => Err("six fields"),
        }
    }

    fn push_to(self, device: &mut DeviceTrace, clock: &mut Clock) {
        let time_us = clock.since_first_midnight(self.time_of_day_us);
        let event = |action| Event {
            action,
            address: Address(if action == Action::OutOfMemory { u64::MAX } else { self.address }),
            size: Bytes::new(self.size),
            stream: StreamId(self.stream),
            time_us,
            stack: StackId::NONE,
        };
        match self.action {
            RmmAction::Allocate => device.events.push(event(Action::Alloc)),
            RmmAction::AllocateFailure => device.events.push(event(Action::OutOfMemory)),
            RmmAction::Free => {
                device.events.push(event(Action::FreeRequested));
                device.events.push(event(Action::FreeCompleted));
            }
        }
    }
}

const TIME: &str = "a time like 10:14:01.000123";
const ACTION: &str = "`allocate`, `allocate failure` or `free`";
const POINTER: &str = "a pointer like 0x7f2a00000000";
const SIZE: &str = "a size in bytes";
const STREAM: &str = "a stream like 0x2";

/// Parses `HH:MM:SS.ffffff`; older logs have a colon before the fraction.
fn time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':');
    let hours = digits(parts.next()?)?;
    let minutes = digits(parts.next()?)?;
    let rest = parts.next()?;
    let (seconds, fraction) = rest.split_once(['.', ':']).unwrap_or((rest, "0"));
    let seconds = digits(seconds)?;
    if hours > 23 || minutes > 59 || seconds > 60 || fraction.len() > 9 {
        return None;
    }
    let fraction_us = digits(fraction)? * 1_000_000 / 10_u64.pow(fraction.len() as u32);
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction_us)
}

/// Parses up to nine decimal digits and nothing else.
fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() <= 9 && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Parses a pointer as `%p` prints it: with or without `0x`, or `(nil)`.
fn hexadecimal(text: &str) -> Option<u64> {
    if matches!(text, "(nil)" | "nil" | "nullptr") {
        return Some(0);
    }
    let text = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    if text.starts_with('+') { None } else { u64::from_str_radix(text, 16).ok() }
}
