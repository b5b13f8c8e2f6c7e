//! The result of a driver call: decides which of the call's parameters may be read.
//!
//! A hook receives the program's pointers unchecked. The driver has validated them once it reports success, and only
//! then does an out-parameter hold a value.

use std::ffi::c_void;

use super::types::{self, CuResult, Device, Handle, OUT_OF_MEMORY, SUCCESS};
use crate::fields::out;

/// The result of a call, which decides which of its parameters can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done(pub(crate) CuResult);

impl Done {
    /// Whether the call succeeded.
    pub(crate) fn is_ok(self) -> bool {
        self.0 == SUCCESS
    }

    /// The value of an out-parameter; zero after a failure, or if the program passed null.
    ///
    /// # Safety
    ///
    /// `pointer` is an out-parameter of this call.
    pub(crate) unsafe fn out<T: Copy + Default>(self, pointer: *const T) -> T {
        let filled = if self.is_ok() { pointer } else { std::ptr::null() };
        // SAFETY: null, or filled by the driver.
        unsafe { out(filled) }
    }

    /// [`Self::out`] for handles.
    ///
    /// # Safety
    ///
    /// As for [`Self::out`].
    pub(crate) unsafe fn handle(self, pointer: *const Handle) -> u64 {
        // SAFETY: same requirements; a handle is one word.
        unsafe { self.out(pointer.cast::<u64>()) }
    }

    /// A structure passed to the driver; null if the driver rejected it. Out of memory counts as accepted: the driver
    /// validates all parameters before it allocates.
    pub(crate) fn given(self, structure: *const c_void) -> *const c_void {
        if matches!(self.0, SUCCESS | OUT_OF_MEMORY) { structure } else { std::ptr::null() }
    }

    /// The structure of a failed launch; null after errors that the driver may return without reading it, such as those
    /// of a missing context or of an earlier fault. These errors are about what it contains.
    pub(crate) fn launched(self, structure: *const c_void) -> *const c_void {
        const INVALID_VALUE: CuResult = 1;
        const LAUNCH_OUT_OF_RESOURCES: CuResult = 701;
        const COOPERATIVE_LAUNCH_TOO_LARGE: CuResult = 720;
        let is_read = matches!(
            self.0,
            OUT_OF_MEMORY | INVALID_VALUE | LAUNCH_OUT_OF_RESOURCES | COOPERATIVE_LAUNCH_TOO_LARGE
        );
        if is_read { structure } else { std::ptr::null() }
    }

    /// The first of a list of launches that failed; null for an empty list, which the driver rejects without reading it.
    pub(crate) fn first_launched(self, list: *const c_void, count: u32) -> *const c_void {
        if count == 0 { std::ptr::null() } else { self.launched(list) }
    }

    /// Whether a structure's location is a device, and which one.
    ///
    /// # Safety
    ///
    /// `structure` is null or a parameter of this call with a `CUmemLocation` at this offset.
    pub(crate) unsafe fn location(self, structure: *const c_void, offset: usize) -> (bool, Device) {
        // SAFETY: guaranteed by the caller; `given` excludes structures that the driver rejected.
        unsafe { types::location(self.given(structure), offset) }
    }
}
