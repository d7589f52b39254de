//! `isotherm run`: acts on memory according to schemes, by how it is accessed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::Result;
use isotherm::schemes;
use isotherm::service::{self, SchemeTable, ServiceConfig, ServiceError};
use isotherm::text_file::text_of;
use isotherm::watch::AttrsFor;
use isotherm::words::is_closed_pipe;
use isotherm_core::Attrs;
use isotherm_core::scheme::Scheme;

use super::line::StatusLine;
use super::report::output::print;
use crate::cli::{RunSchemes, UsageError};

/// The schemes of files, and those of the command line.
struct RunConfig {
    options: RunSchemes,
    acting: service::Acting,
    /// the contents of each file
    texts: Vec<String>,
}

impl ServiceConfig for RunConfig {
    fn acting(&self) -> &service::Acting {
        &self.acting
    }

    fn attrs(&self) -> &dyn AttrsFor {
        &self.options.acting.watching
    }

    fn check(&self) -> Result<Attrs, UsageError> {
        self.options.acting.check()
    }

    fn schemes(&self, attrs: &Attrs) -> Result<Vec<Scheme>, UsageError> {
        let (interval, mut all) = (attrs.snapshot_interval(), Vec::new());
        for (path, text) in self.options.scheme.iter().zip(&self.texts) {
            schemes::load(path, text, interval, &mut all)?;
        }
        for (n, line) in (1..).zip(&self.options.scheme_line) {
            schemes::load_line(n, line, interval, &mut all)?;
        }
        Ok(all)
    }

    fn socket(&self) -> Option<PathBuf> {
        self.options.control.clone()
    }

    fn reread(&self) -> Result<Rc<dyn ServiceConfig>, ServiceError> {
        let text =
            "isotherm run does not re-read files: isotherm service commit replaces its schemes";
        Err(UsageError::new(text).into())
    }
}

/// Acts according to the schemes of files and of the command line.
pub fn run(options: RunSchemes) -> Result<ExitCode> {
    let text =
        |path: &PathBuf| text_of(path, || format!("cannot read the schemes {}", path.display()));
    let texts = options.scheme.iter().map(text).collect::<Result<_, _>>()?;
    let acting = options.acting.acting(false)?;
    let json = options.acting.json;
    act(&(Rc::new(RunConfig { options, acting, texts }) as Rc<dyn ServiceConfig>), json)
}

/// Acts according to `config` until a reason to end, and prints the statistics.
pub fn act(config: &Rc<dyn ServiceConfig>, json: bool) -> Result<ExitCode> {
    let acted = service::act(config, Box::new(StatusLine::new()), |table| show(table, json))?;
    acted.finished?;
    Ok(match acted.failed {
        None => acted.status.map_or(ExitCode::SUCCESS, ExitCode::from),
        Some(e) if is_closed_pipe(&e) => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}

fn show(table: &SchemeTable, json: bool) -> Result<()> {
    let text = if json { serde_json::to_string(table)? + "\n" } else { table.text() };
    print(text.as_bytes()).map(drop)
}
