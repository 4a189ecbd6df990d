//! Log lines: fields first, then a short message, as text or as JSON on standard error.

use std::{backtrace::Backtrace, error::Error, fmt, io, panic};

use holdfast_config::limits::error_text;
use tracing::error;
use tracing_subscriber::{EnvFilter, fmt::format::FmtSpan, util::SubscriberInitExt};

use crate::settings::LogFormat;

/// Default filter, in the syntax of `tracing`; `RUST_LOG` overrides it.
const DEFAULT_FILTER: &str = "info";
/// Environment variable with the filter.
const FILTER_VARIABLE: &str = "RUST_LOG";

/// Sends log lines to standard error, and panics of any thread to the log.
pub fn start(format: LogFormat) {
    let filter =
        EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_target(false);
    // A second call, as in tests, keeps the first subscriber.
    let _installed = match format {
        LogFormat::Text => builder.with_ansi(false).finish().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    };
    log_panics();
}

/// Logs panics. A panic ends its task and not the agent, so this line is its only trace.
fn log_panics() {
    panic::set_hook(Box::new(|info| {
        let message = info.payload_as_str().unwrap_or("no message");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        error!(
            thread = thread.name().unwrap_or("unnamed"),
            place,
            backtrace = %Backtrace::capture(),
            "panic: {message}"
        );
    }));
}

/// Prints an error and all its causes, once: `what failed: why: why that`.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'e>(pub &'e (dyn Error + 'e));

/// At most as long as an error text, because causes repeat client input.
impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&error_text(&Whole(self.0)))
    }
}

struct Whole<'e>(&'e (dyn Error + 'e));

impl fmt::Display for Whole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = error_text(self.0);
        f.write_str(&said)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error_text(error);
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            said = text;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_config::limits::{CUT_MARK, ERROR_TEXT};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failure {
        text: &'static str,
        source: Option<Box<Failure>>,
    }

    #[test]
    fn a_chain_names_each_cause_once() {
        let failure =
            |text, source: Option<Failure>| Failure { text, source: source.map(Box::new) };
        let deep = failure(
            "cannot open a.pem",
            Some(failure("io error", Some(failure("io error", None)))),
        );
        assert_eq!(Chain(&deep).to_string(), "cannot open a.pem: io error");
        assert_eq!(Chain(&failure("alone", None)).to_string(), "alone");
        let long = "x".repeat(3000).leak();
        let text =
            Chain(&failure("why", Some(failure(long, Some(failure("y", None)))))).to_string();
        assert!(text.starts_with("why: xxx") && text.ends_with("x: y"), "{text}");
        let twice = failure(long, Some(failure("then", Some(failure(long, None)))));
        let text = Chain(&twice).to_string();
        assert!(text.len() <= ERROR_TEXT.figure && text.ends_with(CUT_MARK), "{text}");
    }
}
