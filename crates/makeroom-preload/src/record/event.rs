//! The event that a hook writes: one cache line, copied into a ring and encoded by the writer.

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
    /// `CLOCK_MONOTONIC` in nanoseconds.
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
    /// The driver's return code.
    pub(crate) result: u16,
    /// Index into the stack table (`intern`), 0 for none.
    pub(crate) stack: u32,
}

/// A memory sample of a device, not an event: `address` is its free memory, `size` its total.
pub(crate) const SAMPLE: u8 = 0xff;

const _: () = assert!(size_of::<RawEvent>() == 64);

impl RawEvent {
    /// An event with only its kind set.
    pub(crate) fn new(kind: EventKind) -> Self {
        Self { kind: kind.number(), ..Self::default() }
    }

    /// Sets the address or handle.
    pub(crate) fn at(self, address: impl Word) -> Self {
        Self { address: address.word(), ..self }
    }

    /// Sets the size in bytes.
    pub(crate) fn size(self, bytes: impl Word) -> Self {
        Self { size: bytes.word(), ..self }
    }

    /// Sets the stream.
    pub(crate) fn on(self, stream: impl Word) -> Self {
        Self { stream: stream.word(), ..self }
    }

    /// Sets the memory pool.
    pub(crate) fn from(self, pool: impl Word) -> Self {
        Self { pool: pool.word(), ..self }
    }

    /// Sets `extra`, whose meaning depends on the kind.
    pub(crate) fn extra(self, value: impl Word) -> Self {
        Self { extra: value.word(), ..self }
    }

    /// Sets the context, if the call names it.
    pub(crate) fn in_context(self, context: impl Word) -> Self {
        Self { context: context.word(), ..self }
    }

    /// Sets the device, if the call names it.
    pub(crate) fn on_device(self, device: i32) -> Self {
        Self { device: u8::try_from(device).unwrap_or(0), ..self }
    }
}

/// A driver parameter, number or handle, that fits into one 64-bit word.
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
