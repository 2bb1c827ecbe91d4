use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::Path;

use atrest::resource::{GroupResource, KeyLayout, Location};
use atrest::source::StoredValue;
use atrest::transformer::envelope::{DekFailure, DekResolver as _, Wanted};
use atrest::transformer::{DataContext, ENCRYPTED_PREFIX, ProviderKind, ResourceTransformer};
use atrest::verify::Judge;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

use super::source::value_of;
use super::{Keys, stdout, warn};
use crate::args::{CryptArgs, DecryptArgs};
use crate::failure::{FINDINGS, Failure};

/// Which way values go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Decrypt,
    Encrypt,
}

/// How ciphertext begins in base64.
const BASE64_OF_PREFIX: &[u8] = b"azhzOmVuYzp";

/// The longest line that is taken: etcd's largest value in base64 is far below.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

pub(super) fn encrypt(args: &CryptArgs, quiet: bool) -> Result<u8, Failure> {
    run(args, Direction::Encrypt, None, quiet)
}

/// Opens what comes from standard input, or the value of a key in a file.
pub(super) fn decrypt(args: &DecryptArgs, quiet: bool) -> Result<u8, Failure> {
    let file = &args.file;
    if file.snapshot.is_none() && file.data_dir.is_none() && file.kine.is_none() {
        return run(&args.crypt, Direction::Decrypt, None, quiet);
    }
    let Some(key) = args.crypt.key.as_deref().filter(|_| !args.crypt.jsonl) else {
        return Err(Failure::Usage(
            "name the key whose value is to be opened with --key; `atrest get -o ndjson` opens all".to_owned(),
        ));
    };
    let runtime = Runtime::new().map_err(Failure::Output)?;
    let (value, of_file) = runtime.block_on(value_of(file, key.as_bytes(), quiet))?;
    let code = run(&args.crypt, Direction::Decrypt, Some(value), quiet)?;
    Ok(code.max(of_file))
}

fn run(args: &CryptArgs, direction: Direction, value: Option<StoredValue>, quiet: bool) -> Result<u8, Failure> {
    let files = &args.config.encryption_provider_config;
    if files.iter().any(|file| file == Path::new("-")) {
        return Err(Failure::Usage(
            "standard input holds the values: name a file with --encryption-provider-config".to_owned(),
        ));
    }
    let keys = Keys::new(&args.config, quiet)?;
    // Only a KMS takes I/O.
    let runtime = match keys.transformers.kms_providers().is_empty() {
        true => None,
        false => Some(Runtime::new().map_err(Failure::Output)?),
    };
    let layout = KeyLayout::default();
    let crypt = Crypt { keys: &keys, runtime, layout, direction, lines: args.jsonl, quiet };
    let Some(key) = args.key.as_deref().filter(|_| !args.jsonl) else { return crypt.lines() };
    let resource = match &args.resource {
        Some(resource) => GroupResource::resolve(resource),
        None => {
            let location = crypt.layout.locate(key.as_bytes());
            let resource = location.resource().map(|resource| resource.to_group_resource());
            resource.ok_or_else(|| {
                Failure::Usage(format!("--key {key:?} does not tell the resource: name it with --resource"))
            })?
        }
    };
    let data = match value {
        Some(value) => Zeroizing::new(value.value),
        None => {
            let mut data = Zeroizing::new(Vec::new());
            std::io::stdin().lock().read_to_end(&mut data)?;
            data
        }
    };
    crypt.one(&resource, key.as_bytes(), &data)
}

struct Crypt<'a> {
    keys: &'a Keys,
    runtime: Option<Runtime>,
    layout: KeyLayout,
    direction: Direction,
    /// Whether values come as lines, for which a KMS is asked together.
    lines: bool,
    quiet: bool,
}

/// A value that was opened or sealed.
struct Done {
    bytes: Zeroizing<Vec<u8>>,
    stale: bool,
    /// What is wrong with a value that opened all the same.
    warning: Option<Finding>,
}

