//! A small pickler that imitates several writers.
#![allow(dead_code, unreachable_pub, reason = "each test compiles its own copy and uses part of it")]

use std::path::PathBuf;

use makeroom_core::Trace;
use makeroom_trace::{Error, Input};

/// A value to pickle.
#[derive(Clone, Debug)]
pub enum Data {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Self>),
    Tuple(Vec<Self>),
    Dict(Vec<(Self, Self)>),
}

/// The writer to imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Python's protocol 0: lines of text, item by item.
    Protocol0,
    /// PyTorch's C++ writer: protocol 2, whole lists on the stack, 64-bit integers.
    Cpp,
    /// Python's protocol 4: memoized, framed, in batches.
    Protocol4,
    /// Items set and appended one by one, everything memoized under scattered numbers.
    Scattered,
}

pub const WRITERS: [Writer; 4] = [Writer::Protocol0, Writer::Cpp, Writer::Protocol4, Writer::Scattered];

pub fn text(text: &str) -> Data {
    Data::Text(text.to_owned())
}

pub fn int(number: impl Into<i128>) -> Data {
    Data::Int(number.into())
}

pub fn list<const N: usize>(items: [Data; N]) -> Data {
    Data::List(items.into())
}

pub fn dict<const N: usize>(pairs: [(&str, Data); N]) -> Data {
    Data::Dict(pairs.into_iter().map(|(key, value)| (text(key), value)).collect())
}

