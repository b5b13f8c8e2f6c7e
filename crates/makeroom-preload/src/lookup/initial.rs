//! The objects that a process started with, read from the dynamic linker's link map without calling it.
//!
//! `dl_iterate_phdr` may be interposed: sanitizers replace it, and call lookups before their replacement works. The
//! list starts with the program and its startup libraries, which are never unloaded, and later ones are appended. So
//! its beginning can be read without a lock, up to the object searched for.

use std::ffi::{CStr, c_void};

use super::objects::Tables;
use crate::fields::field;

/// `DT_DEBUG` in the dynamic section: points to the debugger's structure (`r_debug`) with the list.
const DYNAMIC_DEBUG: u64 = 21;
/// Offset of the list's head in that structure.
const FIRST: usize = 8;
/// Offsets in a list entry (`link_map`): load bias, dynamic section, next entry. (The name, at 8, is not used.)
const ADDED: usize = 0;
const DYNAMIC: usize = 16;
const NEXT: usize = 24;
/// Maximum number of objects visited: no process starts with more.
const MOST: usize = 4096;

/// The first function with this name among the initial objects that `is_searched` selects. Stops at the first match.
pub(super) fn search(name: &CStr, is_searched: impl Fn(&Tables) -> bool) -> Option<*mut c_void> {
    objects().filter(is_searched).find_map(|tables| {
        // SAFETY: initial objects are never unloaded.
        unsafe { tables.find(name) }
    })
}

/// Whether the program itself exports one function and has another name in its string table.
pub(super) fn program_has(defined: &CStr, named: &CStr) -> bool {
    // SAFETY: the program is never unloaded.
    objects().next().is_some_and(|program| unsafe { program.find(defined).is_some() && program.names(named) })
}

fn objects() -> impl Iterator<Item = Tables> {
    let mut object = first().unwrap_or(std::ptr::null());
    std::iter::from_fn(move || {
        if object.is_null() {
            return None;
        }
        // SAFETY: an entry of the dynamic linker's list has these fields.
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
    // SAFETY: `getauxval` has no preconditions.
    let (headers, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    let headers = headers as *const libc::Elf64_Phdr;
    if headers.is_null() {
        return None;
    }
    // SAFETY: the kernel reports the address and number of the program headers.
    let headers = unsafe { std::slice::from_raw_parts(headers, count as usize) };
    let of_kind = |kind| headers.iter().find(|header| header.p_type == kind);
    // The load bias, from the header that holds the headers' own address.
    let added = (headers.as_ptr() as u64).wrapping_sub(of_kind(libc::PT_PHDR)?.p_vaddr);
    let section = added.wrapping_add(of_kind(libc::PT_DYNAMIC)?.p_vaddr) as *const c_void;
    // SAFETY: the program's dynamic section ends with an entry of kind 0.
    let list = unsafe { Tables::entry(section, DYNAMIC_DEBUG) }? as *const c_void;
    // SAFETY: the structure starts with a version number, followed by the first object.
    (!list.is_null()).then(|| unsafe { field::<u64>(list, FIRST) } as *const c_void)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_among_the_initial_objects() {
        // SAFETY: the name is NUL-terminated.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlvsym".as_ptr()) };
        assert_eq!(search(c"dlvsym", |_| true), Some(expected));
        assert_eq!(search(c"dlvsym", |_| false), None);
        assert_eq!(search(c"no_such_function", |_| true), None);
    }
}
