//! Events and allocations as rows, in chunks. The columns are a contract: `docs/export.md` lists them, and columns
//! are only ever added.

use makeroom_core::{Action, Trace};
use makeroom_explain::{By, GroupNames};
use makeroom_kind::Kinds;

use crate::ExportError;
use crate::history::{History, Names, name};

/// Rows per chunk.
const PIECE: usize = 1 << 16;

/// The rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// One row for each event.
    Events,
    /// One row for each allocation.
    Allocations,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Unsigned 64-bit integers.
    Number,
    /// UTF-8.
    Text,
    /// Booleans.
    Truth,
}

/// A column: its name, its type, and whether it is nullable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) is_optional: bool,
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_optional: false }
}

const fn optional(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_optional: true }
}

const EVENTS: [Column; 12] = [
    column("device", Kind::Number),
    column("event", Kind::Number),
    optional("time_us", Kind::Number),
    column("action", Kind::Text),
    optional("address", Kind::Number),
    column("bytes", Kind::Number),
    column("stream", Kind::Number),
    optional("device_free_bytes", Kind::Number),
    column("live_bytes", Kind::Number),
    optional("reserved_bytes", Kind::Number),
    optional("site", Kind::Text),
    optional("stack", Kind::Text),
];

const ALLOCATIONS: [Column; 18] = [
    column("device", Kind::Number),
    column("allocation", Kind::Number),
    column("address", Kind::Number),
    column("bytes", Kind::Number),
    column("stream", Kind::Number),
    optional("allocated_event", Kind::Number),
    optional("allocated_us", Kind::Number),
    optional("free_requested_event", Kind::Number),
    optional("freed_event", Kind::Number),
    optional("freed_us", Kind::Number),
    column("live_at_peak", Kind::Truth),
    optional("site", Kind::Text),
    optional("stack", Kind::Text),
    column("kind", Kind::Text),
    column("kind_rule", Kind::Text),
    optional("module", Kind::Text),
    optional("stage", Kind::Text),
    optional("thread", Kind::Text),
];

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Number(u64),
    Text(String),
    Truth(bool),
    Empty,
}

impl From<Option<u64>> for Cell {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Empty, Self::Number)
    }
}

/// A chunk of rows, column by column.
pub(crate) type Piece = Vec<Vec<Cell>>;

impl TableKind {
    pub(crate) fn columns(self) -> &'static [Column] {
        match self {
            Self::Events => &EVENTS,
            Self::Allocations => &ALLOCATIONS,
        }
    }

    /// Passes on all rows in chunks.
    pub(crate) fn rows(
        self,
        trace: &Trace,
        tell: impl FnMut(&Piece) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let piece = vec![Vec::new(); self.columns().len()];
        let mut pieces = Pieces { piece, tell };
        let mut names = Names::new(trace);
        for device in &trace.devices {
            let history = History::new(device);
            match self {
                Self::Events => events(&history, &mut names, &mut pieces)?,
                Self::Allocations => allocations(trace, &history, &mut names, &mut pieces)?,
            }
        }
        pieces.flush()
    }
}

struct Pieces<Tell> {
    piece: Piece,
    tell: Tell,
}

impl<Tell: FnMut(&Piece) -> Result<(), ExportError>> Pieces<Tell> {
    fn add<const CELLS: usize>(&mut self, row: [Cell; CELLS]) -> Result<(), ExportError> {
        for (column, cell) in self.piece.iter_mut().zip(row) {
            column.push(cell);
        }
        if self.piece.first().is_some_and(|column| column.len() >= PIECE) { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        if self.piece.first().is_some_and(|column| !column.is_empty()) {
            (self.tell)(&self.piece)?;
            self.piece.iter_mut().for_each(Vec::clear);
        }
        Ok(())
    }
}

fn events<Tell: FnMut(&Piece) -> Result<(), ExportError>>(
    history: &History<'_>,
    names: &mut Names<'_>,
    pieces: &mut Pieces<Tell>,
) -> Result<(), ExportError> {
    let device = history.device;
    let has_segments = history.has_segments();
    for (index, event, totals) in history.events() {
        let is_refusal = event.action == Action::OutOfMemory;
        pieces.add([
            Cell::Number(device.device.0.into()),
            Cell::Number(index as u64),
            history.time(index).into(),
            Cell::Text(name(event.action).to_owned()),
            (!is_refusal).then_some(event.address.0).into(),
            Cell::Number(event.size.get()),
            Cell::Number(event.stream.0),
            event.device_free().map(makeroom_core::Bytes::get).into(),
            Cell::Number(totals.live),
            has_segments.then_some(totals.reserved).into(),
            text(names.site(event.stack)),
            text(names.stack(event.stack)),
        ])?;
    }
    Ok(())
}

fn allocations<Tell: FnMut(&Piece) -> Result<(), ExportError>>(
    trace: &Trace,
    history: &History<'_>,
    names: &mut Names<'_>,
    pieces: &mut Pieces<Tell>,
) -> Result<(), ExportError> {
    let peak = history.allocations.peak.0;
    let kinds = Kinds::new(trace, history.device);
    let of = |by| GroupNames::new(trace, history.device, by);
    let [mut modules, mut stages, mut threads] = [By::Module, By::Stage, By::Thread].map(of);
    let group = |names: &mut GroupNames<'_>, of: &makeroom_kind::Allocation| {
        names.find(of).map_or(Cell::Empty, Cell::Text)
    };
    // Both number allocations the same way.
    for ((number, one), of) in history.all().zip(kinds.allocations()) {
        let time = |event: Option<usize>| event.and_then(|event| history.time(event));
        let event = |event: Option<usize>| Cell::from(event.map(|event| event as u64));
        pieces.add([
            Cell::Number(history.device.device.0.into()),
            Cell::Number(number.into()),
            Cell::Number(one.address),
            Cell::Number(one.requested),
            Cell::Number(one.stream.0),
            event(one.born),
            time(one.born).into(),
            event(one.asked),
            event(one.died),
            time(one.died).into(),
            Cell::Truth(one.born.is_none_or(|born| born < peak) && one.died.is_none_or(|died| died >= peak)),
            text(names.site(one.stack)),
            text(names.stack(one.stack)),
            Cell::Text(of.kind.id().to_owned()),
            Cell::Text(of.rule.id().to_owned()),
            group(&mut modules, of),
            group(&mut stages, of),
            group(&mut threads, of),
        ])?;
    }
    Ok(())
}

fn text(text: &str) -> Cell {
    if text.is_empty() { Cell::Empty } else { Cell::Text(text.to_owned()) }
}
