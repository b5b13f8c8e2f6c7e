//! The structures and constants of the C ABI, as in the 64-bit headers of CUDA 11 to 13.
//!
//! The software GPU (`makeroom-simgpu`) has its own declarations, and the tests of this crate run against it: a
//! structure that is wrong on one side fails them.

/// A `CUmemLocation`: a kind of location and its number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    kind: i32,
    number: i32,
}

impl Location {
    /// The memory of a device, by index.
    pub const fn device(number: i32) -> Self {
        Self { kind: 1, number }
    }

    /// Host memory of a NUMA node.
    pub const fn host_node(number: i32) -> Self {
        Self { kind: 3, number }
    }

    /// The device's index, if it is a device.
    pub const fn device_number(self) -> Option<i32> {
        if self.kind == 1 { Some(self.number) } else { None }
    }
}

/// A `CUmemAllocationProp`: what `cuMemCreate` creates.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationProperties {
    kind: i32,
    handle_types: i32,
    location: Location,
    metadata: u64,
    flags: [u8; 8],
}

impl AllocationProperties {
    /// Memory that does not migrate, for this process.
    pub const fn pinned(location: Location) -> Self {
        Self { kind: PINNED, handle_types: 0, location, metadata: 0, flags: [0; 8] }
    }

    /// The properties that a program passed to `cuMemCreate`, with every flag that it set.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let (first, rest) = bytes.split_at(16);
        let word = |index: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&first[index * 4..index * 4 + 4]);
            i32::from_ne_bytes(four)
        };
        let (mut metadata, mut flags) = ([0; 8], [0; 8]);
        metadata.copy_from_slice(&rest[..8]);
        flags.copy_from_slice(&rest[8..]);
        Self {
            kind: word(0),
            handle_types: word(1),
            location: Location { kind: word(2), number: word(3) },
            metadata: u64::from_ne_bytes(metadata),
            flags,
        }
    }

    /// Where the memory is.
    pub const fn location(&self) -> Location {
        self.location
    }
}

/// A `CUmemAccessDesc`: a location and its access rights.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessDescription {
    pub(crate) location: Location,
    pub(crate) flags: u32,
}

/// A `CUmemPoolProps`: what `cuMemPoolCreate` creates.
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
    /// A pool on a device, for this process, without a maximum size.
    pub const fn on(location: Location) -> Self {
        Self { kind: PINNED, handle_types: 0, location, security: 0, largest: 0, reserved: [0; 56] }
    }
}

/// The only kind of memory and of pool that exists.
const PINNED: i32 = 1;

const _: () = assert!(size_of::<AllocationProperties>() == 32);
const _: () = assert!(size_of::<AccessDescription>() == 12);
const _: () = assert!(size_of::<PoolProperties>() == 88);
