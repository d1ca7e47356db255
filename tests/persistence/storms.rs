//! Many devices keep trying to register while the database fails: C68.

use crate::{
    rig::{Fault, Rig, statuses, storage_is_well},
    support::{
        running_desktop::{RunningDesktop, Seen},
        scale::scaled,
        stall_proxy::Network,
        wire::{connections, eventually, registered},
    },
};
use futures_util::future::join_all;
use relay_endpoints::{backoff::Policy, desktop::Replies};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::sleep;

const DEVICES: usize = 100;
/// Quicker than people's, so that each tries several times.
const BACKOFF: Policy = Policy { first: Duration::from_millis(100), max: Duration::from_secs(1) };
const CUT_INTERVAL: Duration = Duration::from_millis(25);

impl Rig {
    fn desktops(&self) -> Vec<RunningDesktop> {
        let options = (0..self.account.desktops.len()).map(|index| {
            let mut options = self.account.desktop(index);
            options.backoff = BACKOFF;
            options
        });
        let nobody_calls = |_request, _replies: Replies| async {};
        options.map(|options| RunningDesktop::spawn(options, nobody_calls)).collect()
    }

    /// Each device is connected once, and stored as online.
    async fn all_are_registered_once(&self) {
        let expected: BTreeSet<String> = self.account.desktops.iter().map(ToString::to_string).collect();
        let connected = connections(&self.relay, Some(self.account.user)).await;
        let routes: BTreeSet<String> = connected.iter().map(|connection| connection["route"].as_str().unwrap().to_owned()).collect();
        assert_eq!((connected.len(), routes), (expected.len(), expected));
        eventually("all are stored as online", async || {
            let statuses = statuses(&self.sql).await;
            self.account.desktops.iter().all(|desktop| statuses[desktop] == "online")
        })
        .await;
        storage_is_well(&self.relay).await;
        let rows = DEVICES + self.account.phones.len();
        assert_eq!((statuses(&self.sql).await.len(), connections(&self.relay, None).await.len()), (rows, DEVICES));
    }
}

/// Every attempt is refused with this code.
async fn nobody_is_half_registered(rig: Rig, fault: Fault, code: &str) {
    fault.begin(&rig.proxy);
    let mut desktops = rig.desktops();
    for _attempt in 0..scaled(2, 5) {
        for seen in join_all(desktops.iter_mut().map(RunningDesktop::state)).await {
            let Seen::Waiting(why) = seen else { panic!("registered without storage") };
            assert!(why.contains(code), "{why}");
        }
        assert!(connections(&rig.relay, None).await.is_empty(), "nobody is shown as connected");
        assert!(statuses(&rig.sql).await.values().all(|status| status == "disconnected"));
    }
    rig.proxy.set(Network::Works);
    join_all(desktops.iter_mut().map(RunningDesktop::registered)).await;
    rig.all_are_registered_once().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_while_the_database_refuses_nobody_is_half_registered() {
    let rig = Rig::start(DEVICES).await;
    let phone = rig.account.phones[0];
    // The rules are known from a registration before.
    drop(registered(&rig.account.raw_phone(), phone).await);
    let gone = async || connections(&rig.relay, None).await.is_empty() && statuses(&rig.sql).await[&phone] == "disconnected";
    eventually("the phone is gone", gone).await;
    nobody_is_half_registered(rig, Fault::Refused, "deviceLookupUnavailable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_while_the_database_stalls_nobody_is_half_registered() {
    nobody_is_half_registered(Rig::start(DEVICES).await, Fault::Stalled, "relayProtocolPolicyUnavailable").await;
}

/// The database dies at any point of a registration, again and again. Who was told that it is registered is.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_database_that_dies_between_reads_and_writes_leaves_no_half_behind() {
    let rig = Rig::start(DEVICES).await;
    let mut desktops = rig.desktops();
    for _cut in 0..scaled(80, 800) {
        rig.proxy.cut();
        sleep(CUT_INTERVAL).await;
    }
    join_all(desktops.iter_mut().map(RunningDesktop::registered)).await;
    rig.all_are_registered_once().await;
}
