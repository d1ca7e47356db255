//! Which providers of pushes the relay is set up for.

use super::{ConfigError, refuse};
use crate::{
    http_client::{self, NotAnHttpAddress},
    push_gateways,
};
use hyper::Uri;
use relay_protocol::push::AppId;
use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

/// The flags of pushes. Without any, none is sent.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct PushConfig {
    /// Send pushes to iPhones: file with the key that Apple's developer site gives for them (AuthKey_….p8)
    #[arg(long, env = "RELAY_APNS_KEY", value_name = "FILE")]
    pub apns_key: Option<PathBuf>,
    /// Id of --apns-key, ten characters, as Apple's developer site shows it
    #[arg(long, env = "RELAY_APNS_KEY_ID", value_name = "TEXT")]
    pub apns_key_id: Option<String>,
    /// Id of the team that the key belongs to, ten characters
    #[arg(long, env = "RELAY_APNS_TEAM_ID", value_name = "TEXT")]
    pub apns_team_id: Option<String>,
    /// Bundle ids of the apps that may be pushed to; the first is meant where a phone names none
    #[arg(long, env = "RELAY_APNS_TOPIC", value_name = "APP,...", value_delimiter = ',')]
    pub apns_topic: Vec<AppId>,
    /// Send to this address instead of Apple's two services, for tests
    #[arg(long, env = "RELAY_APNS_URL", value_name = "URL")]
    pub apns_url: Option<ProviderUrl>,
    /// Send pushes to Android phones: file with the service account of the Firebase project (JSON)
    #[arg(long, env = "RELAY_FCM_SERVICE_ACCOUNT", value_name = "FILE")]
    pub fcm_service_account: Option<PathBuf>,
    /// Send to this address instead of Google's service, for tests
    #[arg(long, env = "RELAY_FCM_URL", value_name = "URL")]
    pub fcm_url: Option<ProviderUrl>,
    /// Log pushes instead of sending them, for development
    #[arg(long, env = "RELAY_PUSH_LOG", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", value_name = "true|false")]
    pub push_log: bool,
}

/// The origin of a provider's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderUrl(pub Uri);

impl FromStr for ProviderUrl {
    type Err = NotAnHttpAddress;

    fn from_str(text: &str) -> Result<Self, NotAnHttpAddress> {
        http_client::address(text).map(ProviderUrl)
    }
}

/// What is needed to push to iPhones.
pub struct ApnsSettings<'a> {
    /// The key's file.
    pub key: &'a Path,
    /// Its id.
    pub key_id: &'a str,
    /// Its team's.
    pub team_id: &'a str,
    /// At least one app.
    pub topics: &'a [AppId],
    /// Instead of Apple's services.
    pub url: Option<&'a Uri>,
}

impl PushConfig {
    /// What is needed to push to iPhones; none where that is not wanted.
    ///
    /// # Errors
    /// A part of it is missing, or can be none.
    pub fn apns(&self) -> Result<Option<ApnsSettings<'_>>, ConfigError> {
        let Some(key) = &self.apns_key else {
            for (flag, is_given) in [
                ("--apns-key-id", self.apns_key_id.is_some()),
                ("--apns-team-id", self.apns_team_id.is_some()),
                ("--apns-topic", !self.apns_topic.is_empty()),
            ] {
                if is_given {
                    return refuse(flag, "needs --apns-key");
                }
            }
            return Ok(None);
        };
        let key_id = id("--apns-key-id", self.apns_key_id.as_deref())?;
        let team_id = id("--apns-team-id", self.apns_team_id.as_deref())?;
        if self.apns_topic.is_empty() {
            return refuse("--apns-topic", "must name the app's bundle id when --apns-key is given");
        }
        Ok(Some(ApnsSettings { key, key_id, team_id, topics: &self.apns_topic, url: self.apns_url.as_ref().map(|url| &url.0) }))
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let is_set_up = self.apns()?.is_some() || self.fcm_service_account.is_some();
        if self.push_log && is_set_up {
            return refuse("--push-log", "sends nothing: leave it out, or --apns-key and --fcm-service-account");
        }
        Ok(())
    }
}

fn id<'a>(flag: &'static str, given: Option<&'a str>) -> Result<&'a str, ConfigError> {
    match given {
        None => refuse(flag, "must be given with --apns-key"),
        Some(text) if push_gateways::is_apple_id(text) => Ok(text),
        Some(_) => refuse(flag, "must be ten capital letters and digits, as Apple's developer site shows it"),
    }
}
