//! Programs built with a sanitizer whose runtime must be the first library of its process, or must see all of its code.
//! The recorder would keep them from starting, or cause false reports. They run without it.
//!
//! A runtime is recognized by its library or its initializer, whose names are in the string tables of the program's
//! file. A user may also preload one, for an instrumented extension module of an interpreter that is not instrumented
//! itself. Child processes recognize it themselves (`makeroom-preload`), after the recorder was loaded before it. Only
//! `AddressSanitizer` checks that order, by the name of the first library (`library`).

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use memchr::memmem;
use object::elf::{FileHeader64, SHT_STRTAB};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{Endianness, ReadCache};

use super::obstacle;

/// Larger string tables are not read: those of a browser take 60 MiB.
const LARGEST_TABLE: u64 = 256 << 20;
/// Maximum length of the first line of a script, as in the kernel.
const LONGEST_LINE: u64 = 256;

/// A sanitizer: its name, its initializer, and the prefixes of its library names.
struct Sanitizer {
    name: &'static str,
    initializer: &'static str,
    libraries: [&'static str; 2],
}

const SANITIZERS: [Sanitizer; 4] = [
    Sanitizer {
        name: "AddressSanitizer",
        initializer: "__asan_init",
        libraries: ["libasan.so", "libclang_rt.asan"],
    },
    Sanitizer {
        name: "HWAddressSanitizer",
        initializer: "__hwasan_init",
        libraries: ["libhwasan.so", "libclang_rt.hwasan"],
    },
    Sanitizer {
        name: "ThreadSanitizer",
        initializer: "__tsan_init",
        libraries: ["libtsan.so", "libclang_rt.tsan"],
    },
    Sanitizer {
        name: "MemorySanitizer",
        initializer: "__msan_init",
        libraries: ["libmsan.so", "libclang_rt.msan"],
    },
];

/// The sanitizer of a program, if it has one.
pub(crate) fn find(program: &OsStr) -> Option<&'static str> {
    let preloads = env::var_os("LD_PRELOAD").unwrap_or_default();
    of_preloads(&preloads).or_else(|| of_file(&executed(obstacle::search(program)?)))
}

/// The runtime in a list in the dynamic linker's format.
fn of_preloads(list: &OsStr) -> Option<&'static str> {
    let names = list.as_bytes().split(|&letter| letter == b':' || letter.is_ascii_whitespace());
    let mut names = names.filter_map(|path| path.rsplit(|&letter| letter == b'/').next());
    names.find_map(|name| {
        let is_meant = |sanitizer: &&Sanitizer| {
            sanitizer.libraries.iter().any(|library| name.starts_with(library.as_bytes()))
        };
        Some(SANITIZERS.iter().find(is_meant)?.name)
    })
}

/// The file that the kernel executes: for a script, its interpreter.
fn executed(path: PathBuf) -> PathBuf {
    let Ok(file) = File::open(&path) else { return path };
    let mut line = Vec::new();
    let _ = BufReader::new(file.take(LONGEST_LINE)).read_until(b'\n', &mut line);
    let interpreter = line.strip_prefix(b"#!").and_then(|line| {
        line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty()).map(OsStr::from_bytes)
    });
    interpreter.map(PathBuf::from).unwrap_or(path)
}

/// The runtime named in a file's string tables.
fn of_file(path: &Path) -> Option<&'static str> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    header.section_headers(endian, &cache).ok()?.iter().find_map(|section| {
        if section.sh_type(endian) != SHT_STRTAB || section.sh_size(endian) > LARGEST_TABLE {
            return None;
        }
        of_strings(section.data(endian, &cache).ok()?)
    })
}

/// The runtime whose initializer or library is one of these NUL-separated strings.
fn of_strings(table: &[u8]) -> Option<&'static str> {
    let names = |text: String| memmem::find(table, text.as_bytes()).is_some();
    let is_named = |sanitizer: &&Sanitizer| {
        names(format!("\0{}\0", sanitizer.initializer))
            || sanitizer.libraries.iter().any(|library| names(format!("\0{library}")))
    };
    Some(SANITIZERS.iter().find(is_named)?.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_recognized_by_name() {
        assert_eq!(of_strings(b"\0puts\0__tsan_init\0"), Some("ThreadSanitizer"));
        assert_eq!(of_strings(b"\0libclang_rt.asan-x86_64.so\0"), Some("AddressSanitizer"));
        assert_eq!(of_strings(b"\0__hwasan_init\0"), Some("HWAddressSanitizer"));
        // Hooks that a library provides for a sanitizer, whether or not there is one.
        assert_eq!(of_strings(b"\0__asan_poison_memory_region\0__asan_init_later\0"), None);
        assert_eq!(
            of_preloads(OsStr::new("/x/libjemalloc.so.2 /usr/lib/libasan.so.8")),
            Some("AddressSanitizer")
        );
        assert_eq!(of_preloads(OsStr::new("/opt/libasan.so.8/libother.so")), None);
        assert_eq!(of_preloads(OsStr::new("")), None);
    }

    #[test]
    fn usual_files_have_none() {
        assert_eq!(of_file(&env::current_exe().unwrap()), None);
        assert_eq!(of_file(Path::new("/proc/self/maps")), None);
        assert_eq!(of_file(Path::new("/no/such/file")), None);
        assert_eq!(find(OsStr::new("sh")), None);
    }
}
