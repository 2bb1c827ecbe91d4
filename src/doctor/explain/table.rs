//! The texts, in an order in which the more specific come first.

use super::entry::Entry;
use super::{apiserver, configuration, etcd, transformer};

/// All that is known.
pub(super) fn table() -> impl Iterator<Item = &'static Entry> {
    configuration::ENTRIES.iter().chain(transformer::ENTRIES).chain(etcd::ENTRIES).chain(apiserver::ENTRIES)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::doctor::explain::entry::Pattern;

    #[test]
    fn patterns_are_lower_case_and_names_are_used_once() {
        let mut names = HashSet::new();
        for entry in table() {
            assert!(names.insert(entry.id), "{}", entry.id);
            assert!(!entry.causes.is_empty() && !entry.next.is_empty() && !entry.patterns.is_empty(), "{}", entry.id);
            for pattern in entry.patterns {
                let texts = match pattern {
                    Pattern::Text(text) | Pattern::Status(text) => vec![*text],
                    Pattern::All(texts) => texts.to_vec(),
                };
                for text in texts {
                    assert_eq!(text, text.to_ascii_lowercase(), "{}", entry.id);
                    assert!(text.len() >= 3, "{}", entry.id);
                }
            }
        }
    }
}
