//! The gateways to Apple and Google against servers that speak HTTP/2 as those do, and as those do when something is wrong.
//!
//! | module | shows |
//! | --- | --- |
//! | `apns`, `fcm` | what is sent, and what becomes of each answer |
//! | `sessions` | connections that end, refuse or stand still, frame by frame |
//! | `frames` | a server that writes HTTP/2 frames by hand |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "../support/mod.rs"]
mod support;

mod apns;
mod fcm;
mod frames;
mod sessions;

use relay::push_gateways::{Apns, ApnsKey};
use relay_actors::{
    clock::EpochMs,
    push::{Alert, Content, Outgoing},
};
use relay_protocol::{
    id::DeviceId,
    push::{Environment, Provider, PushAddress},
};
use std::{sync::Arc, time::Duration};
use support::{
    push_server::{KEY_ID, TEAM_ID, TOPIC},
    signing_keys::P256_A,
};
use uuid::Uuid;

const DESKTOP: DeviceId = DeviceId(Uuid::from_u128(7));
const TOKEN: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";

/// A client of the server at this address.
fn apns(url: &str) -> Arc<Apns> {
    let key = ApnsKey::parse(&P256_A.pem(), KEY_ID, TEAM_ID).unwrap();
    Arc::new(Apns::new(key, vec![TOPIC.parse().unwrap(), "org.example.other".parse().unwrap()], Some(url.parse().unwrap())).unwrap())
}

fn push(provider: Provider, content: Content) -> Outgoing {
    let address = PushAddress { provider, token: TOKEN.parse().unwrap(), environment: Environment::Production, app_id: None };
    Outgoing { address, content, collapse_key: "collapse".into(), keep_for: Duration::from_secs(3_600) }
}

fn silent(provider: Provider) -> Outgoing {
    push(provider, Content::DesktopOnline { desktop: DESKTOP, at: EpochMs(1_800_000_000_000) })
}

fn alert(provider: Provider, id: &str) -> Outgoing {
    let alert = Alert {
        desktop: Some(DESKTOP),
        notification_id: id.into(),
        title: "Title".into(),
        body: "Body".into(),
        app_session_id: Some("session".into()),
    };
    push(provider, Content::Alert(Arc::new(alert)))
}
