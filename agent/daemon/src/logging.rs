//! Log lines: fields first, then a short message, as text or as JSON on standard error.

use std::{backtrace::Backtrace, io, panic};

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
