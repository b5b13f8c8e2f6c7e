//! Loaded objects, read from their own tables.
//!
//! A library that exports `dlsym` and `dlvsym` cannot use them to find the real ones. Instead it reads the C
//! library's table of exported names (`DT_GNU_HASH`).

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::initial;
use crate::fields::field;

/// The libraries that may hold `dlvsym`: since glibc 2.34 it is the first.
const C_LIBRARIES: [&CStr; 2] = [c"libc.so.6", c"libdl.so.2"];

const DYNAMIC_STRINGS: u64 = 5;
const DYNAMIC_SYMBOLS: u64 = 6;
const DYNAMIC_STRINGS_SIZE: u64 = 10;
const DYNAMIC_NAME: u64 = 14;
const DYNAMIC_HASH: u64 = 0x6fff_fef5;
/// Sizes of an entry of the dynamic section and of the symbol table.
const DYNAMIC_SIZE: usize = 16;
const SYMBOL_SIZE: usize = 24;

/// A function exported by the C library.
pub(super) fn of_c_library(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the tables belong to a loaded object.
    initial::search(name, |tables| unsafe { C_LIBRARIES.contains(&tables.own_name()) })
}

/// The first function with this name exported by any object except this library.
pub(super) fn of_others(name: &CStr) -> Option<*mut c_void> {
    search(name, |object, _| !holds(object, of_others as *const () as usize))
}

/// The first function with this name in the objects that `is_searched` selects.
fn search(name: &CStr, is_searched: impl Fn(&libc::dl_phdr_info, &Tables) -> bool) -> Option<*mut c_void> {
    let mut found = None;
    each(|object| {
        if found.is_none()
            && let Some(tables) = Tables::of_object(object)
            && is_searched(object, &tables)
        {
            // SAFETY: the tables belong to a loaded object.
            found = unsafe { tables.find(name) };
        }
    });
    found
}

/// Whether the object that contains one address was loaded before the one that contains the other.
pub(super) fn is_before(first: usize, second: usize) -> bool {
    let mut position = 0;
    let (mut of_first, mut of_second) = (None, None);
    each(|object| {
        position += 1;
        of_first = of_first.or(holds(object, first).then_some(position));
        of_second = of_second.or(holds(object, second).then_some(position));
    });
    of_first.zip(of_second).is_some_and(|(first, second)| first < second)
}

/// Whether an address lies in this library. Its range is computed at first use; two threads that do so at once store
/// the same, and a forked child never waits for the other.
pub(super) fn is_in_own(address: usize) -> bool {
    static START: AtomicUsize = AtomicUsize::new(0);
    static END: AtomicUsize = AtomicUsize::new(0);
    let mut end = END.load(Ordering::Acquire);
    if end == 0 {
        each(|object| {
            if holds(object, is_in_own as *const () as usize)
                && let Some(range) = range(object)
            {
                START.store(range.start, Ordering::Relaxed);
                END.store(range.end, Ordering::Release);
                end = range.end;
            }
        });
    }
    (START.load(Ordering::Relaxed)..end).contains(&address)
}

/// The number of objects loaded so far: while it is unchanged there are no new ones.
pub(super) fn loads() -> u64 {
    unsafe extern "C" fn first(object: *mut libc::dl_phdr_info, _size: usize, loads: *mut c_void) -> c_int {
        // SAFETY: `loads` is the number below; `object` is valid during the call.
        if let (Some(loads), Some(object)) = unsafe { (loads.cast::<u64>().as_mut(), object.as_ref()) } {
            *loads = object.dlpi_adds;
        }
        1
    }
    let mut loads = 0_u64;
    // SAFETY: the callback receives a pointer to `loads`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loads).cast()) };
    loads
}

/// Visits the address range of each loaded object whose file name starts with `prefix`.
pub(super) fn each_named(prefix: &[u8], mut visit: impl FnMut(std::ops::Range<usize>)) {
    each(|object| {
        if object.dlpi_name.is_null() {
            return;
        }
        // SAFETY: the dynamic linker's names are NUL-terminated.
        let path = unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes();
        let name = path.rsplit(|&letter| letter == b'/').next().unwrap_or_default();
        if name.starts_with(prefix) {
            range(object).into_iter().for_each(&mut visit);
        }
    });
}

