use std::io::Write;

use atrest::get::Got;
use atrest::object::{Map, Value};
use atrest::report::ValueRow;
use serde::Serialize;
use zeroize::Zeroizing;

use super::sheet::printable;
use super::{Form, Sheet};
use crate::args::ObjectForm;
use crate::failure::Failure;

/// Prints objects one by one: an object alone, or a `List` of them, as kubectl does.
pub(crate) struct Objects<'a> {
    out: &'a mut (dyn Write + Send),
    form: ObjectForm,
    /// Whether one object is a list of one.
    always_list: bool,
    /// The first one, until it is known whether there are more.
    first: Option<Got>,
    /// Whether the beginning of a list is printed.
    begun: bool,
    rows: Vec<Vec<String>>,
    /// All objects, for a template that is about the list of them.
    all: Vec<Got>,
}

/// A line of `-o ndjson`.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    row: &'a ValueRow,
    object: &'a Value,
}

impl<'a> Objects<'a> {
    pub(crate) fn new(out: &'a mut (dyn Write + Send), form: ObjectForm, always_list: bool) -> Self {
        Self { out, form, always_list, first: None, begun: false, rows: Vec::new(), all: Vec::new() }
    }

    pub(crate) fn print(&mut self, got: Got) -> Result<(), Failure> {
        match self.form {
            ObjectForm::Ndjson => Ok(self.out.write_all(object_line(&got)?.as_bytes())?),
            ObjectForm::Name => {
                let group = got.object.api_version().split_once('/').map(|(group, _)| format!(".{group}"));
                let (kind, name) = (got.object.kind().to_lowercase(), got.object.name().unwrap_or_default());
                let line = format!("{kind}{}/{name}", group.unwrap_or_default());
                writeln!(self.out, "{}", printable(&line))?;
                Ok(())
            }
            ObjectForm::Table => {
                let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
                self.rows.push(vec![
                    text(got.row.resource.as_deref()),
                    text(got.object.namespace()),
                    text(got.object.name()),
                    text(got.object.value.at(&["metadata", "creationTimestamp"]).and_then(Value::as_str)),
                    got.row.mod_revision.to_string(),
                    got.row.label(),
                ]);
                Ok(())
            }
            ObjectForm::JsonPath(_) => {
                self.all.push(got);
                Ok(())
            }
            ObjectForm::Yaml | ObjectForm::Json => {
                if !self.begun && self.first.is_none() && !self.always_list {
                    self.first = Some(got);
                    return Ok(());
                }
                if let Some(first) = self.first.take() {
                    self.item(&first)?;
                }
                self.item(&got)
            }
        }
    }

    fn item(&mut self, got: &Got) -> Result<(), Failure> {
        let is_first = !std::mem::replace(&mut self.begun, true);
        let text = self.text(&got.object.value)?;
        let (begin, dash, indent) = match (&self.form, is_first) {
            (ObjectForm::Yaml, true) => ("apiVersion: v1\nitems:\n", "- ", "  "),
            (ObjectForm::Yaml, false) => ("", "- ", "  "),
            (_, true) => ("{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n", "        ", "        "),
            (_, false) => (",\n", "        ", "        "),
        };
        self.out.write_all(begin.as_bytes())?;
        for (number, line) in text.lines().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            write!(
                self.out,
                "{end}{}",
                if number == 0 {
                    dash
                } else if line.is_empty() {
                    ""
                } else {
                    indent
                }
            )?;
            self.out.write_all(line.as_bytes())?;
        }
        if self.form == ObjectForm::Yaml {
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn text(&self, value: &Value) -> Result<Zeroizing<String>, Failure> {
        Ok(object_text(value, self.form == ObjectForm::Yaml)?)
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        match self.form {
            ObjectForm::Ndjson | ObjectForm::Name => {}
            ObjectForm::JsonPath(template) => {
                let mut objects: Vec<_> = self.all.drain(..).map(|got| got.object.value).collect();
                let root = match objects.pop() {
                    Some(only) if objects.is_empty() && !self.always_list => only,
                    last => {
                        objects.extend(last);
                        let mut list = Map::default();
                        list.insert("apiVersion", Value::from("v1"));
                        list.insert("items", Value::Array(objects));
                        list.insert("kind", Value::from("List"));
                        Value::Object(list)
                    }
                };
                template.render(&root, &mut self.out)?;
            }
            ObjectForm::Table => {
                let columns = vec!["RESOURCE", "NAMESPACE", "NAME", "CREATED", "REVISION", "KEY"];
                let sheet = Sheet { title: "", columns, rows: std::mem::take(&mut self.rows), form: Form::Table };
                sheet.write_table(self.out)?;
            }
            ObjectForm::Yaml | ObjectForm::Json => match (self.first.take(), self.begun) {
                (Some(only), _) => {
                    let text = self.text(&only.object.value)?;
                    self.out.write_all(text.as_bytes())?;
                }
                (None, begun) => {
                    let end = match (&self.form, begun) {
                        (ObjectForm::Yaml, true) => "kind: List\nmetadata:\n  resourceVersion: \"\"\n",
                        (ObjectForm::Yaml, false) => {
                            "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n"
                        }
                        (_, true) => {
                            "\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n"
                        }
                        (_, false) => {
                            "{\n    \"apiVersion\": \"v1\",\n    \"items\": [],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \
                             \"resourceVersion\": \"\"\n    }\n}\n"
                        }
                    };
                    self.out.write_all(end.as_bytes())?;
                }
            },
        }
        self.out.flush()?;
        Ok(())
    }
}

/// An object and where it was, as a line of JSON. It is wiped afterwards.
pub(crate) fn object_line(got: &Got) -> std::io::Result<Zeroizing<String>> {
    let line = serde_json::to_string(&Line { row: &got.row, object: &got.object.value })?;
    let mut line = Zeroizing::new(line);
    line.push('\n');
    Ok(line)
}

/// An object as kubectl prints it, with a line feed at the end. It is wiped afterwards: it may hold the data of a Secret.
pub(crate) fn object_text(value: &Value, yaml: bool) -> std::io::Result<Zeroizing<String>> {
    if yaml {
        let text = serde_saphyr::to_string(value).map_err(|error| std::io::Error::other(error.to_string()))?;
        let mut text = Zeroizing::new(text);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        return Ok(text);
    }
    let mut bytes = Zeroizing::new(Vec::new());
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut *bytes, formatter);
    value.serialize(&mut serializer)?;
    bytes.push(b'\n');
    let text = std::str::from_utf8(&bytes).map_err(std::io::Error::other)?;
    Ok(Zeroizing::new(text.to_owned()))
}
