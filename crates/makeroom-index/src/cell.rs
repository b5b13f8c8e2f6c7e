//! Typed values of an index file, without Parquet: what a field can be, and how rows become trees of values.
//!
//! A row type lists its fields once (`record!` in `records.rs`). From that list follow the shape of the column, the value
//! that is written, and the row that is read back, so they cannot disagree.

use crate::IndexError;

/// The type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A scalar.
    Leaf(Kind),
    /// A value that may be missing.
    Optional(Box<Self>),
    /// Any number of values.
    List(Box<Self>),
    /// Named fields.
    Struct(Vec<Field>),
}

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A signed 64-bit integer, because Spark reads unsigned ones as decimals. Larger values are written as the largest.
    Number,
    /// Microseconds since the epoch, as a timestamp in UTC.
    Time,
    /// UTF-8.
    Text,
    /// True or false.
    Truth,
}

/// A named column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
}

impl Field {
    pub(crate) fn new<T: Cell>(name: &'static str) -> Self {
        Self { name, shape: T::shape() }
    }

    /// The type of a field, from a function that reads it.
    pub(crate) fn of<R, T: Cell>(name: &'static str, _read: impl Fn(&R) -> &T) -> Self {
        Self::new::<T>(name)
    }
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Number(u64),
    Text(String),
    Truth(bool),
    List(Vec<Self>),
    Struct(Vec<Self>),
}

/// A type that can be written as a column.
pub(crate) trait Cell: Sized {
    /// The type of the column.
    fn shape() -> Shape;
    /// The value to write.
    fn put(&self) -> Value;
    /// The value that was read. An error if the file has another type or no value.
    fn take(value: Value) -> Result<Self, IndexError>;
}

/// The error for a value of the wrong type.
pub(crate) fn mismatch<T>(wanted: &str) -> Result<T, IndexError> {
    Err(IndexError::Value { wanted: wanted.to_owned() })
}

impl Cell for u64 {
    fn shape() -> Shape {
        Shape::Leaf(Kind::Number)
    }

    fn put(&self) -> Value {
        Value::Number(*self)
    }

    fn take(value: Value) -> Result<Self, IndexError> {
        match value {
            Value::Number(number) => Ok(number),
            _ => mismatch("a number"),
        }
    }
}

impl Cell for u32 {
    fn shape() -> Shape {
        Shape::Leaf(Kind::Number)
    }

    fn put(&self) -> Value {
        Value::Number(u64::from(*self))
    }

    fn take(value: Value) -> Result<Self, IndexError> {
        u64::take(value)?.try_into().or_else(|_| mismatch("a number below 2³²"))
    }
}

impl Cell for bool {
    fn shape() -> Shape {
        Shape::Leaf(Kind::Truth)
    }

    fn put(&self) -> Value {
        Value::Truth(*self)
    }

    fn take(value: Value) -> Result<Self, IndexError> {
        match value {
            Value::Truth(truth) => Ok(truth),
            _ => mismatch("true or false"),
        }
    }
}

impl Cell for String {
    fn shape() -> Shape {
        Shape::Leaf(Kind::Text)
    }

    fn put(&self) -> Value {
        Value::Text(self.clone())
    }

    fn take(value: Value) -> Result<Self, IndexError> {
        match value {
            Value::Text(text) => Ok(text),
            _ => mismatch("text"),
        }
    }
}

impl<T: Cell> Cell for Option<T> {
    fn shape() -> Shape {
        Shape::Optional(Box::new(T::shape()))
    }

    fn put(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::put)
    }

    fn take(value: Value) -> Result<Self, IndexError> {
        match value {
            Value::Null => Ok(None),
            value => T::take(value).map(Some),
        }
    }
}

impl<T: Cell> Cell for Vec<T> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }

    fn put(&self) -> Value {
        Value::List(self.iter().map(T::put).collect())
    }

    fn take(value: Value) -> Result<Self, IndexError> {
        match value {
            // A column that an older version did not write.
            Value::Null => Ok(Self::new()),
            Value::List(values) => values.into_iter().map(T::take).collect(),
            _ => mismatch("a list"),
        }
    }
}

/// The fields of a struct, in the order of its shape.
pub(crate) fn fields(value: Value) -> Result<std::vec::IntoIter<Value>, IndexError> {
    match value {
        Value::Struct(values) => Ok(values.into_iter()),
        _ => mismatch("a struct"),
    }
}

/// The next field of a struct.
pub(crate) fn next<T: Cell>(
    values: &mut std::vec::IntoIter<Value>,
    name: &'static str,
) -> Result<T, IndexError> {
    T::take(values.next().unwrap_or(Value::Null)).map_err(|error| error.in_column(name))
}
