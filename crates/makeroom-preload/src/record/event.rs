//! An event as a hook writes it: one cache line, copied into a ring and encoded by the writer.

use makeroom_trace::room::EventKind;

/// One event. All zeros are a valid event, so a ring can start as zeroed pages.
///
/// ```text
///  0      8         16     24       32     40      48        56     57       58       60      64
/// ┌──────┬─────────┬──────┬────────┬──────┬───────┬─────────┬──────┬────────┬────────┬───────┐
/// │ time │ address │ size │ stream │ pool │ extra │ context │ kind │ device │ result │ stack │
/// └──────┴─────────┴──────┴────────┴──────┴───────┴─────────┴──────┴────────┴────────┴───────┘
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawEvent {
    /// Nanoseconds of the monotonic clock.
    pub(crate) time_ns: u64,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) stream: u64,
    pub(crate) pool: u64,
    pub(crate) extra: u64,
    pub(crate) context: u64,
    /// The number of an [`EventKind`], or [`SAMPLE`].
    pub(crate) kind: u8,
    pub(crate) device: u8,
    /// What the driver answered.
    pub(crate) result: u16,
    /// A record of the table of stacks, 0 for none.
    pub(crate) stack: u32,
}

/// No event but what the device says of itself: `address` is its free memory, `size` its total.
pub(crate) const SAMPLE: u8 = 0xff;

const _: () = assert!(size_of::<RawEvent>() == 64);

impl RawEvent {
    /// An event of a kind, with nothing else known.
    pub(crate) fn new(kind: EventKind) -> Self {
        Self { kind: kind.number(), ..Self::default() }
    }

    /// Where, or the handle of what.
    pub(crate) fn at(self, address: impl Word) -> Self {
        Self { address: address.word(), ..self }
    }

    /// How much.
    pub(crate) fn size(self, bytes: impl Word) -> Self {
        Self { size: bytes.word(), ..self }
    }

    /// On which stream.
    pub(crate) fn on(self, stream: impl Word) -> Self {
        Self { stream: stream.word(), ..self }
    }

    /// From which pool.
    pub(crate) fn from(self, pool: impl Word) -> Self {
        Self { pool: pool.word(), ..self }
    }

    /// One more figure.
    pub(crate) fn extra(self, value: impl Word) -> Self {
        Self { extra: value.word(), ..self }
    }

    /// In which context, where the call itself says so.
    pub(crate) fn in_context(self, context: impl Word) -> Self {
        Self { context: context.word(), ..self }
    }

    /// On which device, where the call itself says so.
    pub(crate) fn on_device(self, device: i32) -> Self {
        Self { device: u8::try_from(device).unwrap_or(0), ..self }
    }
}

/// What the driver's parameters are made of: numbers and handles, all of them at most one word.
pub(crate) trait Word {
    /// The value as 64 bits.
    fn word(self) -> u64;
}

impl Word for u64 {
    fn word(self) -> u64 {
        self
    }
}

impl Word for usize {
    fn word(self) -> u64 {
        self as u64
    }
}

impl Word for u32 {
    fn word(self) -> u64 {
        u64::from(self)
    }
}

impl Word for i32 {
    fn word(self) -> u64 {
        u64::from(self as u32)
    }
}

impl<T> Word for *mut T {
    fn word(self) -> u64 {
        self as u64
    }
}

impl<T> Word for *const T {
    fn word(self) -> u64 {
        self as u64
    }
}
