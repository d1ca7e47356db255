//! How many calls run at a time: two groups, so that a slow media read cannot hold up `system.ping`.

use relay_protocol::{
    contract::Method,
    limits::desktop::{HEAVY_PERMITS, LIGHT_PERMITS, PERMIT_WAIT},
};
use std::sync::Arc;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// The two semaphores. Those who wait are served in order.
#[derive(Debug)]
pub(super) struct Permits {
    light: Arc<Semaphore>,
    heavy: Arc<Semaphore>,
}

impl Permits {
    pub(super) fn new() -> Self {
        Permits { light: Arc::new(Semaphore::new(LIGHT_PERMITS)), heavy: Arc::new(Semaphore::new(HEAVY_PERMITS)) }
    }

    /// A permit of the method's group, given back when it is dropped; `None` if none is free in time.
    pub(super) async fn acquire(&self, method: &Method) -> Option<OwnedSemaphorePermit> {
        let group = if method.heavy { &self.heavy } else { &self.light };
        // The semaphores are never closed.
        timeout(PERMIT_WAIT, Arc::clone(group).acquire_owned()).await.ok()?.ok()
    }

    pub(super) fn light_in_use(&self) -> usize {
        LIGHT_PERMITS - self.light.available_permits()
    }

    pub(super) fn heavy_in_use(&self) -> usize {
        HEAVY_PERMITS - self.heavy.available_permits()
    }
}
