//! Where things lie in Python's structures, version by version: 64-bit builds with the GIL, as the headers of each
//! version say. Tested with the interpreters named in `tests/python.rs`.

/// `ob_type` of any object.
pub(crate) const TYPE: usize = 8;
/// `ob_size` of bytes.
pub(crate) const BYTES_SIZE: usize = 16;
/// The content of bytes.
pub(crate) const BYTES_DATA: usize = 32;
/// `length` of a text.
pub(crate) const TEXT_LENGTH: usize = 16;
/// `state` of a text: how its characters are stored.
pub(crate) const TEXT_STATE: usize = 32;
/// Owners from here on are the interpreter itself: `FRAME_OWNED_BY_CSTACK`, since 3.14 `FRAME_OWNED_BY_INTERPRETER`.
pub(crate) const OWNED_BY_INTERPRETER: u8 = 3;
/// The bits of a reference in which versions from 3.14 on say how it is counted; objects are aligned.
pub(crate) const TAGS: usize = 7;

/// One version's offsets.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Followed from the thread's state to its innermost frame.
    pub(crate) first_frame: &'static [usize],
    /// The calling frame.
    pub(crate) frame_previous: usize,
    /// The frame's code object.
    pub(crate) frame_code: usize,
    /// The frame's instruction.
    pub(crate) frame_instruction: usize,
    /// What the instruction is.
    pub(crate) instruction: Instruction,
    /// Who owns the frame, where the interpreter has frames of its own.
    pub(crate) frame_owner: Option<usize>,
    /// The first line of a code object.
    pub(crate) code_first_line: usize,
    /// Its file.
    pub(crate) code_file: usize,
    /// Its name, with its class where the version knows it.
    pub(crate) code_name: usize,
    /// Its line table.
    pub(crate) code_lines: usize,
    /// How the line table is written.
    pub(crate) line_table: LineTable,
    /// The content of a text of ASCII characters only.
    pub(crate) ascii_data: usize,
    /// The content of any other text.
    pub(crate) text_data: usize,
}

/// How a frame says where it is.
#[derive(Debug)]
pub(crate) enum Instruction {
    /// A number of instructions, each of so many bytes as line tables count.
    Index {
        /// Bytes per step.
        bytes_each: u32,
    },
    /// An address in the code, which begins at this offset of the code object.
    Pointer {
        /// Where the code begins.
        code_start: usize,
    },
}

/// How a version writes its line tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LineTable {
    /// Up to 3.9: steps in bytes and lines (`co_lnotab`).
    Lnotab = 0,
    /// 3.10: ranges of bytes with a step in lines (PEP 626).
    Ranges = 1,
    /// From 3.11: locations of variable length.
    Locations = 2,
}

impl LineTable {
    /// The kind with a number.
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

/// 3.15 is the same.
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
    /// The layout of a version, as `Py_GetVersion` spells it; none for versions that were not tested.
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
