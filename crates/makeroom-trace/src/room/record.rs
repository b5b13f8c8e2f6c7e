//! The records of a recording, as the encoder takes them and the reader returns them.
//!
//! Strings are bytes, because file names and symbols need not be UTF-8. The recorder chooses the numbers of names,
//! frames and stacks. They are unique in their file and defined before use; 0 means "none" and is never defined.

use makeroom_core::{Address, Bytes, DeviceIndex, StreamId};

use super::EventKind;

/// Number of a name; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameNumber(pub u32);

/// Number of a stack frame; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameNumber(pub u32);

/// Number of a stack; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackNumber(pub u32);

/// ID of a thread in the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadNumber(pub u64);

/// Handle of a context; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextHandle(pub u64);

/// Handle of a memory pool of the driver; 0 is the device's default pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolHandle(pub u64);

/// One record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// Defines a name.
    Name {
        /// The number.
        number: NameNumber,
        /// The text.
        text: Vec<u8>,
    },
    /// Defines a stack frame.
    Frame {
        /// The number.
        number: FrameNumber,
        /// The frame.
        frame: FrameDefinition,
    },
    /// Defines a stack.
    Stack {
        /// The number.
        number: StackNumber,
        /// Its frames, innermost first: native, Python, or Python frames merged into native ones.
        frames: Vec<FrameNumber>,
    },
    /// Describes a device.
    Device(DeviceDefinition),
    /// An operation of the program.
    Event(Event),
    /// Measurements.
    Sample(Sample),
    /// Events that the recorder dropped.
    Dropped(Dropped),
    /// A note from the recorder.
    Note(Note),
    /// The process ended, and could record it.
    End(End),
    /// The limit on the memory of each device.
    Limit(Bytes),
    /// An environment variable that affects the program's memory.
    Variable {
        /// Its name.
        name: Vec<u8>,
        /// Its value when the recording began.
        value: Vec<u8>,
    },
    /// The process's place in a job: the number of a `makeroom_core::identity::JobField` and its value.
    Job(Vec<(u64, Vec<u8>)>),
    /// Older events were left out.
    Compacted(Compacted),
    /// The figures of PyTorch's paged memory on a device so far; a later record of the device replaces it.
    Pages {
        /// The device.
        device: u64,
        /// The number of a `makeroom_core::PageFigure` and its value.
        figures: Vec<(u64, u64)>,
    },
    /// A record of a later version, unchanged.
    Unknown {
        /// Its kind.
        kind: u8,
        /// Its body.
        body: Vec<u8>,
    },
}

/// Events before a time were left out, except those whose effect was still there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// That time on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// Number of events left out.
    pub events: u64,
    /// Failed requests for memory among them.
    pub failures: u64,
}

/// One function call of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameDefinition {
    /// The language of the frame.
    pub origin: Origin,
    /// The function; none if only the library is known.
    pub function: NameNumber,
    /// The source file.
    pub file: NameNumber,
    /// The line, 0 when unknown.
    pub line: u32,
    /// The shared library or executable of a native frame.
    pub library: NameNumber,
    /// Offset of the call in that file, to look up names later; 0 when unknown.
    pub offset: u64,
}

/// The language of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Machine code.
    #[default]
    Native,
    /// Python.
    Python,
    /// A value of a later version.
    Other(u8),
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceDefinition {
    /// Its index in this process.
    pub device: DeviceIndex,
    /// Its UUID: `GPU-…`.
    pub uuid: Vec<u8>,
    /// Product name.
    pub name: Vec<u8>,
    /// Total memory.
    pub total: Bytes,
}

/// An operation of the program. The meaning of the fields depends on the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The operation.
    pub kind: EventKind,
    /// Time on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// The device.
    pub device: DeviceIndex,
    /// The context; none if the recorder did not query it.
    pub context: ContextHandle,
    /// The address, or a handle.
    pub address: Address,
    /// The size.
    pub size: Bytes,
    /// The stream.
    pub stream: StreamId,
    /// The pool.
    pub pool: PoolHandle,
    /// The call stack.
    pub stack: StackNumber,
    /// The driver's result: 0 is success; a failed allocation has 2 (out of memory).
    pub result: u32,
    /// An additional value, see [`EventKind`].
    pub extra: u64,
}

/// Measurements at one time; `None` if not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// A device's own figures.
    pub device: Option<DeviceSample>,
    /// The process's resident set.
    pub resident: Option<Bytes>,
    /// The cgroup's memory usage.
    pub cgroup_usage: Option<Bytes>,
    /// The cgroup's memory limit; `None` also if there is none.
    pub cgroup_limit: Option<Bytes>,
    /// Pinned host memory of this process, counted by the recorder.
    pub pinned: Option<Bytes>,
}

/// A device's own figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSample {
    /// The device.
    pub device: DeviceIndex,
    /// Its free memory.
    pub free: Bytes,
    /// Its total memory.
    pub total: Bytes,
}

/// Events that the recorder dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Time this was noticed on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// Number of events since the last such record.
    pub events: u64,
    /// The reason.
    pub reason: DropReason,
}

/// Why events were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The writer could not keep up.
    #[default]
    Busy,
    /// The file could not be written: the disk is full, or the file is gone.
    Output,
    /// The thread was already recording another event.
    Nested,
    /// A value of a later version.
    Other(u8),
}

/// A note from the recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Time on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// Its severity.
    pub severity: Severity,
    /// Its text.
    pub text: Vec<u8>,
}

/// The severity of a note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Severity {
    /// For information.
    #[default]
    Information,
    /// Something is missing from the recording.
    Warning,
    /// Recording stopped.
    Error,
    /// A value of a later version.
    Other(u8),
}

/// The process ended, and could record it. A killed process has no such record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Time on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// How it ended.
    pub reason: EndReason,
    /// The exit status or the signal; 0 if unknown.
    pub status: u32,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// It returned from `main`, or called `exit` or `_exit`.
    #[default]
    Exit,
    /// It replaced itself with another program, which has a file of its own.
    Exec,
    /// A signal that was caught.
    Signal,
    /// Recording was turned off while the program continued.
    Detached,
    /// A value of a later version.
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
