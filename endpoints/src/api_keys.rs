//! The account's API keys over HTTP (device-lane section 1).

use crate::{
    address::RelayAddress,
    api::{Api, ApiError},
};
use hyper::Method;
use relay_protocol::{id::ApiKeyId, identity::Scopes};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `POST /api/api-keys` takes.
#[derive(Clone, Debug, Serialize)]
pub struct NewApiKey {
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is to allow; at least one.
    pub scopes: Scopes,
}

/// A key as the relay shows it. Fields that a newer relay adds are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// Names it; not its secret.
    pub api_key_id: ApiKeyId,
    /// For people.
    pub name: Option<String>,
    /// What it allows.
    pub scopes: Scopes,
    /// RFC 3339.
    pub created_at: String,
}

/// A key that was just made, with what is shown only now.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatedApiKey {
    /// What the relay shows from now on.
    #[serde(flatten)]
    pub shown: ApiKey,
    /// The key itself: the bearer token. A secret.
    pub api_key: String,
}

impl fmt::Debug for CreatedApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedApiKey").field("shown", &self.shown).finish_non_exhaustive()
    }
}

/// A client of the API keys of one account. Only the account's own token may use them.
#[derive(Clone)]
pub struct ApiKeys {
    api: Api,
}

impl ApiKeys {
    /// A client; nothing is sent yet.
    pub fn new(address: RelayAddress, token: String) -> Result<Self, ApiError> {
        Ok(ApiKeys { api: Api::new(address, token)? })
    }

    /// Makes a key.
    pub async fn create(&self, key: &NewApiKey) -> Result<CreatedApiKey, ApiError> {
        self.api.json(Method::POST, "/api/api-keys", Some(key)).await
    }

    /// The account's keys that are not revoked.
    pub async fn list(&self) -> Result<Vec<ApiKey>, ApiError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct List {
            api_keys: Vec<ApiKey>,
        }
        let list: List = self.api.json(Method::GET, "/api/api-keys", None::<&()>).await?;
        Ok(list.api_keys)
    }

    /// Revokes a key: it is refused from now on, and the sockets that it opened are closed.
    pub async fn revoke(&self, key: ApiKeyId) -> Result<(), ApiError> {
        self.api.done(Method::DELETE, &format!("/api/api-keys/{key}"), None::<&()>).await
    }
}
