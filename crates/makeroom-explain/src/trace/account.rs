//! The ledger of a recording's device at one moment.

use makeroom_core::{Bytes, DeviceIndex};

use super::pieces::Pieces;
use super::room::{CONTEXT, Room};
use super::verdict::Refusal;
use crate::{Ledger, LedgerLine};

/// The account of what was there: against a limit, against a card, or of what is known alone.
pub(crate) fn ledger(
    device: DeviceIndex,
    room: Room,
    pieces: &Pieces,
    has_segments: bool,
    what_is_live: &'static str,
    refusal: Option<&Refusal<'_>>,
) -> Ledger {
    let mut lines = vec![live(pieces, what_is_live)];
    if has_segments {
        lines.push(LedgerLine::new("rounding", pieces.rounding));
        lines.push(unused(pieces, refusal));
    }
    match room {
        Room::Unknown => {
            if let Some(free) = refusal.and_then(|refusal| refusal.event.device_free()) {
                lines.push(LedgerLine::new("free", free).note("by the driver's count"));
            }
            if let Some(measured) = refusal.and_then(|refusal| refusal.measured) {
                // What is left unaccounted are contexts, code and other processes.
                return Ledger::new(format!("GPU {device}"), Some(device), Some(measured.total), lines);
            }
            Ledger::new(format!("GPU {device}, as far as the recording shows"), Some(device), None, lines)
        }
        Room::Limit(limit) => {
            lines.push(LedgerLine::new("not taken", limit - held(pieces, has_segments)));
            Ledger::new(format!("limit on GPU {device}"), Some(device), Some(limit), lines)
        }
        Room::Card(card) => {
            let reserve = room.driver_reserve().unwrap_or(Bytes::ZERO);
            lines.push(LedgerLine::new("context and code", CONTEXT).note("as measured for PyTorch 2.11"));
            lines.push(LedgerLine::new("driver reserve", reserve).note("as measured on an H200, scaled"));
            lines.push(LedgerLine::new("not taken", card - reserve - CONTEXT - held(pieces, has_segments)));
            Ledger::new(format!("GPU {device}"), Some(device), Some(card), lines)
        }
    }
}

fn held(pieces: &Pieces, has_segments: bool) -> Bytes {
    if has_segments { pieces.reserved } else { pieces.live + pieces.homeless }
}

fn live(pieces: &Pieces, what: &str) -> LedgerLine {
    let whole = pieces.live + pieces.homeless;
    if pieces.pending.is_zero() && pieces.private_live.is_zero() {
        return LedgerLine::new(what, whole);
    }
    let mut parts = Vec::new();
    if !pieces.private_live.is_zero() {
        parts.push(LedgerLine::new("in private pools", pieces.private_live));
    }
    if !pieces.pending.is_zero() {
        parts.push(LedgerLine::new(
            "freed, waiting for a stream",
            pieces.pending.min(whole - pieces.private_live),
        ));
    }
    let named: Bytes = parts.iter().map(LedgerLine::bytes).sum();
    parts.insert(0, LedgerLine::new("in use", whole - named));
    LedgerLine::of(what, parts)
}

fn unused(pieces: &Pieces, refusal: Option<&Refusal<'_>>) -> LedgerLine {
    let cached = pieces.cached();
    let note = format!("the largest piece is {}", pieces.largest());
    let Some(refusal) = refusal else {
        return LedgerLine::new("unused, cached", cached).note(note);
    };
    let request = refusal.event.size;
    let usable: Bytes = pieces
        .usable_for(request, refusal.event.stream)
        .filter(|piece| piece.size >= request)
        .map(|piece| piece.size)
        .sum();
    if usable.is_zero() {
        return LedgerLine::new("unused, in pieces", cached).note(note);
    }
    let parts = vec![
        LedgerLine::new("large enough", usable),
        LedgerLine::new("too small or not for this request", cached - usable),
    ];
    LedgerLine::of("unused, cached", parts)
}
