use std::io::{BufRead as _, BufReader, Read as _, Write as _};

use atrest::resource::{GroupResource, KeyLayout};
use atrest::source::StoredValue;
use atrest::transformer::{DataContext, ResourceTransformers};
use atrest::verify::Judge;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rayon::prelude::*;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::{stdout, transformers};
use crate::args::CryptArgs;
use crate::failure::{FINDINGS, Failure};

/// Which way values go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Decrypt,
    Encrypt,
}

/// The longest line that is taken: etcd's largest value in base64 is far below.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

pub(super) fn run(args: &CryptArgs, direction: Direction) -> Result<u8, Failure> {
    let transformers = transformers(&args.config.encryption_provider_config, false)?;
    let crypt = Crypt { transformers: &transformers, layout: KeyLayout::default(), direction };
    match (&args.resource, &args.key) {
        (Some(resource), Some(key)) => crypt.one(&GroupResource::resolve(resource), key.as_bytes()),
        _ => crypt.lines(),
    }
}

struct Crypt<'a> {
    transformers: &'a ResourceTransformers,
    layout: KeyLayout,
    direction: Direction,
}

/// A value that was opened or sealed.
struct Done {
    bytes: Zeroizing<Vec<u8>>,
    stale: bool,
    /// What is wrong with a value that opened all the same.
    warning: Option<(&'static str, String)>,
}

/// Why it was not, as the class of `verify` and a message.
struct Refused {
    class: &'static str,
    message: String,
}

impl Crypt<'_> {
    fn one(&self, resource: &GroupResource, key: &[u8]) -> Result<u8, Failure> {
        let mut data = Zeroizing::new(Vec::new());
        std::io::stdin().lock().read_to_end(&mut data)?;
        let done =
            self.value(resource, key, &data).map_err(|Refused { class, message }| Failure::Value { class, message })?;
        let mut out = stdout();
        out.write_all(&done.bytes)?;
        out.flush()?;
        if let Some((class, message)) = done.warning {
            _ = writeln!(std::io::stderr(), "atrest: warning: {class}: {message}");
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
            let mut line = Zeroizing::new(Vec::new());
            let read = (&mut input).take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut line)?;
            if read > 0 && !line.trim_ascii().is_empty() {
                lines.push(line);
            }
            // More than one read is in the buffer: go on collecting as long as nothing has to be waited for.
            if read > 0 && input.buffer().contains(&b'\n') {
                continue;
            }
            let answers: Vec<_> = lines.par_iter().map(|line| self.line(line)).collect();
            for (answer, ok) in answers {
                failed |= !ok;
                out.write_all(&answer)?;
                out.write_all(b"\n")?;
            }
            out.flush()?;
            lines.clear();
            if read == 0 {
                return Ok(if failed { FINDINGS } else { 0 });
            }
        }
    }

    fn line(&self, line: &[u8]) -> (Zeroizing<Vec<u8>>, bool) {
        let mut fields = match serde_json::from_slice::<Map<String, Value>>(line) {
            Ok(fields) => fields,
            Err(error) => {
                // Where, but not what: the line may hold a plaintext.
                let message = format!("not a JSON object (at column {})", error.column());
                let answer = json!({ "error": { "class": "malformed", "message": message } });
                return (Zeroizing::new(answer.to_string().into_bytes()), false);
            }
        };
        let answer = self.answer(&mut fields);
        let ok = answer.is_ok();
        match answer {
            Ok(done) => {
                fields.insert("out".into(), STANDARD.encode(&done.bytes).into());
                fields.insert("stale".into(), done.stale.into());
                if let Some((class, message)) = done.warning {
                    fields.insert("warning".into(), json!({ "class": class, "message": message }));
                }
            }
            Err(Refused { class, message }) => {
                fields.insert("error".into(), json!({ "class": class, "message": message }));
            }
        }
        (Zeroizing::new(Value::Object(fields).to_string().into_bytes()), ok)
    }

    /// Works on the fields of a line. `data` is taken out; everything else is repeated in the answer.
    fn answer(&self, fields: &mut Map<String, Value>) -> Result<Done, Refused> {
        let malformed = |message: &str| Refused { class: "malformed", message: message.to_owned() };
        let data = match fields.remove("data") {
            Some(Value::String(text)) => Zeroizing::new(text),
            _ => return Err(malformed("the field data must be a string in base64")),
        };
        let data = STANDARD.decode(data.as_bytes()).map(Zeroizing::new);
        let data = data.map_err(|_| malformed("the field data must be a string in base64"))?;
        let resource = match fields.get("resource") {
            Some(Value::String(text)) => GroupResource::resolve(text),
            _ => return Err(malformed("the field resource must be a string")),
        };
        let key = match (fields.get("key"), fields.get("key_b64")) {
            (Some(Value::String(text)), None) => text.as_bytes().to_vec(),
            (None, Some(Value::String(text))) => {
                STANDARD.decode(text).map_err(|_| malformed("the field key_b64 must be a string in base64"))?
            }
            _ => return Err(malformed("one of the fields key and key_b64 must be there, as a string")),
        };
        self.value(&resource, &key, &data)
    }

    fn value(&self, resource: &GroupResource, key: &[u8], data: &[u8]) -> Result<Done, Refused> {
        if key.is_empty() {
            return Err(Refused { class: "malformed", message: "the etcd key is empty".to_owned() });
        }
        let list = self.transformers.transformer_for_resource(&resource.group, &resource.resource);
        let context = DataContext::new(key);
        match self.direction {
            Direction::Encrypt => {
                let mut sealed = Vec::new();
                list.seal(data, context, &mut sealed).map_err(|error| Refused {
                    class: "cannot-seal",
                    message: format!("{}: {error}", list.write_key()),
                })?;
                Ok(Done { bytes: Zeroizing::new(sealed), stale: false, warning: None })
            }
            Direction::Decrypt => {
                let value = StoredValue {
                    key: key.to_vec(),
                    value: data.to_vec(),
                    create_revision: 0,
                    mod_revision: 0,
                    version: 0,
                    lease: 0,
                };
                let judged = Judge::new(self.transformers, &self.layout).judge_as(&value, resource);
                match list.open(data, context) {
                    Ok((opened, _)) => {
                        let wrong = !judged.row.class.is_readable();
                        Ok(Done {
                            bytes: Zeroizing::new(opened.data.to_vec()),
                            stale: opened.stale,
                            warning: wrong.then(|| (judged.row.class.name(), judged.row.message)),
                        })
                    }
                    Err(_) => Err(Refused { class: judged.row.class.name(), message: judged.row.message }),
                }
            }
        }
    }
}
