//! What is said about a recording when its program has ended, or was refused memory: a few lines. `makeroom why` has
//! the whole answer.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use makeroom_core::Bytes;
use makeroom_explain::{Room, TraceQuestion, explain_trace};
use makeroom_report::explanation_text;
use makeroom_trace::Input;
use makeroom_trace::room::{
    Event, EventKind, Frame, FrameDefinition, FrameNumber, NameNumber, Reader, Record, StackNumber,
};

use crate::output;

const TITLE: Style = Style::new().bold();
const COMMAND: Style = AnsiColor::Cyan.on_default();
/// Sites of memory that was never freed.
const MOST_SITES: usize = 5;

/// The line for a program in which nothing was seen.
pub(crate) fn nothing(program: &str) -> String {
    format!(
        "{TITLE}makeroom{TITLE:#}: {program} took no GPU memory that could be seen; nothing was recorded\n"
    )
}

/// What to say when an allocation was refused. The first time it is the whole verdict, where that can be had.
pub(crate) fn refusal(bytes: Bytes, device: u32, file: &Path, is_first: bool) -> String {
    let mut text = format!("{TITLE}makeroom{TITLE:#}: {bytes} was refused on GPU {device}\n");
    if is_first && let Ok(Input::Trace(trace)) = makeroom_trace::open(file) {
        let explanation = explain_trace(&trace, &TraceQuestion { room: Room::Unknown, device: None });
        text.push_str(&explanation_text(&explanation, output::columns(), None));
    }
    text
}

/// What to say about a recording at its end.
pub(crate) fn describe(path: &Path) -> String {
    let mut account = Account::default();
    if let Err(error) = account.read(path) {
        return format!("{TITLE}makeroom{TITLE:#}: {}: {error}\n", path.display());
    }
    account.add_up();
    account.text(path)
}

/// Memory that was taken and not yet given back.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    context: u64,
    stack: StackNumber,
}

/// What one kind of memory comes to.
#[derive(Debug, Default)]
struct Memory {
    held: HashMap<u64, Held>,
    live: u64,
    peak: u64,
}

impl Memory {
    fn take(&mut self, key: u64, held: Held) {
        self.live += held.bytes;
        self.peak = self.peak.max(self.live);
        if let Some(before) = self.held.insert(key, held) {
            self.live -= before.bytes;
        }
    }

    fn give(&mut self, key: u64) {
        if let Some(held) = self.held.remove(&key) {
            self.live -= held.bytes;
        }
    }

    /// A context takes its memory with it.
    fn end_context(&mut self, context: u64) {
        let live = &mut self.live;
        self.held.retain(|_, held| {
            let is_kept = held.context != context;
            *live -= if is_kept { 0 } else { held.bytes };
            is_kept
        });
    }
}

/// Everything the summary is made of.
#[derive(Debug, Default)]
struct Account {
    pid: u32,
    program: String,
    events: Vec<Event>,
    names: HashMap<NameNumber, String>,
    frames: HashMap<FrameNumber, FrameDefinition>,
    stacks: HashMap<StackNumber, Vec<FrameNumber>>,
    notes: Vec<String>,
    lost: u64,
    has_end: bool,
    device: Memory,
    pinned: Memory,
    contexts: i64,
    refused: u64,
    failed_launches: u64,
    has_tensors: bool,
}

