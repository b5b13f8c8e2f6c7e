//! Reads memory through pointers from foreign structures.

/// How memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Through the kernel, which returns an error for unmapped memory.
    ThroughKernel,
    /// Directly, once the layout has proved right.
    Direct,
}

/// Reads foreign memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader(pub(crate) Access);

/// End of user space. On aarch64 the kernel uses higher addresses only on request.
const HIGHEST: usize = 1 << if cfg!(target_arch = "aarch64") { 48 } else { 47 };
/// Nothing is mapped below this.
const LOWEST: usize = 1 << 16;

impl Reader {
    /// Reads a word. `None` if the address is invalid or not mapped.
    #[inline]
    pub(crate) fn word(self, address: usize) -> Option<usize> {
        if !(LOWEST..HIGHEST).contains(&address) || !address.is_multiple_of(8) {
            return None;
        }
        match self.0 {
            // SAFETY: aligned, and the layout that led here held for many walks of this process: the pointer is
            // Python's own, into a structure that lives as long as the calling thread's frame.
            Access::Direct => Some(unsafe { (address as *const usize).read_volatile() }),
            Access::ThroughKernel => {
                let mut word = [0; 8];
                copy(address, &mut word).then(|| usize::from_le_bytes(word))
            }
        }
    }

    /// Reads a byte.
    #[inline]
    pub(crate) fn byte(self, address: usize) -> Option<u8> {
        let word = self.word(address & !7)?;
        Some((word >> ((address & 7) * 8)) as u8)
    }

    /// Reads four aligned bytes.
    #[inline]
    pub(crate) fn half(self, address: usize) -> Option<u32> {
        let word = self.word(address & !7)?;
        Some((word >> ((address & 4) * 8)) as u32)
    }
}

/// Copies memory through the kernel. Returns whether all of it was readable.
pub(crate) fn copy(address: usize, into: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the local range is a slice; the kernel checks the remote one.
    let copied =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(copied) == Ok(into.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_pointers_are_no_answer() {
        let value = 0x1122_3344_5566_7788_usize;
        let address = &raw const value as usize;
        for access in [Access::ThroughKernel, Access::Direct] {
            let reader = Reader(access);
            assert_eq!(reader.word(address), Some(value));
            assert_eq!(reader.byte(address + 1), Some(0x77));
            assert_eq!(reader.half(address + 4), Some(0x1122_3344));
            assert_eq!(reader.word(8), None);
            assert_eq!(reader.word(address + 1), None);
            assert_eq!(reader.word(usize::MAX - 7), None);
        }
        assert_eq!(Reader(Access::ThroughKernel).word(LOWEST), None);
    }
}
