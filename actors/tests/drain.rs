//! The phases of a drain: what each waits for and for how long, in paused time and without sockets.

mod support;

use relay_actors::{
    device_socket::{GateLimits, SocketConfig, Sockets},
    drain::Phase,
    relay::{DrainLimits, Load, Relay},
    supervisor::SweepLimits,
};
use relay_protocol::{
    device::{Presence, Role},
    id::RelayInstanceId,
    limits::{HEARTBEAT_INTERVAL, OUTBOUND_BYTES_MAX, RECONNECT_GRACE},
};
use serde_json::json;
use std::time::Duration;
use support::{Peer, Rig, advance, settle};
use tokio::task::JoinHandle;
use uuid::Uuid;

const LIMITS: DrainLimits = DrainLimits { work: Duration::from_secs(60), step: Duration::from_secs(3) };
/// The runtime's timers fire up to a millisecond late.
const TICK: Duration = Duration::from_millis(2);
/// More than the interval at which a drain looks for the last socket.
const POLL: Duration = Duration::from_millis(50);

fn told() -> serde_json::Value {
    json!({"close": 1012, "reason": "relayDraining"})
}

/// A relay whose drain waits to begin.
struct Leaving {
    rig: Rig,
    relay: Relay,
    drain: JoinHandle<()>,
}

impl Leaving {
    async fn start() -> Self {
        tokio::time::pause();
        let rig = Rig::start();
        let config =
            SocketConfig { gate: GateLimits::default(), heartbeat_interval: HEARTBEAT_INTERVAL, outbound_bytes_max: OUTBOUND_BYTES_MAX };
        let sockets = Sockets { table: rig.sockets.clone(), directory: rig.directory.clone(), config };
        let relay = Relay::new(RelayInstanceId(Uuid::new_v4()), sockets);
        let own = relay.clone();
        let drain = actix::spawn(async move { own.drain(LIMITS).await });
        Leaving { rig, relay, drain }
    }

    async fn begin(&self) {
        self.relay.begin_drain(false);
        settle().await;
    }

    fn phase(&self) -> Phase {
        self.relay.progress().phase
    }

    /// The sockets have ended, so the drain does.
    async fn ends(self) -> Rig {
        advance(POLL).await;
        assert_eq!((self.phase(), self.drain.is_finished()), (Phase::Drained, true));
        self.rig
    }
}

#[actix::test]
async fn a_registration_that_is_being_decided_is_answered_before_its_socket_is_closed() {
    let leaving = Leaving::start().await;
    let (desktop, late) = (leaving.rig.device(Role::Desktop), leaving.rig.device(Role::Desktop));
    leaving.rig.store.stalls.send_replace(true);
    let mut peer = leaving.rig.open(Role::Desktop);
    peer.register(&leaving.rig, desktop, None).await;
    leaving.begin().await;
    assert_eq!((leaving.phase(), leaving.relay.progress().in_flight), (Phase::Draining, 1));

    let mut refused = leaving.rig.open(Role::Desktop);
    refused.register(&leaving.rig, late, None).await;
    assert_eq!(refused.next()["payload"]["code"], "relayDraining");
    assert_eq!(leaving.relay.progress().in_flight, 1, "what comes later is not waited for");
    assert!(peer.frames().is_empty());

    leaving.rig.store.stalls.send_replace(false);
    settle().await;
    let frames = peer.frames();
    assert_eq!((&frames[0]["type"], &frames[1..]), (&json!("registered"), &[told()][..]), "{frames:?}");
    assert_eq!((leaving.phase(), refused.frames()), (Phase::Closing, vec![told()]));
    peer.close().await;
    refused.close().await;
    leaving.ends().await;
}

#[actix::test]
async fn work_that_does_not_end_is_cut_off_at_the_limit_and_no_earlier() {
    let leaving = Leaving::start().await;
    let desktop = leaving.rig.device(Role::Desktop);
    let mut peer = leaving.rig.desktop(desktop).await;
    let work = leaving.rig.directory.drain().begin_work();
    leaving.begin().await;
    for _ in 0..2 {
        advance(LIMITS.work / 2 - TICK / 2).await;
        peer.hear();
        leaving.begin().await;
        assert_eq!((leaving.phase(), leaving.relay.progress().in_flight), (Phase::Draining, 1), "asking again changes nothing");
    }
    assert!(peer.frames().is_empty());
    advance(2 * TICK).await;
    assert_eq!((leaving.phase(), peer.frames()), (Phase::Closing, vec![told()]));
    drop(work);
    peer.close().await;
    leaving.ends().await;
}

