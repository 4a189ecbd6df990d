//! Errors with their causes, for the log and for messages.

use std::{error::Error, fmt};

use holdfast_common::error_text;

/// Prints an error and all its causes, once: `what failed: why: why that`.
#[derive(Debug, Clone, Copy)]
pub struct ErrorChain<'e>(pub &'e (dyn Error + 'e));

/// At most as long as an error text, because causes repeat client input.
impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&error_text(&UntruncatedChain(self.0)))
    }
}

struct UntruncatedChain<'e>(&'e (dyn Error + 'e));

impl fmt::Display for UntruncatedChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut message = error_text(self.0);
        f.write_str(&message)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error_text(error);
            if !message.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            message = text;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_common::{CUT_MARK, ERROR_TEXT_OCTETS};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failure {
        text: &'static str,
        source: Option<Box<Failure>>,
    }

    #[test]
    fn error_chain_names_each_cause_once() {
        let failure =
            |text, source: Option<Failure>| Failure { text, source: source.map(Box::new) };
        let deep = failure(
            "cannot open a.pem",
            Some(failure("io error", Some(failure("io error", None)))),
        );
        assert_eq!(ErrorChain(&deep).to_string(), "cannot open a.pem: io error");
        assert_eq!(ErrorChain(&failure("alone", None)).to_string(), "alone");
        let long = "x".repeat(3000).leak();
        let text =
            ErrorChain(&failure("why", Some(failure(long, Some(failure("y", None)))))).to_string();
        assert!(text.starts_with("why: xxx") && text.ends_with("x: y"), "{text}");
        let twice = failure(long, Some(failure("then", Some(failure(long, None)))));
        let text = ErrorChain(&twice).to_string();
        assert!(text.len() <= ERROR_TEXT_OCTETS && text.ends_with(CUT_MARK), "{text}");
    }
}
