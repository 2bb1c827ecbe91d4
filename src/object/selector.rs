//! Which objects are meant, by their labels: `kubectl -l`.

/// Requirements on the labels of an object, which has to meet all of them. Without any it selects everything.
///
/// ```
/// use atrest::object::{LabelSelector, decode};
///
/// let stored = br#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","labels":{"app":"web","tier":"1"}}}"#;
/// let object = decode(stored)?;
/// let label = |key: &str| object.labels().find(|(label, _)| *label == key).map(|(_, value)| value);
///
/// assert!(LabelSelector::parse("app in (web, db), tier > 0, !canary")?.matches(label));
/// assert!(!LabelSelector::parse("app!=web")?.matches(label));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

/// `selection.Operator` with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    DoesNotExist,
    /// Also `=` and `==`, of one value.
    In(Vec<String>),
    /// Also `!=`, of one value.
    NotIn(Vec<String>),
    GreaterThan(i64),
    LessThan(i64),
}

/// Why text is no label selector. Offsets are in bytes, counted from zero; whoever wrote the selector can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSelector {
    /// A requirement begins with the key of a label, or with `!` and the key.
    #[error("expected a label at byte {offset}")]
    ExpectedKey {
        /// Where the key should be.
        offset: usize,
    },
    /// Not the key of a label: `[prefix/]name`, of which the prefix is a DNS subdomain of at most 253 characters, and
    /// the name is like a value and not empty.
    #[error("invalid key of a label at byte {offset}")]
    InvalidKey {
        /// Where the key begins.
        offset: usize,
    },
    /// After a key follows `=`, `==`, `!=`, `>`, `<`, `in`, `notin`, a comma or the end.
    #[error("expected an operator at byte {offset}")]
    ExpectedOperator {
        /// Where the operator should be.
        offset: usize,
    },
    /// `in` and `notin` are followed by `(`.
    #[error("expected '(' at byte {offset}")]
    ExpectedList {
        /// Where it should be.
        offset: usize,
    },
    /// Values within parentheses are followed by `,` or `)`.
    #[error("expected ',' or ')' at byte {offset}")]
    UnclosedList {
        /// Where it should be.
        offset: usize,
    },
    /// Another operator where its value should be.
    #[error("expected a value at byte {offset}")]
    ExpectedValue {
        /// Where the value should be.
        offset: usize,
    },
    /// Not the value of a label: at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends, or
    /// nothing at all.
    #[error("invalid value of a label at byte {offset}")]
    InvalidValue {
        /// Where the value begins.
        offset: usize,
    },
    /// `>` and `<` compare integers that an `int64` holds.
    #[error("expected an integer at byte {offset}")]
    ExpectedInteger {
        /// Where the value begins.
        offset: usize,
    },
    /// After a requirement follows a comma or the end.
    #[error("expected ',' at byte {offset}")]
    ExpectedComma {
        /// Where it should be.
        offset: usize,
    },
}

impl LabelSelector {
    /// Reads the syntax of `kubectl -l`: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, `a>1` and
    /// `a<1`, separated by commas. Upstream: `labels.Parse` of `k8s.io/apimachinery`.
    ///
    /// # Errors
    /// When it is not of that syntax, or no object can have such a label.
    pub fn parse(selector: &str) -> Result<Self, InvalidSelector> {
        let mut tokens = Tokens { text: selector, offset: 0 };
        let mut requirements = Vec::new();
        if tokens.peek() == Token::End {
            return Ok(Self(requirements));
        }
        loop {
            requirements.push(Requirement::parse(&mut tokens)?);
            match tokens.next() {
                (_, Token::End) => return Ok(Self(requirements)),
                (_, Token::Comma) => {}
                (offset, _) => return Err(InvalidSelector::ExpectedComma { offset }),
            }
        }
    }

    /// Whether an object is selected, given the value of each label that it has.
    ///
    /// An object without the label meets `!=`, `notin` and `!`, and nothing else. A value that is no integer is neither
    /// above nor below one.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.operator.accepts(label(&requirement.key)))
    }
}

impl Requirement {
    fn parse(tokens: &mut Tokens<'_>) -> Result<Self, InvalidSelector> {
        let (mut offset, mut token) = tokens.next();
        let negated = token == Token::Not;
        if negated {
            (offset, token) = tokens.next();
        }
        let Token::Word(key) = token else { return Err(InvalidSelector::ExpectedKey { offset }) };
        if !is_key(key) {
            return Err(InvalidSelector::InvalidKey { offset });
        }
        let operator = match tokens.peek() {
            _ if negated => Operator::DoesNotExist,
            Token::End | Token::Comma => Operator::Exists,
            _ => Operator::parse(tokens)?,
        };
        Ok(Self { key: key.to_owned(), operator })
    }
}

