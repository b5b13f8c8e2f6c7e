//! A recording, as tests read it.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use makeroom_core::identity::{JobField, JobIdentity};
use makeroom_core::{DeviceIndex, PageFigure, PagesUse};
use makeroom_trace::room::{
    Compacted, Dropped, End, Event, EventKind, Frame, FrameDefinition, FrameNumber, Header, NameNumber, Note,
    Reader, Record, Sample, StackNumber, ThreadNumber,
};

/// The contents of a recording.
pub(crate) struct Recording {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    pub(crate) events: Vec<(ThreadNumber, Event)>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) notes: Vec<Note>,
    pub(crate) dropped: Vec<Dropped>,
    pub(crate) devices: Vec<makeroom_trace::room::DeviceDefinition>,
    pub(crate) end: Option<End>,
    pub(crate) limit: Option<u64>,
    pub(crate) variables: HashMap<String, String>,
    pub(crate) job: JobIdentity,
    pub(crate) compacted: Option<Compacted>,
    /// The last figures of paged memory, by device.
    pub(crate) pages: Vec<PagesUse>,
    names: HashMap<NameNumber, String>,
    frames: HashMap<FrameNumber, FrameDefinition>,
    stacks: HashMap<StackNumber, Vec<FrameNumber>>,
}

impl Recording {
    /// Reads a file, which must be complete.
    pub(crate) fn read(path: &Path) -> Self {
        let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
        let mut recording = Self {
            path: path.to_owned(),
            header: reader.header().clone(),
            events: Vec::new(),
            samples: Vec::new(),
            notes: Vec::new(),
            dropped: Vec::new(),
            devices: Vec::new(),
            end: None,
            limit: None,
            variables: HashMap::new(),
            job: JobIdentity::default(),
            compacted: None,
            pages: Vec::new(),
            names: HashMap::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
        };
        while let Some(frame) = reader.next_frame().unwrap() {
            let Frame::Records(records) = frame else { panic!("an unknown frame") };
            let thread = records.thread();
            for record in records {
                recording.add(thread, record.unwrap());
            }
        }
        assert_eq!(reader.unread(), None);
        recording.events.sort_by_key(|(_, event)| event.time_ns);
        recording
    }

    fn add(&mut self, thread: ThreadNumber, record: Record) {
        // A record after an end revokes it.
        self.end = None;
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
            Record::Device(device) => self.devices.push(device),
            Record::Event(event) => self.events.push((thread, event)),
            Record::Sample(sample) => self.samples.push(sample),
            Record::Dropped(dropped) => self.dropped.push(dropped),
            Record::Note(note) => self.notes.push(note),
            Record::End(end) => self.end = Some(end),
            Record::Limit(limit) => self.limit = Some(limit.get()),
            Record::Compacted(compacted) => self.compacted = Some(compacted),
            Record::Job(fields) => {
                for (field, value) in fields {
                    let field = JobField::from_number(field).unwrap();
                    assert!(self.job.set(field, std::str::from_utf8(&value).unwrap()));
                }
            }
            Record::Variable { name, value } => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                self.variables.insert(text(&name), text(&value));
            }
            Record::Pages { device, figures } => {
                let mut used = PagesUse { device: DeviceIndex(device as u32), ..PagesUse::default() };
                for (number, value) in figures {
                    *used.figure_mut(PageFigure::from_number(number).unwrap()) = value;
                }
                self.pages.retain(|earlier| earlier.device != used.device);
                self.pages.push(used);
            }
            other => panic!("an unknown record: {other:?}"),
        }
    }

    /// The events of a kind, by time.
    pub(crate) fn events_of(&self, kind: EventKind) -> Vec<Event> {
        self.events.iter().map(|(_, event)| *event).filter(|event| event.kind == kind).collect()
    }

    /// Number of successful events of a kind.
    pub(crate) fn count(&self, kind: EventKind) -> usize {
        self.events_of(kind).iter().filter(|event| event.result == 0).count()
    }

    /// The kinds of all calls, by time: events without the recorder's own samples of the driver.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        let is_call = |kind: &EventKind| !matches!(kind, EventKind::GraphMemory | EventKind::PoolMemory);
        self.events.iter().map(|(_, event)| event.kind).filter(is_call).map(EventKind::name).collect()
    }

    /// A stack, innermost first: `function` for native frames, `function file:line` for Python's.
    pub(crate) fn stack(&self, event: &Event) -> Vec<String> {
        let frames = self.stacks.get(&event.stack).cloned().unwrap_or_default();
        frames
            .iter()
            .map(|number| {
                let frame = self.frames[number];
                let name = |number| self.names.get(&number).cloned().unwrap_or_default();
                let (function, file, library) = (name(frame.function), name(frame.file), name(frame.library));
                let file = file.rsplit('/').next().unwrap_or_default();
                if file.is_empty() {
                    format!("{function} in {}", library.rsplit('/').next().unwrap_or_default())
                } else {
                    format!("{function} {file}:{}", frame.line)
                }
            })
            .collect()
    }

    /// The text of a number in an event's `extra`.
    pub(crate) fn name(&self, number: u64) -> &str {
        self.names.get(&NameNumber(number as u32)).map_or("", String::as_str)
    }

    /// The texts of the notes.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.notes.iter().map(|note| String::from_utf8_lossy(&note.text).into_owned()).collect()
    }

    /// Nothing is missing: no drops, no notes, an end.
    pub(crate) fn assert_complete(&self) {
        self.assert_complete_with(&[]);
    }

    /// Nothing is missing, and these are the notes.
    pub(crate) fn assert_complete_with(&self, notes: &[&str]) {
        assert_eq!(self.texts(), notes);
        assert_eq!(self.dropped, []);
        assert!(self.end.is_some(), "no end");
    }

    /// Every allocation of device memory was freed exactly once, in time order.
    pub(crate) fn assert_balanced(&self) {
        let mut live = std::collections::HashSet::new();
        for (_, event) in self.events.iter().filter(|(_, event)| event.result == 0) {
            match event.kind {
                EventKind::DeviceAlloc => assert!(live.insert(event.address), "{event:?}"),
                EventKind::DeviceFree => assert!(live.remove(&event.address), "{event:?}"),
                _ => {}
            }
        }
        assert!(live.is_empty());
    }
}
