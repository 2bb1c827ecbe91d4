use super::label::ProviderKind;
use super::{DataContext, Error, FromStorage, Transformer};

/// A transformer and what its values begin with.
#[derive(Debug)]
pub struct PrefixTransformer {
    /// Stripped before reading, put in front when writing. The empty prefix claims every value.
    pub prefix: Vec<u8>,
    /// What reads and writes the rest.
    pub transformer: Box<dyn Transformer>,
}

/// What a list answers when no entry claims a value.
#[derive(Clone, Copy, Debug)]
pub enum NoMatch {
    /// The outer list: no provider.
    Provider,
    /// The list inside a local provider: no key.
    Key(ProviderKind),
}

/// A list of transformers: the first writes, each may read, and what another than the first reads is stale.
///
/// The first entry that *succeeds* wins, in the order of the list; a failure never ends the search. Neither the longest
/// prefix nor the first match has a privilege, and the index counts every entry, also those that did not match.
/// Upstream: `value.NewPrefixTransformers`. It is used twice, for the providers of a resource and for the keys of a provider.
#[derive(Debug)]
pub struct PrefixTransformers {
    list: Vec<PrefixTransformer>,
    no_match: NoMatch,
}

impl PrefixTransformers {
    /// A list in the order in which its entries are tried.
    #[must_use]
    pub fn new(list: Vec<PrefixTransformer>, no_match: NoMatch) -> Self {
        Self { list, no_match }
    }

    fn no_match(&self) -> Error {
        match self.no_match {
            NoMatch::Provider => Error::NoMatchingPrefix,
            NoMatch::Key(provider) => Error::NoMatchingKey { provider },
        }
    }
}

impl Transformer for PrefixTransformers {
    fn transform_from_storage<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        let mut errors = Vec::new();
        for (i, entry) in self.list.iter().enumerate() {
            let Some(rest) = data.strip_prefix(entry.prefix.as_slice()) else { continue };
            match entry.transformer.transform_from_storage(rest, context) {
                Ok(opened) => {
                    return Ok(FromStorage {
                        data: opened.data,
                        stale: opened.stale || i != 0,
                        entries: [i, opened.entries[0]],
                    });
                }
                // The identity provider's refusal says nothing: another provider's prefix may still match.
                Err(_) if entry.prefix.is_empty() => {}
                Err(error) => errors.push(error),
            }
        }
        Err(Error::aggregate(errors).unwrap_or_else(|| self.no_match()))
    }

    fn transform_to_storage(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let first = self.list.first().ok_or_else(|| self.no_match())?;
        out.extend_from_slice(&first.prefix);
        first.transformer.transform_to_storage(plaintext, context, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Plaintext;

    /// Opens what carries its own byte behind the prefix.
    #[derive(Debug)]
    struct Marked(u8);

    impl Transformer for Marked {
        fn transform_from_storage<'a>(&self, data: &'a [u8], _: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
            match data.split_first() {
                Some((mark, rest)) if *mark == self.0 => Ok(FromStorage::leaf(Plaintext::Stored(rest))),
                _ => Err(Error::AuthenticationFailed),
            }
        }

        fn transform_to_storage(&self, plaintext: &[u8], _: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
            out.push(self.0);
            out.extend_from_slice(plaintext);
            Ok(())
        }
    }

    fn list(entries: &[(&str, u8)]) -> PrefixTransformers {
        let list = entries
            .iter()
            .map(|(prefix, mark)| PrefixTransformer {
                prefix: prefix.as_bytes().to_vec(),
                transformer: Box::new(Marked(*mark)),
            })
            .collect();
        PrefixTransformers::new(list, NoMatch::Provider)
    }

    fn read(list: &PrefixTransformers, data: &[u8]) -> Result<(Vec<u8>, bool, usize), String> {
        list.transform_from_storage(data, DataContext::new(b"/registry/secrets/a/b"))
            .map(|opened| (opened.data.to_vec(), opened.stale, opened.entries[0]))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_failure_never_ends_the_search() {
        let list = list(&[("a:", 1), ("a:", 2), ("a:", 3)]);
        assert_eq!(read(&list, b"a:\x02x"), Ok((b"x".to_vec(), true, 1)));
        assert_eq!(read(&list, b"a:\x01x"), Ok((b"x".to_vec(), false, 0)));
        assert_eq!(read(&list, b"a:\x09x"), Err("message authentication failed".into()));
    }

    #[test]
    fn neither_the_longest_prefix_nor_the_first_match_wins() {
        let list = list(&[("a:", b'b'), ("a:b:", 7)]);
        assert_eq!(read(&list, b"a:b:\x07x"), Ok((b":\x07x".to_vec(), false, 0)), "the shorter prefix opened it first");
    }

    #[test]
    fn an_entry_that_does_not_match_still_counts() {
        assert_eq!(read(&list(&[("a:", 1), ("b:", 2)]), b"b:\x02x"), Ok((b"x".to_vec(), true, 1)));
        assert_eq!(read(&list(&[("a:", 1)]), b"c:\x02x"), Err("no matching prefix found".into()));
    }

    #[test]
    fn the_first_entry_writes() {
        let mut out = Vec::new();
        list(&[("a:", 1), ("b:", 2)]).transform_to_storage(b"x", DataContext::new(b"/k"), &mut out).unwrap();
        assert_eq!(out, b"a:\x01x");
    }

    #[test]
    fn an_empty_list_writes_nothing() {
        let error = list(&[]).transform_to_storage(b"x", DataContext::new(b"/k"), &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "no matching prefix found");
    }
}