impl Operator {
    fn parse(tokens: &mut Tokens<'_>) -> Result<Self, InvalidSelector> {
        Ok(match tokens.next() {
            (_, Token::Equals) => Self::In(vec![value(tokens)?.1.to_owned()]),
            (_, Token::NotEquals) => Self::NotIn(vec![value(tokens)?.1.to_owned()]),
            (_, Token::GreaterThan) => Self::GreaterThan(integer(tokens)?),
            (_, Token::LessThan) => Self::LessThan(integer(tokens)?),
            (_, Token::Word("in")) => Self::In(list(tokens)?),
            (_, Token::Word("notin")) => Self::NotIn(list(tokens)?),
            (offset, _) => return Err(InvalidSelector::ExpectedOperator { offset }),
        })
    }

    fn accepts(&self, value: Option<&str>) -> bool {
        let among = |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        let integer = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::In(values) => among(values),
            Self::NotIn(values) => !among(values),
            Self::GreaterThan(bound) => integer().is_some_and(|value| value > *bound),
            Self::LessThan(bound) => integer().is_some_and(|value| value < *bound),
        }
    }
}

/// One value, which is empty where none is written.
fn value<'a>(tokens: &mut Tokens<'a>) -> Result<(usize, &'a str), InvalidSelector> {
    if matches!(tokens.peek(), Token::End | Token::Comma | Token::Close) {
        return Ok((tokens.offset, ""));
    }
    match tokens.next() {
        (offset, Token::Word(word)) if is_value(word) => Ok((offset, word)),
        (offset, Token::Word(_)) => Err(InvalidSelector::InvalidValue { offset }),
        (offset, _) => Err(InvalidSelector::ExpectedValue { offset }),
    }
}

fn integer(tokens: &mut Tokens<'_>) -> Result<i64, InvalidSelector> {
    let (offset, word) = value(tokens)?;
    word.parse().map_err(|_| InvalidSelector::ExpectedInteger { offset })
}

fn list(tokens: &mut Tokens<'_>) -> Result<Vec<String>, InvalidSelector> {
    let (offset, token) = tokens.next();
    if token != Token::Open {
        return Err(InvalidSelector::ExpectedList { offset });
    }
    let mut values = Vec::new();
    loop {
        values.push(value(tokens)?.1.to_owned());
        match tokens.next() {
            (_, Token::Comma) => {}
            (_, Token::Close) => return Ok(values),
            (offset, _) => return Err(InvalidSelector::UnclosedList { offset }),
        }
    }
}

/// `validation.IsQualifiedName`.
fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_value(name) && prefix.is_none_or(is_subdomain)
}

/// `validation.IsDNS1123Subdomain`.
fn is_subdomain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 253 && text.split('.').all(|part| !part.is_empty() && is_made_of(part, allowed, b"-"))
}

/// `validation.IsValidLabelValue`.
fn is_value(text: &str) -> bool {
    text.len() <= 63 && (text.is_empty() || is_made_of(text, |byte| byte.is_ascii_alphanumeric(), b"-_."))
}

