//! Tables for pyarrow, polars, pandas and others, through Arrow's C stream interface: nothing is copied, and none of them
//! is needed to create one.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// An Arrow table with one record batch for each device.
#[pyclass(frozen, module = "makeroom._native")]
#[derive(Debug)]
pub(crate) struct Table {
    schema: SchemaRef,
    pieces: Vec<RecordBatch>,
}

impl Table {
    pub(crate) fn new(schema: SchemaRef, pieces: Vec<RecordBatch>) -> Self {
        Self { schema, pieces }
    }
}

/// Columns that do not match the schema: a bug in this crate.
pub(crate) fn broken(error: &ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl Table {
    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Arrow types of the columns.
    #[getter]
    fn column_types(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.data_type().to_string()).collect()
    }

    /// Size of the columns in memory, in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.pieces.iter().flat_map(RecordBatch::columns).map(Array::get_array_memory_size).sum()
    }

    fn __len__(&self) -> usize {
        self.pieces.iter().map(RecordBatch::num_rows).sum()
    }

    /// The schema, as an Arrow `PyCapsule`.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(|error| broken(&error))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The columns, as an Arrow `PyCapsule`. `requested_schema` is ignored, which Arrow allows: the consumer converts.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let pieces = self.pieces.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(pieces, self.schema.clone());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }
}
