//! The checksum of frames: CRC-32C (Castagnoli), eight bytes at a time.
//!
//! It is not a dependency because the encoder runs inside users' programs, where a table and a loop are enough. It
//! detects torn and overwritten frames, but does not protect against forgery.

/// The polynomial 0x1edc6f41, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[n][byte]` is the checksum of `byte` followed by `n` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 1 { (remainder >> 1) ^ POLYNOMIAL } else { remainder >> 1 };
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of `first` followed by `rest`.
pub(crate) fn checksum(first: u8, rest: &[u8]) -> u32 {
    let mut state = step(u32::MAX, first);
    let (blocks, tail) = rest.as_chunks::<8>();
    for block in blocks {
        let word = u64::from_le_bytes(*block) ^ u64::from(state);
        state = 0;
        for (position, table) in TABLES.iter().rev().enumerate() {
            state ^= table[(word >> (8 * position) & 0xff) as usize];
        }
    }
    for &byte in tail {
        state = step(state, byte);
    }
    !state
}

fn step(state: u32, byte: u8) -> u32 {
    (state >> 8) ^ TABLES[0][((state ^ u32::from(byte)) & 0xff) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_value_comes_out() {
        assert_eq!(checksum(b'1', b"23456789"), 0xe306_9283);
    }

    #[test]
    fn blocks_and_single_bytes_agree() {
        let bytes: Vec<u8> = (0..100_u8).map(|byte| byte.wrapping_mul(37)).collect();
        for length in 0..bytes.len() {
            let single = bytes[..length].iter().fold(step(u32::MAX, 2), |state, &byte| step(state, byte));
            assert_eq!(checksum(2, &bytes[..length]), !single);
        }
    }

    #[test]
    fn a_run_of_zeros_is_no_frame() {
        assert_ne!(checksum(0, &[]), 0);
    }
}
