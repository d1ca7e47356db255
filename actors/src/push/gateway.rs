//! What a provider of pushes is to the push actor: it takes one push and gives a verdict. The implementations, which know HTTP and
//! keys, are outside of this crate.

use crate::clock::EpochMs;
use async_trait::async_trait;
use relay_protocol::{id::DeviceId, push::PushAddress};
use std::{sync::Arc, time::Duration};

/// What a push says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Silent: this desktop is there. Apps restore their connection.
    DesktopOnline {
        /// The desktop.
        desktop: DeviceId,
        /// When it registered.
        at: EpochMs,
    },
    /// Shown to the phone's owner.
    Alert(Arc<Alert>),
}

impl Content {
    /// Whether nothing of it is shown.
    pub fn is_silent(&self) -> bool {
        matches!(self, Content::DesktopOnline { .. })
    }
}

/// A text for the phone's owner, written by an agent on a desktop. Private, so `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Alert {
    /// The desktop that sent it; none for a test by an operator.
    pub desktop: Option<DeviceId>,
    /// Names it among those of its account; the same is never sent twice in a day.
    pub notification_id: Box<str>,
    /// 1 to 200 characters.
    pub title: Box<str>,
    /// 1 to 2,000 characters.
    pub body: Box<str>,
    /// The session that it is about.
    pub app_session_id: Option<Box<str>>,
}

impl std::fmt::Debug for Alert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alert").field("desktop", &self.desktop).finish_non_exhaustive()
    }
}

/// One push to one phone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The phone's token.
    pub address: PushAddress,
    /// What it says.
    pub content: Content,
    /// The provider shows the newest alone of those with one key: at most 64 bytes of ASCII. Sent once more after a lost answer, a push
    /// is seen once.
    pub collapse_key: Arc<str>,
    /// How long the provider keeps it for a phone that cannot be reached.
    pub keep_for: Duration,
}

/// What is to be waited with before a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This push only.
    Push,
    /// Everything for this provider.
    Provider,
}

/// What became of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The provider has it.
    Sent {
        /// Its name there, for support.
        id: Option<String>,
    },
    /// The token reaches nobody any more, and is to be forgotten.
    TokenDead {
        /// The provider's word for why.
        reason: String,
        /// Since when, where the provider says so: a claim of the same token made later than that is good.
        since: Option<EpochMs>,
    },
    /// Neither now nor later: the push or the configuration is at fault, not the token.
    Refused {
        /// The provider's word for why, or ours.
        reason: String,
    },
    /// Not now.
    Retry {
        /// The provider's word for why, or ours.
        reason: String,
        /// How long the provider asks to wait.
        wait: Option<Duration>,
        /// What waits.
        scope: Scope,
    },
}

impl Verdict {
    /// The word for metrics and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Sent { .. } => "sent",
            Verdict::TokenDead { .. } => "tokenDead",
            Verdict::Refused { .. } => "refused",
            Verdict::Retry { .. } => "retry",
        }
    }
}

/// Sends to one provider. Many pushes may be on the way at once; how many, the push actor decides.
#[async_trait]
pub trait Gateway: Send + Sync + 'static {
    /// Sends a push and waits for what becomes of it. Ends within a deadline of its own, with [`Verdict::Retry`] where the provider does
    /// not answer. Reasons are at most 200 bytes, printable, and never hold a token or a text of the push.
    async fn send(&self, push: &Outgoing) -> Verdict;
}
