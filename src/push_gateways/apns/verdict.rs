//! What Apple's answers mean (Apple, "Handling notification responses from APNs").

use super::super::transport::{Answer, word};
use relay_actors::{
    clock::EpochMs,
    push::{Scope, Verdict},
};
use serde::Deserialize;

/// What an answer means to who sent the push.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The push actor's business.
    Final(Verdict),
    /// The provider token is to be made anew, and the push sent once more.
    TokenExpired,
}

impl Judgement {
    /// The verdict when a new provider token has been tried, or may not be made yet.
    pub(super) fn after_renewal(self) -> Verdict {
        match self {
            Judgement::Final(verdict) => verdict,
            Judgement::TokenExpired => Verdict::Retry { reason: "ExpiredProviderToken".to_owned(), wait: None, scope: Scope::Provider },
        }
    }
}

#[derive(Default, Deserialize)]
struct Body {
    #[serde(default)]
    reason: String,
    /// Since when the token is dead, in milliseconds since 1970.
    timestamp: Option<i64>,
}

pub(super) fn of(answer: &Answer) -> Judgement {
    let Answer { status, headers, body } = answer;
    if status.is_success() {
        let id = headers.get("apns-id").and_then(|id| id.to_str().ok()).map(word);
        return Judgement::Final(Verdict::Sent { id });
    }
    // What is no JSON was not written by Apple's service, or by one in trouble: the status alone counts.
    let Body { reason, timestamp } = serde_json::from_slice(body).unwrap_or_default();
    let named = if reason.is_empty() { format!("status {}", status.as_u16()) } else { word(&reason) };
    let retry = |scope| Verdict::Retry { reason: named.clone(), wait: answer.retry_after(), scope };
    Judgement::Final(match (status.as_u16(), &*reason) {
        (410, _) => Verdict::TokenDead { reason: named, since: timestamp.map(EpochMs) },
        (400, "BadDeviceToken" | "DeviceTokenNotForTopic") => Verdict::TokenDead { reason: named, since: None },
        (403, "ExpiredProviderToken") => return Judgement::TokenExpired,
        // Of one phone; the others go on.
        (429, "TooManyRequests") => retry(Scope::Push),
        (429 | 500..=599, _) => retry(Scope::Provider),
        _ => Verdict::Refused { reason: named },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::{HeaderMap, StatusCode, header::RETRY_AFTER};
    use std::time::Duration;

    fn judged(status: u16, body: &str) -> Judgement {
        of(&Answer { status: StatusCode::from_u16(status).unwrap(), headers: HeaderMap::new(), body: body.to_owned().into() })
    }

    fn of_reason(status: u16, reason: &str) -> Judgement {
        judged(status, &format!(r#"{{"reason":"{reason}"}}"#))
    }

    fn retry(reason: &str, scope: Scope) -> Judgement {
        Judgement::Final(Verdict::Retry { reason: reason.into(), wait: None, scope })
    }

    /// C72: a token is dead by a verdict about the token only.
    #[test]
    fn c72_only_what_is_said_of_the_token_kills_it() {
        let dead = |reason: &str, since| Judgement::Final(Verdict::TokenDead { reason: reason.into(), since });
        assert_eq!(
            judged(410, r#"{"reason":"Unregistered","timestamp":1700000000123}"#),
            dead("Unregistered", Some(EpochMs(1_700_000_000_123)))
        );
        assert_eq!(of_reason(410, "ExpiredToken"), dead("ExpiredToken", None));
        for reason in ["BadDeviceToken", "DeviceTokenNotForTopic"] {
            assert_eq!(of_reason(400, reason), dead(reason, None));
        }
        for (status, reason) in [
            (400, "PayloadEmpty"),
            (400, "BadTopic"),
            (400, "TopicDisallowed"),
            (400, "BadCollapseId"),
            (403, "InvalidProviderToken"),
            (403, "Forbidden"),
            (404, "BadPath"),
            (405, "MethodNotAllowed"),
            (413, "PayloadTooLarge"),
        ] {
            assert_eq!(of_reason(status, reason), Judgement::Final(Verdict::Refused { reason: reason.into() }));
        }
    }

    #[test]
    fn who_has_to_wait_is_told_apart() {
        assert_eq!(of_reason(429, "TooManyRequests"), retry("TooManyRequests", Scope::Push));
        assert_eq!(of_reason(429, "TooManyProviderTokenUpdates"), retry("TooManyProviderTokenUpdates", Scope::Provider));
        assert_eq!(of_reason(500, "InternalServerError"), retry("InternalServerError", Scope::Provider));
        assert_eq!(of_reason(503, "Shutdown"), retry("Shutdown", Scope::Provider));
        let expired = of_reason(403, "ExpiredProviderToken");
        assert_eq!(expired, Judgement::TokenExpired);
        assert!(matches!(expired.after_renewal(), Verdict::Retry { scope: Scope::Provider, .. }));
        let headers = HeaderMap::from_iter([(RETRY_AFTER, "17".parse().unwrap())]);
        let answer = Answer { status: StatusCode::SERVICE_UNAVAILABLE, headers, body: "".into() };
        let Judgement::Final(Verdict::Retry { wait, .. }) = of(&answer) else { panic!("no retry") };
        assert_eq!(wait, Some(Duration::from_secs(17)));
    }

    #[test]
    fn an_answer_that_is_no_json_counts_by_its_status() {
        for body in ["", "<html>", "[]", r#"{"reason":7}"#] {
            assert_eq!(judged(502, body), retry("status 502", Scope::Provider));
            assert_eq!(judged(400, body), Judgement::Final(Verdict::Refused { reason: "status 400".into() }));
        }
    }

    #[test]
    fn a_push_that_was_taken_has_apples_name() {
        let headers = HeaderMap::from_iter([("apns-id".parse().unwrap(), "EC1".parse().unwrap())]);
        let answer = Answer { status: StatusCode::OK, headers, body: "".into() };
        assert_eq!(of(&answer), Judgement::Final(Verdict::Sent { id: Some("EC1".into()) }));
    }
}
