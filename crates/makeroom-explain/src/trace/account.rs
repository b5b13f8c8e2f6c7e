//! The ledger of a recording's device at one moment.

use makeroom_core::{Bytes, DeviceIndex, Library};

use super::overhead::Overhead;
use super::pieces::Pieces;
use super::room::{CONTEXT, Room};
use super::verdict::Refusal;
use crate::{Ledger, LedgerLine};

/// What an account is made of.
pub(crate) struct Account<'trace> {
    pub(crate) device: DeviceIndex,
    pub(crate) room: Room,
    /// What `makeroom run --limit` allowed in all, if that made the room.
    pub(crate) limit_of_run: Option<Bytes>,
    pub(crate) pieces: &'trace Pieces,
    pub(crate) has_segments: bool,
    pub(crate) what_is_live: &'static str,
    pub(crate) refusal: Option<&'trace Refusal<'trace>>,
    /// What of the memory outside of segments libraries asked for, largest first.
    pub(crate) libraries: &'trace [(Library, Bytes)],
    /// What the device holds beside all that, and how large it is.
    pub(crate) overhead: Option<(Overhead, Bytes)>,
}

impl Account<'_> {
    /// The account of what was there: against a limit, against a card, or of what is known alone.
    pub(crate) fn ledger(&self) -> Ledger {
        let (device, pieces) = (self.device, self.pieces);
        let mut lines = self.asked_for();
        let held = pieces.held(self.has_segments);
        match self.room {
            Room::Unknown => self.as_measured(lines),
            Room::Limit(limit) => {
                let (name, whole) = match self.limit_of_run {
                    Some(whole) => (format!("GPU {device} with `--limit`"), whole),
                    None => (format!("GPU {device} limit"), limit),
                };
                if whole > limit {
                    lines.push(LedgerLine::new("context and code", whole - limit));
                }
                let beyond = self.refusal.map_or(Bytes::ZERO, Refusal::counted_beyond);
                if !beyond.is_zero() {
                    let line = LedgerLine::new("other counted memory", beyond);
                    lines.push(line.note("lower bound; not in the recording"));
                }
                lines.push(LedgerLine::new("free", limit - held - beyond));
                Ledger::new(name, Some(device), Some(whole), lines)
            }
            Room::Card(card) => {
                let reserve = self.room.driver_reserve().unwrap_or(Bytes::ZERO);
                lines.push(LedgerLine::new("context and code", CONTEXT).note("as measured for PyTorch 2.11"));
                lines.push(LedgerLine::new("driver reserve", reserve).note("as measured on an H200, scaled"));
                lines.push(LedgerLine::new("free", card - reserve - CONTEXT - held));
                Ledger::new(format!("GPU {device}"), Some(device), Some(card), lines)
            }
        }
    }

    /// What this process asked for.
    fn asked_for(&self) -> Vec<LedgerLine> {
        let pieces = self.pieces;
        let libraries: Bytes = self.libraries.iter().map(|(_, bytes)| *bytes).sum();
        let mut lines = Vec::new();
        if self.has_segments && self.overhead.is_some() {
            lines.push(live(pieces, pieces.live, self.what_is_live));
            let own = pieces.homeless - libraries;
            if !own.is_zero() {
                lines.push(
                    LedgerLine::new("other live memory", own).note("allocated from the driver directly"),
                );
            }
        } else {
            lines.push(live(pieces, pieces.live + pieces.homeless - libraries, self.what_is_live));
        }
        lines.extend(self.libraries.iter().map(|&(library, bytes)| LedgerLine::new(library.name(), bytes)));
        if self.has_segments {
            lines.push(LedgerLine::new("rounding", pieces.rounding));
            lines.push(unused(pieces, self.refusal));
        }
        lines
    }

    /// The device by its own count.
    fn as_measured(&self, mut lines: Vec<LedgerLine>) -> Ledger {
        let device = self.device;
        let free = self.refusal.and_then(|refusal| refusal.event.device_free());
        let Some((overhead, total)) = &self.overhead else {
            lines.extend(free.map(|free| LedgerLine::new("free", free).note("according to the driver")));
            let name = format!("GPU {device}, recorded part");
            return Ledger::new(name, Some(device), None, lines);
        };
        lines.extend(of_driver(overhead));
        let listed: Bytes = lines.iter().map(LedgerLine::bytes).sum();
        lines.push(free.map_or_else(
            || LedgerLine::new("free", *total - listed).note("computed from the other lines"),
            |free| LedgerLine::new("free", free).note("according to the driver"),
        ));
        Ledger::new(format!("GPU {device}"), Some(device), Some(*total), lines)
    }
}

/// What the driver holds for this process and for others.
fn of_driver(overhead: &Overhead) -> Vec<LedgerLine> {
    let mut lines = Vec::new();
    let parts = [("code loaded since", overhead.code), ("in-kernel heap", overhead.heap)];
    let parts: Vec<LedgerLine> = parts
        .into_iter()
        .filter(|(_, bytes)| !bytes.is_zero())
        .map(|(what, bytes)| LedgerLine::new(what, bytes))
        .collect();
    let note = match (overhead.is_split_by_size, overhead.context_count) {
        (true, _) => Some("estimated: typical size".to_owned()),
        (false, 0 | 1) => None,
        (false, count) => Some(format!("{count} contexts")),
    };
    let context = |what: &str| {
        let line = LedgerLine::new(what, overhead.contexts);
        note.clone().map_or(line.clone(), |note| line.note(note))
    };
    lines.push(if parts.is_empty() {
        context("context and code")
    } else {
        LedgerLine::sum("context and code", [vec![context("context")], parts].concat())
    });
    for (what, bytes) in [
        ("created but not mapped", overhead.unmapped),
        ("cached by the driver's pools", overhead.pools),
        ("driver page rounding", overhead.pages),
        ("other processes", overhead.others),
    ] {
        if !bytes.is_zero() {
            lines.push(LedgerLine::new(what, bytes));
        }
    }
    lines
}

fn live(pieces: &Pieces, whole: Bytes, what: &str) -> LedgerLine {
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
    LedgerLine::sum(what, parts)
}

fn unused(pieces: &Pieces, refusal: Option<&Refusal<'_>>) -> LedgerLine {
    let cached = pieces.cached();
    let note = format!("largest block {}", pieces.largest());
    let Some(refusal) = refusal else {
        let line = LedgerLine::new("unused, cached", cached);
        return if cached.is_zero() { line } else { line.note(note) };
    };
    let request = refusal.event.size;
    let usable: Bytes = pieces
        .usable_for(request, refusal.event.stream)
        .filter(|piece| piece.size >= request)
        .map(|piece| piece.size)
        .sum();
    if usable.is_zero() {
        // Pages of free blocks move, so they are not fragments.
        let is_one_piece = pieces.largest() >= cached || refusal.is_paged();
        let name = if is_one_piece { "unused, cached" } else { "unused, fragmented" };
        let line = LedgerLine::new(name, cached);
        return if is_one_piece { line } else { line.note(note) };
    }
    let parts = vec![
        LedgerLine::new("large enough", usable),
        LedgerLine::new("too small, or not usable for this request", cached - usable),
    ];
    LedgerLine::sum("unused, cached", parts)
}
