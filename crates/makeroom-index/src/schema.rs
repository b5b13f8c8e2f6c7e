//! Shapes as a Parquet schema: its types, and the levels of each leaf.
//!
//! Lists are written as the format requires: a required group with a repeated group `list` and its `element`.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::errors::Result as ParquetResult;
use parquet::schema::types::Type;

use crate::cell::{Field, Kind, Shape};

/// The Parquet type of a row with these fields.
pub(crate) fn message(fields: &[Field]) -> ParquetResult<Type> {
    let fields: ParquetResult<Vec<Arc<Type>>> =
        fields.iter().map(|field| column(field.name, &field.shape)).collect();
    Type::group_type_builder("recording").with_fields(fields?).build()
}

fn column(name: &str, shape: &Shape) -> ParquetResult<Arc<Type>> {
    match shape {
        Shape::Optional(inner) => single(name, inner, Repetition::OPTIONAL),
        shape => single(name, shape, Repetition::REQUIRED),
    }
}

fn single(name: &str, shape: &Shape, repetition: Repetition) -> ParquetResult<Arc<Type>> {
    let built = match shape {
        Shape::Leaf(kind) => {
            let (physical, logical) = match kind {
                Kind::Number => (PhysicalType::INT64, None),
                Kind::Time => (
                    PhysicalType::INT64,
                    // Without a time zone: every reader shows the same text, and weeks begin at the same moment.
                    Some(LogicalType::Timestamp { is_adjusted_to_u_t_c: false, unit: TimeUnit::MICROS }),
                ),
                Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
                Kind::Truth => (PhysicalType::BOOLEAN, None),
            };
            Type::primitive_type_builder(name, physical)
                .with_repetition(repetition)
                .with_logical_type(logical)
                .build()
        }
        Shape::Struct(fields) => {
            let fields: ParquetResult<Vec<Arc<Type>>> =
                fields.iter().map(|field| column(field.name, &field.shape)).collect();
            Type::group_type_builder(name).with_repetition(repetition).with_fields(fields?).build()
        }
        Shape::List(element) => {
            let repeated = Type::group_type_builder("list")
                .with_repetition(Repetition::REPEATED)
                .with_fields(vec![column("element", element)?])
                .build()?;
            Type::group_type_builder(name)
                .with_repetition(repetition)
                .with_logical_type(Some(LogicalType::List))
                .with_fields(vec![Arc::new(repeated)])
                .build()
        }
        // A value that is optional twice does not occur in a row.
        Shape::Optional(inner) => return single(name, inner, repetition),
    };
    built.map(Arc::new)
}

/// A leaf column: its path in the file, its type and its levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) max_definition: i16,
    pub(crate) max_repetition: i16,
}

/// The leaves of a row, in the order of its fields.
pub(crate) fn leaves(fields: &[Field]) -> Vec<Leaf> {
    let mut found = Vec::new();
    for field in fields {
        add_leaves(field.name.to_owned(), &field.shape, 0, 0, &mut found);
    }
    found
}

fn add_leaves(path: String, shape: &Shape, definition: i16, repetition: i16, to: &mut Vec<Leaf>) {
    match shape {
        Shape::Leaf(kind) => {
            to.push(Leaf { path, kind: *kind, max_definition: definition, max_repetition: repetition });
        }
        Shape::Optional(inner) => add_leaves(path, inner, definition + 1, repetition, to),
        Shape::List(element) => {
            add_leaves(format!("{path}.list.element"), element, definition + 1, repetition + 1, to);
        }
        Shape::Struct(fields) => {
            for field in fields {
                add_leaves(format!("{path}.{}", field.name), &field.shape, definition, repetition, to);
            }
        }
    }
}

/// The number of leaves below a shape.
pub(crate) fn leaf_count(shape: &Shape) -> usize {
    match shape {
        Shape::Leaf(_) => 1,
        Shape::Optional(inner) | Shape::List(inner) => leaf_count(inner),
        Shape::Struct(fields) => fields.iter().map(|field| leaf_count(&field.shape)).sum(),
    }
}
