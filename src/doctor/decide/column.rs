use crate::report::Figure;

/// What a column of the decision table comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Holds,
    No,
    Unknown,
}

/// One column of a row, with what shows it, or with what is missing.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) state: State,
    pub(super) evidence: Vec<Figure>,
    pub(super) missing: Vec<String>,
}

impl Column {
    /// A column that holds or not, with the figures that show it either way.
    pub(super) fn of(holds: bool, evidence: Vec<Figure>) -> Self {
        Self { state: if holds { State::Holds } else { State::No }, evidence, missing: Vec::new() }
    }

    /// What it is about is not there.
    pub(super) fn unknown(missing: impl Into<String>) -> Self {
        Self { state: State::Unknown, evidence: Vec::new(), missing: vec![missing.into()] }
    }

    /// Both; what one denies need not be known of the other.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.state = match (self.state, other.state) {
            (State::No, _) | (_, State::No) => State::No,
            (State::Unknown, _) | (_, State::Unknown) => State::Unknown,
            _ => State::Holds,
        };
        self.take(other);
        self
    }

    /// One of two ways to know the same: what either knows is known.
    pub(super) fn or(mut self, other: Self) -> Self {
        match (self.state, other.state) {
            (State::Holds, State::Holds) => self.take(other),
            (State::Holds, _) | (State::No, State::Unknown) => {}
            (_, State::Holds) | (State::Unknown, State::No) => return other,
            (State::No, State::No) | (State::Unknown, State::Unknown) => self.take(other),
        }
        self
    }

    /// A second way to know, for when the first does not.
    pub(super) fn otherwise(mut self, other: Self) -> Self {
        match (self.state, other.state) {
            (State::Unknown, State::Unknown) => self.take(other),
            (State::Unknown, _) => return other,
            _ => {}
        }
        self
    }

    /// The contrary, shown by the same figures.
    pub(super) fn not(mut self) -> Self {
        self.state = match self.state {
            State::Holds => State::No,
            State::No => State::Holds,
            State::Unknown => State::Unknown,
        };
        self
    }

    /// With figures that decide nothing and are good to see.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.evidence.extend(other.evidence);
        self
    }

    pub(super) fn holds(&self) -> bool {
        self.state == State::Holds
    }

    fn take(&mut self, other: Self) {
        self.evidence.extend(other.evidence);
        for missing in other.missing {
            if !self.missing.contains(&missing) {
                self.missing.push(missing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::State::{Holds, No, Unknown};
    use super::*;

    fn column(state: State) -> Column {
        match state {
            Unknown => Column::unknown("x"),
            state => Column::of(state == Holds, Vec::new()),
        }
    }

    #[test]
    fn columns_are_of_three_values() {
        for (a, b, both, either) in [
            (Holds, Holds, Holds, Holds),
            (Holds, No, No, Holds),
            (Holds, Unknown, Unknown, Holds),
            (No, No, No, No),
            (No, Unknown, No, No),
            (Unknown, Unknown, Unknown, Unknown),
        ] {
            for (a, b) in [(a, b), (b, a)] {
                assert_eq!(column(a).and(column(b)).state, both, "{a:?} and {b:?}");
                assert_eq!(column(a).or(column(b)).state, either, "{a:?} or {b:?}");
            }
        }
        for (a, b, state) in [(Holds, No, Holds), (No, Holds, No), (Unknown, No, No), (Unknown, Unknown, Unknown)] {
            assert_eq!(column(a).otherwise(column(b)).state, state, "{a:?}, or else {b:?}");
        }
        assert_eq!([Holds, No, Unknown].map(|state| column(state).not().state), [No, Holds, Unknown]);
        assert_eq!(column(Unknown).and(column(Unknown)).missing, ["x"]);
    }
}
