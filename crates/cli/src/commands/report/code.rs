//! `isotherm report code`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use isotherm::functions::RecordedFunctions;
use isotherm::reading::{Head, each_shown};
use isotherm_record::Event;
use isotherm_report::{
    Code, CodeBuilder, CodeChange, CodeMemory, change_graph, code_change_text, code_text,
    flame_graph, folded, json, page, pprof, refaults_text,
};

use super::options_with;
use super::output::{show, write};
use crate::cli;
use crate::cli::UsageError;

/// The format of the file to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Flames,
    Page,
    Profile,
    Folded,
}

pub fn run(o: &cli::Code) -> Result<ExitCode> {
    let as_json = o.selection.shown.json;
    let form = |path| if as_json { Ok(Form::Json) } else { form(path) };
    let output = o.output.as_deref().map(|path| Ok::<_, UsageError>((path, form(path)?)));
    let output = output.transpose()?;
    if let (Some(_), Some((path, Form::Profile | Form::Folded))) = (&o.before, output) {
        let path = path.display();
        return Err(UsageError::new(format!(
            "{path} cannot show what has changed: choose a name that ends in .svg or .html, or write both profiles \
             and compare them (go tool pprof -base before.pb.gz after.pb.gz)"
        ))
        .into());
    }
    let code = read(o, &o.selection)?;
    let input = &o.selection.part.input.path;
    let before =
        o.before.as_ref().map(|before| read(o, &since(&o.selection, before))).transpose()?;
    if let Some(before) = before {
        let change = CodeChange::between(before, code);
        return match output {
            Some((path, form)) => write(path, input, &changed(&change, form, o.top)?),
            None => show(as_json, &change, || code_change_text(&change, o.top)),
        };
    }
    match output {
        Some((path, form)) => write(path, input, &rendered(&code, form, o.top)?),
        None => show(as_json, &code, || match o.refaults {
            true => refaults_text(&code, o.top),
            false => code_text(&code, o.top),
        }),
    }
}

/// The same part of another record.
fn since(selection: &cli::Selection, before: &Path) -> cli::Selection {
    let mut selection = selection.clone();
    selection.part.input.path = before.to_owned();
    selection
}

fn read(o: &cli::Code, selection: &cli::Selection) -> Result<Code> {
    let input = &selection.part.input.input();
    let head = Head::read(input)?;
    let mut functions = RecordedFunctions::new(o.root.clone(), &head.targets);
    let builder = CodeBuilder::new(options_with(selection, &head)?, o.by);
    let mut builder = builder.by_first_touch(o.first_touch);
    let mut any = false;
    each_shown(input, true, |event| {
        match event {
            Event::Code { target, code } => {
                any = true;
                builder.code(*target, code);
            }
            Event::Fault(f) => builder.fault(f),
            Event::Attribution(a) => builder.attribution(a),
            Event::Snapshot(s) => builder.push(s),
            _ => {}
        }
        anyhow::Ok(())
    })?;
    if !any {
        bail!(
            "the record {} has no call stacks: record with --stacks or --alloc (isotherm record --stacks -- ./app)",
            input.path.display()
        );
    }
    Ok(builder.finish(&mut functions)?)
}

fn rendered(code: &Code, form: Form, top: usize) -> Result<Vec<u8>> {
    Ok(match form {
        Form::Json => (json(code)? + "\n").into_bytes(),
        Form::Flames => flame_graph(code).into_bytes(),
        Form::Page => page(&code.title, &flame_graph(code), &code_text(code, top)).into_bytes(),
        Form::Profile => pprof(code)?,
        Form::Folded => folded(code, |m: &CodeMemory| m.of_any_heat).into_bytes(),
    })
}

fn changed(change: &CodeChange, form: Form, top: usize) -> Result<Vec<u8>> {
    let graph = || change_graph(change);
    Ok(match form {
        Form::Json => json(change)? + "\n",
        Form::Page => page(&change.after.title, &graph(), &code_change_text(change, top)),
        _ => graph(),
    }
    .into_bytes())
}

fn form(path: &Path) -> Result<Form, UsageError> {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let forms = [
        (".svg", Form::Flames),
        (".html", Form::Page),
        (".pb.gz", Form::Profile),
        (".folded", Form::Folded),
    ];
    let found = forms.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, form)| form);
    found.ok_or_else(|| {
        UsageError::new(format!(
            "{} does not determine the format: choose a name that ends in .svg (flame graph), .html (web page), \
             .pb.gz (pprof) or .folded (folded stacks)",
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
        assert!(matches!(form("a/b.html"), Ok(Form::Page)));
        assert!(matches!(form("b.pb.gz"), Ok(Form::Profile)));
        assert!(matches!(form("b.FOLDED"), Ok(Form::Folded)));
        assert!(form("b.gz").unwrap_err().to_string().contains(".pb.gz"));
    }
}
