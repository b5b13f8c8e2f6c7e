//! MiniMalloc's CSV files: the columns `id,lower,upper,size`, in any order, and `offset` in solutions.
//!
//! The column `alignment` is optional. `offset` is read, but does not constrain a plan; `hint` is ignored; any other name
//! is an error. So is a value in `gaps`: this planner does not support buffers that are unused for part of their
//! lifetime. Aliases: `begin` and `start` for `lower`, `buffer` and `buffer_id` for `id`, and `end`, the last *inclusive*
//! time, for `upper - 1`. As in MiniMalloc, fields are not quoted.
//!
//! ```text
//! id,lower,upper,size          id,start,end,size
//! 0,0,10,4096            is    0,0,9,4096
//! ```
//!
//! ```
//! use makeroom_plan::{Budget, Outcome, Problem, csv, plan};
//!
//! let table = csv::parse("id,lower,upper,size\nx,0,3,64\ny,3,9,64\n")?;
//! let problem = Problem { buffers: table.buffers.clone(), capacity: Some(64) };
//! let Outcome::Planned { plan, .. } = plan(&problem, &Budget::default())? else { panic!("does not fit") };
//! let mut solution = Vec::new();
//! table.write(&plan.offsets, &mut solution)?;
//! assert_eq!(solution, b"id,lower,upper,size,offset\nx,0,3,64,0\ny,3,9,64,0\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod read;
mod write;

use crate::Buffer;

pub use error::CsvError;
pub use read::{MAX_ID, MAX_LINE, parse, read};

/// The contents of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The name of each buffer, from the column `id`.
    pub names: Vec<String>,
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// The column `offset`, if there is one.
    pub offsets: Option<Vec<u64>>,
}

/// The columns of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Id,
    Lower,
    Upper,
    /// Inclusive.
    End,
    Size,
    Alignment,
    Offset,
    Hint,
    Gaps,
}

impl Column {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "id" | "buffer" | "buffer_id" => Self::Id,
            "lower" | "begin" | "start" => Self::Lower,
            "upper" => Self::Upper,
            "end" => Self::End,
            "size" => Self::Size,
            "alignment" => Self::Alignment,
            "offset" => Self::Offset,
            "hint" => Self::Hint,
            "gaps" => Self::Gaps,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Lower => "lower",
            Self::Upper => "upper",
            Self::End => "end",
            Self::Size => "size",
            Self::Alignment => "alignment",
            Self::Offset => "offset",
            Self::Hint => "hint",
            Self::Gaps => "gaps",
        }
    }
}

#[cfg(test)]
mod tests;
