//! Everything that an HTTP call can be refused with (device-lane section 2), and its body `{"error":{"code","message","retryable"}}`.

use super::handshakes::TooMany;
use crate::limits::{API_KEYS_PER_ACCOUNT_MAX, COMPATIBILITY_RULES_MAX};
use actix_web::{
    HttpResponse, ResponseError,
    http::{StatusCode, header},
};
use relay_actors::{relay::RouterUnavailable, store::StoreError};
use relay_protocol::{identity::Scope, push::Provider};
use serde::Serialize;
use std::{borrow::Cow, fmt};

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// No bearer token was sent.
    TokenMissing,
    /// The bearer token does not prove an account, or, on the admin side, is not the admin token.
    TokenInvalid,
    /// The bearer token proved an account until its `exp`.
    TokenExpired,
    /// The bearer is an API key without the scope that this needs.
    InsufficientScope(Scope),
    /// The bearer is an API key, and this is for the account's own token only.
    AccountTokenRequired,
    /// The bearer token may prove an account, but the keys to tell cannot be had now.
    KeysUnavailable,
    /// The body or query breaks a rule; the text names the field.
    InvalidPayload(String),
    /// The device id in the path is not a UUID.
    InvalidDeviceId,
    /// The body is over the cap.
    PayloadTooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The account has no such device.
    DeviceNotFound,
    /// The device is a desktop, which takes no pushes.
    NotAPhone,
    /// The device id belongs to another account.
    DeviceOwnershipFailed,
    /// The account has as many devices as it may.
    TooManyDevices,
    /// The account has no such API key.
    ApiKeyNotFound,
    /// The account has as many API keys as it may.
    TooManyApiKeys,
    /// No phone with this id has a push token.
    PushTokenNotFound,
    /// The relay is not set up for this provider of pushes.
    PushNotConfigured(Provider),
    /// There is no such compatibility rule.
    CompatibilityRuleNotFound,
    /// There are as many compatibility rules as there may be.
    TooManyCompatibilityRules,
    /// There is no registered socket with this connection id.
    ConnectionNotFound,
    /// There is no such path.
    NotFound,
    /// The path does not take this method.
    MethodNotAllowed {
        /// The methods that it takes, as the `Allow` header lists them.
        allow: &'static str,
    },
    /// A websocket of a version other than 13.
    UpgradeRequired,
    /// Too many handshakes, or calls without a valid token, from one address.
    TooManyHandshakes(TooMany),
    /// A stored compatibility rule does not parse.
    PolicyUnavailable,
    /// Storage cannot answer now.
    StorageUnavailable,
    /// The account's router did not answer in time.
    RouterUnavailable,
    /// The process is leaving.
    RelayDraining,
}

/// How long a 503 asks its caller to wait, in seconds.
const RETRY_AFTER_SECONDS: &str = "1";

