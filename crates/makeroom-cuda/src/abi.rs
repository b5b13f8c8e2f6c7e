//! The structures and constants that cross the C boundary, as the 64-bit headers of CUDA 11 to 13 have them.
//!
//! The software GPU (`makeroom-simgpu`) declares its side of the boundary by itself, and the tests of this crate run
//! against it: a structure that is wrong on one side does not pass.

/// A kind of place and its number: a `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    kind: i32,
    number: i32,
}

impl Location {
    /// The memory of a device, by the device's number.
    pub const fn device(number: i32) -> Self {
        Self { kind: 1, number }
    }

    /// The memory of the host near one of its processors.
    pub const fn host_node(number: i32) -> Self {
        Self { kind: 3, number }
    }
}

/// What `cuMemCreate` is to make: a `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocationProperties {
    kind: i32,
    handle_types: i32,
    location: Location,
    metadata: u64,
    flags: [u8; 8],
}

impl AllocationProperties {
    /// Memory that stays where it is, in this process.
    pub const fn pinned(location: Location) -> Self {
        Self { kind: PINNED, handle_types: 0, location, metadata: 0, flags: [0; 8] }
    }
}

/// Who may do what: a `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessDescription {
    pub(crate) location: Location,
    pub(crate) flags: u32,
}

/// What `cuMemPoolCreate` is to make: a `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolProperties {
    kind: i32,
    handle_types: i32,
    location: Location,
    security: u64,
    largest: u64,
    reserved: [u8; 56],
}

impl PoolProperties {
    /// A pool on a device, for this process, as large as it likes.
    pub const fn on(location: Location) -> Self {
        Self { kind: PINNED, handle_types: 0, location, security: 0, largest: 0, reserved: [0; 56] }
    }
}

/// The only kind of memory and of pool there is.
const PINNED: i32 = 1;

const _: () = assert!(size_of::<AllocationProperties>() == 32);
const _: () = assert!(size_of::<AccessDescription>() == 12);
const _: () = assert!(size_of::<PoolProperties>() == 88);
