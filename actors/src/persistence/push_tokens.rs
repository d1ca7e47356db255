//! TEMPORARY
use super::Persistence;
use crate::store::{PushTarget, StoreError};
use actix::{Handler, Message};
use relay_protocol::id::{DeviceId, UserId};
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Vec<PushTarget>, StoreError>")]
/// t
pub struct PushTargets { /// t
pub user: UserId }
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Option<PushTarget>, StoreError>")]
/// t
pub struct PushTargetOf { /// t
pub device: DeviceId }
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<bool, StoreError>")]
/// t
pub struct DropPushToken { /// t
pub device: DeviceId, /// t
pub claimed_at: crate::clock::EpochMs }
impl Handler<PushTargets> for Persistence { type Result = Result<Vec<PushTarget>, StoreError>;
fn handle(&mut self, _: PushTargets, _: &mut Self::Context) -> Self::Result { Ok(Vec::new()) } }
impl Handler<PushTargetOf> for Persistence { type Result = Result<Option<PushTarget>, StoreError>;
fn handle(&mut self, _: PushTargetOf, _: &mut Self::Context) -> Self::Result { Ok(None) } }
impl Handler<DropPushToken> for Persistence { type Result = Result<bool, StoreError>;
fn handle(&mut self, _: DropPushToken, _: &mut Self::Context) -> Self::Result { Ok(false) } }
