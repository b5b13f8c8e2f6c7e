//! Frames: what a file consists of behind its first twelve bytes.
//!
//! ```text
//!  0        4          8      9
//! ┌────────┬──────────┬──────┬─────────────────────────┐
//! │ length │ checksum │ kind │ payload: length bytes   │
//! └────────┴──────────┴──────┴─────────────────────────┘
//! ```
//!
//! The checksum is over kind and payload. A frame is whole or it is not there.

use super::checksum::checksum;
use super::header::Header;
use super::layout::{FRAME_HEAD, HEADER_FRAME, LONGEST_PAYLOAD, MAGIC, RECORDS_FRAME, VERSION};

/// Appends a batch of records as a frame. A batch that is too long for a frame, which no recorder makes, is left
/// out; the answer says whether it was appended.
pub fn seal(batch: &[u8], output: &mut Vec<u8>) -> bool {
    seal_as(RECORDS_FRAME, batch, output)
}

/// The bytes before the payload, for writers that do not copy: they write this and then the batch.
pub fn frame_head(batch: &[u8]) -> Option<[u8; FRAME_HEAD]> {
    head(RECORDS_FRAME, batch)
}

/// How a file begins: what to write before the first frame of records.
pub fn beginning(header: &Header) -> Vec<u8> {
    let mut output = Vec::from(MAGIC);
    output.extend_from_slice(&VERSION.to_le_bytes());
    seal_as(HEADER_FRAME, &header.encode(), &mut output);
    output
}

/// Appends a payload as a frame of any kind, such as one of a later version that was read and kept.
pub fn seal_as(kind: u8, payload: &[u8], output: &mut Vec<u8>) -> bool {
    let Some(head) = head(kind, payload) else { return false };
    output.extend_from_slice(&head);
    output.extend_from_slice(payload);
    true
}

fn head(kind: u8, payload: &[u8]) -> Option<[u8; FRAME_HEAD]> {
    let length = u32::try_from(payload.len()).ok().filter(|&length| length as usize <= LONGEST_PAYLOAD)?;
    let mut head = [0; FRAME_HEAD];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..8].copy_from_slice(&checksum(kind, payload).to_le_bytes());
    head[8] = kind;
    Some(head)
}
