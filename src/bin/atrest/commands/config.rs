use atrest::config::{Diagnostic, Options, load};
use serde::{Serialize, Serializer};

use super::{read_file, stdout, warn_of_mode};
use crate::args::ConfigCheckArgs;
use crate::failure::{Failure, USAGE};
use crate::render::{self, Form, Printable, Sheet};

#[derive(Serialize)]
struct CheckReport {
    ok: bool,
    resources: Vec<String>,
    #[serde(serialize_with = "findings")]
    errors: Vec<Diagnostic>,
    #[serde(serialize_with = "findings")]
    warnings: Vec<Diagnostic>,
}

/// The part of a diagnostic that is promised to whoever reads the report.
#[derive(Serialize)]
struct Finding<'d> {
    path: &'d str,
    line: u32,
    column: u32,
    message: &'d str,
}

fn findings<S: Serializer>(diagnostics: &[Diagnostic], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(diagnostics.iter().map(|diagnostic| Finding {
        path: &diagnostic.path,
        line: diagnostic.line,
        column: diagnostic.column,
        message: &diagnostic.message,
    }))
}

impl Printable for CheckReport {
    fn sheets(&self, _: bool) -> Vec<Sheet> {
        let rows = |diagnostics: &[Diagnostic]| {
            let row = |diagnostic: &Diagnostic| {
                let hint = diagnostic.hint.as_ref().map(|hint| format!("\n{hint}")).unwrap_or_default();
                vec![
                    format!("{}:{}", diagnostic.line, diagnostic.column),
                    if diagnostic.path.is_empty() { "-".to_owned() } else { diagnostic.path.clone() },
                    format!("{}{hint}", diagnostic.message),
                ]
            };
            diagnostics.iter().map(row).collect::<Vec<_>>()
        };
        let columns = vec!["PLACE", "FIELD", "MESSAGE"];
        vec![
            Sheet { title: "Errors:", columns: columns.clone(), rows: rows(&self.errors), form: Form::Blocks },
            Sheet { title: "Warnings:", columns, rows: rows(&self.warnings), form: Form::Blocks },
        ]
    }

    fn summary(&self) -> Vec<String> {
        if self.ok {
            vec![format!("ok: kube-apiserver accepts the file; it covers {}", self.resources.join(", "))]
        } else {
            vec!["kube-apiserver does not accept the file".to_owned()]
        }
    }

    fn names(&self) -> Vec<String> {
        self.resources.clone()
    }
}

pub(super) fn check(args: &ConfigCheckArgs, quiet: bool) -> Result<u8, Failure> {
    let text = read_file(&args.file)?;
    warn_of_mode(&args.file, quiet);
    let report = match load(&text, &Options { automatic_reload: args.automatic_reload }) {
        Ok(loaded) => CheckReport {
            ok: true,
            resources: loaded.config.covered().iter().map(ToString::to_string).collect(),
            errors: Vec::new(),
            warnings: loaded.warnings,
        },
        Err(invalid) => {
            CheckReport { ok: false, resources: Vec::new(), errors: invalid.errors, warnings: invalid.warnings }
        }
    };
    render::print(&report, args.output.output, &mut stdout())?;
    Ok(if report.ok { 0 } else { USAGE })
}
