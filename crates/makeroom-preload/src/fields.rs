//! Reads values and fields of C structures by offset, without declaring the structures.

use std::ffi::c_void;

/// The value of an out-parameter, zero if the program passed null.
///
/// # Safety
///
/// `pointer` is null, or points to an initialized `T`.
pub(crate) unsafe fn out<T: Copy + Default>(pointer: *const T) -> T {
    if pointer.is_null() {
        return T::default();
    }
    // SAFETY: not null, so the caller guarantees that it is initialized.
    unsafe { pointer.read_unaligned() }
}

/// A field of a structure, zero if the program passed null.
///
/// # Safety
///
/// `structure` is null, or the structure that `offset` belongs to.
pub(crate) unsafe fn field<T: Copy + Default>(structure: *const c_void, offset: usize) -> T {
    if structure.is_null() {
        return T::default();
    }
    // SAFETY: not null, so the caller guarantees that the structure holds a `T` at this offset.
    unsafe { structure.cast::<u8>().add(offset).cast::<T>().read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_zero() {
        // SAFETY: null is allowed.
        unsafe {
            assert_eq!(out::<u64>(std::ptr::null()), 0);
            assert_eq!(field::<u32>(std::ptr::null(), 8), 0);
        }
    }
}
