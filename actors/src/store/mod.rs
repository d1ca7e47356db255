//! Durable state: devices, their stored status and push tokens, API keys, compatibility rules, and which relay processes there are.
//!
//! [`Store`] is the whole contract. A backend is right when it passes the contract suite in `store/contract.rs`, which runs
//! against each of them. The persistence actor batches what the routers ask for; HTTP handlers call the store directly.

use crate::clock::EpochMs;
use async_trait::async_trait;
use relay_protocol::{
    compatibility::{RuleId, RuleSpec},
    device::{DeviceFacts, Presence, PresenceReason, Role},
    id::{ApiKeyId, DeviceId, RelayInstanceId, UserId},
    identity::Scopes,
    push::PushAddress,
};
use std::{fmt, time::Duration};

#[cfg(test)]
pub(crate) mod contract;
pub mod migrate;
pub mod postgres;
pub mod sqlite;

/// Why a store call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The storage cannot answer now; the caller may retry. The text is for logs, never for clients.
    Unavailable(String),
    /// The device id belongs to another account.
    OtherAccount,
    /// The account has as many devices as it may, forgotten ones counted.
    TooManyDevices,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Unavailable(cause) => write!(f, "storage cannot answer: {cause}"),
            StoreError::OtherAccount => f.write_str("the device belongs to another account"),
            StoreError::TooManyDevices => f.write_str("the account has too many devices"),
        }
    }
}

impl std::error::Error for StoreError {}

/// A device row as its account sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Key, owner, role and eligibility.
    pub facts: DeviceFacts,
    /// Name for people.
    pub name: String,
    /// Operating system, as the client says it.
    pub platform: String,
    /// Version of the client application, as the client says it.
    pub app_version: String,
    /// Stored presence: the last that was written, which after a crash may lag behind.
    pub status: Presence,
    /// When that presence began; none before the first.
    pub status_at: Option<EpochMs>,
    /// First registration; forgetting and coming back does not change it.
    pub created_at: EpochMs,
    /// Last change over HTTP.
    pub updated_at: EpochMs,
}

/// What `POST /api/devices` writes. Texts may hold any Unicode but NUL, which PostgreSQL cannot store: HTTP handlers refuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceWrite {
    /// The row's key, chosen by the client or made for it.
    pub id: DeviceId,
    /// The account.
    pub user: UserId,
    /// Role; a device that registers again takes the new one.
    pub role: Role,
    /// Name for people.
    pub name: String,
    /// Operating system.
    pub platform: String,
    /// Version of the client application.
    pub app_version: String,
    /// Eligibility; `None` keeps what is stored, and is true for a new row.
    pub relay_eligible: Option<bool>,
}

/// What `PATCH /api/devices/{id}` writes; `None` keeps what is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePatch {
    /// Name for people.
    pub name: Option<String>,
    /// Eligibility.
    pub relay_eligible: Option<bool>,
}

/// A registered or updated device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upserted {
    /// The row after the write.
    pub device: Device,
    /// True when there was no such row, or a forgotten one.
    pub created: bool,
}

/// The latest presence of one device, and why it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusWrite {
    /// The device.
    pub device: DeviceId,
    /// Its presence.
    pub status: Presence,
    /// Why; kept in the history only.
    pub reason: PresenceReason,
    /// When it began.
    pub at: EpochMs,
}

/// One change of a device's presence, as it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresenceChange {
    /// What it became.
    pub status: Presence,
    /// Why.
    pub reason: PresenceReason,
    /// When.
    pub at: EpochMs,
    /// The process that wrote it.
    pub instance: RelayInstanceId,
}

/// What the version gate needs of one row of `compatibility_rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimumProtocolRule {
    /// `minimum_relay_protocol_version`, unparsed: a text that does not parse is the policy's fault and fails registrations.
    pub minimum_relay_protocol_version: String,
}

/// One row of `compatibility_rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompatibilityRule {
    /// Names it.
    pub id: RuleId,
    /// What it says. Of one that was added through the relay the texts are valid; storage itself takes any.
    pub spec: RuleSpec,
    /// When it was added.
    pub created_at: EpochMs,
}

