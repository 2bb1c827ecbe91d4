use std::io::{BufReader, Read as _, Write as _};

use atrest::object::{self, Object};
use serde::Serialize;
use zeroize::Zeroizing;

use super::crypt::{Fields, Finding, data_of, next_line, refuse};
use super::get::shown;
use super::stdout;
use crate::args::{DecodeArgs, ShownArgs};
use crate::failure::{FINDINGS, Failure};
use crate::render;

/// The answer to a line.
#[derive(Serialize)]
struct Reply<'l> {
    #[serde(flatten)]
    fields: Fields<'l>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<object::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Finding>,
}

pub(super) fn run(args: &DecodeArgs) -> Result<u8, Failure> {
    if args.jsonl {
        return lines(args);
    }
    let mut data = Zeroizing::new(Vec::new());
    std::io::stdin().lock().read_to_end(&mut data)?;
    let object = decode(&data, &args.shown).map_err(|Finding { class, message }| Failure::Value { class, message })?;
    let mut out = stdout();
    out.write_all(render::object_text(&object.value, args.output == "yaml")?.as_bytes())?;
    out.flush()?;
    Ok(0)
}

fn decode(plaintext: &[u8], args: &ShownArgs) -> Result<Object, Finding> {
    // etcdctl prints a line feed behind the value.
    let trimmed = plaintext.strip_suffix(b"\n").filter(|_| object::decode(plaintext).is_err());
    match object::decode(trimmed.unwrap_or(plaintext)) {
        Ok(mut object) => {
            shown(args).apply_to_plaintext(&mut object);
            Ok(object)
        }
        Err(error) => {
            let class = match &error {
                object::Error::Nested => "nested",
                object::Error::UnknownFormat { .. } => "unknown-format",
                _ => "malformed",
            };
            let message = match error {
                object::Error::Nested => "the value is encrypted: `atrest decrypt` opens it".to_owned(),
                error => error.to_string(),
            };
            Err(Finding { class, message })
        }
    }
}

fn lines(args: &DecodeArgs) -> Result<u8, Failure> {
    let mut out = stdout();
    let mut failed = false;
    let mut input = BufReader::new(std::io::stdin().lock());
    while let Some(line) = next_line(&mut input)? {
        let (answer, ok) = match line {
            Ok(line) if line.trim_ascii().is_empty() => continue,
            Ok(line) => answer(&line, args),
            Err(too_long) => (refuse(&too_long.to_string()), false),
        };
        failed |= !ok;
        out.write_all(&answer)?;
        out.write_all(b"\n")?;
        // Who feeds line by line waits for the answer.
        if !input.buffer().contains(&b'\n') {
            out.flush()?;
        }
    }
    out.flush()?;
    Ok(if failed { FINDINGS } else { 0 })
}

fn answer(line: &[u8], args: &DecodeArgs) -> (Zeroizing<Vec<u8>>, bool) {
    let mut fields = match serde_json::from_slice::<Fields<'_>>(line.trim_ascii_end()) {
        Ok(fields) => fields,
        Err(error) => return (refuse(&format!("not a JSON object (at column {})", error.column())), false),
    };
    for answered in ["object", "error"] {
        fields.remove(answered);
    }
    let malformed = || Finding { class: "malformed", message: "the field data must be a string in base64".to_owned() };
    let decoded = data_of(&mut fields).ok_or_else(malformed).and_then(|data| decode(&data, &args.shown));
    let (object, error) = match decoded {
        Ok(object) => (Some(object.value), None),
        Err(finding) => (None, Some(finding)),
    };
    let reply = Reply { fields, object, error };
    let mut answer = Zeroizing::new(Vec::with_capacity(2 * line.len() + 4096));
    match serde_json::to_writer(&mut *answer, &reply) {
        Ok(()) => (answer, reply.error.is_none()),
        Err(_) => (refuse("the answer cannot be written as JSON"), false),
    }
}
