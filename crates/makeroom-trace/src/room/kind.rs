//! The kinds of events: one table of names and numbers.
//!
//! Numbers are part of the file format: they are never reused and never changed, and new kinds get new numbers.
//! A reader that does not know a number keeps it as [`EventKind::Other`], because all kinds have the same fields.

macro_rules! event_kinds {
    ($($(#[$description:meta])* $variant:ident = $number:literal $name:literal;)*) => {
        /// What a program did, or tried to do when the event's result is not 0.
        ///
        /// The comment of each kind says which fields of an event it uses beyond time, thread, device, context,
        /// stack and result. An allocation is stamped when it has returned, a free before it is made: so no other
        /// thread's allocation of the same address comes between in time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$description])* $variant,)*
            /// A kind of a later version, by its number.
            Other(u8),
        }

        impl EventKind {
            /// All kinds of this version, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The number in the file.
            #[inline]
            pub const fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Other(number) => number,
                }
            }

            /// The kind with a number.
            #[inline]
            pub const fn from_number(number: u8) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }

            /// The name in the specification and in exports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(_) => "other",
                }
            }
        }
    };
}

event_kinds! {
    /// Device memory: address, size.
    #[default]
    DeviceAlloc = 0 "device_alloc";
    /// The end of [`Self::DeviceAlloc`], [`Self::PitchedAlloc`] or [`Self::ManagedAlloc`]: address; size where known.
    DeviceFree = 1 "device_free";
    /// Rows of device memory: address, size (pitch × rows), extra: the pitch.
    PitchedAlloc = 2 "pitched_alloc";
    /// An array: address (its handle), size.
    ArrayAlloc = 3 "array_alloc";
    /// The end of an array: address (its handle).
    ArrayFree = 4 "array_free";
    /// An array with mipmaps: address (its handle), size.
    MipmappedAlloc = 5 "mipmapped_alloc";
    /// The end of an array with mipmaps: address (its handle).
    MipmappedFree = 6 "mipmapped_free";
    /// Managed memory: address, size, extra: the flags.
    ManagedAlloc = 7 "managed_alloc";
    /// Stream-ordered memory: address, size, stream, pool.
    StreamAlloc = 8 "stream_alloc";
    /// A free in stream order: address, stream; size where known.
    StreamFree = 9 "stream_free";
    /// The memory of a [`Self::StreamFree`] may be used again: address. Optional; without it the free counts as
    /// complete when it was made.
    StreamFreeCompleted = 10 "stream_free_completed";
    /// A memory pool: pool (its handle), size: the most it may hold, 0 for no limit.
    PoolCreate = 11 "pool_create";
    /// The end of a pool: pool.
    PoolDestroy = 12 "pool_destroy";
    /// A pool gave unused memory back: pool, size: what it was to keep.
    PoolTrim = 13 "pool_trim";
    /// A pool was set up: pool, size: the value, extra: the attribute.
    PoolSetAttribute = 14 "pool_set_attribute";
    /// A range of addresses: address, size. No memory yet.
    AddressReserve = 15 "address_reserve";
    /// The end of a range of addresses: address, size.
    AddressRelease = 16 "address_release";
    /// Physical memory: address (its handle), size, extra: 0 on the device, 1 on the host.
    PhysicalCreate = 17 "physical_create";
    /// The program's last hold on physical memory: address (its handle). Mappings keep it alive.
    PhysicalRelease = 18 "physical_release";
    /// Physical memory got an address: address, size, extra: the handle.
    Map = 19 "map";
    /// It lost it again: address, size.
    Unmap = 20 "unmap";
    /// Who may use a range: address, size, extra: the flags.
    SetAccess = 21 "set_access";
    /// Pinned host memory: address, size, extra: the flags.
    PinnedAlloc = 22 "pinned_alloc";
    /// The end of pinned host memory: address.
    PinnedFree = 23 "pinned_free";
    /// The program's own host memory was pinned: address, size, extra: the flags.
    HostRegister = 24 "host_register";
    /// It was unpinned: address.
    HostUnregister = 25 "host_unregister";
    /// Another process's memory was opened: address; size where known.
    IpcOpen = 26 "ipc_open";
    /// It was closed: address.
    IpcClose = 27 "ipc_close";
    /// Memory of another interface was imported: address (its handle), size.
    ExternalImport = 28 "external_import";
    /// It was let go: address (its handle).
    ExternalDestroy = 29 "external_destroy";
    /// A graph got an allocation node: address, size, extra: the graph.
    GraphAlloc = 30 "graph_alloc";
    /// A graph got a free node: address, extra: the graph.
    GraphFree = 31 "graph_free";
    /// A context: context, extra: the flags.
    ContextCreate = 32 "context_create";
    /// The end of a context: context.
    ContextDestroy = 33 "context_destroy";
    /// One more hold on the device's primary context: context.
    PrimaryRetain = 34 "primary_retain";
    /// One hold less: device.
    PrimaryRelease = 35 "primary_release";
    /// The primary context was torn down: device.
    PrimaryReset = 36 "primary_reset";
    /// A module: address (its handle), size: the image where known, extra: bit 0 when it imports device-side
    /// malloc.
    ModuleLoad = 37 "module_load";
    /// The end of a module: address (its handle).
    ModuleUnload = 38 "module_unload";
    /// A library of kernels, fields as in [`Self::ModuleLoad`].
    LibraryLoad = 39 "library_load";
    /// The end of a library: address (its handle).
    LibraryUnload = 40 "library_unload";
    /// A limit of the context was set: size: the value, extra: which (`CUlimit`; 2 is the in-kernel heap).
    LimitSet = 41 "limit_set";
    /// A kernel did not start: result: the reason, address: the function, size: dynamic shared memory asked for,
    /// extra: the name record of the kernel's name, 0 when unknown.
    LaunchFailed = 42 "launch_failed";
    /// A framework handed out a block: address, size.
    TensorAlloc = 43 "tensor_alloc";
    /// A framework took a block back: address, size.
    TensorFree = 44 "tensor_free";
    /// One more hold on physical memory: address (its handle), extra: where it was mapped.
    PhysicalRetain = 45 "physical_retain";
    /// Memory of another interface got an address: address, size, extra: the handle. Ends as device memory does.
    ExternalMap = 46 "external_map";
    /// A multicast object, which holds no memory itself: address (its handle), size, extra: how many devices. Ends by
    /// [`Self::PhysicalRelease`].
    MulticastCreate = 47 "multicast_create";
    /// A device joined a multicast object: address (its handle).
    MulticastAdd = 48 "multicast_add";
    /// Memory was bound to it: address (its handle), size, extra: the memory's handle or address.
    MulticastBind = 49 "multicast_bind";
    /// It was unbound: address (its handle), size.
    MulticastUnbind = 50 "multicast_unbind";
    /// What the graphs of the process have taken from the device by now: size.
    GraphMemory = 51 "graph_memory";
    /// They gave back what they do not use.
    GraphTrim = 52 "graph_trim";
    /// What the pool that the device always has took from it by now: size.
    PoolMemory = 53 "pool_memory";
    /// The program has waited for a stream: stream, extra: how many nanoseconds earlier that wait began. Every
    /// [`Self::StreamFree`] that was made on this stream before then is complete.
    StreamWait = 54 "stream_wait";
    /// The same for all streams of a context: context, extra.
    ContextWait = 55 "context_wait";
    /// A stream is gone, and its handle may become another's: stream.
    StreamDestroy = 56 "stream_destroy";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_kinds() {
        for (number, &kind) in EventKind::ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.number()), number);
            assert_eq!(EventKind::from_number(number as u8), kind);
        }
        assert_eq!(EventKind::from_number(200), EventKind::Other(200));
    }
}
