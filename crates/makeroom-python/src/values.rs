//! Arrow arrays as Python values, and back: a pickled table contains its values.

use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowDictionaryKeyType, TimestampMicrosecondType, UInt8Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, StringArray, TimestampMicrosecondArray, UInt32Array,
    UInt64Array,
};
use arrow_schema::DataType;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::table::broken;

/// All values of an array; null is `None`. Times are numbers of microseconds.
pub(crate) fn values<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match array.data_type() {
        DataType::UInt32 => objects(py, array.as_primitive::<UInt32Type>().iter()),
        DataType::UInt64 => objects(py, array.as_primitive::<UInt64Type>().iter()),
        DataType::Boolean => objects(py, array.as_boolean().iter()),
        DataType::Utf8 => objects(py, array.as_string::<i32>().iter()),
        DataType::Timestamp(..) => objects(py, array.as_primitive::<TimestampMicrosecondType>().iter()),
        DataType::Dictionary(keys, _) if **keys == DataType::UInt8 => {
            let array: &DictionaryArray<UInt8Type> = array.as_dictionary();
            Ok(texts(py, array.values(), array.keys().iter().map(|key| key.map(usize::from))))
        }
        DataType::Dictionary(keys, _) if **keys == DataType::UInt32 => {
            let array: &DictionaryArray<UInt32Type> = array.as_dictionary();
            Ok(texts(py, array.values(), array.keys().iter().map(|key| key.map(|key| key as usize))))
        }
        other => Err(unknown(other)),
    }
}

/// An array of Python values: the inverse of [`values`].
pub(crate) fn array(kind: &DataType, values: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    Ok(match kind {
        DataType::UInt32 => Arc::new(UInt32Array::from(values.extract::<Vec<Option<u32>>>()?)),
        DataType::UInt64 => Arc::new(UInt64Array::from(values.extract::<Vec<Option<u64>>>()?)),
        DataType::Boolean => Arc::new(BooleanArray::from(values.extract::<Vec<Option<bool>>>()?)),
        DataType::Utf8 => Arc::new(StringArray::from(values.extract::<Vec<Option<String>>>()?)),
        DataType::Timestamp(_, zone) => {
            let times = TimestampMicrosecondArray::from(values.extract::<Vec<Option<i64>>>()?);
            Arc::new(times.with_timezone_opt(zone.clone()))
        }
        DataType::Dictionary(keys, _) if **keys == DataType::UInt8 => dictionary::<UInt8Type>(values)?,
        DataType::Dictionary(keys, _) if **keys == DataType::UInt32 => dictionary::<UInt32Type>(values)?,
        other => return Err(unknown(other)),
    })
}

fn dictionary<K: ArrowDictionaryKeyType>(values: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let mut builder = StringDictionaryBuilder::<K>::new();
    for text in values.extract::<Vec<Option<String>>>()? {
        match text {
            Some(text) => builder.append(text).map(drop).map_err(|error| broken(&error))?,
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn unknown(kind: &DataType) -> PyErr {
    PyRuntimeError::new_err(format!("no conversion of {kind}"))
}

fn objects<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    items: impl Iterator<Item = Option<T>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    items.map(|item| item.into_bound_py_any(py)).collect()
}

/// Texts from a dictionary: each is converted once.
fn texts<'py>(
    py: Python<'py>,
    dictionary: &ArrayRef,
    keys: impl Iterator<Item = Option<usize>>,
) -> Vec<Bound<'py, PyAny>> {
    let entries = dictionary.as_string::<i32>().iter();
    let entries: Vec<_> = entries.map(|text| PyString::new(py, text.unwrap_or_default())).collect();
    let none = || py.None().into_bound(py);
    let text = |key: Option<usize>| {
        key.and_then(|key| entries.get(key)).map_or_else(none, |text| text.clone().into_any())
    };
    keys.map(text).collect()
}
