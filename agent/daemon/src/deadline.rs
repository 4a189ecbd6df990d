//! Deadlines: the time until which the client of a request waits for the answer, and waiting for a time that may be missing.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::{Instant, sleep_until};

/// Most digits of `grpc-timeout`.
const MAX_DIGITS: usize = 8;

/// The time until which a client waits that has sent `grpc-timeout` (gRPC over HTTP/2, "Requests"). A form that is not
/// understood sets none.
pub(crate) fn deadline_of(headers: &HeaderMap, now: Instant) -> Option<Instant> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    now.checked_add(timeout(text)?)
}

/// Waits for this moment; without one, never resolves.
pub(crate) async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last().filter(char::is_ascii)?;
    let digits = &text[..text.len() - 1];
    let is_number =
        (1..=MAX_DIGITS).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
    let number: u64 = is_number.then(|| digits.parse().ok()).flatten()?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_number_of_up_to_eight_digits_with_its_unit() {
        for (text, want) in [
            ("2H", Some(Duration::from_secs(7200))),
            ("3M", Some(Duration::from_secs(180))),
            ("10S", Some(Duration::from_secs(10))),
            ("2500m", Some(Duration::from_millis(2500))),
            ("7u", Some(Duration::from_micros(7))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("0S", Some(Duration::ZERO)),
            ("123456789n", None),
            ("S", None),
            ("", None),
            ("10", None),
            ("+1S", None),
            ("1.5S", None),
            ("5s", None),
            ("5\u{b5}", None),
        ] {
            assert_eq!(timeout(text), want, "{text}");
        }
    }
}
