//! A site as a stack frame: file, line and name, as far as known without debug information.

use std::ffi::{CStr, c_char, c_void};

use crate::site::Site;

/// A stack frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
}

/// The frame of a site.
pub(super) fn frame(site: Site) -> Frame {
    match site {
        Site::Rust(location) => {
            Frame { name: String::new(), file: location.file().to_owned(), line: location.line() }
        }
        Site::Code(address) => in_library(address),
    }
}

/// The function that contains an address, and its library or program.
fn in_library(address: u64) -> Frame {
    let unknown = || Frame { name: format!("{address:#x}"), file: "??".to_owned(), line: 0 };
    // SAFETY: the structure holds only numbers and pointers, for which zero is valid.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only compared, and the out-parameter is valid.
    if unsafe { libc::dladdr(address as *const c_void, &raw mut found) } == 0 {
        return unknown();
    }
    // SAFETY: the linker's names are NUL-terminated and valid while the library is loaded.
    let (name, file) = unsafe { (text(found.dli_sname), text(found.dli_fname)) };
    let start = if found.dli_saddr.is_null() { found.dli_fbase } else { found.dli_saddr };
    let offset = address.saturating_sub(start as u64);
    let name = name.map_or_else(|| format!("+{offset:#x}"), |name| format!("{name}+{offset:#x}"));
    Frame { name, file: file.unwrap_or_else(|| "??".to_owned()), line: 0 }
}

/// # Safety
///
/// `from` is null or NUL-terminated.
unsafe fn text(from: *const c_char) -> Option<String> {
    if from.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    Some(unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_rust_is_file_and_line() {
        let here = Site::here();
        let found = frame(here);
        assert!(found.file.ends_with("frames.rs"), "{found:?}");
        assert!(found.line > 0);
    }

    #[test]
    fn an_address_in_code_has_its_library_and_one_outside_itself() {
        let inside = frame(Site::Code(libc::malloc as *const () as u64 + 4));
        assert!(inside.name.ends_with("+0x4"), "{inside:?}");
        assert!(inside.file.contains('/'), "{inside:?}");
        assert_eq!(frame(Site::Code(16)), Frame { name: "0x10".to_owned(), file: "??".to_owned(), line: 0 });
    }
}
