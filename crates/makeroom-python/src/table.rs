//! Tables for pyarrow, polars, pandas and others, through Arrow's C stream interface: nothing is copied, and none of them
//! is needed to create one. Single rows and columns can be read as Python values, for which no other package is needed
//! either (`values.rs`).

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::values::values;

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

    /// The position of a column.
    fn column(&self, name: &str) -> PyResult<usize> {
        self.schema.index_of(name).map_err(|_| PyKeyError::new_err(name.to_owned()))
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

    /// Rows `start..stop`, without copying them.
    fn slice(&self, start: usize, stop: usize) -> Self {
        let mut pieces = Vec::new();
        let mut first = 0;
        for piece in &self.pieces {
            let last = first + piece.num_rows();
            let (from, to) = (start.clamp(first, last), stop.clamp(first, last));
            if from < to {
                pieces.push(piece.slice(from - first, to - from));
            }
            first = last;
        }
        Self { schema: self.schema.clone(), pieces }
    }

    /// Some of the columns, without copying them.
    fn select(&self, names: Vec<String>) -> PyResult<Self> {
        let columns: Vec<usize> = names.iter().map(|name| self.column(name)).collect::<PyResult<_>>()?;
        let schema = self.schema.project(&columns).map_err(|error| broken(&error))?;
        let pieces = self.pieces.iter().map(|piece| piece.project(&columns)).collect::<Result<_, _>>();
        Ok(Self { schema: schema.into(), pieces: pieces.map_err(|error| broken(&error))? })
    }

    /// A column as Python values. Times are numbers of microseconds.
    fn values<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let column = self.column(name)?;
        let mut all = Vec::with_capacity(self.__len__());
        for piece in &self.pieces {
            all.extend(values(py, piece.column(column))?);
        }
        Ok(all)
    }

    /// Rows `start..stop` as tuples of Python values.
    fn rows<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let mut rows = Vec::new();
        for piece in self.slice(start, stop).pieces {
            let columns = piece.columns().iter().map(|column| values(py, column));
            let columns: Vec<Vec<_>> = columns.collect::<PyResult<_>>()?;
            for row in 0..piece.num_rows() {
                rows.push(PyTuple::new(
                    py,
                    columns.iter().filter_map(|column| column.get(row)).collect::<Vec<_>>(),
                )?);
            }
        }
        Ok(rows)
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