impl Account {
    fn read(&mut self, path: &Path) -> Result<(), makeroom_trace::Error> {
        let file =
            File::open(path).map_err(|cause| makeroom_trace::Error::Open { path: path.to_owned(), cause })?;
        let mut reader = Reader::new(file)?;
        self.pid = reader.header().pid;
        self.program = String::from_utf8_lossy(
            reader.header().executable.rsplit(|&byte| byte == b'/').next().unwrap_or_default(),
        )
        .into_owned();
        while let Some(frame) = reader.next_frame()? {
            if let Frame::Records(records) = frame {
                for record in records {
                    self.add(record?);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Name { number, text } => {
                self.names.insert(number, String::from_utf8_lossy(&text).into_owned());
            }
            Record::Frame { number, frame } => {
                self.frames.insert(number, frame);
            }
            Record::Stack { number, frames } => {
                self.stacks.insert(number, frames);
            }
            Record::Event(event) => self.events.push(event),
            Record::Note(note) => self.notes.push(String::from_utf8_lossy(&note.text).into_owned()),
            Record::Dropped(dropped) => self.lost += dropped.events,
            Record::End(_) => self.has_end = true,
            _ => {}
        }
    }

    fn add_up(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(|event| event.time_ns);
        for event in &events {
            self.count(event);
        }
    }

    fn count(&mut self, event: &Event) {
        let key = event.address.0;
        if event.result != 0 {
            self.refused += u64::from(event.result == 2 && event.kind != EventKind::LaunchFailed);
            self.failed_launches += u64::from(event.kind == EventKind::LaunchFailed);
            return;
        }
        let held = Held { bytes: event.size.get(), context: event.context.0, stack: event.stack };
        match event.kind {
            EventKind::DeviceAlloc
            | EventKind::PitchedAlloc
            | EventKind::ManagedAlloc
            | EventKind::StreamAlloc
            | EventKind::ArrayAlloc
            | EventKind::MipmappedAlloc => self.device.take(key, held),
            EventKind::DeviceFree
            | EventKind::StreamFree
            | EventKind::ArrayFree
            | EventKind::MipmappedFree => self.device.give(key),
            // Handles are small numbers of another kind than addresses.
            EventKind::PhysicalCreate if event.extra == 0 => self.device.take(!key, held),
            EventKind::PhysicalRelease => self.device.give(!key),
            EventKind::PinnedAlloc | EventKind::HostRegister => self.pinned.take(key, held),
            EventKind::PinnedFree | EventKind::HostUnregister => self.pinned.give(key),
            EventKind::ContextCreate => self.contexts += 1,
            EventKind::ContextDestroy => {
                self.contexts -= 1;
                self.device.end_context(event.context.0);
            }
            EventKind::TensorAlloc => self.has_tensors = true,
            _ => {}
        }
    }

    fn text(&self, path: &Path) -> String {
        let mut text = String::new();
        let peak = Bytes::new(self.device.peak);
        let _ = write!(
            text,
            "{TITLE}makeroom{TITLE:#}: {} (process {}) took {peak} of GPU memory at its peak",
            self.program, self.pid
        );
        if self.pinned.peak > 0 {
            let _ = write!(text, " and {} pinned", Bytes::new(self.pinned.peak));
        }
        text.push('\n');
        if self.refused > 0 {
            let _ = writeln!(text, "  refused: {}", count(self.refused, "allocation"));
        }
        if self.failed_launches > 0 {
            let _ = writeln!(text, "  did not start: {}", count(self.failed_launches, "kernel"));
        }
        if self.has_tensors {
            let held = Bytes::new(self.device.live);
            let _ = writeln!(text, "  held until the end: {held}, by PyTorch's cache among others");
        } else {
            self.never_freed(&mut text, "GPU memory", &self.device);
        }
        self.never_freed(&mut text, "pinned memory", &self.pinned);
        if self.contexts > 0 {
            let _ = writeln!(text, "  never destroyed: {}", count(self.contexts.unsigned_abs(), "context"));
        }
        if self.lost > 0 {
            let _ = writeln!(text, "  missing from the recording: {}", count(self.lost, "event"));
        }
        for note in &self.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        if !self.has_end {
            text.push_str(
                "  the process was ended from outside: the last tenth of a second may be missing\n",
            );
        }
        let _ = writeln!(text, "  to see all of it: {COMMAND}makeroom why {}{COMMAND:#}", path.display());
        text
    }

    /// What was left at the end, by the place that asked for it.
    fn never_freed(&self, text: &mut String, what: &str, memory: &Memory) {
        if memory.held.is_empty() {
            return;
        }
        let mut sites: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for held in memory.held.values() {
            let site = sites.entry(self.site(held.stack)).or_default();
            *site = (site.0 + held.bytes, site.1 + 1);
        }
        let allocations = count(memory.held.len() as u64, "allocation");
        let _ = writeln!(text, "  never freed: {} of {what} in {allocations}", Bytes::new(memory.live));
        let mut sites: Vec<_> = sites.into_iter().collect();
        sites.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
        for (site, (bytes, number)) in sites.iter().take(MOST_SITES) {
            let _ = writeln!(text, "    {:>12}  {number} × {site}", Bytes::new(*bytes).to_string());
        }
    }

    /// The innermost frame that says most: a line of Python, else a named function outside of the driver.
    fn site(&self, stack: StackNumber) -> String {
        let frames = self.stacks.get(&stack).map(Vec::as_slice).unwrap_or_default();
        let frames = || frames.iter().filter_map(|number| self.frames.get(number));
        let name = |number| self.names.get(&number).map(String::as_str).unwrap_or_default();
        let short = |number| name(number).rsplit('/').next().unwrap_or_default();
        if let Some(frame) = frames().find(|frame| frame.line > 0) {
            return format!("{} {}:{}", name(frame.function), short(frame.file), frame.line);
        }
        let named = frames().find(|frame| frame.function.0 != 0).or_else(|| frames().next());
        named.map_or("an unknown place".to_owned(), |frame| match name(frame.function) {
            "" => format!("{}+{:#x}", short(frame.library), frame.offset),
            function => format!("{function} in {}", short(frame.library)),
        })
    }
}

fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
