//! The embedded libraries: the recorder, and the two of the software GPU.
//!
//! The feature `compressed` embeds them as one LZMA stream. Both forms have the same functions.

use std::borrow::Cow;
use std::io;

/// The libraries, in the order in which they are embedded. The recorder is first: `run` needs only the recorder, and stops
/// decompressing after it.
#[derive(Clone, Copy)]
pub(super) enum Library {
    Recorder,
    Driver,
    Management,
}

#[cfg(not(feature = "compressed"))]
mod form {
    use super::{Cow, Library, io};

    /// The content of each library, and its [`hash`](super::hash).
    #[cfg(target_os = "linux")]
    static EMBEDDED: [(&[u8], u64); 3] =
        makeroom_embed::libraries!(makeroom_preload, makeroom_simgpu, makeroom_simnvml);

    /// Without libraries, `run` and `demo` report that they work only on Linux.
    #[cfg(not(target_os = "linux"))]
    static EMBEDDED: [(&[u8], u64); 3] = [(&[], 0); 3];

    pub(in super::super) fn is_empty() -> bool {
        EMBEDDED.iter().all(|(content, _)| content.is_empty())
    }

    impl Library {
        pub(in super::super) fn hash(self) -> u64 {
            EMBEDDED[self as usize].1
        }

        #[expect(clippy::unnecessary_wraps, reason = "decompressing may fail")]
        pub(in super::super) fn content(self) -> io::Result<Cow<'static, [u8]>> {
            Ok(Cow::Borrowed(EMBEDDED[self as usize].0))
        }
    }
}

#[cfg(feature = "compressed")]
mod form {
    use std::io::Read as _;

    use lzma_rust2::LzmaReader;

    use super::{Cow, Library, io};

    /// One LZMA stream, and for each library its end in the decompressed content and its [`hash`](super::hash).
    #[cfg(target_os = "linux")]
    static EMBEDDED: (&[u8], [(usize, u64); 3]) =
        makeroom_embed::lzma_libraries!(makeroom_preload, makeroom_simgpu, makeroom_simnvml);

    /// Without libraries, `run` and `demo` report that they work only on Linux.
    #[cfg(not(target_os = "linux"))]
    static EMBEDDED: (&[u8], [(usize, u64); 3]) = (&[], [(0, 0); 3]);

    pub(in super::super) fn is_empty() -> bool {
        EMBEDDED.0.is_empty()
    }

    impl Library {
        pub(in super::super) fn hash(self) -> u64 {
            EMBEDDED.1[self as usize].1
        }

        pub(in super::super) fn content(self) -> io::Result<Cow<'static, [u8]>> {
            let (stream, libraries) = EMBEDDED;
            let start = (self as usize).checked_sub(1).map_or(0, |before| libraries[before].0);
            let mut content = vec![0; libraries[self as usize].0 - start];
            let mut decoder = LzmaReader::new_mem_limit(stream, u32::MAX, None)?;
            io::copy(&mut decoder.by_ref().take(start as u64), &mut io::sink())?;
            decoder.read_exact(&mut content)?;
            Ok(Cow::Owned(content))
        }
    }
}

pub(super) use form::is_empty;

/// FNV-1a, as `makeroom_embed` computes it.
pub(super) fn hash(content: &[u8]) -> u64 {
    content
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