/// What is wrong, as the class of `verify` and a message.
#[derive(Serialize)]
pub(super) struct Finding {
    pub(super) class: &'static str,
    pub(super) message: String,
}

/// A line that is not kept.
pub(super) struct TooLong;

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the line is longer than {MAX_LINE_BYTES} bytes")
    }
}

/// The fields of a line, as they are written: numbers keep their digits.
pub(super) type Fields<'l> = BTreeMap<String, &'l RawValue>;

/// The answer to a line.
#[derive(Serialize)]
struct Reply<'l> {
    #[serde(flatten)]
    fields: Fields<'l>,
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<&'l str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Finding>,
}

/// The text of a field, where it is one.
fn text_of(fields: &Fields<'_>, name: &str) -> Option<String> {
    serde_json::from_str(fields.get(name)?.get()).ok()
}

/// Takes the bytes out that are in base64.
pub(super) fn data_of(fields: &mut Fields<'_>) -> Option<Zeroizing<Vec<u8>>> {
    let data = text_of(fields, "data").map(Zeroizing::new);
    fields.remove("data");
    STANDARD.decode(data?.as_bytes()).ok().map(Zeroizing::new)
}

/// The answer to a line that is none.
pub(super) fn refuse(message: &str) -> Zeroizing<Vec<u8>> {
    let answer = json!({ "error": { "class": "malformed", "message": message } });
    Zeroizing::new(answer.to_string().into_bytes())
}

/// The next line, or nothing behind the last.
pub(super) fn next_line(input: &mut impl BufRead) -> std::io::Result<Option<Result<Zeroizing<Vec<u8>>, TooLong>>> {
    let mut line = Zeroizing::new(Vec::new());
    let read = input.take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.ends_with(b"\n") || read < MAX_LINE_BYTES {
        return Ok(Some(Ok(line)));
    }
    // What follows is of the same line, and no line of its own.
    skip_line(input)?;
    Ok(Some(Err(TooLong)))
}

/// Reads up to the end of the line, and keeps nothing of it.
fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (used, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        if ended {
            return Ok(());
        }
    }
}

