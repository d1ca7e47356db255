//! The question whether this version of an application may work with the relay, asked over HTTP before a socket is opened (seed: the
//! version gate). It fails open: whatever is no clear "no" lets the desktop connect, since the registration is what enforces.

use crate::{
    PROTOCOL_VERSION,
    address::RelayAddress,
    api::{Api, ApiError},
};
use hyper::Method;
use relay_protocol::compatibility::{ClientResult, Descriptor};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use tokio::time::timeout;

/// The whole check, from connecting to the last byte. Seed.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
const CHECK_PATH: &str = "/public/compatibility/check";

/// What a check came to.
#[derive(Debug)]
pub enum Checked {
    /// It may connect.
    Compatible,
    /// It may not.
    Incompatible(Incompatible),
    /// There was no answer about it.
    Unknown(NoVerdict),
}

/// The relay's refusal of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incompatible {
    /// Why, as the relay names it: one of device-lane section 7's decisions, or one that a newer relay has.
    pub decision: String,
    /// For people: what to do.
    pub message: String,
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.decision, self.message)
    }
}

impl std::error::Error for Incompatible {}

/// Why a check decided nothing.
#[derive(Debug)]
pub enum NoVerdict {
    /// No answer, an error, or a body that does not parse.
    Failed(ApiError),
    /// Not within [`CHECK_TIMEOUT`].
    TimedOut,
    /// An answer that says nothing of the desktop.
    NoDesktopResult,
}

impl fmt::Display for NoVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoVerdict::Failed(error) => error.fmt(f),
            NoVerdict::TimedOut => write!(f, "no answer within {} s", CHECK_TIMEOUT.as_secs()),
            NoVerdict::NoDesktopResult => f.write_str("the answer says nothing of the desktop"),
        }
    }
}

/// What this program says of itself.
pub fn this_program() -> Descriptor {
    Descriptor {
        app_version: env!("CARGO_PKG_VERSION").to_owned(),
        platform: std::env::consts::OS.to_owned(),
        relay_protocol_version: PROTOCOL_VERSION.to_owned(),
    }
}

/// Asks about a desktop alone, without a token: the check asks for none.
pub async fn check_desktop(address: &RelayAddress, descriptor: &Descriptor) -> Checked {
    #[derive(Serialize)]
    struct Question<'a> {
        desktop: &'a Descriptor,
    }
    /// The part that this decides by. `decision` stays text: a newer relay may know more of them.
    #[derive(Deserialize)]
    struct Answer {
        compatible: bool,
        decision: String,
        message: String,
        desktop: Option<ClientResult>,
    }
    let asked = timeout(CHECK_TIMEOUT, async {
        Api::anonymous(address.clone())?.json::<Answer>(Method::POST, CHECK_PATH, Some(&Question { desktop: descriptor })).await
    });
    match asked.await {
        Err(_elapsed) => Checked::Unknown(NoVerdict::TimedOut),
        Ok(Err(error)) => Checked::Unknown(NoVerdict::Failed(error)),
        Ok(Ok(Answer { desktop: None, .. })) => Checked::Unknown(NoVerdict::NoDesktopResult),
        Ok(Ok(Answer { compatible: true, .. })) => Checked::Compatible,
        Ok(Ok(Answer { decision, message, .. })) => Checked::Incompatible(Incompatible { decision, message }),
    }
}
