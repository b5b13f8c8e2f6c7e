//! From an address to a library and a function, on the writer's thread.
//!
//! `/proc/self/maps` says which file an address belongs to, and the file's own symbol tables name the function. The
//! loader is asked nothing: its lock, held at the moment of a fork, would stay locked in the child.

mod elf;
mod modules;

use std::collections::HashMap;

use elf::Elf;
use modules::Modules;

/// What is known of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// The file that holds the code.
    pub(crate) library: Vec<u8>,
    /// The function, empty when unknown.
    pub(crate) function: Vec<u8>,
    /// Where in the file's own addresses the call is; what `addr2line` takes.
    pub(crate) offset: u64,
}

/// Names addresses of this process.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    modules: Modules,
    files: HashMap<Vec<u8>, Option<Elf>>,
}

impl Symbols {
    /// The file that holds an address, empty when none does.
    pub(crate) fn library(&mut self, address: u64) -> Vec<u8> {
        self.modules.find(address).map(|(path, _)| path.to_vec()).unwrap_or_default()
    }

    /// What is known of the call that returns to an address.
    pub(crate) fn name(&mut self, return_address: u64) -> Option<Symbol> {
        // The call itself lies before the address it returns to, which may belong to the next function.
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
