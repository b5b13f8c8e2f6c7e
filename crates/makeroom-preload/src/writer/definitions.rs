//! The definitions that events refer to, written into the file before them: names, frames, stacks, devices.
//!
//! Stacks arrive as addresses and get their names here, on the writer thread. The recorder's own frames are left out,
//! and Python's frames replace the interpreter's.

use std::collections::{HashMap, HashSet};

use makeroom_core::{Bytes, DeviceIndex};
use makeroom_trace::room::{
    DeviceDefinition, Encoder, FrameDefinition, FrameNumber, NameNumber, Origin, StackNumber, ThreadNumber,
    seal,
};

use crate::config::config;
use crate::driver::devices;
use crate::python::{self, lines};
use crate::record::intern;
use crate::stacks::THREAD;
use crate::symbols::Symbols;

/// Length of a batch of definitions.
const BATCH: usize = 1 << 20;

/// A resolved native frame and its library.
#[derive(Clone, Copy, Debug)]
struct Named {
    frame: FrameNumber,
    library: NameNumber,
}

/// The definitions of one file.
#[derive(Debug)]
pub(crate) struct Definitions {
    /// Records to be written.
    pub(crate) encoder: Encoder,
    names: HashMap<Vec<u8>, NameNumber>,
    frames: HashMap<FrameDefinition, FrameNumber>,
    /// The frames of each stack; empty unless they may have to be written again.
    stacks: HashMap<u32, Vec<FrameNumber>>,
    keeps_frames: bool,
    native: HashMap<u64, Option<Named>>,
    functions: HashMap<u32, Option<python::Function>>,
    devices: HashSet<u8>,
    symbols: Symbols,
    own_library: Option<NameNumber>,
    words: Vec<u64>,
}

impl Definitions {
    /// No definitions yet.
    pub(crate) fn new(thread: ThreadNumber) -> Self {
        Self {
            encoder: Encoder::new(thread, Vec::new()),
            names: HashMap::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
            keeps_frames: config().ring.is_some(),
            native: HashMap::new(),
            functions: HashMap::new(),
            devices: HashSet::new(),
            symbols: Symbols::default(),
            own_library: None,
            words: Vec::new(),
        }
    }

    /// Writes all definitions again, for a file that replaces this one.
    pub(crate) fn write_all(&self, output: &mut Vec<u8>) {
        let mut encoder = Encoder::new(ThreadNumber(0), Vec::new());
        let mut flush = |encoder: &mut Encoder, least: usize| {
            if encoder.len() > least {
                seal(encoder.bytes(), output);
                encoder.clear();
            }
        };
        for (text, &number) in &self.names {
            encoder.name(number, text);
            flush(&mut encoder, BATCH);
        }
        for (frame, &number) in &self.frames {
            encoder.frame(number, frame);
            flush(&mut encoder, BATCH);
        }
        for (&number, frames) in &self.stacks {
            encoder.stack(StackNumber(number), frames);
            flush(&mut encoder, BATCH);
        }
        for known in self.devices.iter().filter_map(|&device| describe(device)) {
            encoder.device(&known);
        }
        flush(&mut encoder, 0);
    }

    /// The number of an interned stack in the file; 0 if it has no content. An event cannot get here before the content
    /// of its stack, so content that is missing was never stored: there is nothing to wait for.
    pub(crate) fn stack(&mut self, number: u32) -> StackNumber {
        if number == 0 || self.stacks.contains_key(&number) {
            return StackNumber(number);
        }
        let mut words = std::mem::take(&mut self.words);
        let is_stored = intern::content(number, &mut words).is_some();
        let frames = if is_stored { self.frames_of(&words) } else { Vec::new() };
        self.words = words;
        if !is_stored {
            return StackNumber(0);
        }
        self.encoder.stack(StackNumber(number), &frames);
        self.stacks.insert(number, if self.keeps_frames { frames } else { Vec::new() });
        StackNumber(number)
    }

