//! IDs of everything a program can have a handle to.
//!
//! Handles are never reused, so a destroyed object is never confused with a live one. The kind is part of the number:
//! a stream passed as an event is not found.

macro_rules! identities {
    ($($(#[$documentation:meta])* $name:ident = $kind:literal;)*) => {
        $(
            $(#[$documentation])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[repr(transparent)]
            pub struct $name(pub u64);

            impl From<Fresh> for $name {
                fn from(fresh: Fresh) -> Self {
                    Self($kind << 40 | fresh.0 << 4)
                }
            }
        )*
    };
}

/// A number that was not used before.
pub struct Fresh(u64);

/// Generates numbers.
#[derive(Debug, Default)]
pub(super) struct Identities {
    last: u64,
}

impl Identities {
    /// A new ID of any kind.
    pub(super) fn fresh<Identity: From<Fresh>>(&mut self) -> Identity {
        self.last += 1;
        Identity::from(Fresh(self.last))
    }
}

identities! {
    /// A context.
    ContextId = 0x11;
    /// A stream, the default ones included.
    StreamId = 0x12;
    /// An event.
    EventId = 0x13;
    /// A pool of stream-ordered memory.
    PoolId = 0x14;
    /// Physical memory from `cuMemCreate`.
    HandleId = 0x15;
    /// An array, or a mipmap level.
    ArrayId = 0x16;
    /// A module.
    ModuleId = 0x17;
    /// A function of a module.
    FunctionId = 0x18;
    /// A library, which is a module for all contexts.
    LibraryId = 0x19;
    /// A kernel of a library.
    KernelId = 0x1a;
    /// A graph.
    GraphId = 0x1b;
    /// A node of a graph.
    NodeId = 0x1c;
    /// An instantiated graph.
    ExecutableId = 0x1d;
    /// A capture in progress.
    CaptureId = 0x1e;
    /// Memory of another API.
    ExternalId = 0x1f;
    /// A multicast object.
    MulticastId = 0x20;
    /// A green context.
    GreenId = 0x21;
}
