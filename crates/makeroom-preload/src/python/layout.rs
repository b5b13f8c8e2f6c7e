//! Offsets in `CPython`'s structures, by version: 64-bit builds with the GIL, taken from each version's headers. Tested
//! with the interpreters named in `tests/python.rs`.

/// `ob_type` of any object.
pub(crate) const TYPE: usize = 8;
/// `ob_size` of a `bytes` object.
pub(crate) const BYTES_SIZE: usize = 16;
/// The content of a `bytes` object.
pub(crate) const BYTES_DATA: usize = 32;
/// `length` of a `str` object.
pub(crate) const TEXT_LENGTH: usize = 16;
/// `state` of a `str` object: how its characters are stored.
pub(crate) const TEXT_STATE: usize = 32;
/// Owners from this value on are the interpreter itself: `FRAME_OWNED_BY_CSTACK`, since 3.14
/// `FRAME_OWNED_BY_INTERPRETER`.
pub(crate) const OWNED_BY_INTERPRETER: u8 = 3;
/// Tag bits of a reference, used from 3.14 on for how it is counted; objects are aligned.
pub(crate) const TAGS: usize = 7;

/// One version's offsets.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Offsets to follow from the thread state to its innermost frame.
    pub(crate) first_frame: &'static [usize],
    /// The caller's frame.
    pub(crate) frame_previous: usize,
    /// The frame's code object.
    pub(crate) frame_code: usize,
    /// The frame's current instruction.
    pub(crate) frame_instruction: usize,
    /// How the instruction is stored.
    pub(crate) instruction: Instruction,
    /// The frame's owner, in versions where the interpreter has frames of its own.
    pub(crate) frame_owner: Option<usize>,
    /// The first line of a code object.
    pub(crate) code_first_line: usize,
    /// Its file.
    pub(crate) code_file: usize,
    /// Its name, qualified in versions that have it.
    pub(crate) code_name: usize,
    /// Its line table.
    pub(crate) code_lines: usize,
    /// Format of the line table.
    pub(crate) line_table: LineTable,
    /// The content of an ASCII-only `str`.
    pub(crate) ascii_data: usize,
    /// The content of any other `str`.
    pub(crate) text_data: usize,
}

/// How a frame stores its current instruction.
#[derive(Debug)]
pub(crate) enum Instruction {
    /// An index, in units of this many bytes (line tables count in bytes).
    Index {
        /// Bytes per unit.
        bytes_each: u32,
    },
    /// A pointer into the code.
    Pointer {
        /// Offset of the code in the code object.
        code_start: usize,
    },
}

/// Formats of line tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LineTable {
    /// Up to 3.9: increments in bytes and lines (`co_lnotab`).
    Lnotab = 0,
    /// 3.10: byte ranges with a line increment (PEP 626).
    Ranges = 1,
    /// From 3.11: variable-length location entries.
    Locations = 2,
}

impl LineTable {
    /// Converts from the interned number.
    pub(crate) fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Lnotab,
            1 => Self::Ranges,
            _ => Self::Locations,
        }
    }
}

const PYTHON_3_9: Layout = Layout {
    first_frame: &[24],
    frame_previous: 24,
    frame_code: 32,
    frame_instruction: 104,
    instruction: Instruction::Index { bytes_each: 1 },
    frame_owner: None,
    code_first_line: 40,
    code_file: 104,
    code_name: 112,
    code_lines: 120,
    line_table: LineTable::Lnotab,
    ascii_data: 48,
    text_data: 72,
};

const PYTHON_3_10: Layout = Layout {
    frame_instruction: 96,
    instruction: Instruction::Index { bytes_each: 2 },
    line_table: LineTable::Ranges,
    ..PYTHON_3_9
};

const PYTHON_3_11: Layout = Layout {
    first_frame: &[56, 8],
    frame_previous: 48,
    frame_code: 32,
    frame_instruction: 56,
    instruction: Instruction::Pointer { code_start: 184 },
    frame_owner: None,
    code_first_line: 72,
    code_file: 112,
    code_name: 128,
    code_lines: 136,
    line_table: LineTable::Locations,
    ascii_data: 48,
    text_data: 72,
};

const PYTHON_3_12: Layout = Layout {
    first_frame: &[56, 0],
    frame_previous: 8,
    frame_code: 0,
    instruction: Instruction::Pointer { code_start: 192 },
    frame_owner: Some(70),
    code_first_line: 68,
    ascii_data: 40,
    text_data: 56,
    ..PYTHON_3_11
};

const PYTHON_3_13: Layout =
    Layout { first_frame: &[72], instruction: Instruction::Pointer { code_start: 200 }, ..PYTHON_3_12 };

/// Also the layout of 3.15.
const PYTHON_3_14: Layout =
    Layout { frame_owner: Some(74), instruction: Instruction::Pointer { code_start: 208 }, ..PYTHON_3_13 };

static LAYOUTS: [(&[u8], Layout); 7] = [
    (b"3.9.", PYTHON_3_9),
    (b"3.10.", PYTHON_3_10),
    (b"3.11.", PYTHON_3_11),
    (b"3.12.", PYTHON_3_12),
    (b"3.13.", PYTHON_3_13),
    (b"3.14.", PYTHON_3_14),
    (b"3.15.", PYTHON_3_14),
];

impl Layout {
    /// The layout of a version, as spelled by `Py_GetVersion`; `None` for versions that were not tested.
    pub(crate) fn of_version(version: &[u8]) -> Option<&'static Self> {
        if version.windows(b"free-threading".len()).any(|window| window == b"free-threading") {
            return None;
        }
        LAYOUTS.iter().find(|(prefix, _)| version.starts_with(prefix)).map(|(_, layout)| layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tested_versions_have_a_layout() {
        assert!(Layout::of_version(b"3.11.7 (main, Dec  9 2023)").is_some());
        assert!(Layout::of_version(b"3.1.0").is_none());
        assert!(Layout::of_version(b"3.15.0 (main)").is_some());
        assert!(Layout::of_version(b"3.16.0 (main)").is_none());
        assert!(Layout::of_version(b"3.13.0 experimental free-threading build (main)").is_none());
    }
}
