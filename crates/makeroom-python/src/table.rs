//! Tables for pyarrow, polars, pandas and others, through Arrow's C stream interface: nothing is copied, and none of them
//! is needed to create one. Single rows and columns can be read as Python values, for which no other package is needed
//! either (`values.rs`).

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array as _, RecordBatch, RecordBatchIterator, RecordBatchOptions};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::values::{array, values};

/// An Arrow table with one record batch for each device.
#[pyclass(frozen, module = "makeroom._impl._native")]
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

/// A column of a pickled table: name, Arrow type, whether it can be null, and its values.
type Column<'py> = (String, String, bool, Bound<'py, PyAny>);

#[pymethods]
impl Table {
    /// A table of these columns, which `columns` returned.
    #[staticmethod]
    fn from_columns(rows: usize, columns: Vec<Column<'_>>) -> PyResult<Self> {
        let mut fields = Vec::with_capacity(columns.len());
        let mut arrays = Vec::with_capacity(columns.len());
        for (name, kind, is_nullable, values) in columns {
            let kind: DataType = kind.parse().map_err(|error| broken(&error))?;
            arrays.push(array(&kind, &values)?);
            fields.push(Field::new(name, kind, is_nullable));
        }
        let schema = SchemaRef::new(Schema::new(fields));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let piece = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)
            .map_err(|error| broken(&error))?;
        Ok(Self { schema, pieces: vec![piece] })
    }

    /// All columns, as `from_columns` takes them.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Vec<Column<'py>>> {
        let fields = self.schema.fields().iter();
        fields
            .map(|field| {
                let values = self.values(py, field.name())?.into_pyobject(py)?;
                let kind = field.data_type().to_string();
                Ok((field.name().clone(), kind, field.is_nullable(), values.into_any()))
            })
            .collect()
    }

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
        let columns = self.pieces.iter().flat_map(RecordBatch::columns);
        // Of the rows of this table: a part of another one shares its buffers.
        columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum()
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