/// SHA-256 of an API key: all that is stored of the secret. A key has 32 random bytes, so its plain hash cannot be guessed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKeyHash(pub [u8; 32]);

/// An API key as its account sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Names the key; not its secret.
    pub id: ApiKeyId,
    /// The account.
    pub user: UserId,
    /// Label for people. Any Unicode but NUL, as in [`DeviceWrite`].
    pub name: Option<String>,
    /// What it allows; never empty.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at: EpochMs,
}

/// Phones of one account that are pushed to, those that claimed a token last. Nobody carries more, and each alert goes to all of them.
pub const PUSH_TARGETS_MAX: u32 = 64;

/// What becomes of a claim of a push token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushClaim {
    /// The token is the phone's.
    Claimed {
        /// Whose it was until now.
        moved_from: Option<DeviceId>,
    },
    /// No such device of this account, or forgotten.
    NoSuchDevice,
    /// The device is a desktop.
    NotAPhone,
}

/// A phone that takes pushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushTarget {
    /// The phone.
    pub device: DeviceId,
    /// Where its pushes go.
    pub address: PushAddress,
    /// When the phone claimed the token last; names the claim, since each of a device is later than the one before.
    pub claimed_at: EpochMs,
}

/// What a relay process tells of itself to those that share its storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRecord {
    /// The process.
    pub instance: RelayInstanceId,
    /// Version of the program.
    pub version: String,
    /// Name of its host, for people.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// When it started, by the clock of its host.
    pub started_at: EpochMs,
    /// Whether it is leaving.
    pub is_draining: bool,
}

/// A relay process that counts as alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveProcess {
    /// What it told.
    pub record: ProcessRecord,
    /// How long ago it told so, by the storage's clock.
    pub last_seen: Duration,
}

