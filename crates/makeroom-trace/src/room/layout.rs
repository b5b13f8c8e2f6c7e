//! The format's constants and the delta-encoding state, shared by encoder and decoder. `spec/room.md` illustrates
//! them.

use makeroom_core::{Address, Bytes, DeviceIndex, StreamId};

use super::record::{ContextHandle, PoolHandle, StackNumber};
use super::varint;

/// The magic number. The first byte is not text, CR LF does not survive line ending conversion, and 0x1a stops
/// printing on DOS. So a file that was damaged in transfer can be told from one of another format.
pub const MAGIC: [u8; 8] = *b"\x8dROOM\r\n\x1a";
/// The version that is written. Versions only add things, so every reader reads every file.
pub const VERSION: u32 = 8;

/// The bytes before a frame's payload: length, checksum, kind.
pub const FRAME_HEAD: usize = 9;
/// Maximum length of a frame's payload. Batches are sealed long before.
pub const LONGEST_PAYLOAD: usize = 16 << 20;

/// The frame that holds the header.
pub(crate) const HEADER_FRAME: u8 = 1;
/// A frame with the records of one thread.
pub(crate) const RECORDS_FRAME: u8 = 2;

/// The kinds of records that carry their length.
pub(crate) mod tag {
    pub(crate) const NAME: u8 = 1;
    pub(crate) const FRAME: u8 = 2;
    pub(crate) const STACK: u8 = 3;
    pub(crate) const DEVICE: u8 = 4;
    pub(crate) const SAMPLE: u8 = 5;
    pub(crate) const DROPPED: u8 = 6;
    pub(crate) const NOTE: u8 = 7;
    pub(crate) const END: u8 = 8;
    pub(crate) const LIMIT: u8 = 9;
    pub(crate) const VARIABLE: u8 = 10;
    pub(crate) const JOB: u8 = 11;
    pub(crate) const COMPACTED: u8 = 12;
    pub(crate) const PAGES: u8 = 13;
}

/// Maximum number of fields of a job record: each takes a multiple of its bytes in memory.
pub(crate) const MOST_JOB_FIELDS: usize = 256;

/// Maximum number of figures of a pages record.
pub(crate) const MOST_PAGE_FIGURES: usize = 256;

/// The first byte of an event: this bit, [`ALIGNED`], and six bits of kind.
pub(crate) const EVENT: u8 = 0x80;
/// Address and size are in units of 512 bytes.
pub(crate) const ALIGNED: u8 = 0x40;
/// The value of the six bits if the kind follows in a separate byte.
pub(crate) const LONG_KIND: u8 = 0x3f;
/// Blocks of the driver and of PyTorch are multiples of 512 bytes.
pub(crate) const ALIGNED_SHIFT: u32 = 9;

/// The second byte of an event: which fields follow.
pub(crate) mod field {
    pub(crate) const ADDRESS: u8 = 1 << 0;
    pub(crate) const SIZE: u8 = 1 << 1;
    pub(crate) const STACK: u8 = 1 << 2;
    pub(crate) const STREAM: u8 = 1 << 3;
    pub(crate) const PLACE: u8 = 1 << 4;
    pub(crate) const POOL: u8 = 1 << 5;
    pub(crate) const RESULT: u8 = 1 << 6;
    pub(crate) const EXTRA: u8 = 1 << 7;
}

/// The fields of a sample that follow.
pub(crate) mod measured {
    pub(crate) const DEVICE: u8 = 1 << 0;
    pub(crate) const RESIDENT: u8 = 1 << 1;
    pub(crate) const CGROUP_USAGE: u8 = 1 << 2;
    pub(crate) const CGROUP_LIMIT: u8 = 1 << 3;
    pub(crate) const PINNED: u8 = 1 << 4;
    pub(crate) const ALL: u8 = (1 << 5) - 1;
}

/// Maximum length of an encoded event: three bytes of head, seven 64-bit and four 32-bit numbers.
pub const LONGEST_EVENT: usize = 3 + 7 * varint::LONGEST + 4 * 5;

/// The state for delta encoding: values of the previous record in the same frame. All zero at the start of a frame,
/// so that each frame can be read alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) time_ns: u64,
    pub(crate) address: Address,
    pub(crate) size: Bytes,
    pub(crate) stack: StackNumber,
    pub(crate) stream: StreamId,
    pub(crate) device: DeviceIndex,
    pub(crate) context: ContextHandle,
    pub(crate) pool: PoolHandle,
}