impl Crypt<'_> {
    fn one(&self, resource: &GroupResource, key: &[u8], data: &[u8]) -> Result<u8, Failure> {
        let value = self.stored_bytes(resource, key, data)?;
        let done =
            self.value(resource, key, value).map_err(|Finding { class, message }| Failure::Value { class, message })?;
        let mut out = stdout();
        out.write_all(&done.bytes)?;
        out.flush()?;
        if let Some(Finding { class, message }) = done.warning {
            warn(self.quiet, format_args!("{class}: {message}"));
        }
        Ok(0)
    }

    /// Answers each line with a line, in order. Lines that have come together are worked on together.
    fn lines(&self) -> Result<u8, Failure> {
        let mut input = BufReader::with_capacity(1024 * 1024, std::io::stdin().lock());
        let mut out = stdout();
        let mut failed = false;
        let mut lines = Vec::new();
        loop {
            let line = next_line(&mut input)?;
            let is_last = line.is_none();
            lines.extend(line.filter(|line| !line.as_ref().is_ok_and(|line| line.trim_ascii().is_empty())));
            // More than one read is in the buffer: go on collecting as long as nothing has to be waited for.
            if !is_last && input.buffer().contains(&b'\n') {
                continue;
            }
            self.resolve_lines(&lines);
            let answers: Vec<_> = lines
                .par_iter()
                .map(|line| match line {
                    Ok(line) => self.line(line),
                    Err(too_long) => (refuse(&too_long.to_string()), false),
                })
                .collect();
            for (answer, ok) in answers {
                failed |= !ok;
                out.write_all(&answer)?;
                out.write_all(b"\n")?;
            }
            out.flush()?;
            lines.clear();
            if is_last {
                return Ok(if failed { FINDINGS } else { 0 });
            }
        }
    }

    fn line(&self, line: &[u8]) -> (Zeroizing<Vec<u8>>, bool) {
        let mut fields = match serde_json::from_slice::<Fields<'_>>(line.trim_ascii_end()) {
            Ok(fields) => fields,
            // Where, but not what: the line may hold a plaintext.
            Err(error) => return (refuse(&format!("not a JSON object (at column {})", error.column())), false),
        };
        // Of an answer that is fed back, only what was asked is repeated.
        for answered in ["out", "stale", "error", "warning"] {
            fields.remove(answered);
        }
        let answer = self.answer(&mut fields);
        let out = answer.as_ref().ok().map(|done| Zeroizing::new(STANDARD.encode(&done.bytes)));
        // Room for all of it at once, so that no copy of a plaintext is left behind by growing.
        let out_len = out.as_ref().map_or(0, |out| out.len());
        let (stale, warning, error) = match answer {
            Ok(Done { stale, warning, .. }) => (Some(stale), warning, None),
            Err(finding) => (None, None, Some(finding)),
        };
        let reply = Reply { fields, out: out.as_ref().map(|out| out.as_str()), stale, warning, error };
        let mut answer = Zeroizing::new(Vec::with_capacity(line.len() + out_len + 4096));
        match serde_json::to_writer(&mut *answer, &reply) {
            Ok(()) => (answer, reply.error.is_none()),
            Err(_) => (refuse("the answer cannot be written as JSON"), false),
        }
    }

    /// Works on the fields of a line. `data` is taken out; everything else is repeated in the answer.
    fn answer(&self, fields: &mut Fields<'_>) -> Result<Done, Finding> {
        let malformed = |message: &str| Finding { class: "malformed", message: message.to_owned() };
        let data = data_of(fields).ok_or_else(|| malformed("the field data must be a string in base64"))?;
        let resource = text_of(fields, "resource").ok_or_else(|| malformed("the field resource must be a string"))?;
        let text = |name| fields.contains_key(name).then(|| text_of(fields, name));
        let key = match (text("key"), text("key_b64")) {
            (Some(Some(text)), None) => text.into_bytes(),
            (None, Some(Some(text))) => {
                STANDARD.decode(text).map_err(|_| malformed("the field key_b64 must be a string in base64"))?
            }
            _ => return Err(malformed("one of the fields key and key_b64 must be there, as a string")),
        };
        self.value(&GroupResource::resolve(&resource), &key, &data)
    }

    /// Has the KMS plugins asked for what the values of these lines need, all at once.
    fn resolve_lines(&self, lines: &[Result<Zeroizing<Vec<u8>>, TooLong>]) {
        let (Some(runtime), Direction::Decrypt) = (&self.runtime, self.direction) else { return };
        let mut wanted = Wanted::default();
        for line in lines.iter().flatten() {
            let Ok(mut fields) = serde_json::from_slice::<Fields<'_>>(line.trim_ascii_end()) else { continue };
            let (Some(data), Some(resource)) = (data_of(&mut fields), text_of(&fields, "resource")) else { continue };
            let resource = GroupResource::resolve(&resource);
            wanted.add(self.list(&resource), &data);
        }
        runtime.block_on(self.keys.kms.resolve(wanted, &super::STOP));
    }

    fn list(&self, resource: &GroupResource) -> &ResourceTransformer {
        self.keys.transformers.transformer_for_resource(&resource.group, &resource.resource)
    }

    /// Asks a KMS for what it takes to open one value.
    fn resolve(&self, list: &ResourceTransformer, data: &[u8]) {
        if let Some(runtime) = self.runtime.as_ref().filter(|_| list.lacks(data)) {
            let mut wanted = Wanted::default();
            wanted.add(list, data);
            runtime.block_on(self.keys.kms.resolve(wanted, &super::STOP));
        }
    }

    /// Asks a KMS for what it takes to seal one value.
    fn prepare_write(&self, list: &ResourceTransformer) -> Result<(), DekFailure> {
        let (Some(runtime), Some(provider)) = (&self.runtime, list.write_kms()) else { return Ok(()) };
        runtime.block_on(self.keys.kms.prepare_write(provider))
    }

    fn value(&self, resource: &GroupResource, key: &[u8], data: &[u8]) -> Result<Done, Finding> {
        if key.is_empty() {
            return Err(Finding { class: "malformed", message: "the etcd key is empty".to_owned() });
        }
        let list = self.keys.transformers.transformer_for_resource(&resource.group, &resource.resource);
        let context = DataContext::new(key);
        match self.direction {
            Direction::Encrypt => {
                let cannot_seal = |error: &dyn std::fmt::Display| Finding {
                    class: "cannot-seal",
                    message: format!("{}: {error}", list.write_key()),
                };
                self.prepare_write(list).map_err(|failure| cannot_seal(&failure))?;
                let mut sealed = Vec::new();
                list.seal(data, context, &mut sealed).map_err(|error| cannot_seal(&error))?;
                let warning = self.warn_of_sealing(resource, key, data);
                Ok(Done { bytes: Zeroizing::new(sealed), stale: false, warning })
            }
            Direction::Decrypt => {
                if !self.lines {
                    self.resolve(list, data);
                }
                let value = StoredValue {
                    key: key.to_vec(),
                    value: data.to_vec(),
                    create_revision: 0,
                    mod_revision: 0,
                    version: 0,
                    lease: 0,
                };
                let (judged, opened) = Judge::new(&self.keys.transformers, &self.layout).open_as(&value, resource);
                let readable = judged.row.class.is_readable();
                let finding = Finding { class: judged.row.class.name(), message: judged.row.message };
                match opened {
                    Some(opened) => Ok(Done {
                        bytes: Zeroizing::new(opened.data.to_vec()),
                        stale: opened.stale,
                        warning: (!readable).then_some(finding),
                    }),
                    None => Err(finding),
                }
            }
        }
    }

    /// What kube-apiserver would do without a word, and one may not have meant.
    fn warn_of_sealing(&self, resource: &GroupResource, key: &[u8], data: &[u8]) -> Option<Finding> {
        let list = self.keys.transformers.transformer_for_resource(&resource.group, &resource.resource);
        if data.starts_with(ENCRYPTED_PREFIX) {
            return Some(Finding { class: "nested", message: "the input is ciphertext already".to_owned() });
        }
        if list.write_key().provider == ProviderKind::Identity {
            let why = if list.is_configured() { "have identity first" } else { "are in no entry of the configuration" };
            return Some(Finding { class: "plaintext", message: format!("{resource} {why}: stored in the clear") });
        }
        let is_object = matches!(self.layout.locate(key), Location::Object { .. });
        (!is_object).then(|| Finding {
            class: "unknown-key",
            message: format!("no object of a known layout has the key {}", key.escape_ascii()),
        })
    }

    /// The value in what etcdctl printed: without the line of the key, and without the line feed at the end.
    fn stored_bytes<'d>(&self, resource: &GroupResource, key: &[u8], data: &'d [u8]) -> Result<&'d [u8], Failure> {
        if self.direction == Direction::Encrypt {
            return Ok(data);
        }
        if data.starts_with(BASE64_OF_PREFIX) {
            let message = "the input is base64: decode it first, as with `base64 -d`".to_owned();
            return Err(Failure::Value { class: "malformed", message });
        }
        let value = data.strip_prefix(key).and_then(|rest| rest.strip_prefix(b"\n")).unwrap_or(data);
        match value.strip_suffix(b"\n") {
            Some(shorter)
                if self.value(resource, key, value).is_err() && self.value(resource, key, shorter).is_ok() =>
            {
                warn(self.quiet, format_args!("the line feed at the end was left out"));
                Ok(shorter)
            }
            _ => Ok(value),
        }
    }
}