/// The storage contract. Each call is atomic; none blocks the calling thread.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Registers a device or updates the account's own. A forgotten row of the same account comes back, counted as created and
    /// like a new one: eligible unless said otherwise, disconnected, without a status time. Another account's row, forgotten or
    /// not, is `OtherAccount`. A row more than `limits::DEVICES_PER_ACCOUNT_MAX` of the account, forgotten ones counted, is
    /// `TooManyDevices`, judged in the same transaction; a row that is there can always be updated or come back.
    async fn upsert_device(&self, write: DeviceWrite, now: EpochMs) -> Result<Upserted, StoreError>;

    /// The account's devices that are not forgotten, oldest first (by creation, then id).
    async fn devices_of(&self, user: UserId) -> Result<Vec<Device>, StoreError>;

    /// Changes the account's own device. `None`: no such device of this account, or forgotten.
    async fn patch_device(&self, user: UserId, id: DeviceId, patch: DevicePatch, now: EpochMs) -> Result<Option<Device>, StoreError>;

    /// Forgets the account's own device, and drops its presence history and its push token. False: no such device of this account, or forgotten already.
    async fn forget_device(&self, user: UserId, id: DeviceId, now: EpochMs) -> Result<bool, StoreError>;

    /// The rows behind these ids, in one statement, in any order; unknown and forgotten ones are left out. Duplicates in `ids`
    /// do no harm.
    async fn look_up(&self, ids: &[DeviceId]) -> Result<Vec<DeviceFacts>, StoreError>;

    /// Writes the latest presence of many devices in one transaction, marking the rows as written by this process. Ids without
    /// a row are passed over, and a forgotten row stays forgotten. Of several writes for one device the last counts.
    ///
    /// In the same transaction each write enters its device's history, keyed by device and time: of two in one millisecond the
    /// later is kept, and the same writes once more change nothing. Forgotten devices have none. Of each device that is written
    /// the newest `limits::PRESENCE_HISTORY_MAX` stay.
    async fn write_statuses(&self, writes: &[StatusWrite], instance: RelayInstanceId) -> Result<(), StoreError>;

    /// Marks as disconnected, since `at`, every device (not forgotten) that is stored online or reconnecting by a process that has
    /// gone, one that is neither this one nor among the live ones of [`Store::renew_process`], and says how many. Called one reconnect
    /// wait after the start, and after another process has gone, which is why these changes enter the history, along with the rows and
    /// by the rules of [`Store::write_statuses`], as `GraceElapsed`. The one call that may be
    /// done in parts: when it fails, some may have been ended.
    async fn disconnect_stale(&self, instance: RelayInstanceId, at: EpochMs) -> Result<u64, StoreError>;

    /// The history of a device, newest first: at most `limit` changes, only those before `before` if it is given. Empty for an
    /// unknown and for a forgotten device. Whose device it is, the caller has looked up.
    async fn presence_history(&self, device: DeviceId, before: Option<EpochMs>, limit: u32) -> Result<Vec<PresenceChange>, StoreError>;

    /// Gives a push token to the account's own phone. Another device that has the same token of the same provider, of whatever account,
    /// loses it; the phone's former token is replaced. Of claims at once one after the other is done. A claim is later than the device's
    /// former one, whatever the clock says.
    async fn claim_push_token(&self, user: UserId, device: DeviceId, address: PushAddress, now: EpochMs) -> Result<PushClaim, StoreError>;

    /// Takes the push token of the account's own device away, or those of all its devices; how many there were. Tokens that other
    /// devices have claimed since stay theirs.
    async fn release_push_tokens(&self, user: UserId, device: Option<DeviceId>) -> Result<u64, StoreError>;

    /// The account's phones with a push token that are neither forgotten nor ineligible, the latest claim first, [`PUSH_TARGETS_MAX`] at
    /// most.
    async fn push_targets(&self, user: UserId) -> Result<Vec<PushTarget>, StoreError>;

    /// One such phone, of whatever account.
    async fn push_target(&self, device: DeviceId) -> Result<Option<PushTarget>, StoreError>;

    /// Takes a push token away if it is still of this claim; whether it was.
    async fn drop_push_token(&self, device: DeviceId, claimed_at: EpochMs) -> Result<bool, StoreError>;

    /// The rules, of any kind, that set a minimum relay protocol version, oldest first.
    async fn minimum_protocol_rules(&self) -> Result<Vec<MinimumProtocolRule>, StoreError>;

    /// All rules, by id.
    async fn compatibility_rules(&self) -> Result<Vec<CompatibilityRule>, StoreError>;

    /// Adds a rule under an id above all that there have been. `None`, and nothing is stored, when there are `rules_max`; of two added at
    /// once both may be stored.
    async fn add_compatibility_rule(&self, spec: RuleSpec, now: EpochMs, rules_max: u32) -> Result<Option<RuleId>, StoreError>;

    /// Removes a rule. False: no such rule.
    async fn remove_compatibility_rule(&self, id: RuleId) -> Result<bool, StoreError>;

    /// Stores a new key. False, and nothing is stored, when the account has `live_max` keys that are not revoked; also when several
    /// are made at once.
    async fn create_api_key(&self, key: ApiKey, hash: ApiKeyHash, live_max: u32) -> Result<bool, StoreError>;

    /// The account's keys that are not revoked, oldest first (by creation, then id).
    async fn api_keys_of(&self, user: UserId) -> Result<Vec<ApiKey>, StoreError>;

    /// The key with this hash, unless it is revoked. One indexed look-up: it is made for each call that carries a key.
    async fn api_key(&self, hash: ApiKeyHash) -> Result<Option<ApiKey>, StoreError>;

    /// Revokes the account's own key, for good. False: no such key of this account, or revoked already.
    async fn revoke_api_key(&self, user: UserId, id: ApiKeyId, now: EpochMs) -> Result<bool, StoreError>;

    /// Writes what this process tells of itself, good for so long, and answers which processes are alive: those whose last renewal is
    /// still good, oldest first (by start, then id), this one among them. Rows of the others go. The storage's clock judges, since those
    /// of two hosts differ; none waits for a row of another process.
    async fn renew_process(&self, own: ProcessRecord, good_for: Duration) -> Result<Vec<LiveProcess>, StoreError>;

    /// Takes the row of this process away, if it is there: it ends.
    async fn remove_process(&self, instance: RelayInstanceId) -> Result<(), StoreError>;

    /// A cheap round trip, for readiness.
    async fn ping(&self) -> Result<(), StoreError>;
}
