//! Log lines: fields first, then a short message, as text or as JSON on standard error.

use std::{backtrace::Backtrace, fmt, io, panic};

use clap::ValueEnum;
use tracing::{error, level_filters::LevelFilter};
use tracing_subscriber::{EnvFilter, fmt::format::FmtSpan, util::SubscriberInitExt};

/// Environment variable with a filter in the syntax of `tracing`, which overrides the level.
const FILTER_VARIABLE: &str = "RUST_LOG";

/// The least important lines of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures of the agent, and of what it needs
    Error,
    /// Also what may need somebody
    Warn,
    /// Also what the agent does
    Info,
    /// Also single connections, and why things are decided
    Debug,
    /// Also single steps, for developers
    Trace,
}

impl LogLevel {
    fn filter(self) -> EnvFilter {
        let level = match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        };
        EnvFilter::default().add_directive(level.into())
    }
}

/// Exchanges the filter of the subscriber.
type Exchange = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// The filter of the log, which can be changed while the agent runs.
pub struct LogFilter {
    /// `None` where the environment has a filter, which no level replaces.
    exchange: Option<Exchange>,
}

impl fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFilter").field("is_fixed", &self.exchange.is_none()).finish()
    }
}

impl LogFilter {
    /// Shows lines of this level and of more important ones from now on, unless `RUST_LOG` has a filter.
    pub fn set_level(&self, level: LogLevel) {
        if let Some(exchange) = &self.exchange {
            exchange(level.filter());
        }
    }
}

/// Sends log lines to standard error, as objects of JSON or as text, and panics of any thread to the log.
pub fn start(is_json: bool, level: LogLevel) -> LogFilter {
    let given = EnvFilter::try_from_env(FILTER_VARIABLE).ok();
    let is_fixed = given.is_some();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(given.unwrap_or_else(|| level.filter()))
        .with_writer(io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_target(false);
    // A second call, as in tests, keeps the first subscriber.
    let exchange: Exchange = if is_json {
        let builder = builder.json().flatten_event(true).with_filter_reloading();
        let handle = builder.reload_handle();
        let _installed = builder.finish().try_init();
        Box::new(move |filter| drop(handle.reload(filter)))
    } else {
        let builder = builder.with_ansi(false).with_filter_reloading();
        let handle = builder.reload_handle();
        let _installed = builder.finish().try_init();
        Box::new(move |filter| drop(handle.reload(filter)))
    };
    log_panics();
    LogFilter { exchange: (!is_fixed).then_some(exchange) }
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