/// Whether all bytes are of one set, or of another within the text.
fn is_made_of(text: &str, anywhere: impl Fn(u8) -> bool, within: &[u8]) -> bool {
    text.bytes().all(|byte| anywhere(byte) || within.contains(&byte))
        && [text.bytes().next(), text.bytes().next_back()].into_iter().flatten().all(anywhere)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    /// A key, a value, `in` or `notin`, which keys and values may be as well.
    Word(&'a str),
    Not,
    Equals,
    NotEquals,
    GreaterThan,
    LessThan,
    Open,
    Close,
    Comma,
}

/// Those of two characters first.
const SYMBOLS: [(&str, Token<'static>); 9] = [
    ("==", Token::Equals),
    ("!=", Token::NotEquals),
    ("=", Token::Equals),
    ("!", Token::Not),
    (">", Token::GreaterThan),
    ("<", Token::LessThan),
    ("(", Token::Open),
    (")", Token::Close),
    (",", Token::Comma),
];

const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
const SPECIAL: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];

#[derive(Clone, Copy, Debug)]
struct Tokens<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Tokens<'a> {
    /// The next token and where it begins.
    fn next(&mut self) -> (usize, Token<'a>) {
        let rest = self.text.get(self.offset..).unwrap_or_default().trim_start_matches(WHITE_SPACE);
        let start = self.text.len() - rest.len();
        let symbol = SYMBOLS.into_iter().find(|(symbol, _)| rest.starts_with(symbol));
        let (len, token) = match symbol {
            Some((symbol, token)) => (symbol.len(), token),
            None if rest.is_empty() => (0, Token::End),
            None => {
                let word = rest.split(SPECIAL).next().unwrap_or_default();
                let word = word.split(WHITE_SPACE).next().unwrap_or_default();
                (word.len(), Token::Word(word))
            }
        };
        self.offset = start + len;
        (start, token)
    }

    fn peek(mut self) -> Token<'a> {
        self.next().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::parse(selector).unwrap();
        selector.matches(|key| labels.iter().find(|(label, _)| *label == key).map(|(_, value)| *value))
    }

    #[test]
    fn labels_meet_requirements() {
        let labels = [("a", "b"), ("n", "10"), ("example.com/x", ""), ("in", "notin")];
        for (selector, expected) in [
            ("", true),
            (" \t", true),
            ("a=b", true),
            ("a==b", true),
            ("a=c", false),
            ("a=", false),
            ("example.com/x=", true),
            ("a!=b", false),
            ("a!=c", true),
            ("a != ", true),
            ("a in (c,b)", true),
            ("a in (c)", false),
            ("a in ()", false),
            ("example.com/x in (,y)", true),
            ("example.com/x in (y,,z)", true),
            ("a notin ( b , c )", false),
            ("a notin (c)", true),
            ("a", true),
            ("!a", false),
            ("n>9", true),
            ("n>10", false),
            ("n < 11", true),
            ("n<10", false),
            ("a>1", false),
            ("a<1", false),
            ("in in (in,notin)", true),
            ("in=notin", true),
            ("a=b,n=10,!z", true),
            ("a=b,n=11", false),
        ] {
            assert_eq!(selects(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn absent_labels_meet_negations_only() {
        for (selector, expected) in [
            ("z=b", false),
            ("z=", false),
            ("z!=b", true),
            ("z!=", true),
            ("z in (b)", false),
            ("z in ()", false),
            ("z notin (b)", true),
            ("z notin ()", true),
            ("z", false),
            ("!z", true),
            ("z>0", false),
            ("z<0", false),
        ] {
            assert_eq!(selects(selector, &[("a", "b")]), expected, "{selector}");
        }
    }

    #[test]
    fn errors_tell_where() {
        use InvalidSelector as E;
        for (selector, expected) in [
            (",", E::ExpectedKey { offset: 0 }),
            ("a,", E::ExpectedKey { offset: 2 }),
            ("a, ,b", E::ExpectedKey { offset: 3 }),
            ("!", E::ExpectedKey { offset: 1 }),
            ("!!a", E::ExpectedKey { offset: 1 }),
            ("=b", E::ExpectedKey { offset: 0 }),
            (" -a", E::InvalidKey { offset: 1 }),
            ("a/b/c", E::InvalidKey { offset: 0 }),
            ("/b", E::InvalidKey { offset: 0 }),
            ("a/", E::InvalidKey { offset: 0 }),
            ("A.com/b", E::InvalidKey { offset: 0 }),
            ("a..b/c", E::InvalidKey { offset: 0 }),
            ("é=b", E::InvalidKey { offset: 0 }),
            ("a b", E::ExpectedOperator { offset: 2 }),
            ("a (b)", E::ExpectedOperator { offset: 2 }),
            ("a in b", E::ExpectedList { offset: 5 }),
            ("a in", E::ExpectedList { offset: 4 }),
            ("a notin (b", E::UnclosedList { offset: 10 }),
            ("a in (b c)", E::UnclosedList { offset: 8 }),
            ("a in (b=c)", E::UnclosedList { offset: 7 }),
            ("a in (=)", E::ExpectedValue { offset: 6 }),
            ("a=(b)", E::ExpectedValue { offset: 2 }),
            ("a>=1", E::ExpectedValue { offset: 2 }),
            ("a=b_", E::InvalidValue { offset: 2 }),
            ("a=*", E::InvalidValue { offset: 2 }),
            ("a>x", E::ExpectedInteger { offset: 2 }),
            ("a>", E::ExpectedInteger { offset: 2 }),
            ("a<9223372036854775808", E::ExpectedInteger { offset: 2 }),
            ("a=b c", E::ExpectedComma { offset: 4 }),
            ("a=b)", E::ExpectedComma { offset: 3 }),
            ("!a=b", E::ExpectedComma { offset: 2 }),
        ] {
            assert_eq!(LabelSelector::parse(selector), Err(expected), "{selector}");
        }
    }

    #[test]
    fn names_have_limits() {
        let (name, prefix) = ("n".repeat(63), "p".repeat(253));
        assert!(selects(&format!("!{prefix}/{name},{name}!={name}"), &[]));
        let at_zero = Err(InvalidSelector::InvalidKey { offset: 0 });
        assert_eq!(LabelSelector::parse(&format!("{name}n")), at_zero);
        assert_eq!(LabelSelector::parse(&format!("{prefix}p/a")), at_zero);
        assert_eq!(LabelSelector::parse(&format!("a={name}n")), Err(InvalidSelector::InvalidValue { offset: 2 }));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_selector_or_an_error(text in r"[a!=<>(),in \t/é]{0,24}|\PC{0,24}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                proptest::prop_assert_eq!(selector.matches(|_| None), selector.0.iter().all(|requirement| matches!(
                    requirement.operator, Operator::DoesNotExist | Operator::NotIn(_)
                )));
            }
        }
    }
}
