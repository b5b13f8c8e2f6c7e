//! Data frames, arrays and search: RAPIDS, Dask, Spark, FAISS, CuPy, Numba.

use super::Program;

pub(super) const PROGRAMS: &[&Program] = &[];
