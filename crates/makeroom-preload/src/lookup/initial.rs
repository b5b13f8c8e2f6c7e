//! The objects that a process started with, read from the dynamic linker's own list without calling it.
//!
//! `dl_iterate_phdr` may be another library's: sanitizers replace it, and look functions up before they can serve it. The
//! list begins with the program and the libraries it was started with, which are never unloaded, and later ones are added
//! at its end; so the beginning is read without a lock, up to what is searched for.

use std::ffi::{CStr, c_void};

use super::objects::Tables;
use crate::driver::types::field;

/// The dynamic section's entry for debuggers: the list.
const DYNAMIC_DEBUG: u64 = 21;
/// Where the list begins in that structure.
const FIRST: usize = 8;
/// An object in the list: what was added to its addresses, its name, its dynamic section, the next object.
const ADDED: usize = 0;
const DYNAMIC: usize = 16;
const NEXT: usize = 24;
/// Objects that are looked at: more are not loaded at the start.
const MOST: usize = 4096;

/// The first function of a name in those of the initial objects that are searched. Stops at the first object that has it.
pub(super) fn search(name: &CStr, is_searched: impl Fn(&Tables) -> bool) -> Option<*mut c_void> {
    objects().filter(is_searched).find_map(|tables| {
        // SAFETY: initial objects stay loaded.
        unsafe { tables.find(name) }
    })
}

/// Whether the program itself defines one function for all libraries to use, and has another name among its strings.
pub(super) fn program_has(defined: &CStr, named: &CStr) -> bool {
    // SAFETY: the program stays loaded.
    objects().next().is_some_and(|program| unsafe { program.find(defined).is_some() && program.names(named) })
}

fn objects() -> impl Iterator<Item = Tables> {
    let mut object = first().unwrap_or(std::ptr::null());
    std::iter::from_fn(move || {
        if object.is_null() {
            return None;
        }
        // SAFETY: an object of the dynamic linker's list has these fields.
        let (added, section, next) = unsafe {
            (
                field::<u64>(object, ADDED),
                field::<u64>(object, DYNAMIC) as *const c_void,
                field::<u64>(object, NEXT) as *const c_void,
            )
        };
        object = next;
        // SAFETY: the dynamic section of a loaded object.
        Some(unsafe { Tables::in_section(added, section) })
    })
    .take(MOST)
    .flatten()
}

/// The first object of the list: the program.
fn first() -> Option<*const c_void> {
    // SAFETY: `getauxval` has no conditions.
    let (headers, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    let headers = headers as *const libc::Elf64_Phdr;
    if headers.is_null() {
        return None;
    }
    // SAFETY: the kernel says where the program's headers are and how many.
    let headers = unsafe { std::slice::from_raw_parts(headers, count as usize) };
    let of_kind = |kind| headers.iter().find(|header| header.p_type == kind);
    // Where the program lies, by the header that says where the headers are.
    let added = (headers.as_ptr() as u64).wrapping_sub(of_kind(libc::PT_PHDR)?.p_vaddr);
    let section = added.wrapping_add(of_kind(libc::PT_DYNAMIC)?.p_vaddr) as *const c_void;
    // SAFETY: the program's dynamic section ends with an entry of kind 0.
    let list = unsafe { Tables::entry(section, DYNAMIC_DEBUG) }? as *const c_void;
    // SAFETY: the structure begins with a number, which the first object follows.
    (!list.is_null()).then(|| unsafe { field::<u64>(list, FIRST) } as *const c_void)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_among_the_initial_objects() {
        // SAFETY: the name ends in a zero byte.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlvsym".as_ptr()) };
        assert_eq!(search(c"dlvsym", |_| true), Some(expected));
        assert_eq!(search(c"dlvsym", |_| false), None);
        assert_eq!(search(c"no_such_function", |_| true), None);
    }
}
