//! `POST /public/compatibility/check`: whether client versions may work together here, asked before a socket is opened (device-lane
//! section 7). Nobody has to prove who they are, so calls are limited for each address, and rules are read at most once in a while.

use super::{Api, body, error::ApiError, only};
use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, Payload, ServiceConfig},
};
use relay_actors::{clock, store::Store};
use relay_protocol::compatibility::{Descriptor, Policy};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/public/compatibility/check").post(check).default_service(only("POST")));
}

/// The rules, read again once they are older than registrations may use them.
#[derive(Debug)]
pub struct PolicyCache {
    max_age: Duration,
    /// Held over a read, so that all who need it wait for one.
    last: Mutex<Option<Read>>,
}

#[derive(Debug)]
struct Read {
    /// When the call came that began it: a rule that was added after that may be missing.
    asked: Instant,
    ended: Instant,
    outcome: Result<Arc<Policy>, ApiError>,
}

impl PolicyCache {
    /// Nothing is read yet.
    pub fn new(max_age: Duration) -> Self {
        PolicyCache { max_age, last: Mutex::new(None) }
    }

    /// For a call of this time. A failure is for those who waited for it, so that the next call sees a repaired rule at once.
    async fn policy(&self, store: &dyn Store, asked: Instant) -> Result<Arc<Policy>, ApiError> {
        let mut last = self.last.lock().await;
        if let Some(read) = &*last {
            let is_usable = match &read.outcome {
                Ok(_policy) => asked.saturating_duration_since(read.asked) <= self.max_age,
                Err(_refusal) => asked <= read.ended,
            };
            if is_usable {
                return read.outcome.clone();
            }
        }
        let outcome = read(store).await.map(Arc::new);
        *last = Some(Read { asked, ended: clock::now(), outcome: outcome.clone() });
        outcome
    }
}

async fn read(store: &dyn Store) -> Result<Policy, ApiError> {
    let rules = store.compatibility_rules().await?;
    Policy::new(rules.iter().map(|rule| (rule.id, &rule.spec))).map_err(|bad| {
        tracing::warn!(%bad, "compatibility rules cannot be used");
        ApiError::PolicyUnavailable
    })
}

/// Fields that this relay does not know are passed over: whoever asks may well be newer.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    desktop: Option<&'a RawValue>,
    #[serde(borrow)]
    mobile: Option<&'a RawValue>,
}

async fn check(request: HttpRequest, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    api.handshakes.count(&request, None)?;
    let body = body::read(payload).await?;
    let fields: Fields<'_> = body::fields(&body)?;
    let (desktop, mobile) = (descriptor("desktop", fields.desktop)?, descriptor("mobile", fields.mobile)?);
    let policy = api.policy.policy(&*api.store, clock::now()).await?;
    Ok(HttpResponse::Ok().json(policy.check(desktop.as_ref(), mobile.as_ref())))
}

fn descriptor(name: &str, raw: Option<&RawValue>) -> Result<Option<Descriptor>, ApiError> {
    let Some(raw) = raw else { return Ok(None) };
    let what = "an object with the strings appVersion, platform and relayProtocolVersion";
    // An array would do for serde's idea of a struct.
    if !raw.get().starts_with('{') {
        return Err(ApiError::InvalidPayload(format!("{name} must be {what}")));
    }
    body::value(name, raw, what).map(Some)
}

#[cfg(test)]
#[path = "compatibility_tests.rs"]
mod tests;
