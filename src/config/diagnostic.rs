//! What is wrong with a file, as data and as a sentence, and where.
//!
//! A file that does not load may hold a key in any place, a name or a resource too. Text of the file is therefore
//! only repeated through [`shown`].

use std::fmt;

use serde::Serialize;

use super::problem::Problem;

/// A place in the text, both numbers counted from 1 and columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl Position {
    /// The first character of the text.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A finding, with the field it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The field as upstream writes it, such as `resources[0].providers[1].aescbc.keys[0].secret`; empty for the whole
    /// file.
    pub path: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
    /// The finding as data.
    pub problem: Problem,
    /// The finding in words.
    pub message: String,
    /// What to write instead, when there is one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Diagnostic {
    pub(super) fn new(path: impl fmt::Display, position: Position, problem: Problem) -> Self {
        Self {
            path: path.to_string(),
            line: position.line,
            column: position.column,
            message: problem.to_string(),
            hint: problem.hint(),
            problem,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// The longest run of base64 characters that is too short for a key: 16 bytes take 22 without padding.
const LONGEST_SHOWN_RUN: usize = 20;

/// The most characters of the file that a message repeats.
const LONGEST_SHOWN: usize = 128;

/// Text of the file as a message may repeat it: whatever could be a key in base64 is left out, and so is
/// what a terminal would obey.
///
/// Words, as in the names of groups and kinds, stay at any length: a key would have digits and more capitals.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut rest: String = text.chars().take(LONGEST_SHOWN).map(printable).collect();
    if text.chars().nth(LONGEST_SHOWN).is_some() {
        rest.push('…');
    }
    let mut rest = rest.as_str();
    while !rest.is_empty() {
        let run = rest.find(|c| !may_be_base64(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(run);
        let is_name = word.len() <= LONGEST_SHOWN_RUN || is_words(word);
        shown.push_str(if is_name { word } else { "[REDACTED]" });
        let next = after.find(may_be_base64).unwrap_or(after.len());
        let (between, after) = after.split_at(next);
        shown.push_str(between);
        rest = after;
    }
    shown
}

fn is_words(text: &str) -> bool {
    let capitals = text.chars().filter(char::is_ascii_uppercase).count();
    capitals <= text.len() / 8 && text.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | '_' | '/'))
}

fn may_be_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_possible_key_is_not_shown() {
        assert_eq!(shown("QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="), "[REDACTED]");
        assert_eq!(shown("unix:///QUFBQUFBQUFBQUFBQUFBQQ"), "unix:[REDACTED]");
    }

    #[test]
    fn names_are_shown() {
        for name in [
            "customresourcedefinitions.apiextensions.k8s.io",
            "*.*",
            "Secrets",
            "unix:///var/run/kubernetes/kms.sock",
            "EncryptionConfiguration",
            "",
        ] {
            assert_eq!(shown(name), name);
        }
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(shown("a\u{1b}[2J\nb"), "a\u{fffd}[2J\u{fffd}b");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(shown(&"a.".repeat(200)).chars().count(), 129);
    }
}
