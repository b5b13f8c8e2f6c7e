//! Arrow arrays as Python values.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{TimestampMicrosecondType, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, DictionaryArray};
use arrow_schema::DataType;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

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
        other => Err(PyRuntimeError::new_err(format!("no conversion of {other}"))),
    }
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
