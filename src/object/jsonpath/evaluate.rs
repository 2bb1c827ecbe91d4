//! From a template and a value to text.

use std::cmp::Ordering;
use std::io;

use super::super::{Map, Value};
use super::{Comparison, JsonPath, Operand, Part, Path, Step, TooMuch};

pub(super) struct Evaluation {
    /// How many more values may be gone through. Each step may at most go through all that the step before it found,
    /// so that without a limit the work grows with the power of the number of steps.
    left: usize,
}

impl Evaluation {
    /// As much as goes once through the whole value for each step of the template, and then some.
    pub(super) fn new(template: &JsonPath, value: &Value) -> Self {
        let mut values = 0_usize;
        let mut stack = vec![value];
        while let Some(value) = stack.pop() {
            values += 1;
            stack.extend(children(value));
        }
        Self { left: values.saturating_add(1024).saturating_mul(template.len.saturating_add(32)) }
    }

    pub(super) fn render(&mut self, parts: &[Part], value: &Value, out: &mut dyn io::Write) -> io::Result<()> {
        for part in parts {
            self.spend(1)?;
            match part {
                Part::Text(text) => out.write_all(text.as_bytes())?,
                Part::Literal(literal) => print(literal, out)?,
                Part::Expression(path) => {
                    for (index, value) in self.follow(path, vec![value])?.into_iter().enumerate() {
                        if index > 0 {
                            out.write_all(b" ")?;
                        }
                        print(value, out)?;
                    }
                }
                Part::Range { over, body } => {
                    for value in self.follow(over, vec![value])? {
                        self.spend(1)?;
                        self.render(body, value, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Where a path leads to from each of some values.
    fn follow<'v>(&mut self, path: &'v Path, mut values: Vec<&'v Value>) -> Result<Vec<&'v Value>, TooMuch> {
        for step in &path.0 {
            self.spend(values.len())?;
            let mut found = Vec::new();
            match step {
                // All that one branch finds comes before what the next one does.
                Step::Union(branches) => {
                    for branch in branches {
                        found.append(&mut self.follow(branch, values.clone())?);
                    }
                }
                Step::Key(key) => found.extend(values.iter().filter_map(|value| value.get(key))),
                Step::Wildcard => {
                    for value in values {
                        found.extend(children(value));
                        self.spend(children(value).count())?;
                    }
                }
                Step::Descend => {
                    for value in values {
                        self.descend(value, &mut found)?;
                    }
                }
                Step::Index(index) => {
                    let items = values.iter().filter_map(|value| value.as_array());
                    found.extend(items.filter_map(|items| items.get(position(*index, items)?)));
                }
                Step::Slice { start, end, step } => {
                    for items in values.iter().filter_map(|value| value.as_array()) {
                        let start = start.map_or(Some(0), |start| position(start, items)).unwrap_or(0);
                        let end = end.map_or(Some(items.len()), |end| position(end, items)).unwrap_or(0);
                        let items = items.get(start..end.min(items.len())).unwrap_or_default();
                        self.spend(items.len())?;
                        found.extend(items.iter().step_by(step.get()));
                    }
                }
                Step::Filter { left, test } => {
                    for item in values.iter().filter_map(|value| value.as_array()).flatten() {
                        if self.passes(left, test.as_ref(), item)? {
                            found.push(item);
                        }
                    }
                }
            }
            values = found;
        }
        Ok(values)
    }

    /// All that has anything in it, from the outside to the inside: lists, objects, and strings as well.
    fn descend<'v>(&mut self, value: &'v Value, found: &mut Vec<&'v Value>) -> Result<(), TooMuch> {
        let mut stack = vec![value];
        while let Some(value) = stack.pop() {
            self.spend(1)?;
            let first = stack.len();
            stack.extend(children(value));
            if let Some(pushed) = stack.get_mut(first..) {
                pushed.reverse();
            }
            if stack.len() > first || value.as_str().is_some_and(|text| !text.is_empty()) {
                found.push(value);
            }
        }
        Ok(())
    }

    fn passes(&mut self, left: &Operand, test: Option<&(Comparison, Operand)>, item: &Value) -> Result<bool, TooMuch> {
        let left = self.operand(left, item)?;
        let Some((comparison, right)) = test else { return Ok(!left.is_empty()) };
        let right = self.operand(right, item)?;
        Ok(match (left.as_slice(), right.as_slice()) {
            ([left], [right]) => comparison.holds(left, right),
            _ => false,
        })
    }

    fn operand<'v>(&mut self, operand: &'v Operand, item: &'v Value) -> Result<Vec<&'v Value>, TooMuch> {
        self.spend(1)?;
        match operand {
            Operand::Literal(literal) => Ok(vec![literal]),
            Operand::Path(path) => self.follow(path, vec![item]),
        }
    }

    fn spend(&mut self, values: usize) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(values).ok_or(TooMuch)?;
        Ok(())
    }
}

impl From<TooMuch> for io::Error {
    fn from(error: TooMuch) -> Self {
        Self::other(error)
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = order(left, right);
        let equal = || order.map_or(left == right, Ordering::is_eq);
        match self {
            Self::Equal => equal(),
            Self::NotEqual => !equal(),
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order.is_some_and(Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// Which of two strings or two numbers comes first.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some((**left).cmp(&**right)),
        _ => match (integer(left), integer(right)) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => number(left)?.partial_cmp(&number(right)?),
        },
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) => Some((*number).into()),
        Value::UInt(number) => Some((*number).into()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        _ => integer(value).map(|number| number as f64),
    }
}

/// The items of a list, or the values of an object.
fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let values = value.as_object().into_iter().flat_map(Map::iter).map(|(_, value)| value);
    value.as_array().into_iter().flatten().chain(values)
}

/// An index from either end as one from the start, which may be beyond the end but not before the start.
fn position(index: i64, items: &[Value]) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => items.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

fn print(value: &Value, out: &mut dyn io::Write) -> io::Result<()> {
    match value {
        Value::Null => out.write_all(b"null"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Int(number) => write!(out, "{number}"),
        Value::UInt(number) => write!(out, "{number}"),
        Value::Float(number) => print_float(*number, out),
        Value::String(text) => out.write_all(text.as_bytes()),
        Value::Array(_) | Value::Object(_) => Ok(serde_json::to_writer(out, value)?),
    }
}

/// As Go's `%v` has it: as few digits as tell the number from others, with an exponent of at least two digits if it is
/// below -4 or above 5.
fn print_float(number: f64, out: &mut dyn io::Write) -> io::Result<()> {
    let scientific = format!("{number:e}");
    let parts = scientific.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)));
    match parts {
        Some((digits, exponent)) if !(-4..6).contains(&exponent) => write!(out, "{digits}e{exponent:+03}"),
        _ => write!(out, "{number}"),
    }
}
