//! `isotherm report code`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use isotherm::functions::RecordedFunctions;
use isotherm_record::Event;
use isotherm_report::{
    Code, CodeBuilder, CodeMemory, code_text, flame_graph, folded, json, pprof, refaults_text,
};

use super::output::print;
use super::{each_event, head, select};
use crate::cli;
use crate::cli::UsageError;
use crate::commands::{create, open};
use crate::log::say;

/// The format of the file to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Flames,
    Profile,
    Folded,
}

pub fn run(o: &cli::Code) -> Result<ExitCode> {
    let output = o.output.as_deref().map(|path| Ok::<_, UsageError>((path, form(path)?)));
    let output = output.transpose()?;
    let input = &o.selection.part.input;
    let head = head(input)?;
    let mut functions = RecordedFunctions::new(o.root.clone(), &head.targets);
    let mut builder = CodeBuilder::new(select::options(&o.selection, &head)?, o.by);
    let mut any = false;
    let torn = each_event(open(input)?, |event, _| {
        match event {
            Event::Code { target, code } => {
                any = true;
                builder.code(*target, code);
            }
            Event::Fault(f) => builder.fault(f),
            Event::Snapshot(s) => builder.push(s),
            _ => {}
        }
        Ok(())
    })?;
    if let Some(torn) = torn {
        say(format_args!("isotherm: {torn}"));
    }
    if !any {
        bail!(
            "the record {} has no call stacks: record with --stacks (isotherm record --stacks -- ./app)",
            input.path.display()
        );
    }
    let code = builder.finish(&mut functions)?;
    match output {
        Some((path, form)) => write(path, &input.path, &rendered(&code, form)?),
        None if o.selection.shown.json => print((json(&code)? + "\n").as_bytes()),
        None if o.refaults => print(refaults_text(&code, o.top).as_bytes()),
        None => print(code_text(&code, o.top).as_bytes()),
    }
}

fn rendered(code: &Code, form: Form) -> Result<Vec<u8>> {
    Ok(match form {
        Form::Flames => flame_graph(code).into_bytes(),
        Form::Profile => pprof(code)?,
        Form::Folded => folded(code, |m: &CodeMemory| m.resident).into_bytes(),
    })
}

fn write(path: &Path, input: &Path, bytes: &[u8]) -> Result<ExitCode> {
    let mut file = create(path, input)?;
    let written = file.write_all(bytes).and_then(|()| file.finish());
    written.with_context(|| format!("cannot write {}", path.display()))?;
    say(format_args!("wrote {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

fn form(path: &Path) -> Result<Form, UsageError> {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let forms = [(".svg", Form::Flames), (".pb.gz", Form::Profile), (".folded", Form::Folded)];
    let found = forms.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, form)| form);
    found.ok_or_else(|| {
        UsageError::new(format!(
            "{} does not determine the format: choose a name that ends in .svg (flame graph), .pb.gz (pprof) or \
             .folded (folded stacks)",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_determines_the_format() {
        let form = |name: &str| form(Path::new(name));
        assert!(matches!(form("a/b.svg"), Ok(Form::Flames)));
        assert!(matches!(form("b.pb.gz"), Ok(Form::Profile)));
        assert!(matches!(form("b.FOLDED"), Ok(Form::Folded)));
        assert!(form("b.gz").unwrap_err().to_string().contains(".pb.gz"));
    }
}
