//! The C boundary: pointers that the caller guarantees, and the structures they point to.
//!
//! The pointer types have no constructor in Rust: their values can only come from a C caller, which guarantees that
//! they are null or valid for the function. So the exported functions are safe code.

use std::ffi::{CStr, c_char, c_void};

use crate::status::{Result, Status};

/// A pointer to write a result to.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Returns an error for a null pointer if the result is required.
    pub(crate) fn required(self) -> Result<Self> {
        if self.0.is_null() { Err(Status::INVALID_VALUE) } else { Ok(self) }
    }

    /// Writes a required result; a null pointer is an invalid value.
    pub(crate) fn set(self, value: T) -> Result<()> {
        self.required()?.set_if_wanted(value);
        Ok(())
    }

    /// Writes an optional result.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so the caller promises that a T can be written here.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Writes several results in a row.
    pub(crate) fn set_all(self, values: impl IntoIterator<Item = T>) -> Result<()> {
        let first = self.required()?.0;
        for (position, value) in values.into_iter().enumerate() {
            // SAFETY: the function's contract is that as many values as it computes can be written here.
            unsafe { first.add(position).write_unaligned(value) };
        }
        Ok(())
    }
}

impl<T: Copy> Out<T> {
    /// Reads the current value.
    pub(crate) fn get(self) -> Result<T> {
        // SAFETY: not null, so the caller guarantees a readable T here; T is plain data of the C structure.
        Ok(unsafe { self.required()?.0.read_unaligned() })
    }
}

impl Out<c_void> {
    /// The same pointer for a value whose type depends on another argument.
    pub(crate) fn cast<T>(self) -> Out<T> {
        Out(self.0.cast())
    }
}

impl Out<Out<c_void>> {
    /// The n-th pointer in a list of pointers.
    pub(crate) fn place(self, position: usize) -> Result<Out<c_void>> {
        let list = self.required()?.0;
        // SAFETY: the function's contract is that the list is as long as the count given with it.
        Ok(unsafe { list.add(position).read_unaligned() })
    }
}

/// A pointer to an argument.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Reads the argument; a null pointer is an invalid value.
    pub(crate) fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller guarantees a readable T here; T is plain data of the C structure.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Reads several arguments in a row.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>> {
        if count > 0 && self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the function's contract is that `count` values are readable here.
        Ok((0..count).map(|position| unsafe { self.0.add(position).read_unaligned() }).collect())
    }
}

/// A string from the caller.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The bytes before the NUL; a null pointer is an invalid value.
    pub(crate) fn bytes<'a>(self) -> Result<&'a [u8]> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller guarantees a NUL-terminated string that does not change during the call. No
        // function here keeps it longer.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

/// Writes a NUL-terminated string into a caller's buffer, truncated to its size.
pub(crate) fn write_text(place: Out<c_char>, size: i32, text: &str) -> Result<()> {
    let room = usize::try_from(size).ok().filter(|room| *room > 0).ok_or(Status::INVALID_VALUE)?;
    let bytes = text.bytes().take(room - 1).chain([0]);
    place.set_all(bytes.map(|byte| c_char::from_ne_bytes([byte])))
}

/// A device index as a C int.
pub(crate) fn device_number(device: usize) -> i32 {
    i32::try_from(device).unwrap_or(i32::MAX)
}

/// Location of memory: a kind and an ID.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct LocationAbi {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CUmemAllocationProp`, for `cuMemCreate`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: LocationAbi,
    pub(crate) metadata: u64,
    pub(crate) flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AccessDescription {
    pub(crate) location: LocationAbi,
    pub(crate) flags: u32,
}

/// `CUmemPoolProps`, for `cuMemPoolCreate`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: LocationAbi,
    pub(crate) security: u64,
    pub(crate) largest: u64,
    pub(crate) reserved: [u8; 56],
}

/// Parameters of an allocation node, which receive the address.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocationNode {
    pub(crate) pool: PoolProperties,
    pub(crate) access: u64,
    pub(crate) access_count: u64,
    pub(crate) bytes: u64,
    pub(crate) address: u64,
}

/// A node of any simulated kind: its parameters follow the kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Node {
    pub(crate) kind: i32,
    pub(crate) reserved: [i32; 3],
    pub(crate) allocation: AllocationNode,
}

/// Parameters of a graph's instantiation.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Instantiation {
    pub(crate) flags: u64,
    pub(crate) upload_stream: u64,
    pub(crate) error_node: u64,
    pub(crate) result: u32,
}

/// Parameters of an import from another API.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ExternalMemory {
    pub(crate) kind: i32,
    pub(crate) handle: [u64; 2],
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 16],
}

/// The part of it to map.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ExternalBuffer {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 16],
}

/// `CUmulticastObjectProp`, for `cuMulticastCreate`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MulticastProperties {
    pub(crate) devices: u32,
    pub(crate) bytes: u64,
    pub(crate) handle_types: u64,
    pub(crate) flags: u64,
}

/// The shape of an array in up to two dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ArrayDescription {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

/// The shape of an array in up to three dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Array3dDescription {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// One end of a copy in two dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct End2d {
    pub(crate) x_bytes: u64,
    pub(crate) y: u64,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: u64,
}

/// A copy in two dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy2d {
    pub(crate) source: End2d,
    pub(crate) destination: End2d,
    pub(crate) width_bytes: u64,
    pub(crate) height: u64,
}

/// One end of a copy in three dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct End3d {
    pub(crate) x_bytes: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    pub(crate) level: u64,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) reserved: u64,
    pub(crate) pitch: u64,
    pub(crate) height: u64,
}

/// A copy in three dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy3d {
    pub(crate) source: End3d,
    pub(crate) destination: End3d,
    pub(crate) width_bytes: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// `CUlaunchConfig`, for `cuLaunchKernelEx`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfiguration {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) stream: u64,
    pub(crate) attributes: u64,
    pub(crate) attribute_count: u32,
}
