//! The C boundary: error codes, and pointers that the caller guarantees.
//!
//! The pointer types have no constructor in Rust: their values can only come from a C caller, which guarantees that
//! they are null or valid for the function.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::state;

/// An error code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) u32);

impl Failure {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NO_PERMISSION: Self = Self(4);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const LOST: Self = Self(15);
    pub(crate) const UNKNOWN: Self = Self(999);
}

/// A call's result.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The description of a result.
pub(crate) fn words(result: u32) -> &'static CStr {
    match result {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        15 => c"GPU is lost",
        _ => c"Unknown Error",
    }
}

/// Runs the body of an exported function, unless the scenario makes it fail or hang. Catches panics.
pub(crate) fn run(function: &str, body: impl FnOnce() -> Result<()>) -> u32 {
    if let Some(scenario) = state::scenario() {
        while scenario.hangs.iter().any(|name| name == function) {
            std::thread::park();
        }
        if let Some((_, error)) = scenario.failures.iter().find(|(name, _)| name == function) {
            return *error;
        }
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failure.0,
        Err(_) => Failure::UNKNOWN.0,
    }
}

/// A pointer to write a result to, or to an argument that is replaced by one.
#[repr(transparent)]
pub(crate) struct OutPointer<T>(*mut T);

impl<T> Clone for OutPointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OutPointer<T> {}

impl<T: Copy> OutPointer<T> {
    fn required(self) -> Result<*mut T> {
        if self.0.is_null() { Err(Failure::INVALID_ARGUMENT) } else { Ok(self.0) }
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn set(self, value: T) -> Result<()> {
        let place = self.required()?;
        // SAFETY: not null, so the caller promises that a T can be written here.
        unsafe { place.write_unaligned(value) };
        Ok(())
    }

    pub(crate) fn get(self) -> Result<T> {
        let place = self.required()?;
        // SAFETY: not null, so the caller guarantees a readable T here; T is plain data of the C structure.
        Ok(unsafe { place.read_unaligned() })
    }

    /// Writes several results in a row; the caller has space for as many as it passed in.
    pub(crate) fn set_all(self, values: impl IntoIterator<Item = T>) -> Result<()> {
        let first = self.required()?;
        for (position, value) in values.into_iter().enumerate() {
            // SAFETY: the function's contract is that as many values as it computes can be written here.
            unsafe { first.add(position).write_unaligned(value) };
        }
        Ok(())
    }
}

/// A string from the caller.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn bytes<'a>(self) -> Result<&'a [u8]> {
        if self.0.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the caller guarantees a NUL-terminated string that does not change during the call. No
        // function here keeps it longer.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

/// Writes a NUL-terminated string; a buffer that is too small is an error.
pub(crate) fn write_text(place: OutPointer<c_char>, size: u32, text: &str) -> Result<()> {
    if text.len() >= size as usize {
        return Err(Failure::INSUFFICIENT_SIZE);
    }
    place.set_all(text.bytes().chain([0]).map(|byte| c_char::from_ne_bytes([byte])))
}

/// Generates exported functions: `fn name = other_name(arguments) { … }`.
macro_rules! management_functions {
    ($(
        $(#[$note:meta])*
        fn $name:ident $(= $other:ident)* ($($argument:ident: $kind:ty),* $(,)?) $body:block
    )*) => {
        $($crate::abi::management_functions!(
            @all [$(#[$note])*], [$name $($other)*], ($($argument: $kind),*), $body
        );)*
    };
    (@all $notes:tt, [$($name:ident)*], $arguments:tt, $body:block) => {
        $($crate::abi::management_functions!(@one $notes, $name, $arguments, $body);)*
    };
    (@one [$(#[$note:meta])*], $name:ident, ($($argument:ident: $kind:ty),*), $body:block) => {
        $(#[$note])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the names are NVML's")]
        extern "C" fn $name($($argument: $kind),*) -> u32 {
            $crate::abi::run(stringify!($name), || -> $crate::abi::Result<()> { $body })
        }
    };
}

pub(crate) use management_functions;
