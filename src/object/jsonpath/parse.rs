//! From text to a template.

use std::num::NonZeroUsize;

use super::super::Value;
use super::{Comparison, InvalidJsonPath, Operand, Part, Path, Step};

/// How deep ranges may be nested, since rendering one is a recursion.
const MAX_DEPTH: usize = 32;

/// A range whose end has not come yet, with the parts before it.
struct OpenRange {
    offset: usize,
    over: Path,
    before: Vec<Part>,
}

pub(super) fn template(text: &str) -> Result<Vec<Part>, InvalidJsonPath> {
    if text.trim().is_empty() {
        return Err(InvalidJsonPath::Empty);
    }
    let braces = |text: &str| text.contains(['{', '}']);
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let mut parser = Parser { text, offset: 0, bare: !braces(text), lone: !braces(inner.unwrap_or(text)) };
    let mut parts = Vec::new();
    let mut open: Vec<OpenRange> = Vec::new();
    while !parser.rest().is_empty() {
        let offset = parser.offset;
        if !parser.bare {
            let literal = parser.take_until(|c| c == '{');
            if !literal.is_empty() {
                parts.push(Part::Text(literal.to_owned()));
                continue;
            }
            parser.eat("{");
        }
        match parser.expression()? {
            Expression::Part(part) => parts.push(part),
            Expression::Range(_) if open.len() == MAX_DEPTH => return Err(InvalidJsonPath::TooDeep { offset }),
            Expression::Range(over) => open.push(OpenRange { offset, over, before: std::mem::take(&mut parts) }),
            Expression::End => {
                let Some(range) = open.pop() else { return Err(InvalidJsonPath::EndWithoutRange { offset }) };
                let body = std::mem::replace(&mut parts, range.before);
                parts.push(Part::Range { over: range.over, body });
            }
        }
        parser.skip_white_space();
        let closed = if parser.bare { parser.rest().is_empty() } else { parser.eat("}") };
        if !closed {
            return Err(parser.unexpected(offset));
        }
    }
    match open.pop() {
        Some(range) => Err(InvalidJsonPath::RangeWithoutEnd { offset: range.offset }),
        None => Ok(parts),
    }
}

/// What braces enclose.
enum Expression {
    Part(Part),
    Range(Path),
    End,
}

/// Where a key is, and so what ends it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Expression,
    Filter,
    Quotes,
}

impl Within {
    fn ends_key(self, c: char) -> bool {
        match self {
            Self::Expression => is_white_space(c) || ".,[]$@{}".contains(c),
            Self::Filter => Self::Expression.ends_key(c) || "!<>=)".contains(c),
            Self::Quotes => ".'".contains(c),
        }
    }
}

/// Those of two characters first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_white_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

struct Parser<'a> {
    text: &'a str,
    offset: usize,
    /// Whether the template is one expression without braces.
    bare: bool,
    /// Whether the template is one expression, whose first key needs no dot.
    lone: bool,
}

impl<'a> Parser<'a> {
    fn expression(&mut self) -> Result<Expression, InvalidJsonPath> {
        self.skip_white_space();
        let offset = self.offset;
        if let Some(literal) = self.literal()? {
            return Ok(Expression::Part(Part::Literal(literal)));
        }
        Ok(match self.word() {
            "" => Expression::Part(Part::Expression(self.path(Within::Expression)?)),
            "range" => Expression::Range(self.path(Within::Expression)?),
            "end" => Expression::End,
            _ if self.lone => {
                self.offset = offset;
                let mut path = Path(vec![self.key(Within::Expression)?]);
                path.0.append(&mut self.path(Within::Expression)?.0);
                Expression::Part(Part::Expression(path))
            }
            _ => return Err(InvalidJsonPath::UnknownWord { offset }),
        })
    }

    /// Steps for as long as there are any.
    fn path(&mut self, within: Within) -> Result<Path, InvalidJsonPath> {
        let mut steps = Vec::new();
        self.skip_white_space();
        if !self.eat("$") {
            self.eat("@");
        }
        loop {
            self.skip_white_space();
            let offset = self.offset;
            if self.eat("..") {
                if steps.last() == Some(&Step::Descend) {
                    return Err(InvalidJsonPath::Unexpected { offset });
                }
                steps.push(Step::Descend);
                // Without a key it may be all there is, or brackets follow.
                if self.peek().is_some_and(|c| !within.ends_key(c)) {
                    steps.push(self.key(within)?);
                }
            } else if self.eat(".") {
                if self.peek().is_none_or(|c| within.ends_key(c)) {
                    return Err(InvalidJsonPath::ExpectedKey { offset: self.offset });
                }
                steps.push(self.key(within)?);
            } else if self.eat("[") {
                self.brackets(offset, within, &mut steps)?;
            } else {
                return Ok(Path(steps));
            }
        }
    }