#[actix::test]
async fn open_requests_are_not_waited_for_and_stay_unanswered() {
    let leaving = Leaving::start().await;
    let (desktop_id, phone_id) = (leaving.rig.device(Role::Desktop), leaving.rig.device(Role::Mobile));
    let mut desktop = leaving.rig.desktop(desktop_id).await;
    let mut phone = leaving.rig.phone(phone_id, desktop_id).await;
    phone.request("open", "system.ping").await;
    assert_eq!(desktop.next()["type"], "rpc.request");
    let _unregistered = leaving.rig.open(Role::Desktop);
    let held = Load { desktops: 1, phones: 1, unregistered: 1, accounts: 1, pending: 1, leases: 0 };
    assert_eq!(leaving.relay.load(), held);
    leaving.begin().await;
    assert_eq!(leaving.phase(), Phase::Closing);
    // The desktop goes first; its phone hears nothing of that.
    assert_eq!(desktop.frames(), [told()]);
    desktop.close().await;
    assert_eq!(phone.frames(), [told()]);
    phone.close().await;
    drop(_unregistered);
    let relay = leaving.relay.clone();
    leaving.ends().await;
    assert_eq!(relay.load(), Load::default());
}

#[actix::test]
async fn what_was_kept_for_devices_to_come_back_to_goes_without_a_word() {
    let leaving = Leaving::start().await;
    let desktop_id = leaving.rig.device(Role::Desktop);
    let mut desktop = leaving.rig.desktop(desktop_id).await;
    leaving.begin().await;
    desktop.close().await;
    let rig = leaving.ends().await;
    assert!(rig.directory.is_empty(), "a session, or a reconnect wait, keeps the router");
    assert_eq!(rig.stored(desktop_id), Some(Presence::Reconnecting));
    advance(2 * RECONNECT_GRACE).await;
    assert_eq!(rig.stored(desktop_id), Some(Presence::Reconnecting), "its next process tells how it is");
}

#[actix::test]
async fn a_socket_that_does_not_go_is_given_up() {
    let leaving = Leaving::start().await;
    let desktop_id = leaving.rig.device(Role::Desktop);
    let stuck: Peer = leaving.rig.desktop(desktop_id).await;
    leaving.begin().await;
    advance(LIMITS.step - TICK).await;
    assert_eq!((leaving.phase(), leaving.relay.progress().sockets_left), (Phase::Closing, 1));
    advance(2 * TICK).await;
    assert_eq!(leaving.phase(), Phase::Drained);
    let elapsed = leaving.relay.progress().elapsed;
    assert!(elapsed >= LIMITS.step && elapsed < LIMITS.step + POLL, "{elapsed:?}");
    advance(POLL).await;
    assert_eq!(leaving.relay.progress().elapsed, elapsed, "it is done");
    assert!(SweepLimits::default().close_timeout < LIMITS.step, "a frozen one is ended before");
    drop(stuck);
}

#[actix::test]
async fn one_connection_is_closed_and_may_come_back() {
    let leaving = Leaving::start().await;
    let desktop_id = leaving.rig.device(Role::Desktop);
    let mut desktop = leaving.rig.open(Role::Desktop);
    desktop.register(&leaving.rig, desktop_id, None).await;
    let answer = desktop.next()["payload"].take();
    let connection = answer["connectionId"].as_str().unwrap().parse().unwrap();
    assert!(leaving.relay.close_connection(connection));
    assert!(leaving.relay.close_connection(connection), "it is on its way out");
    assert_eq!(desktop.frames(), [json!({"close": 1012, "reason": "closedByOperator"})]);
    desktop.close().await;
    assert!(!leaving.relay.close_connection(connection));
    let mut again = leaving.rig.open(Role::Desktop);
    let resume = json!({
        "deviceId": desktop_id, "relayProtocolVersion": "1.7", "sessionId": answer["sessionId"], "resumeToken": answer["resumeToken"],
    });
    again.register_with(&leaving.rig, &resume).await;
    assert_eq!(again.next()["type"], "resumed");
}
