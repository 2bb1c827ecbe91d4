use memchr::memmem;

use crate::protobuf::{Field, Reader};
use crate::resource::{GroupResource, known_resources};
use crate::snapshot::{self, Input};
use crate::transformer::{ENCRYPTED_PREFIX, Header};

/// Bytes that begin as a value does, wherever they are.
#[derive(Debug)]
pub(super) struct Marked<'a> {
    /// Where in the file, in bytes.
    pub(super) offset: u64,
    /// The bytes, as far as they were looked at.
    pub(super) bytes: &'a [u8],
    pub(super) header: Header<'a>,
    /// Of what resource the kind is that plaintext names.
    pub(super) resource: Option<GroupResource>,
}

/// How objects begin that are stored in the clear.
const PLAIN: [&[u8]; 3] = [b"k8s\0\n", br#"{"kind":""#, br#"{"apiVersion":""#];
/// So much is read at once.
const CHUNK: u64 = 1024 * 1024;
/// What is looked at of a value: header, or type and name.
const WINDOW: u64 = 512;

/// Looks for the beginnings of values in a part of a file, whatever it is part of.
pub(super) fn find(
    input: &Input,
    offset: u64,
    len: u64,
    visit: &mut dyn FnMut(&Marked<'_>),
) -> Result<(), snapshot::Error> {
    let end = offset.saturating_add(len).min(input.len());
    let finders = PLAIN.into_iter().chain([ENCRYPTED_PREFIX]).map(memmem::Finder::new).collect::<Vec<_>>();
    let mut buffer = Vec::new();
    let mut from = offset;
    while from < end {
        let chunk_end = end.min(from + CHUNK);
        // What begins in this chunk may go on behind it.
        let read_end = end.min(chunk_end + WINDOW);
        input.read_into(from, read_end - from, &mut buffer)?;
        let mut found: Vec<_> = finders.iter().flat_map(|finder| finder.find_iter(&buffer)).collect();
        found.sort_unstable();
        for at in found {
            let position = from + at as u64;
            let Some(rest) = buffer.get(at..).filter(|_| position < chunk_end) else { continue };
            let bytes = rest.get(..usize::try_from(WINDOW).unwrap_or(512)).unwrap_or(rest);
            if let Some((header, resource)) = recognise(bytes) {
                visit(&Marked { offset: position, bytes, header, resource });
            }
        }
        from = chunk_end;
    }
    Ok(())
}

fn recognise(bytes: &[u8]) -> Option<(Header<'_>, Option<GroupResource>)> {
    if bytes.starts_with(ENCRYPTED_PREFIX) {
        let header = Header::parse(bytes);
        return header.label().is_some().then_some((header, None));
    }
    let kind = match bytes.strip_prefix(b"k8s\0") {
        Some(envelope) => kind_of_envelope(envelope)?,
        None => kind_of_json(bytes)?,
    };
    let known = known_resources().find(|known| known.kind == Some(kind));
    let resource = known.map(|known| known.resource.to_group_resource());
    Some((Header::Plaintext, resource))
}

/// The kind in the `TypeMeta` of a `runtime.Unknown`, of which only the beginning may be there.
fn kind_of_envelope(envelope: &[u8]) -> Option<&str> {
    let (1, Field::Bytes(type_meta)) = Reader::new(envelope).next_field().ok()?? else { return None };
    let mut reader = Reader::new(type_meta);
    while let Some((number, field)) = reader.next_field().ok()? {
        if let (2, Field::Bytes(kind)) = (number, field) {
            return std::str::from_utf8(kind).ok().filter(|kind| is_kind(kind));
        }
    }
    None
}

fn kind_of_json(bytes: &[u8]) -> Option<&str> {
    let begin = memmem::find(bytes, br#""kind":""#)? + 8;
    let rest = bytes.get(begin..)?;
    let end = memchr::memchr(b'"', rest)?;
    std::str::from_utf8(rest.get(..end)?).ok().filter(|kind| is_kind(kind))
}

fn is_kind(kind: &str) -> bool {
    kind.starts_with(|first: char| first.is_ascii_uppercase()) && kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_at_any_offset() {
        let secret = b"k8s\0\n\x0c\n\x02v1\x12\x06Secret\x12\x05hello";
        let sealed = b"k8s:enc:aescbc:v1:key1:0123456789abcdef";
        let json = br#"{"apiVersion":"v1","kind":"ConfigMap"}"#;
        let chunk = usize::try_from(CHUNK).unwrap();
        for at in [0, 1, 500, chunk - 3, chunk - 1, chunk] {
            let bytes = [&vec![7; at][..], secret, &[0; 9], sealed, &[0; 600], json].concat();
            let mut found = Vec::new();
            find(&Input::from(bytes), 0, u64::MAX, &mut |marked| {
                let resource = marked.resource.as_ref().map(GroupResource::to_string);
                found.push((marked.offset, resource, marked.header.label().map(|label| label.to_string())));
            })
            .unwrap();
            let at = at as u64;
            let identity = Some("identity".to_owned());
            assert_eq!(
                found,
                [
                    (at, Some("secrets".to_owned()), identity.clone()),
                    (at + 34, None, Some("aescbc/key1".to_owned())),
                    (at + 673, Some("configmaps".to_owned()), identity),
                ]
            );
        }
    }

    #[test]
    fn what_only_looks_like_a_value_is_none() {
        for bytes in [&b"k8s\0\nrubbish"[..], b"k8s:enc:", b"k8s:enc:unknown:v1:a:b", br#"{"kind":"not a kind"}"#] {
            let mut found = 0;
            find(&Input::from(bytes.to_vec()), 0, u64::MAX, &mut |_| found += 1).unwrap();
            assert_eq!(found, 0, "{}", bytes.escape_ascii());
        }
    }
}
