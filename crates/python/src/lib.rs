//! The native part of the Python package `isotherm`: records as Arrow tables.
//!
//! A table exports a stream through the Arrow PyCapsule interface. The stream reads the record batch by batch, so that
//! a record may be larger than memory. Its consumer receives the columns without a copy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatchIterator, RecordBatchReader};
use arrow_schema::ArrowError;
use arrow_schema::ffi::FFI_ArrowSchema;
use isotherm_core::Thresholds;
use isotherm_record::{Event, ExportError, ReadError, Reader};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

create_exception!(isotherm, RecordError, PyValueError, "A file is no record, or is damaged.");

/// The native part of the Python package.
#[pymodule]
fn _isotherm(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RecordError", module.py().get_type::<RecordError>())?;
    module.add_class::<Table>()?;
    module.add_function(wrap_pyfunction!(facts, module)?)
}

/// A table of a record, which is read each time that a stream of it is read.
#[pyclass(frozen, module = "isotherm")]
struct Table {
    path: PathBuf,
    table: isotherm_record::Table,
    thresholds: Thresholds,
    skip_damaged: bool,
    /// The temporary folder of the record, if it has one: Python removes it with its last owner.
    _folder: Option<Py<PyAny>>,
}

impl Table {
    fn read(&self, py: Python<'_>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
        py.detach(|| {
            let reader = open(&self.path, self.skip_damaged)?;
            let rows = self.table.read(reader, &self.thresholds)?;
            let schema = rows.schema();
            // Its consumer has an error class of its own for what is found while it reads.
            let rows = rows.map(|batch| {
                batch.map_err(|e| ArrowError::ExternalError(in_python(&e.to_string()).into()))
            });
            Ok::<_, ExportError>(Box::new(RecordBatchIterator::new(rows, schema)) as _)
        })
        .map_err(raise)
    }
}

#[pymethods]
impl Table {
    #[new]
    fn new(
        path: PathBuf,
        name: &str,
        hot_hz: f64,
        cold_s: f64,
        skip_damaged: bool,
        folder: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let table = match name {
            "regions" => isotherm_record::Table::Regions,
            "snapshots" => isotherm_record::Table::Snapshots,
            "targets" => isotherm_record::Table::Targets,
            _ => return Err(PyValueError::new_err(format!("there is no table {name:?}"))),
        };
        let cold_age = Duration::try_from_secs_f64(cold_s)
            .map_err(|e| PyValueError::new_err(format!("cold_s is {cold_s}: {e}")))?;
        if !(hot_hz > 0.0 && hot_hz.is_finite()) {
            let text = format!("hot_hz is {hot_hz}: a rate must be above 0");
            return Err(PyValueError::new_err(text));
        }
        let thresholds = Thresholds { hot_hz, cold_age };
        Ok(Table { path, table, thresholds, skip_damaged, _folder: folder })
    }

    /// The rows, as an `ArrowArrayStream`.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface permits to give another schema than the requested one.
        let _ = requested_schema;
        let stream = FFI_ArrowArrayStream::new(self.read(py)?);
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The columns, as an `ArrowSchema`.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.read(py)?.schema());
        let schema = schema.map_err(|e| PyValueError::new_err(e.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let schema = self.read(py)?.schema();
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let file = self.path.file_name().unwrap_or_default().display();
        Ok(format!("<table of {file}: {}>", names.join(", ")))
    }
}

/// The facts of a record, and the reason if it has no end. It skips snapshots.
#[pyfunction]
fn facts(
    py: Python<'_>,
    path: PathBuf,
    skip_damaged: bool,
) -> PyResult<(Bound<'_, PyDict>, Option<String>)> {
    let (facts, torn) = py
        .detach(|| {
            let (mut facts, mut torn) = (None, None);
            for event in open(&path, skip_damaged)?.without_snapshots() {
                match event {
                    Ok(Event::Header(found)) => facts = facts.or(Some(found)),
                    Ok(_) => {}
                    Err(e @ ReadError::Torn { .. }) => torn = Some(e.to_string()),
                    Err(e) => return Err(ExportError::from(e)),
                }
            }
            Ok((facts, torn))
        })
        .map_err(raise)?;
    let dict = PyDict::new(py);
    if let Some(facts) = facts {
        dict.set_item("version", facts.isotherm_version)?;
        dict.set_item("host", facts.host)?;
        dict.set_item("kernel", facts.kernel)?;
        dict.set_item("command", facts.command)?;
        dict.set_item("look", facts.look)?;
        dict.set_item("note", facts.note)?;
        dict.set_item("missing", facts.missing.names().collect::<Vec<_>>())?;
        dict.set_item("started_unix_ms", facts.started_unix_ms)?;
    }
    Ok((dict, torn))
}

fn open(path: &Path, skip_damaged: bool) -> Result<Reader, ExportError> {
    let reader = Reader::open(path)?;
    Ok(if skip_damaged { reader.skip_damaged() } else { reader })
}

/// An error of the system becomes `OSError` or `FileNotFoundError`, another one `RecordError`.
fn raise(e: ExportError) -> PyErr {
    match e {
        ExportError::Read(ReadError::Io { path, source }) => match source.raw_os_error() {
            // Python adds the number, and turns it into a subclass such as `FileNotFoundError`.
            Some(number) => {
                let text = source.to_string();
                let text = text.split(" (os error").next().unwrap_or_default().to_owned();
                PyOSError::new_err((number, text, path.display().to_string()))
            }
            None => source.into(),
        },
        e => RecordError::new_err(in_python(&e.to_string())),
    }
}

/// A message with the option's name in Python.
fn in_python(message: &str) -> String {
    message.replace("--skip-damaged", "skip_damaged=True")
}