    /// A key up to a character that ends it, of which a backslash makes a part of it.
    fn key(&mut self, within: Within) -> Result<Step, InvalidJsonPath> {
        let start = self.offset;
        let mut key = String::new();
        while let Some(c) = self.peek().filter(|c| !within.ends_key(*c)) {
            let offset = self.offset;
            self.skip(c);
            if c == '\\' {
                let escaped = self.peek().ok_or(InvalidJsonPath::InvalidEscape { offset })?;
                self.skip(escaped);
                key.push(escaped);
            } else {
                key.push(c);
            }
        }
        let written = self.text.get(start..self.offset);
        Ok(if written == Some("*") { Step::Wildcard } else { Step::Key(key) })
    }

    /// What is in brackets, the first of which has been read: a filter, or subscripts with commas between them.
    fn brackets(&mut self, open: usize, within: Within, steps: &mut Vec<Step>) -> Result<(), InvalidJsonPath> {
        if self.eat("?(") {
            if within == Within::Filter {
                return Err(InvalidJsonPath::NestedFilter { offset: open });
            }
            steps.push(self.filter(open)?);
            return Ok(());
        }
        let mut branches = Vec::new();
        loop {
            self.skip_white_space();
            let branch = match self.peek() {
                Some('\'') => self.quoted_keys()?,
                _ => Path(vec![self.subscript(open)?]),
            };
            branches.push(branch);
            self.skip_white_space();
            if self.eat("]") {
                break;
            } else if !self.eat(",") {
                return Err(self.unexpected(open));
            }
        }
        match branches.pop() {
            Some(mut only) if branches.is_empty() => steps.append(&mut only.0),
            last => {
                branches.extend(last);
                steps.push(Step::Union(branches));
            }
        }
        Ok(())
    }

    /// Keys with dots between them in single quotes.
    fn quoted_keys(&mut self) -> Result<Path, InvalidJsonPath> {
        let open = self.offset;
        self.eat("'");
        let mut keys = Vec::new();
        loop {
            keys.push(self.key(Within::Quotes)?);
            if self.eat("'") {
                return Ok(Path(keys));
            } else if !self.eat(".") {
                return Err(InvalidJsonPath::Unclosed { offset: open });
            }
        }
    }

    /// `*`, an index, or up to three numbers with colons between them, of which any may be missing.
    fn subscript(&mut self, open: usize) -> Result<Step, InvalidJsonPath> {
        if self.eat("*") {
            return Ok(Step::Wildcard);
        }
        let first = self.offset;
        let start = self.index()?;
        if !self.eat(":") {
            let missing = match self.peek() {
                None => InvalidJsonPath::Unclosed { offset: open },
                Some(_) => InvalidJsonPath::InvalidIndex { offset: first },
            };
            return start.map(Step::Index).ok_or(missing);
        }
        let end = self.index()?;
        let mut step = NonZeroUsize::MIN;
        if self.eat(":") {
            let offset = self.offset;
            if let Some(number) = self.index()? {
                let number = usize::try_from(number).ok().and_then(NonZeroUsize::new);
                step = number.ok_or(InvalidJsonPath::InvalidIndex { offset })?;
            }
        }
        Ok(Step::Slice { start, end, step })
    }

    fn index(&mut self) -> Result<Option<i64>, InvalidJsonPath> {
        let offset = self.offset;
        let digits = self.take_until(|c| c != '-' && !c.is_ascii_digit());
        if digits.is_empty() {
            return Ok(None);
        }
        digits.parse().map(Some).map_err(|_| InvalidJsonPath::InvalidIndex { offset })
    }

    /// What follows `[?(`.
    fn filter(&mut self, open: usize) -> Result<Step, InvalidJsonPath> {
        let left = self.operand(open)?;
        self.skip_white_space();
        let comparison = COMPARISONS.into_iter().find(|(sign, _)| self.eat(sign));
        let test = match comparison {
            Some((_, comparison)) => Some((comparison, self.operand(open)?)),
            None => None,
        };
        self.skip_white_space();
        if self.eat(")") && self.eat("]") { Ok(Step::Filter { left, test }) } else { Err(self.unexpected(open)) }
    }