/// The addresses from an object's first segment to the end of its last.
fn range(object: &libc::dl_phdr_info) -> Option<std::ops::Range<usize>> {
    let parts = segments(object).iter().filter(|segment| segment.p_type == libc::PT_LOAD);
    let at = |offset: u64| object.dlpi_addr.wrapping_add(offset) as usize;
    let start = parts.clone().map(|segment| at(segment.p_vaddr)).min()?;
    let end = parts.map(|segment| at(segment.p_vaddr + segment.p_memsz)).max()?;
    Some(start..end)
}

/// Visits all loaded objects in symbol search order.
fn each(mut visit: impl FnMut(&libc::dl_phdr_info)) {
    unsafe extern "C" fn call<F: FnMut(&libc::dl_phdr_info)>(
        object: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: `visit` is the closure that `each` passes; `object` is valid during the call.
        if let (Some(visit), Some(object)) = unsafe { (visit.cast::<F>().as_mut(), object.as_ref()) } {
            visit(object);
        }
        0
    }
    /// `call` for a closure whose type cannot be named.
    fn callback_for<F: FnMut(&libc::dl_phdr_info)>(
        _: &F,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        call::<F>
    }
    let function = callback_for(&visit);
    // SAFETY: the function receives the closure it was instantiated for, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(function), (&raw mut visit).cast()) };
}

fn segments(object: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if object.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the dynamic linker reports the number of headers.
    unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) }
}

fn holds(object: &libc::dl_phdr_info, address: usize) -> bool {
    segments(object).iter().filter(|segment| segment.p_type == libc::PT_LOAD).any(|segment| {
        let start = object.dlpi_addr.wrapping_add(segment.p_vaddr);
        (start..start.wrapping_add(segment.p_memsz)).contains(&(address as u64))
    })
}

/// Addresses of an object's tables.
pub(super) struct Tables {
    base: u64,
    strings: u64,
    symbols: u64,
    hash: u64,
    name: u64,
    strings_size: u64,
}

impl Tables {
    fn of_object(object: &libc::dl_phdr_info) -> Option<Self> {
        let section = segments(object).iter().find(|segment| segment.p_type == libc::PT_DYNAMIC)?;
        let section = object.dlpi_addr.wrapping_add(section.p_vaddr) as *const c_void;
        // SAFETY: the object is loaded during the visit.
        unsafe { Self::in_section(object.dlpi_addr, section) }
    }

    /// The tables that a dynamic section refers to.
    ///
    /// # Safety
    ///
    /// It must be the section of a loaded object with the load bias `base`.
    pub(super) unsafe fn in_section(base: u64, section: *const c_void) -> Option<Self> {
        // SAFETY: guaranteed by the caller.
        let entry = |kind| unsafe { Self::entry(section, kind) };
        // The dynamic linker has relocated these offsets to addresses, except where the section is read-only.
        let table =
            |kind| entry(kind).map(|value| if value < base { value.wrapping_add(base) } else { value });
        Some(Self {
            base,
            strings: table(DYNAMIC_STRINGS)?,
            symbols: table(DYNAMIC_SYMBOLS)?,
            hash: table(DYNAMIC_HASH)?,
            name: entry(DYNAMIC_NAME).unwrap_or(0),
            strings_size: entry(DYNAMIC_STRINGS_SIZE).unwrap_or(0),
        })
    }

    /// The value of an entry in a dynamic section.
    ///
    /// # Safety
    ///
    /// It must be the section of a loaded object.
    pub(super) unsafe fn entry(section: *const c_void, kind: u64) -> Option<u64> {
        if section.is_null() {
            return None;
        }
        (0..)
            .map(|index| {
                // SAFETY: the dynamic section of a loaded object ends with an entry of kind 0.
                unsafe {
                    (
                        field::<u64>(section, index * DYNAMIC_SIZE),
                        field::<u64>(section, index * DYNAMIC_SIZE + 8),
                    )
                }
            })
            .take_while(|&(found, _)| found != 0)
            .find_map(|(found, value)| (found == kind).then_some(value))
    }

