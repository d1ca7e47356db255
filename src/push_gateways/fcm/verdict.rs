//! What Google's answers mean (Firebase, "FCM error codes"; google.rpc.Status).

use super::super::transport::{Answer, word};
use relay_actors::push::{Scope, Verdict};
use serde::Deserialize;
use std::time::Duration;

/// Google asks for at least ten seconds before a retry, and for a minute where a quota is used up and no time is named.
const WAIT_MIN: Duration = Duration::from_secs(10);
const QUOTA_WAIT: Duration = Duration::from_secs(60);

/// The type of the detail that says what is wrong with a message.
const FCM_ERROR: &str = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
/// The type of the detail that names fields.
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
/// The field that is the token.
const TOKEN_FIELD: &str = "message.token";

#[derive(Default, Deserialize)]
struct Body {
    #[serde(default)]
    error: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    status: String,
    #[serde(default)]
    details: Vec<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    #[serde(rename = "@type", default)]
    kind: String,
    #[serde(rename = "errorCode", default)]
    error_code: String,
    #[serde(rename = "fieldViolations", default)]
    field_violations: Vec<FieldViolation>,
}

#[derive(Deserialize)]
struct FieldViolation {
    #[serde(default)]
    field: String,
}

#[derive(Deserialize)]
struct Sent {
    name: String,
}

pub(super) fn of(answer: &Answer) -> Verdict {
    let status = answer.status;
    if status.is_success() {
        let name = serde_json::from_slice::<Sent>(&answer.body).ok().map(|sent| word(&sent.name));
        return Verdict::Sent { id: name };
    }
    // What is no JSON was not written by Google's service, or by one in trouble: the status alone counts.
    let Body { error } = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = error.details.iter().find(|detail| detail.kind == FCM_ERROR).map_or("", |detail| &*detail.error_code);
    let is_about_token = error.details.iter().filter(|detail| detail.kind == BAD_REQUEST).any(|detail| {
        // One that names the token along with others may be a malformed message.
        !detail.field_violations.is_empty() && detail.field_violations.iter().all(|violation| violation.field == TOKEN_FIELD)
    });
    let named = match (code, &*error.status) {
        ("", "") => format!("status {}", status.as_u16()),
        ("", named) | (named, _) => word(named),
    };
    let retry = |least: Duration| Verdict::Retry {
        reason: named.clone(),
        wait: Some(answer.retry_after().unwrap_or_default().max(least)),
        scope: Scope::Provider,
    };
    match (status.as_u16(), code) {
        (404, "UNREGISTERED") => Verdict::TokenDead { reason: named, since: None },
        (400, "INVALID_ARGUMENT" | "") if is_about_token => Verdict::TokenDead { reason: named, since: None },
        (_, "QUOTA_EXCEEDED") | (429, _) => retry(if answer.retry_after().is_some() { WAIT_MIN } else { QUOTA_WAIT }),
        (401 | 500..=599, _) => retry(WAIT_MIN),
        _ => Verdict::Refused { reason: named },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::{HeaderMap, StatusCode, header::RETRY_AFTER};
    use serde_json::{Value, json};

    fn answered(status: u16, wait: Option<&str>, body: &str) -> Verdict {
        let headers = wait.map(|wait| (RETRY_AFTER, wait.parse().unwrap())).into_iter().collect::<HeaderMap>();
        of(&Answer { status: StatusCode::from_u16(status).unwrap(), headers, body: body.to_owned().into() })
    }

    fn coded(status: u16, name: &str, code: &str) -> String {
        json!({"error": {"code": status, "message": "m", "status": name, "details": [{"@type": FCM_ERROR, "errorCode": code}]}}).to_string()
    }

    fn violated(fields: &[&str]) -> String {
        let violations: Vec<Value> = fields.iter().map(|field| json!({"field": field, "description": "d"})).collect();
        let details = json!([
            {"@type": FCM_ERROR, "errorCode": "INVALID_ARGUMENT"},
            {"@type": BAD_REQUEST, "fieldViolations": violations}
        ]);
        json!({"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT", "details": details}}).to_string()
    }

    fn refused(reason: &str) -> Verdict {
        Verdict::Refused { reason: reason.into() }
    }

    fn retry(reason: &str, seconds: u64) -> Verdict {
        Verdict::Retry { reason: reason.into(), wait: Some(Duration::from_secs(seconds)), scope: Scope::Provider }
    }

    /// C72: the same word is said of a dead token and of a bad message; which it is stands in the details.
    #[test]
    fn c72_only_what_is_said_of_the_token_kills_it() {
        let dead = |reason: &str| Verdict::TokenDead { reason: reason.into(), since: None };
        assert_eq!(answered(404, None, &coded(404, "NOT_FOUND", "UNREGISTERED")), dead("UNREGISTERED"));
        assert_eq!(answered(400, None, &violated(&["message.token"])), dead("INVALID_ARGUMENT"));
        for fields in [&["message.data[0].value"][..], &["message.token", "message.android.ttl"], &[]] {
            assert_eq!(answered(400, None, &violated(fields)), refused("INVALID_ARGUMENT"), "{fields:?}");
        }
        assert_eq!(answered(400, None, &coded(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT")), refused("INVALID_ARGUMENT"));
        assert_eq!(answered(403, None, &coded(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH")), refused("SENDER_ID_MISMATCH"));
        assert_eq!(answered(404, None, ""), refused("status 404"));
        assert_eq!(answered(404, None, &json!({"error": {"status": "NOT_FOUND"}}).to_string()), refused("NOT_FOUND"), "the project");
    }

    #[test]
    fn google_is_asked_again_when_it_says_and_never_at_once() {
        assert_eq!(answered(429, Some("17"), &coded(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")), retry("QUOTA_EXCEEDED", 17));
        assert_eq!(answered(429, Some("1"), &coded(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")), retry("QUOTA_EXCEEDED", 10));
        assert_eq!(answered(429, None, ""), retry("status 429", 60));
        assert_eq!(answered(503, None, &coded(503, "UNAVAILABLE", "UNAVAILABLE")), retry("UNAVAILABLE", 10));
        assert_eq!(answered(500, Some("90"), &coded(500, "INTERNAL", "INTERNAL")), retry("INTERNAL", 90));
        assert_eq!(answered(401, None, &coded(401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR")), retry("THIRD_PARTY_AUTH_ERROR", 10));
        assert_eq!(answered(502, None, "<html>"), retry("status 502", 10));
    }

    #[test]
    fn a_push_that_was_taken_has_googles_name() {
        let name = "projects/p/messages/0:1";
        assert_eq!(answered(200, None, &json!({ "name": name }).to_string()), Verdict::Sent { id: Some(name.into()) });
        assert_eq!(answered(200, None, "<html>"), Verdict::Sent { id: None });
    }
}