    fn operand(&mut self, open: usize) -> Result<Operand, InvalidJsonPath> {
        self.skip_white_space();
        if let Some(literal) = self.literal()? {
            return Ok(Operand::Literal(literal));
        }
        match self.peek() {
            Some('@' | '$' | '.' | '[') => self.path(Within::Filter).map(Operand::Path),
            Some(c) if is_word(c) => Err(InvalidJsonPath::UnknownWord { offset: self.offset }),
            _ => Err(self.unexpected(open)),
        }
    }

    /// Text in quotes, a number or a truth value, unless something else is here.
    fn literal(&mut self) -> Result<Option<Value>, InvalidJsonPath> {
        let offset = self.offset;
        match self.peek() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote).map(|text| Some(Value::from(text))),
            Some('0'..='9' | '+' | '-') => {
                let digits = self.take_until(|c| !matches!(c, '0'..='9' | '+' | '-' | '.'));
                if let Ok(number) = digits.parse::<i64>() {
                    return Ok(Some(Value::Int(number)));
                }
                let number = digits.parse().ok().filter(|number: &f64| number.is_finite());
                Ok(Some(Value::number(number.ok_or(InvalidJsonPath::InvalidNumber { offset })?)))
            }
            _ => {
                let literal = match self.word() {
                    "true" => Some(Value::Bool(true)),
                    "false" => Some(Value::Bool(false)),
                    _ => None,
                };
                if literal.is_none() {
                    self.offset = offset;
                }
                Ok(literal)
            }
        }
    }

    /// Text in quotes with Go's escapes: `strconv.UnquoteChar`.
    fn quoted(&mut self, quote: char) -> Result<String, InvalidJsonPath> {
        let open = self.offset;
        self.skip(quote);
        let mut text = String::new();
        loop {
            let offset = self.offset;
            let c = self.peek().ok_or(InvalidJsonPath::Unclosed { offset: open })?;
            self.skip(c);
            match c {
                '\\' => text.push(self.escaped(quote).ok_or(InvalidJsonPath::InvalidEscape { offset })?),
                _ if c == quote => return Ok(text),
                _ => text.push(c),
            }
        }
    }

    /// What a backslash before it makes of the text that follows.
    fn escaped(&mut self, quote: char) -> Option<char> {
        let c = self.peek()?;
        if c.is_digit(8) {
            return self.coded(3, 8).filter(char::is_ascii);
        }
        self.skip(c);
        match c {
            'a' => Some('\u{7}'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            '\\' => Some('\\'),
            // Go makes bytes of these, which above ASCII are no text.
            'x' => self.coded(2, 16).filter(char::is_ascii),
            'u' => self.coded(4, 16),
            'U' => self.coded(8, 16),
            _ => Some(c).filter(|c| *c == quote),
        }
    }

    fn coded(&mut self, digits: usize, radix: u32) -> Option<char> {
        let code = self.text.get(self.offset..self.offset.checked_add(digits)?)?;
        self.offset += digits;
        // The number's own parser would take a sign.
        let digits = code.chars().all(|c| c.is_digit(radix));
        char::from_u32(u32::from_str_radix(code, radix).ok().filter(|_| digits)?)
    }

    fn word(&mut self) -> &'a str {
        self.take_until(|c| !is_word(c))
    }

    fn take_until(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let taken = self.rest().split(ends).next().unwrap_or_default();
        self.offset += taken.len();
        taken
    }

    fn skip_white_space(&mut self) {
        self.take_until(|c| !is_white_space(c));
    }

    fn skip(&mut self, c: char) {
        self.offset += c.len_utf8();
    }

    fn eat(&mut self, expected: &str) -> bool {
        let found = self.rest().starts_with(expected);
        if found {
            self.offset += expected.len();
        }
        found
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    /// What is here does not belong here, or the text has ended within what was opened.
    fn unexpected(&self, open: usize) -> InvalidJsonPath {
        if self.rest().is_empty() {
            InvalidJsonPath::Unclosed { offset: open }
        } else {
            InvalidJsonPath::Unexpected { offset: self.offset }
        }
    }
}
