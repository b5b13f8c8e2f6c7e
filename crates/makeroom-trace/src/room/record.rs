//! What a recording consists of, as the encoder takes it and the reader gives it.
//!
//! Texts are bytes: file names and symbols need not be UTF-8. Numbers of names, frames and stacks are chosen by
//! the recorder, are unique in their file and are defined before they are used; 0 is "none" and never defined.

use makeroom_core::{Address, Bytes, DeviceIndex, StreamId};

use super::EventKind;

/// A name of the file, by its number; 0 is no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameNumber(pub u32);

/// A stack frame of the file, by its number; 0 is no frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameNumber(pub u32);

/// A stack of the file, by its number; 0 is no stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackNumber(pub u32);

/// A thread, by the system's number for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadNumber(pub u64);

/// A context, by its handle; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextHandle(pub u64);

/// A memory pool of the driver, by its handle; 0 is the device's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolHandle(pub u64);

/// One record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A text got a number.
    Name {
        /// The number.
        number: NameNumber,
        /// The text.
        text: Vec<u8>,
    },
    /// A stack frame got a number.
    Frame {
        /// The number.
        number: FrameNumber,
        /// The frame.
        frame: FrameDefinition,
    },
    /// A stack got a number.
    Stack {
        /// The number.
        number: StackNumber,
        /// Its frames, innermost first: native, Python, or Python's spliced into native ones.
        frames: Vec<FrameNumber>,
    },
    /// What is known of a device.
    Device(DeviceDefinition),
    /// Something the program did.
    Event(Event),
    /// What the recorder measured.
    Sample(Sample),
    /// Events that the recorder could not keep.
    Dropped(Dropped),
    /// Something the recorder has to say.
    Note(Note),
    /// The process ended, as far as it could say so.
    End(End),
    /// The recorder lets the process take only so much of each device.
    Limit(Bytes),
    /// A record of a later version, kept as it was.
    Unknown {
        /// Its kind.
        kind: u8,
        /// Its body.
        body: Vec<u8>,
    },
}

/// One function call of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameDefinition {
    /// Which language's frame this is.
    pub origin: Origin,
    /// The function; none when only the library is known.
    pub function: NameNumber,
    /// The source file.
    pub file: NameNumber,
    /// The line, 0 when unknown.
    pub line: u32,
    /// The shared library or program of a native frame.
    pub library: NameNumber,
    /// Where in that library's file the call is, for names that are looked up later; 0 when unknown.
    pub offset: u64,
}

/// Which language a frame belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Machine code.
    #[default]
    Native,
    /// Python.
    Python,
    /// Something of a later version.
    Other(u8),
}

/// What is known of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceDefinition {
    /// Which device, counted as this process counts them.
    pub device: DeviceIndex,
    /// Its identity on every machine: `GPU-…`.
    pub uuid: Vec<u8>,
    /// What it is called.
    pub name: Vec<u8>,
    /// Its memory.
    pub total: Bytes,
}

/// Something the program did. The meaning of the fields depends on the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What it did.
    pub kind: EventKind,
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// On which device.
    pub device: DeviceIndex,
    /// In which context; none where the recorder did not ask.
    pub context: ContextHandle,
    /// Where, or the handle of what.
    pub address: Address,
    /// How much.
    pub size: Bytes,
    /// On which stream.
    pub stream: StreamId,
    /// From which pool.
    pub pool: PoolHandle,
    /// Who asked.
    pub stack: StackNumber,
    /// What the driver answered: 0 is success; a refused allocation has 2 (out of memory) here.
    pub result: u32,
    /// One more figure, see [`EventKind`].
    pub extra: u64,
}

/// What the recorder measured at one moment. What it did not measure is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// A device's own count of its memory.
    pub device: Option<DeviceSample>,
    /// The process's resident set.
    pub resident: Option<Bytes>,
    /// What the control group uses.
    pub cgroup_usage: Option<Bytes>,
    /// What the control group may use; `None` also where it has no limit.
    pub cgroup_limit: Option<Bytes>,
    /// Pinned host memory of this process, by the recorder's own count.
    pub pinned: Option<Bytes>,
}

/// A device's own count of its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSample {
    /// Which device.
    pub device: DeviceIndex,
    /// Its free memory.
    pub free: Bytes,
    /// All of its memory.
    pub total: Bytes,
}

/// Events that the recorder could not keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// When this was noticed, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// How many since the last such record.
    pub events: u64,
    /// Why.
    pub reason: DropReason,
}

/// Why events were not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The writer could not keep up.
    #[default]
    Busy,
    /// The file could not be written: the disk is full, or it is gone.
    Output,
    /// The event came while its thread was recording another.
    Nested,
    /// Something of a later version.
    Other(u8),
}

/// Something the recorder has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// How much it matters.
    pub severity: Severity,
    /// What.
    pub text: Vec<u8>,
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Good to know.
    #[default]
    Information,
    /// Something is missing from the recording.
    Warning,
    /// Recording stopped.
    Error,
    /// Something of a later version.
    Other(u8),
}

/// The process ended, as far as it could say so. A killed process leaves none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// How.
    pub reason: EndReason,
    /// The exit status or the signal, 0 where unknown.
    pub status: u32,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// It returned from `main`, or called `exit` or `_exit`.
    #[default]
    Exit,
    /// It became another program; that one has a file of its own.
    Exec,
    /// A signal that could be caught.
    Signal,
    /// The recorder stepped aside while the program went on.
    Detached,
    /// Something of a later version.
    Other(u8),
}

macro_rules! numbered {
    ($type:ident: $($variant:ident = $number:literal),*) => {
        impl $type {
            pub(crate) const fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Other(number) => number,
                }
            }

            pub(crate) const fn from_number(number: u8) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }
    };
}

numbered!(Origin: Native = 0, Python = 1);
numbered!(DropReason: Busy = 0, Output = 1, Nested = 2);
numbered!(Severity: Information = 0, Warning = 1, Error = 2);
numbered!(EndReason: Exit = 0, Exec = 1, Signal = 2, Detached = 3);
