//! Rows to columns and back: the record shredding and assembly of Dremel, on which Parquet is based.
//!
//! A leaf is a list of entries (repetition level, definition level, value). Levels of a file are untrusted: every step of
//! the assembly consumes an entry or ends with an error, so it ends for any input.

use crate::IndexError;
use crate::cell::{Field, Shape, Value};
use crate::schema::leaf_count;

/// The entries of one leaf.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LeafData {
    pub(crate) repetitions: Vec<i16>,
    pub(crate) definitions: Vec<i16>,
    pub(crate) values: Vec<Value>,
}

impl LeafData {
    fn push(&mut self, repetition: i16, definition: i16, value: Option<Value>) {
        self.repetitions.push(repetition);
        self.definitions.push(definition);
        self.values.extend(value);
    }
}

/// Appends a row to the leaves.
pub(crate) fn shred(fields: &[Field], row: Vec<Value>, leaves: &mut [LeafData]) {
    shred_struct(fields, row, Level::default(), leaves);
}

#[derive(Clone, Copy, Default)]
struct Level {
    /// Repetition level of the next entry.
    repetition: i16,
    /// Repetition level of further elements of the innermost list.
    depth: i16,
    definition: i16,
}

fn shred_struct(fields: &[Field], values: Vec<Value>, level: Level, leaves: &mut [LeafData]) {
    let mut values = values.into_iter();
    let mut rest = leaves;
    for field in fields {
        let (own, others) = rest.split_at_mut(leaf_count(&field.shape).min(rest.len()));
        shred_value(&field.shape, values.next().unwrap_or(Value::Null), level, own);
        rest = others;
    }
}

fn shred_value(shape: &Shape, value: Value, level: Level, leaves: &mut [LeafData]) {
    match (shape, value) {
        (Shape::Optional(inner), value) if value != Value::Null => {
            shred_value(inner, value, Level { definition: level.definition + 1, ..level }, leaves);
        }
        (Shape::List(element), Value::List(values)) if !values.is_empty() => {
            let depth = level.depth + 1;
            let first = Level { depth, definition: level.definition + 1, ..level };
            for (index, value) in values.into_iter().enumerate() {
                let repetition = if index == 0 { level.repetition } else { depth };
                shred_value(element, value, Level { repetition, ..first }, leaves);
            }
        }
        (Shape::Struct(fields), Value::Struct(values)) => shred_struct(fields, values, level, leaves),
        (Shape::Leaf(_), value) if value != Value::Null => {
            if let Some(leaf) = leaves.first_mut() {
                leaf.push(level.repetition, level.definition, Some(value));
            }
        }
        // Nothing here: every leaf below gets an entry without a value.
        _ => leaves.iter_mut().for_each(|leaf| leaf.push(level.repetition, level.definition, None)),
    }
}

/// A leaf that is read entry by entry.
pub(crate) struct Cursor {
    repetitions: std::vec::IntoIter<i16>,
    definitions: std::vec::IntoIter<i16>,
    values: std::vec::IntoIter<Value>,
    max_definition: i16,
}

impl Cursor {
    pub(crate) fn new(data: LeafData, max_definition: i16) -> Self {
        Self {
            repetitions: data.repetitions.into_iter(),
            definitions: data.definitions.into_iter(),
            values: data.values.into_iter(),
            max_definition,
        }
    }

    fn definition(&self) -> Option<i16> {
        self.definitions.as_slice().first().copied()
    }

    fn repetition(&self) -> Option<i16> {
        self.repetitions.as_slice().first().copied()
    }

    fn next(&mut self) -> Result<Value, IndexError> {
        let (Some(definition), Some(_)) = (self.definitions.next(), self.repetitions.next()) else {
            return Err(IndexError::Levels);
        };
        if definition < self.max_definition {
            return Ok(Value::Null);
        }
        self.values.next().ok_or(IndexError::Levels)
    }
}

/// The next row of the leaves.
pub(crate) fn assemble(fields: &[Field], leaves: &mut [Option<Cursor>]) -> Result<Vec<Value>, IndexError> {
    assemble_struct(fields, 0, 0, leaves)
}

fn assemble_struct(
    fields: &[Field],
    definition: i16,
    depth: i16,
    leaves: &mut [Option<Cursor>],
) -> Result<Vec<Value>, IndexError> {
    let mut values = Vec::with_capacity(fields.len());
    let mut rest = leaves;
    for field in fields {
        let (own, others) = rest.split_at_mut(leaf_count(&field.shape).min(rest.len()));
        values.push(assemble_value(&field.shape, definition, depth, own)?);
        rest = others;
    }
    Ok(values)
}

fn assemble_value(
    shape: &Shape,
    definition: i16,
    depth: i16,
    leaves: &mut [Option<Cursor>],
) -> Result<Value, IndexError> {
    // Leaves below one value have the same levels above it, so the first one of the file decides.
    let Some(first) = leaves.iter().position(Option::is_some) else { return Ok(Value::Null) };
    let defined = |leaves: &[Option<Cursor>]| leaves[first].as_ref().and_then(Cursor::definition);
    match shape {
        Shape::Leaf(_) => leaves[first].as_mut().map_or(Ok(Value::Null), Cursor::next),
        Shape::Struct(fields) => Ok(Value::Struct(assemble_struct(fields, definition, depth, leaves)?)),
        Shape::Optional(inner) => {
            if defined(leaves).ok_or(IndexError::Levels)? > definition {
                return assemble_value(inner, definition + 1, depth, leaves);
            }
            skip(leaves)?;
            Ok(Value::Null)
        }
        Shape::List(element) => {
            if defined(leaves).ok_or(IndexError::Levels)? <= definition {
                skip(leaves)?;
                return Ok(Value::List(Vec::new()));
            }
            let mut values = Vec::new();
            loop {
                values.push(assemble_value(element, definition + 1, depth + 1, leaves)?);
                let next = leaves[first].as_ref().and_then(Cursor::repetition);
                if next != Some(depth + 1) {
                    return Ok(Value::List(values));
                }
            }
        }
    }
}

/// Consumes an entry without a value from every leaf.
fn skip(leaves: &mut [Option<Cursor>]) -> Result<(), IndexError> {
    for leaf in leaves.iter_mut().flatten() {
        leaf.next()?;
    }
    Ok(())
}
