//! What a collector's answer to a batch means, and when the batch is tried again. Pure: no I/O, no clock, the RNG is an argument.
//!
//! The rules are those of the OTLP specification, section OTLP/HTTP Response: 200 is success, if need be a partial one; 429, 502, 503,
//! 504 and a failed connection are for another attempt, after `Retry-After` or a growing wait; any other answer is final.
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>

use crate::limits::{OTLP_RETRY_BACKOFF, OTLP_RETRY_LIFE};
use hyper::{StatusCode, header::HeaderValue};
use rand::Rng;
use relay_endpoints::backoff::Backoff;
use serde::{Deserialize, Deserializer, de::Error};
use std::time::{Duration, Instant};

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The collector has the batch.
    Taken {
        /// But so many of its spans it does not want.
        rejected: u64,
    },
    /// It does not want the batch.
    Rejected(String),
    /// It may want it later.
    NotNow {
        /// The least time until then, if it says.
        after: Option<Duration>,
        /// What is wrong.
        error: String,
    },
}

impl Answer {
    /// What an answer means that is no success. A `Retry-After` that is a date is passed over: OTLP's own example has seconds, and a wait
    /// must not depend on whose clock is right.
    pub(super) fn of_failure(status: StatusCode, retry_after: Option<&HeaderValue>) -> Self {
        let error = format!("answered {status}");
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                let seconds = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                Answer::NotNow { after: seconds.map(Duration::from_secs), error }
            }
            _ => Answer::Rejected(error),
        }
    }

    /// What a success means, by its body. One that cannot be read is a whole success.
    pub(super) fn of_success(body: &[u8]) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Success {
            partial_success: Partial,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Partial {
            #[serde(deserialize_with = "int64")]
            rejected_spans: u64,
        }
        let Success { partial_success } = serde_json::from_slice(body).unwrap_or_default();
        Answer::Taken { rejected: partial_success.rejected_spans }
    }
}

/// An int64 of protobuf in JSON is a string; a reader takes a number too.
fn int64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Int64 {
        Number(u64),
        Text(String),
    }
    match Int64::deserialize(deserializer)? {
        Int64::Number(number) => Ok(number),
        Int64::Text(text) => text.parse().map_err(D::Error::custom),
    }
}

/// One batch between its first attempt and its end.
#[derive(Debug)]
pub(super) struct Delivery {
    began: Instant,
    backoff: Backoff,
}

impl Delivery {
    /// A batch that is about to be tried for the first time.
    pub(super) fn new(now: Instant) -> Self {
        Delivery { began: now, backoff: Backoff::new(OTLP_RETRY_BACKOFF) }
    }

    /// How long to wait until the next attempt; none when there is to be no other.
    pub(super) fn next_wait(&mut self, now: Instant, after: Option<Duration>, rng: &mut impl Rng) -> Option<Duration> {
        let own = self.backoff.next_wait(rng);
        let wait = after.map_or(own, |after| after.clamp(OTLP_RETRY_BACKOFF.first, OTLP_RETRY_BACKOFF.max));
        (now + wait < self.began + OTLP_RETRY_LIFE).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};
    use relay_actors::clock;

    fn failure(status: u16, retry_after: Option<&str>) -> Answer {
        let header = retry_after.map(|text| HeaderValue::from_str(text).unwrap());
        Answer::of_failure(StatusCode::from_u16(status).unwrap(), header.as_ref())
    }

    #[test]
    fn four_answers_are_for_another_attempt_and_all_others_are_final() {
        for status in [300, 301, 307, 400, 401, 403, 404, 408, 413, 415, 500, 501, 505, 599] {
            assert!(matches!(failure(status, Some("1")), Answer::Rejected(error) if error.contains(&status.to_string())), "{status}");
        }
        for status in [429, 502, 503, 504] {
            for (header, expected) in [
                (None, None),
                (Some("0"), Some(0)),
                (Some("17"), Some(17)),
                (Some(" 17 "), Some(17)),
                (Some("18446744073709551615"), Some(u64::MAX)),
                (Some("18446744073709551616"), None),
                (Some("-1"), None),
                (Some("1.5"), None),
                (Some("Wed, 21 Oct 2015 07:28:00 GMT"), None),
                (Some(""), None),
            ] {
                let Answer::NotNow { after, error } = failure(status, header) else { panic!("{status} {header:?}") };
                assert_eq!((after, error.contains(&status.to_string())), (expected.map(Duration::from_secs), true), "{status} {header:?}");
            }
        }
    }

    #[test]
    fn a_partial_success_says_how_many_are_rejected() {
        for (body, rejected) in [
            ("", 0),
            ("{}", 0),
            ("<html>", 0),
            (r#"{"partialSuccess":{}}"#, 0),
            (r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#, 3),
            (r#"{"partialSuccess":{"rejectedSpans":4},"other":1}"#, 4),
            (r#"{"partialSuccess":{"rejectedSpans":-4}}"#, 0),
            (r#"{"partialSuccess":{"rejectedSpans":"many"}}"#, 0),
            (r#"{"partialSuccess":null}"#, 0),
        ] {
            assert_eq!(Answer::of_success(body.as_bytes()), Answer::Taken { rejected }, "{body}");
        }
    }

    #[test]
    fn waits_grow_by_themselves_and_what_the_collector_asks_for_is_bounded() {
        let (now, mut rng) = (clock::now(), StdRng::seed_from_u64(1));
        let mut delivery = Delivery::new(now);
        let mut cap = OTLP_RETRY_BACKOFF.first;
        for _ in 0..8 {
            assert!(delivery.next_wait(now, None, &mut rng).unwrap() <= cap);
            cap = (2 * cap).min(OTLP_RETRY_BACKOFF.max);
        }
        for (asked_s, expected_s) in [(0, 1), (1, 1), (17, 17), (30, 30), (31, 30), (u64::MAX, 30)] {
            let wait = delivery.next_wait(now, Some(Duration::from_secs(asked_s)), &mut rng);
            assert_eq!(wait, Some(Duration::from_secs(expected_s)));
        }
    }

    #[test]
    fn a_batch_is_given_up_when_its_next_attempt_would_come_at_the_end_of_its_life() {
        let (began, mut rng, ms) = (clock::now(), StdRng::seed_from_u64(1), Duration::from_millis(1));
        let wait = Duration::from_secs(2);
        let mut next = |age: Duration| Delivery::new(began).next_wait(began + age, Some(wait), &mut rng);
        assert_eq!(next(OTLP_RETRY_LIFE - wait - ms), Some(wait));
        assert_eq!(next(OTLP_RETRY_LIFE - wait), None);
        assert_eq!(next(OTLP_RETRY_LIFE * 2), None);
    }
}