    /// # Safety
    ///
    /// The object must be loaded.
    pub(super) unsafe fn own_name(&self) -> &CStr {
        // SAFETY: names are NUL-terminated; an object without one refers to the empty string at offset 0.
        unsafe { CStr::from_ptr((self.strings + self.name) as *const libc::c_char) }
    }

    /// Whether a name is in the object's string table: a symbol that it defines or uses.
    ///
    /// # Safety
    ///
    /// The object must be loaded.
    pub(super) unsafe fn names(&self, name: &CStr) -> bool {
        // SAFETY: the object's dynamic section gives the table's length.
        let strings =
            unsafe { std::slice::from_raw_parts(self.strings as *const u8, self.strings_size as usize) };
        strings.split(|&byte| byte == 0).any(|string| string == name.to_bytes())
    }

    /// # Safety
    ///
    /// The object must be loaded.
    pub(super) unsafe fn find(&self, name: &CStr) -> Option<*mut c_void> {
        let table = self.hash as *const c_void;
        let word = |index: usize| {
            // SAFETY: the table is a header of four words, a Bloom filter, buckets and chains, and is walked by its
            // own indices.
            unsafe { field::<u32>(table, index * 4) }
        };
        let (buckets, first, filter) = (word(0), word(1), word(2) as usize);
        let wanted = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        let start = 4 + filter * 2;
        let mut index = word(start + wanted.checked_rem(buckets)? as usize);
        if index < first {
            return None;
        }
        loop {
            let hash = word(start + buckets as usize + (index - first) as usize);
            let symbol = (self.symbols as usize + index as usize * SYMBOL_SIZE) as *const c_void;
            // SAFETY: the symbol is in the table; its name, section and value are at these offsets.
            let (offset, section, value, own) = unsafe {
                let offset = field::<u32>(symbol, 0);
                let own = CStr::from_ptr((self.strings + u64::from(offset)) as *const libc::c_char);
                (offset, field::<u16>(symbol, 6), field::<u64>(symbol, 8), own)
            };
            if hash | 1 == wanted | 1 && offset != 0 && section != 0 && own == name {
                return Some(self.base.wrapping_add(value) as *mut c_void);
            }
            if hash & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_tells_where_its_functions_are() {
        for name in [c"dlvsym", c"execve", c"execl", c"abort", c"kill", c"quick_exit"] {
            // SAFETY: the name is NUL-terminated.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(of_c_library(name), Some(expected), "{name:?}");
            assert_eq!(of_others(name), Some(expected), "{name:?}");
        }
        assert_eq!(of_others(c"no_such_function"), None);
        assert_eq!(of_c_library(c"no_such_function"), None);
    }

    #[test]
    fn a_library_is_found_by_the_beginning_of_its_file_name() {
        let inside = of_c_library(c"dlvsym").unwrap() as usize;
        let mut found = Vec::new();
        each_named(b"lib", |range| found.push(range));
        assert!(found.iter().any(|range| range.contains(&inside)), "{found:x?} {inside:x}");
        each_named(b"no-such-library", |range| panic!("{range:x?}"));
        assert!(loads() > 0);
    }

    #[test]
    fn addresses_of_this_library_are_recognized() {
        assert!(is_in_own(is_in_own as *const () as usize));
        assert!(!is_in_own(of_c_library(c"dlvsym").unwrap() as usize));
        assert!(!is_in_own(0));
    }

    #[test]
    fn the_program_comes_before_its_libraries() {
        let own = the_program_comes_before_its_libraries as *const () as usize;
        let library = of_c_library(c"dlvsym").unwrap() as usize;
        assert!(is_before(own, library));
        assert!(!is_before(library, own));
        assert!(!is_before(own, own));
    }
}