    /// The frames of a stack's words (see `stacks`).
    fn frames_of(&mut self, words: &[u64]) -> Vec<FrameNumber> {
        let Some((&head, words)) = words.split_first() else { return Vec::new() };
        if head == THREAD {
            return intern::bytes_of(words).map(|(name, _)| self.thread_frame(&name)).into_iter().collect();
        }
        let (native_count, python_count) = (head as u32 as usize, (head >> 32) as usize);
        let native = words.get(..native_count).unwrap_or_default();
        let python = words.get(native_count..native_count + python_count).unwrap_or_default();
        let own = self.own_library();
        let interpreter = self.library_name(python::interpreter_address());
        let mut frames = Vec::new();
        for &address in native {
            let Some(named) = self.native_frame(address) else { continue };
            if named.library == own && frames.is_empty() {
                continue;
            }
            if named.library == interpreter && !python.is_empty() {
                break;
            }
            frames.push(named.frame);
        }
        frames.extend(python.iter().filter_map(|&word| self.python_frame((word >> 32) as u32, word as u32)));
        frames
    }

    fn own_library(&mut self) -> NameNumber {
        if let Some(known) = self.own_library {
            return known;
        }
        let own = self.library_name(crate::state::disable as *const () as u64);
        self.own_library = Some(own);
        own
    }

    fn library_name(&mut self, address: u64) -> NameNumber {
        let library = self.symbols.library(address);
        self.name(&library)
    }

    fn native_frame(&mut self, address: u64) -> Option<Named> {
        if let Some(&known) = self.native.get(&address) {
            return known;
        }
        let named = self.symbols.name(address).map(|symbol| {
            let library = self.name(&symbol.library);
            let function = self.name(&symbol.function);
            let frame = self.frame(FrameDefinition {
                origin: Origin::Native,
                function,
                library,
                offset: symbol.offset,
                ..FrameDefinition::default()
            });
            Named { frame, library }
        });
        self.native.insert(address, named);
        named
    }

    /// A frame for a thread without frames of the program, named after the thread.
    fn thread_frame(&mut self, name: &[u8]) -> FrameNumber {
        let function = self.name(&[b"thread ", name].concat());
        self.frame(FrameDefinition { function, ..FrameDefinition::default() })
    }

    fn python_frame(&mut self, function: u32, instruction: u32) -> Option<FrameNumber> {
        let known = self.functions.entry(function).or_insert_with(|| {
            let mut words = Vec::new();
            intern::content(function, &mut words).and_then(|()| python::Function::from_words(&words))
        });
        let known = known.as_ref()?;
        let line = lines::line_of(known.line_table, known.first_line, &known.lines, instruction);
        let (name, file) = (known.name.clone(), known.file.clone());
        let (function, file) = (self.name(&name), self.name(&file));
        Some(self.frame(FrameDefinition {
            origin: Origin::Python,
            function,
            file,
            line,
            ..FrameDefinition::default()
        }))
    }

    /// The number of a text; 0 for an empty one.
    fn name(&mut self, text: &[u8]) -> NameNumber {
        if text.is_empty() {
            return NameNumber(0);
        }
        if let Some(&known) = self.names.get(text) {
            return known;
        }
        let number = NameNumber(self.names.len() as u32 + 1);
        self.encoder.name(number, text);
        self.names.insert(text.to_vec(), number);
        number
    }

    /// The number of an interned name in the file.
    pub(crate) fn interned_name(&mut self, number: u64) -> u64 {
        let mut words = Vec::new();
        let text = intern::content(number as u32, &mut words).and_then(|()| intern::bytes_of(&words));
        text.map_or(0, |(text, _)| u64::from(self.name(&text).0))
    }

    fn frame(&mut self, frame: FrameDefinition) -> FrameNumber {
        if let Some(&known) = self.frames.get(&frame) {
            return known;
        }
        let number = FrameNumber(self.frames.len() as u32 + 1);
        self.encoder.frame(number, &frame);
        self.frames.insert(frame, number);
        number
    }

    /// Describes a device at its first event, and at the first event of all the others that the process sees.
    pub(crate) fn device(&mut self, device: u8) {
        let is_first = self.devices.is_empty();
        self.define_device(device);
        if is_first {
            devices::all_known().for_each(|other| self.define_device(other));
        }
    }

    fn define_device(&mut self, device: u8) {
        if !self.devices.insert(device) {
            return;
        }
        if let Some(known) = describe(device) {
            self.encoder.device(&known);
        }
    }
}

fn describe(device: u8) -> Option<DeviceDefinition> {
    devices::known(device).map(|known| DeviceDefinition {
        device: DeviceIndex(u32::from(device)),
        uuid: known.uuid.map(devices::spell_uuid).unwrap_or_default(),
        name: known.name.clone(),
        total: Bytes::new(known.total),
    })
}