/// The bytes of a pickle.
pub fn pickle(data: &Data, writer: Writer) -> Vec<u8> {
    let mut pickler = Pickler { writer, bytes: Vec::new(), remembered: 0 };
    match writer {
        Writer::Protocol0 => {}
        Writer::Cpp | Writer::Scattered => pickler.bytes.extend(b"\x80\x02"),
        Writer::Protocol4 => pickler.bytes.extend(b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00"),
    }
    pickler.write(data);
    pickler.bytes.push(b'.');
    pickler.bytes
}

struct Pickler {
    writer: Writer,
    bytes: Vec<u8>,
    remembered: u32,
}

impl Pickler {
    fn write(&mut self, data: &Data) {
        match data {
            Data::None => self.bytes.push(b'N'),
            Data::Bool(value) if self.writer == Writer::Protocol0 => {
                self.line(if *value { "I01" } else { "I00" });
            }
            Data::Bool(value) => self.bytes.push(if *value { 0x88 } else { 0x89 }),
            Data::Int(number) => self.write_int(*number),
            Data::Float(number) if self.writer == Writer::Protocol0 => self.line(&format!("F{number:?}")),
            Data::Float(number) => {
                self.bytes.push(b'G');
                self.bytes.extend(number.to_be_bytes());
            }
            Data::Text(text) => self.write_text(text),
            Data::Tuple(items) => self.write_tuple(items),
            Data::List(items) => {
                self.open(b"]", b"(l");
                self.write_portions(items, Self::write, b'a', b'e');
            }
            Data::Dict(pairs) => {
                self.open(b"}", b"(d");
                let write = |pickler: &mut Self, (key, value): &(Data, Data)| {
                    pickler.write(key);
                    pickler.write(value);
                };
                self.write_portions(pairs, write, b's', b'u');
            }
        }
    }

    fn line(&mut self, text: &str) {
        self.bytes.extend(text.as_bytes());
        self.bytes.push(b'\n');
    }

    fn open(&mut self, short: &[u8], long: &[u8]) {
        self.bytes.extend(if self.writer == Writer::Protocol0 { long } else { short });
        self.remember();
    }

    fn remember(&mut self) {
        match self.writer {
            Writer::Protocol0 => self.line(&format!("p{}", self.remembered)),
            Writer::Cpp if self.remembered < 256 => self.bytes.extend([b'q', self.remembered as u8]),
            Writer::Cpp => {
                self.bytes.push(b'r');
                self.bytes.extend(self.remembered.to_le_bytes());
            }
            Writer::Protocol4 => self.bytes.push(0x94),
            Writer::Scattered => {
                self.bytes.push(b'r');
                self.bytes.extend(self.remembered.wrapping_mul(2_654_435_761).to_le_bytes());
            }
        }
        self.remembered += 1;
    }

    fn write_portions<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T), one: u8, many: u8) {
        let portion = match self.writer {
            Writer::Protocol0 | Writer::Scattered => 1,
            Writer::Cpp => usize::MAX,
            Writer::Protocol4 => 1000,
        };
        for portion in items.chunks(portion) {
            let is_single = portion.len() == 1 && self.writer != Writer::Cpp;
            if !is_single {
                self.bytes.push(b'(');
            }
            for item in portion {
                write(self, item);
            }
            self.bytes.push(if is_single { one } else { many });
        }
    }

    fn write_tuple(&mut self, items: &[Data]) {
        let short = matches!(items.len(), 1..=3) && self.writer != Writer::Protocol0;
        if !short {
            self.bytes.push(b'(');
        }
        for item in items {
            self.write(item);
        }
        self.bytes.push(if short { 0x84 + items.len() as u8 } else { b't' });
        self.remember();
    }

    fn write_text(&mut self, text: &str) {
        match self.writer {
            Writer::Protocol0 => self.line(&format!("V{text}")),
            Writer::Cpp | Writer::Scattered => {
                self.bytes.push(b'X');
                self.bytes.extend((text.len() as u32).to_le_bytes());
                self.bytes.extend(text.as_bytes());
            }
            Writer::Protocol4 => {
                self.bytes.extend([0x8c, text.len() as u8]);
                self.bytes.extend(text.as_bytes());
            }
        }
        self.remember();
    }

    fn write_int(&mut self, number: i128) {
        match self.writer {
            Writer::Protocol0 => self.line(&format!("L{number}L")),
            Writer::Cpp => {
                self.bytes.extend([0x8a, 8]);
                self.bytes.extend((number as i64).to_le_bytes());
            }
            Writer::Protocol4 | Writer::Scattered => match number {
                0..=0xff => self.bytes.extend([b'K', number as u8]),
                0x100..=0xffff => {
                    self.bytes.push(b'M');
                    self.bytes.extend((number as u16).to_le_bytes());
                }
                -0x8000_0000..=0x7fff_ffff => {
                    self.bytes.push(b'J');
                    self.bytes.extend((number as i32).to_le_bytes());
                }
                _ => {
                    let bytes = number.to_le_bytes();
                    let length =
                        (1..=16).find(|&length| sign_extended(&bytes[..length]) == number).unwrap_or(16);
                    self.bytes.extend([0x8a, length as u8]);
                    self.bytes.extend(&bytes[..length]);
                }
            },
        }
    }
}

fn sign_extended(bytes: &[u8]) -> i128 {
    let mut wide = [if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

/// Reads bytes that contain a recording.
pub fn read_trace(bytes: &[u8]) -> Result<Trace, Error> {
    match makeroom_trace::read(bytes)? {
        Input::Trace(trace) => Ok(trace),
        Input::Text(text) => panic!("taken for text: {}", String::from_utf8_lossy(&text)),
    }
}

/// Reads the same data from every writer and checks each trace.
pub fn for_each_writer(data: &Data, check: impl Fn(&Trace)) {
    for writer in WRITERS {
        let trace = read_trace(&pickle(data, writer)).unwrap_or_else(|error| panic!("{writer:?}: {error}"));
        check(&trace);
    }
}

/// The path of a real recording in `traces/`.
pub fn real(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(format!("{name}.pickle.gz"))
}

/// The decompressed bytes of a real recording.
pub fn unpacked(name: &str) -> Vec<u8> {
    let packed = std::fs::File::open(real(name)).expect("the recording is there");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut bytes).expect("it is gzip");
    bytes
}
