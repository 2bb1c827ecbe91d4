//! The texts, in an order in which the more specific come first.

use super::entry::Entry;
use super::{apiserver, configuration, etcd, kms, reach, transformer};

/// All that is known.
pub(super) fn table() -> impl Iterator<Item = &'static Entry> {
    let api = configuration::ENTRIES.iter().chain(kms::ENTRIES).chain(transformer::ENTRIES);
    api.chain(etcd::ENTRIES).chain(apiserver::ENTRIES).chain(reach::ENTRIES)
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
                    Pattern::Without(texts, others) => [*texts, *others].concat(),
                    Pattern::Port(_, texts, others) => [*texts, *others].concat(),
                };
                for step in entry.next {
                    assert!(!step.contains("doctor explain"), "{}: it is what was just asked", entry.id);
                }
                for text in texts {
                    assert_eq!(text, text.to_ascii_lowercase(), "{}", entry.id);
                    assert!(text.len() >= 3, "{}", entry.id);
                }
            }
        }
    }
}
