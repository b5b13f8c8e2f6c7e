//! Resolves addresses to libraries and functions, on the writer thread.
//!
//! `/proc/self/maps` gives the file of an address, and the file's symbol tables the function. The dynamic loader is
//! not called: a fork while the writer holds its lock would leave it locked in the child.

mod elf;
mod modules;

use std::collections::HashMap;

use elf::Elf;
use modules::Modules;

/// A resolved address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// The file that contains the code.
    pub(crate) library: Vec<u8>,
    /// The function name, empty if unknown.
    pub(crate) function: Vec<u8>,
    /// The call's address in the file's own numbering, as `addr2line` takes it.
    pub(crate) offset: u64,
}

/// Resolves addresses of this process.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    modules: Modules,
    files: HashMap<Vec<u8>, Option<Elf>>,
}

impl Symbols {
    /// The file that contains an address, empty if there is none.
    pub(crate) fn library(&mut self, address: u64) -> Vec<u8> {
        self.modules.find(address).map(|(path, _)| path.to_vec()).unwrap_or_default()
    }

    /// Resolves the call that returns to an address.
    pub(crate) fn name(&mut self, return_address: u64) -> Option<Symbol> {
        // The call instruction precedes its return address, which may already belong to the next function.
        let (path, file_offset) = self.modules.find(return_address.wrapping_sub(1))?;
        let library = path.to_vec();
        let elf = self.files.entry(library.clone()).or_insert_with(|| Elf::open(&library));
        let Some(elf) = elf else {
            return Some(Symbol { library, function: Vec::new(), offset: file_offset });
        };
        let offset = elf.address_of(file_offset).unwrap_or(file_offset);
        Some(Symbol { function: elf.function_at(&library, offset).unwrap_or_default(), library, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_finds_itself() {
        let mut symbols = Symbols::default();
        let inside = elf_test_marker as *const () as u64 + 1;
        let symbol = symbols.name(inside).unwrap();
        let function = String::from_utf8_lossy(&symbol.function).into_owned();
        assert!(function.contains("elf_test_marker"), "{function}");
        assert!(String::from_utf8_lossy(&symbol.library).contains("makeroom_preload"));
        assert_eq!(symbols.name(0), None);
    }

    #[inline(never)]
    fn elf_test_marker() -> u64 {
        std::hint::black_box(77)
    }
}
