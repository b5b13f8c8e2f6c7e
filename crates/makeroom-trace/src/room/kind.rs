//! The kinds of events: one table of names and numbers.
//!
//! Numbers are part of the file format: they are never reused and never changed, and new kinds get new numbers.
//! A reader that does not know a number keeps it as [`EventKind::Other`], because all kinds have the same fields.

macro_rules! event_kinds {
    ($($(#[$description:meta])* $variant:ident = $number:literal $name:literal;)*) => {
        /// An operation of the program, or an attempt if the event's result is not 0.
        ///
        /// The comment of each kind lists the fields it uses in addition to time, thread, device, context, stack and
        /// result. Allocations are timestamped after they return, frees before they are made. So no other thread's
        /// allocation of the same address can come in between.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$description])* $variant,)*
            /// A kind of a later version, by its number.
            Other(u8),
        }

        impl EventKind {
            /// All kinds of this version, by number.
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
    /// Frees [`Self::DeviceAlloc`], [`Self::PitchedAlloc`] or [`Self::ManagedAlloc`] memory: address; size if known.
    DeviceFree = 1 "device_free";
    /// Pitched device memory: address, size (pitch × rows), extra: the pitch.
    PitchedAlloc = 2 "pitched_alloc";
    /// An array: address (its handle), size.
    ArrayAlloc = 3 "array_alloc";
    /// Frees an array: address (its handle).
    ArrayFree = 4 "array_free";
    /// A mipmapped array: address (its handle), size.
    MipmappedAlloc = 5 "mipmapped_alloc";
    /// Frees a mipmapped array: address (its handle).
    MipmappedFree = 6 "mipmapped_free";
    /// Managed memory: address, size, extra: the flags.
    ManagedAlloc = 7 "managed_alloc";
    /// Stream-ordered memory: address, size, stream, pool.
    StreamAlloc = 8 "stream_alloc";
    /// A stream-ordered free: address, stream; size if known.
    StreamFree = 9 "stream_free";
    /// The memory of a [`Self::StreamFree`] may be reused: address. Optional; without it, the free counts as complete
    /// immediately.
    StreamFreeCompleted = 10 "stream_free_completed";
    /// Creates a memory pool: pool (its handle), size: its maximum size, 0 for no limit.
    PoolCreate = 11 "pool_create";
    /// Destroys a pool: pool.
    PoolDestroy = 12 "pool_destroy";
    /// Trims a pool: pool, size: the memory to keep.
    PoolTrim = 13 "pool_trim";
    /// Sets an attribute of a pool: pool, size: the value, extra: the attribute.
    PoolSetAttribute = 14 "pool_set_attribute";
    /// Reserves an address range, without memory: address, size.
    AddressReserve = 15 "address_reserve";
    /// Frees an address range: address, size.
    AddressRelease = 16 "address_release";
    /// Creates physical memory: address (its handle), size, extra: 0 on the device, 1 on the host.
    PhysicalCreate = 17 "physical_create";
    /// Drops the program's last reference to physical memory: address (its handle). Mappings keep it alive.
    PhysicalRelease = 18 "physical_release";
    /// Maps physical memory: address, size, extra: the handle.
    Map = 19 "map";
    /// Unmaps it: address, size.
    Unmap = 20 "unmap";
    /// Sets the access to a range: address, size, extra: the flags.
    SetAccess = 21 "set_access";
    /// Pinned host memory: address, size, extra: the flags.
    PinnedAlloc = 22 "pinned_alloc";
    /// Frees pinned host memory: address.
    PinnedFree = 23 "pinned_free";
    /// Pins host memory of the program: address, size, extra: the flags.
    HostRegister = 24 "host_register";
    /// Unpins it: address.
    HostUnregister = 25 "host_unregister";
    /// Opens memory of another process: address; size if known.
    IpcOpen = 26 "ipc_open";
    /// Closes it: address.
    IpcClose = 27 "ipc_close";
    /// Imports memory of another API: address (its handle), size.
    ExternalImport = 28 "external_import";
    /// Destroys the import: address (its handle).
    ExternalDestroy = 29 "external_destroy";
    /// Adds an allocation node to a graph: address, size, extra: the graph.
    GraphAlloc = 30 "graph_alloc";
    /// Adds a free node to a graph: address, extra: the graph.
    GraphFree = 31 "graph_free";
    /// Creates a context: context, extra: the flags.
    ContextCreate = 32 "context_create";
    /// Destroys a context: context.
    ContextDestroy = 33 "context_destroy";
    /// Retains the device's primary context: context.
    PrimaryRetain = 34 "primary_retain";
    /// Releases it: device.
    PrimaryRelease = 35 "primary_release";
    /// Resets it: device.
    PrimaryReset = 36 "primary_reset";
    /// Loads a module: address (its handle), size: that of the image if known, extra: bit 0 if it imports device-side
    /// malloc.
    ModuleLoad = 37 "module_load";
    /// Unloads a module: address (its handle).
    ModuleUnload = 38 "module_unload";
    /// Loads a library of kernels; fields as in [`Self::ModuleLoad`].
    LibraryLoad = 39 "library_load";
    /// Unloads a library: address (its handle).
    LibraryUnload = 40 "library_unload";
    /// Sets a limit of the context: size: the value, extra: which one (`CUlimit`; 2 is the device heap).
    LimitSet = 41 "limit_set";
    /// A kernel failed to launch: result: the reason, address: the function, size: the requested dynamic shared
    /// memory, extra: the name record of the kernel's name, 0 if unknown.
    LaunchFailed = 42 "launch_failed";
    /// A framework allocates a block: address, size.
    TensorAlloc = 43 "tensor_alloc";
    /// A framework frees a block: address, size.
    TensorFree = 44 "tensor_free";
    /// Adds a reference to physical memory: address (its handle), extra: where it was mapped.
    PhysicalRetain = 45 "physical_retain";
    /// Maps memory of another API: address, size, extra: the handle. Freed like device memory.
    ExternalMap = 46 "external_map";
    /// Creates a multicast object, which has no memory itself: address (its handle), size, extra: the number of
    /// devices. Released by [`Self::PhysicalRelease`].
    MulticastCreate = 47 "multicast_create";
    /// Adds a device to a multicast object: address (its handle).
    MulticastAdd = 48 "multicast_add";
    /// Binds memory to it: address (its handle), size, extra: the memory's handle or address.
    MulticastBind = 49 "multicast_bind";
    /// Unbinds memory: address (its handle), size.
    MulticastUnbind = 50 "multicast_unbind";
    /// Device memory that the graphs of the process have taken so far: size.
    GraphMemory = 51 "graph_memory";
    /// Trims the memory of graphs.
    GraphTrim = 52 "graph_trim";
    /// Device memory that the device's default pool has taken so far: size.
    PoolMemory = 53 "pool_memory";
    /// The program synchronized with a stream: stream, extra: how many nanoseconds earlier that began. Every
    /// [`Self::StreamFree`] made on this stream before then is complete.
    StreamWait = 54 "stream_wait";
    /// The same for all streams of a context: context, extra.
    ContextWait = 55 "context_wait";
    /// Destroys a stream, whose handle may be reused: stream.
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