impl ApiError {
    /// The word that programs act on.
    pub fn code(&self) -> &'static str {
        match self {
            ApiError::TokenMissing | ApiError::TokenInvalid | ApiError::TokenExpired => "unauthorized",
            ApiError::InsufficientScope(_) => "insufficientScope",
            ApiError::AccountTokenRequired => "accountTokenRequired",
            ApiError::KeysUnavailable => "keysUnavailable",
            ApiError::InvalidPayload(_) => "invalidPayload",
            ApiError::InvalidDeviceId => "invalidDeviceId",
            ApiError::PayloadTooLarge => "payloadTooLarge",
            ApiError::BodyTimeout => "requestTimeout",
            ApiError::DeviceNotFound => "deviceNotFound",
            ApiError::NotAPhone => "notAPhone",
            ApiError::DeviceOwnershipFailed => "deviceOwnershipFailed",
            ApiError::TooManyDevices => "tooManyDevices",
            ApiError::ApiKeyNotFound => "apiKeyNotFound",
            ApiError::TooManyApiKeys => "tooManyApiKeys",
            ApiError::PushTokenNotFound => "pushTokenNotFound",
            ApiError::PushNotConfigured(_) => "pushNotConfigured",
            ApiError::CompatibilityRuleNotFound => "compatibilityRuleNotFound",
            ApiError::TooManyCompatibilityRules => "tooManyCompatibilityRules",
            ApiError::ConnectionNotFound => "connectionNotFound",
            ApiError::NotFound => "notFound",
            ApiError::MethodNotAllowed { .. } => "methodNotAllowed",
            ApiError::UpgradeRequired => "upgradeRequired",
            ApiError::TooManyHandshakes(_) => "tooManyHandshakes",
            ApiError::PolicyUnavailable => "relayProtocolPolicyUnavailable",
            ApiError::StorageUnavailable => "storageUnavailable",
            ApiError::RouterUnavailable => "routerUnavailable",
            ApiError::RelayDraining => "relayDraining",
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            ApiError::TokenMissing | ApiError::TokenInvalid | ApiError::TokenExpired => StatusCode::UNAUTHORIZED,
            ApiError::InsufficientScope(_) | ApiError::AccountTokenRequired => StatusCode::FORBIDDEN,
            ApiError::InvalidPayload(_) | ApiError::InvalidDeviceId => StatusCode::BAD_REQUEST,
            ApiError::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            ApiError::DeviceNotFound
            | ApiError::ApiKeyNotFound
            | ApiError::PushTokenNotFound
            | ApiError::CompatibilityRuleNotFound
            | ApiError::ConnectionNotFound
            | ApiError::NotFound => StatusCode::NOT_FOUND,
            ApiError::NotAPhone
            | ApiError::DeviceOwnershipFailed
            | ApiError::TooManyDevices
            | ApiError::TooManyApiKeys
            | ApiError::PushNotConfigured(_)
            | ApiError::TooManyCompatibilityRules => StatusCode::CONFLICT,
            ApiError::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
            ApiError::KeysUnavailable
            | ApiError::PolicyUnavailable
            | ApiError::StorageUnavailable
            | ApiError::RouterUnavailable
            | ApiError::RelayDraining => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::TooManyHandshakes(_) => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            ApiError::KeysUnavailable
            | ApiError::TooManyHandshakes(_)
            | ApiError::BodyTimeout
            | ApiError::PolicyUnavailable
            | ApiError::StorageUnavailable
            | ApiError::RouterUnavailable
            | ApiError::RelayDraining => true,
            ApiError::TokenMissing
            | ApiError::TokenInvalid
            | ApiError::TokenExpired
            | ApiError::InsufficientScope(_)
            | ApiError::AccountTokenRequired
            | ApiError::InvalidPayload(_)
            | ApiError::InvalidDeviceId
            | ApiError::PayloadTooLarge
            | ApiError::DeviceNotFound
            | ApiError::NotAPhone
            | ApiError::DeviceOwnershipFailed
            | ApiError::TooManyDevices
            | ApiError::ApiKeyNotFound
            | ApiError::TooManyApiKeys
            | ApiError::PushTokenNotFound
            | ApiError::PushNotConfigured(_)
            | ApiError::CompatibilityRuleNotFound
            | ApiError::TooManyCompatibilityRules
            | ApiError::ConnectionNotFound
            | ApiError::NotFound
            | ApiError::MethodNotAllowed { .. }
            | ApiError::UpgradeRequired => false,
        }
    }

    /// The text for people.
    pub fn message(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            ApiError::TokenMissing => "send a bearer token in the Authorization header",
            ApiError::TokenInvalid => "the bearer token is not valid here",
            ApiError::TokenExpired => "the bearer token has expired",
            ApiError::InsufficientScope(scope) => return Cow::Owned(format!("this API key lacks the scope {}", scope.as_str())),
            ApiError::AccountTokenRequired => "API keys are managed with an account token (JWT), not with a key",
            ApiError::KeysUnavailable => "the keys that verify this bearer token cannot be had now",
            ApiError::InvalidPayload(problem) => return Cow::Owned(problem.clone()),
            ApiError::InvalidDeviceId => "the device id in the path is not a UUID",
            ApiError::PayloadTooLarge => "the body is too large",
            ApiError::BodyTimeout => "the body did not arrive in time",
            ApiError::DeviceNotFound => "the account has no such device",
            ApiError::NotAPhone => "the device is a desktop; pushes go to phones",
            ApiError::DeviceOwnershipFailed => "the device id belongs to another account",
            ApiError::TooManyDevices => "the account has as many devices as it may, forgotten ones counted; register one of them again",
            ApiError::ApiKeyNotFound => "the account has no such API key",
            ApiError::TooManyApiKeys => {
                return Cow::Owned(format!("the account has {API_KEYS_PER_ACCOUNT_MAX} API keys, as many as it may; revoke one first"));
            }
            ApiError::PushTokenNotFound => "no phone with this id has a push token",
            ApiError::PushNotConfigured(provider) => return Cow::Owned(format!("this relay is not set up for {provider}")),
            ApiError::CompatibilityRuleNotFound => "there is no such compatibility rule",
            ApiError::TooManyCompatibilityRules => {
                return Cow::Owned(format!("there are {COMPATIBILITY_RULES_MAX} compatibility rules, as many as there may be"));
            }
            ApiError::ConnectionNotFound => "no registered socket has this connection id",
            ApiError::NotFound => "there is nothing at this path",
            ApiError::MethodNotAllowed { .. } => "this path does not take this method",
            ApiError::UpgradeRequired => "only websocket version 13 is spoken here",
            ApiError::TooManyHandshakes(_) => "too many handshakes, or calls without a valid token, from this address",
            ApiError::PolicyUnavailable => "a compatibility rule cannot be read; try again later",
            ApiError::StorageUnavailable => "storage cannot answer now",
            ApiError::RouterUnavailable => "the account's router did not answer in time",
            ApiError::RelayDraining => "this relay is leaving; connect again to reach its successor",
        })
    }

    /// The challenge of a 401, or of a 403 that another token could pass (RFC 6750 section 3): an error word only when a token was sent.
    fn challenge(&self) -> Option<&'static str> {
        match self {
            ApiError::InsufficientScope(Scope::Rpc) => Some(r#"Bearer error="insufficient_scope", scope="rpc""#),
            ApiError::InsufficientScope(Scope::Read) => Some(r#"Bearer error="insufficient_scope", scope="read""#),
            ApiError::InsufficientScope(Scope::Write) => Some(r#"Bearer error="insufficient_scope", scope="write""#),
            ApiError::TokenMissing => Some("Bearer"),
            ApiError::TokenInvalid | ApiError::TokenExpired => Some(r#"Bearer error="invalid_token""#),
            ApiError::AccountTokenRequired
            | ApiError::KeysUnavailable
            | ApiError::InvalidPayload(_)
            | ApiError::InvalidDeviceId
            | ApiError::PayloadTooLarge
            | ApiError::BodyTimeout
            | ApiError::DeviceNotFound
            | ApiError::NotAPhone
            | ApiError::DeviceOwnershipFailed
            | ApiError::TooManyDevices
            | ApiError::ApiKeyNotFound
            | ApiError::TooManyApiKeys
            | ApiError::PushTokenNotFound
            | ApiError::PushNotConfigured(_)
            | ApiError::CompatibilityRuleNotFound
            | ApiError::TooManyCompatibilityRules
            | ApiError::ConnectionNotFound
            | ApiError::NotFound
            | ApiError::MethodNotAllowed { .. }
            | ApiError::UpgradeRequired
            | ApiError::TooManyHandshakes(_)
            | ApiError::PolicyUnavailable
            | ApiError::StorageUnavailable
            | ApiError::RouterUnavailable
            | ApiError::RelayDraining => None,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message())
    }
}

impl std::error::Error for ApiError {}

#[derive(Serialize)]
struct Body<'a> {
    error: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    code: &'a str,
    message: &'a str,
    retryable: bool,
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.status()
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status());
        if let Some(challenge) = self.challenge() {
            response.insert_header((header::WWW_AUTHENTICATE, challenge));
        }
        if let ApiError::MethodNotAllowed { allow } = self {
            response.insert_header((header::ALLOW, *allow));
        }
        if self == &ApiError::UpgradeRequired {
            // RFC 6455 section 4.4: the versions that are spoken; RFC 9110 section 15.5.22: the protocol that they belong to.
            response.insert_header((header::SEC_WEBSOCKET_VERSION, "13"));
            response.insert_header((header::UPGRADE, "websocket"));
        }
        if let ApiError::TooManyHandshakes(TooMany { retry_after }) = self {
            response.insert_header((header::RETRY_AFTER, retry_after.as_secs().to_string()));
        }
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
        }
        response.json(Body { error: Detail { code: self.code(), message: &self.message(), retryable: self.retryable() } })
    }
}

impl From<TooMany> for ApiError {
    fn from(too_many: TooMany) -> Self {
        ApiError::TooManyHandshakes(too_many)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(cause) => {
                tracing::warn!(cause, "storage did not answer an api call");
                ApiError::StorageUnavailable
            }
            StoreError::OtherAccount => ApiError::DeviceOwnershipFailed,
            StoreError::TooManyDevices => ApiError::TooManyDevices,
        }
    }
}

impl From<RouterUnavailable> for ApiError {
    fn from(RouterUnavailable: RouterUnavailable) -> Self {
        tracing::warn!("a router did not answer an api call");
        ApiError::RouterUnavailable
    }
}
