use super::ENCRYPTION_CONFIG;
use super::problem::ManifestProblem;

/// The switch that reloads the configuration.
const AUTOMATIC_RELOAD: &str = "encryption-provider-config-automatic-reload";
const OVERRIDES: &str = "etcd-servers-overrides";
const COMPACTION: &str = "etcd-compaction-interval";

/// The flags that matter to what is stored, and how.
const WATCHED: [&str; 13] = [
    ENCRYPTION_CONFIG,
    AUTOMATIC_RELOAD,
    "etcd-servers",
    OVERRIDES,
    "etcd-prefix",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
    "feature-gates",
    "storage-media-type",
    "storage-backend",
    COMPACTION,
    "event-ttl",
];

/// How many letters a flag may be off to be taken for a misspelled one.
const MISSPELLED: usize = 2;

/// Flags as they are given.
#[derive(Debug)]
pub(super) struct Flags {
    /// The name without dashes, and the value.
    given: Vec<(String, Option<String>)>,
    problems: Vec<ManifestProblem>,
}

impl Flags {
    pub(super) fn new(command: &[String]) -> Self {
        let mut flags = Self { given: Vec::new(), problems: Vec::new() };
        let mut words = Vec::new();
        for word in command {
            // The command line of a shell.
            if word.contains("kube-apiserver") && word.contains(char::is_whitespace) {
                words.extend(word.split_whitespace());
            } else {
                words.push(word.as_str());
            }
        }
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            flags.add(word, || words.next_if(|next| !next.starts_with('-')));
        }
        flags
    }

    fn add<'a>(&mut self, word: &str, next: impl FnOnce() -> Option<&'a str>) {
        let Some(bare) = word.strip_prefix('-') else { return };
        let (dashes, bare) = bare.strip_prefix('-').map_or(("-", bare), |bare| ("--", bare));
        let (name, value) = bare.split_once('=').map_or((bare, None), |(name, value)| (name, Some(value)));
        if let Some((first, _)) = name.split_once(char::is_whitespace) {
            // What is not written here may be anything; only flags that are known are named.
            if WATCHED.contains(&normal(first).as_str()) {
                self.problems.push(ManifestProblem::OneArgument { text: word.to_owned(), flag: format!("--{first}") });
            }
            return;
        }
        let flag = normal(name);
        let is_watched = WATCHED.contains(&flag.as_str());
        if dashes == "-" || !is_watched {
            if let Some(meant) = meant(&flag).filter(|meant| dashes == "--" || *meant == flag) {
                let given = format!("{dashes}{name}");
                self.problems.push(ManifestProblem::Misspelled { given, meant: format!("--{meant}") });
            }
            return;
        }
        let value = match value {
            Some(value) => Some(value),
            None if flag == AUTOMATIC_RELOAD => Some("true"),
            None => next(),
        };
        if value.is_none_or(str::is_empty) {
            self.problems.push(ManifestProblem::NoValue { flag: format!("--{flag}") });
        }
        self.given.push((flag, value.map(str::to_owned)));
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.given.iter().rev().find(|(flag, _)| flag == name).and_then(|(_, value)| value.as_deref())
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = (&str, &str)> {
        WATCHED.iter().filter_map(|name| Some((*name, self.value(name)?)))
    }

    pub(super) fn problems(&self) -> Vec<ManifestProblem> {
        let mut problems = self.problems.clone();
        let is_given = |name| self.given.iter().any(|(flag, _)| flag == name);
        if is_given(AUTOMATIC_RELOAD) && !is_given(ENCRYPTION_CONFIG) {
            problems.push(ManifestProblem::ReloadWithoutConfig);
        }
        if self.value(COMPACTION).is_some_and(|interval| interval.trim_end_matches(['s', 'm', 'h']) == "0") {
            problems.push(ManifestProblem::NoCompaction);
        }
        for entry in self.value(OVERRIDES).unwrap_or_default().split(',').filter(|entry| !entry.is_empty()) {
            let parts: Vec<_> = entry.split('#').collect();
            match parts.as_slice() {
                [resource, servers]
                    if resource.matches('/').count() == 1 && servers.split(';').all(|server| !server.is_empty()) =>
                {
                    if *resource == "events.k8s.io/events" {
                        problems.push(ManifestProblem::EventsOverride);
                    }
                }
                _ => problems.push(ManifestProblem::InvalidOverride { entry: entry.to_owned() }),
            }
        }
        problems
    }
}

/// Underscores are dashes to kube-apiserver.
fn normal(name: &str) -> String {
    name.replace('_', "-")
}

/// The flag that was meant, when it is one that matters.
fn meant(flag: &str) -> Option<&'static str> {
    if flag.contains("encryption-provider") && !WATCHED.contains(&flag) {
        let reload = flag.contains("reload");
        return Some(if reload { AUTOMATIC_RELOAD } else { ENCRYPTION_CONFIG });
    }
    WATCHED.into_iter().find(|watched| distance(flag, watched) <= MISSPELLED)
}

/// Levenshtein's distance. Flags that are much longer than any that matters are far.
fn distance(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > MISSPELLED {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let best = (diagonal + usize::from(x != y)).min(left + 1).min(*cell + 1);
            diagonal = *cell;
            *cell = best;
            left = best;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (a, b, expected) in
            [("", "", 0), ("a", "", 1), ("kitten", "kitte", 1), ("kitten", "sittin", 2), ("abc", "abcdef", usize::MAX)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
