//! `POST /admin/push/test`: sends one alert to one phone, and answers with what its provider says.

use crate::http::{Api, auth::Operator, body, error::ApiError, only};
use actix_web::{
    HttpResponse,
    web::{self, Payload, ServiceConfig},
};
use relay_actors::push::{NotTested, Tested, Verdict};
use relay_protocol::{id::DeviceId, push::Provider};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/admin/push/test").post(test).default_service(only("POST")));
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    device_id: &'a RawValue,
}

/// What became of the test.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VerdictView {
    provider: Provider,
    verdict: &'static str,
    /// The push's name at the provider, if it took it and gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Why it did not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<Tested> for VerdictView {
    fn from(Tested { provider, verdict }: Tested) -> Self {
        let name = verdict.name();
        let (id, reason) = match verdict {
            Verdict::Sent { id } => (id, None),
            Verdict::TokenDead { reason, .. } | Verdict::Refused { reason } | Verdict::Retry { reason, .. } => (None, Some(reason)),
        };
        VerdictView { provider, verdict: name, id, reason }
    }
}

/// 200 whatever the verdict: the test was made. A token that is called dead is kept, so that the test can be made again.
async fn test(_: Operator, payload: Payload, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let body = body::read(payload).await?;
    let Fields { device_id } = body::fields(&body)?;
    let device: DeviceId = body::value("deviceId", device_id, "a UUID")?;
    let tested = api.relay.test_push(device).await.map_err(|refused| match refused {
        NotTested::NoToken => ApiError::PushTokenNotFound,
        NotTested::NotConfigured(provider) => ApiError::PushNotConfigured(provider),
        NotTested::Unavailable => ApiError::StorageUnavailable,
    })?;
    tracing::info!(%device, provider = %tested.provider, verdict = tested.verdict.name(), "push tested by an operator");
    Ok(HttpResponse::Ok().json(VerdictView::from(tested)))
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
