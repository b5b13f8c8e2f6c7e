//! Compresses what the released command embeds.

use std::io::{self, Write as _};

use lzma_rust2::{DICT_SIZE_MIN, LzmaOptions, LzmaWriter};

/// Higher ones differ only in the size of the dictionary, which is set here.
const BEST_PRESET: u32 = 6;

/// A stream in the `.lzma` format.
pub(crate) fn compress(content: &[u8]) -> Result<Vec<u8>, String> {
    stream(content).map_err(|error| error.to_string())
}

fn stream(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = LzmaOptions::with_preset(BEST_PRESET);
    // As large as the content: smaller would miss what the libraries share, and the encoder allocates about ten times this much.
    options.dict_size = (content.len() as u32).max(DICT_SIZE_MIN);
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(content.len() as u64))?;
    writer.write_all(content)?;
    writer.finish()
}
