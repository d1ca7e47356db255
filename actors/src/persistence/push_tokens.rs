//! Push tokens: what HTTP handlers and the push actor have the persistence actor do. Each call is answered when storage has done it.
//!
//! They are not batched, since nothing comes in storms: a phone claims a token once a day, and the push actor asks for a few accounts at
//! a time. So no decision is taken here but how many may be in progress.

use super::Persistence;
use crate::{
    clock::EpochMs,
    store::{PushClaim, PushTarget, Store, StoreError},
};
use actix::{Handler, Message, ResponseFuture};
use relay_protocol::{
    id::{DeviceId, UserId},
    push::PushAddress,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// Calls that may be in progress; with storage away each holds its place until its deadline.
pub(super) const CALLS_MAX: usize = 256;

/// Gives a token to a phone of the account; whoever had it loses it.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<PushClaim, StoreError>")]
pub struct ClaimPushToken {
    /// The account.
    pub user: UserId,
    /// The phone.
    pub device: DeviceId,
    /// The token.
    pub address: PushAddress,
}

/// Takes the token of a device of the account away, or those of all of them; how many there were.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<u64, StoreError>")]
pub struct ReleasePushTokens {
    /// The account.
    pub user: UserId,
    /// The device; none for all.
    pub device: Option<DeviceId>,
}

/// Asks for the account's phones that take pushes.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Vec<PushTarget>, StoreError>")]
pub struct PushTargets {
    /// The account.
    pub user: UserId,
}

/// Asks for one phone, of whatever account.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Option<PushTarget>, StoreError>")]
pub struct PushTargetOf {
    /// The phone.
    pub device: DeviceId,
}

/// Forgets a token that its provider calls dead, unless it was claimed anew; whether it did.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<bool, StoreError>")]
pub struct DropPushToken {
    /// The phone.
    pub device: DeviceId,
    /// The claim.
    pub claimed_at: EpochMs,
}

/// Makes one call, if not too many are in progress.
fn run<T, F>(calls: &Arc<Semaphore>, timeout: Duration, call: F) -> ResponseFuture<Result<T, StoreError>>
where
    T: 'static,
    F: Future<Output = Result<T, StoreError>> + 'static,
{
    let Ok(place) = Arc::clone(calls).try_acquire_owned() else {
        return Box::pin(async { Err(StoreError::Unavailable("too many calls about push tokens".to_owned())) });
    };
    Box::pin(async move {
        let _place = place;
        let late = |_elapsed| Err(StoreError::Unavailable(format!("no answer within {}", humantime::format_duration(timeout))));
        tokio::time::timeout(timeout, call).await.unwrap_or_else(late)
    })
}

impl Persistence {
    fn write<T: 'static, F>(&self, call: impl FnOnce(Arc<dyn Store>) -> F) -> ResponseFuture<Result<T, StoreError>>
    where
        F: Future<Output = Result<T, StoreError>> + 'static,
    {
        run(&self.push_token_calls, self.config.write_timeout, call(Arc::clone(&self.store)))
    }

    fn read<T: 'static, F>(&self, call: impl FnOnce(Arc<dyn Store>) -> F) -> ResponseFuture<Result<T, StoreError>>
    where
        F: Future<Output = Result<T, StoreError>> + 'static,
    {
        run(&self.push_token_calls, self.config.lookup_deadline, call(Arc::clone(&self.store)))
    }
}

impl Handler<ClaimPushToken> for Persistence {
    type Result = ResponseFuture<Result<PushClaim, StoreError>>;

    fn handle(&mut self, ClaimPushToken { user, device, address }: ClaimPushToken, _: &mut Self::Context) -> Self::Result {
        self.write(move |store| async move { store.claim_push_token(user, device, address, EpochMs::now()).await })
    }
}

impl Handler<ReleasePushTokens> for Persistence {
    type Result = ResponseFuture<Result<u64, StoreError>>;

    fn handle(&mut self, ReleasePushTokens { user, device }: ReleasePushTokens, _: &mut Self::Context) -> Self::Result {
        self.write(move |store| async move { store.release_push_tokens(user, device).await })
    }
}

impl Handler<PushTargets> for Persistence {
    type Result = ResponseFuture<Result<Vec<PushTarget>, StoreError>>;

    fn handle(&mut self, PushTargets { user }: PushTargets, _: &mut Self::Context) -> Self::Result {
        self.read(move |store| async move { store.push_targets(user).await })
    }
}

impl Handler<PushTargetOf> for Persistence {
    type Result = ResponseFuture<Result<Option<PushTarget>, StoreError>>;

    fn handle(&mut self, PushTargetOf { device }: PushTargetOf, _: &mut Self::Context) -> Self::Result {
        self.read(move |store| async move { store.push_target(device).await })
    }
}

impl Handler<DropPushToken> for Persistence {
    type Result = ResponseFuture<Result<bool, StoreError>>;

    fn handle(&mut self, DropPushToken { device, claimed_at }: DropPushToken, _: &mut Self::Context) -> Self::Result {
        self.write(move |store| async move { store.drop_push_token(device, claimed_at).await })
    }
}
