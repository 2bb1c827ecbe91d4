//! What an error says together with what caused it.

use std::error::Error;
use std::fmt;

/// An error and its causes in one line, outermost first: `cannot connect: Connection refused (os error 111)`.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

/// The last cause alone. Of transports it says what happened, and those before it only that something did: `Connection refused (os
/// error 111)`, `invalid peer certificate: UnknownIssuer`.
pub fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn each_cause_is_said_once() {
        let alone = Link("a", None);
        assert_eq!((Chain(&alone).to_string(), innermost(&alone).to_string()), ("a".to_owned(), "a".to_owned()));
        let caused = Link("a", Some(Box::new(Link("b", Some(Box::new(Link("c", None)))))));
        assert_eq!(
            (Chain(&caused).to_string(), innermost(&caused).to_string()),
            ("a: b: c".to_owned(), "c".to_owned())
        );
    }
}
