//! The providers of pushes: Apple, Google, and a log for development. Each is a [`Gateway`] of the push actor, which decides what is
//! sent when; what is here knows HTTP, keys, and what a provider's words mean.
//!
//! | file | owns |
//! | --- | --- |
//! | `apns` | APNs over HTTP/2 with provider tokens |
//! | `fcm` | FCM HTTP v1 with a service account |
//! | `transport` | HTTP/2 connections, deadlines, and which requests a broken one cannot have carried out |
//! | `shorten` | texts that must fit what a provider takes |
//! | `key_file` | keys in files |
//! | `log` | what would have been sent |

mod apns;
mod fcm;
mod key_file;
mod log;
mod shorten;
mod transport;

pub use apns::{Apns, ApnsKey, ApnsKeyError, is_apple_id};
pub use fcm::{AccountError, Fcm, ServiceAccount};
pub use key_file::KeyFileError;
pub use log::Logged;

use crate::config::{ConfigError, PushConfig};
use relay_actors::push::{Gateway, Gateways};
use relay_protocol::push::Provider;
use std::{path::Path, sync::Arc};

/// The gateways of this configuration: keys are read and tried now, so that what is wrong with one is told at the start.
///
/// # Errors
/// A key cannot be used; the text says which flag, which file, and why.
pub fn open(config: &PushConfig) -> Result<Gateways, ConfigError> {
    if config.push_log {
        return Ok(Provider::ALL.into_iter().map(|provider| (provider, Arc::new(Logged) as Arc<dyn Gateway>)).collect());
    }
    let mut gateways = Gateways::new();
    if let Some(apns) = config.apns()? {
        let key = ApnsKey::read(apns.key, apns.key_id, apns.team_id).map_err(|error| in_file("--apns-key", apns.key, error))?;
        let gateway = Apns::new(key, apns.topics.to_vec(), apns.url.cloned());
        let gateway = gateway.map_err(|error| ConfigError { flag: "--apns-key", problem: format!("needs root certificates: {error}") })?;
        gateways.insert(Provider::Apns, Arc::new(gateway));
    }
    if let Some(path) = &config.fcm_service_account {
        let account = ServiceAccount::read(path).map_err(|error| in_file("--fcm-service-account", path, error))?;
        let gateway = Fcm::new(account, config.fcm_url.as_ref().map(|url| url.0.clone()))
            .map_err(|error| ConfigError { flag: "--fcm-service-account", problem: format!("needs root certificates: {error}") })?;
        gateways.insert(Provider::Fcm, Arc::new(gateway));
    }
    Ok(gateways)
}

fn in_file(flag: &'static str, path: &Path, error: impl std::fmt::Display) -> ConfigError {
    ConfigError { flag, problem: format!("{}: {error}", path.display()) }
}
