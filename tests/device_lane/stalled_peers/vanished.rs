//! Peers that vanish at a bad moment and leave their connections up: half-open under traffic, in the middle of a large message to
//! them, in the middle of one from them. Each is gone by the silence limit, for which nobody else has to wait.

use super::{assert_cut_off, freezing, is_gone, large_result, queued_bytes, result};
use crate::support::{
    PATIENCE,
    neighbours::{Neighbours, Runner},
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    stall_proxy::{Network, StallProxy},
    wire::{
        Before, KIB, Rig, eventually, next_of, next_refusal, next_status, payload_field, registered, request, request_of, response,
        round_trip,
    },
};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

const SILENCE: Duration = Duration::from_secs(3);
const FLAGS: [&str; 2] = ["--silence-timeout=3s", "--heartbeat-interval=500ms"];
/// The limit, and what sweeping and a busy machine take.
const GONE_BY: Duration = Duration::from_secs(3 + 3);
const CALLER: usize = 0;
const VICTIM: usize = 1;

/// A phone that calls and watches, and strangers that make round trips all the time.
struct Scene {
    rig: Rig,
    caller: RawSocket,
    before: Before,
    beside: Runner,
}

impl Scene {
    async fn start(flags: &[&str]) -> Self {
        let rig = Rig::start(&[&FLAGS[..], flags].concat(), 2).await;
        let caller = rig.phone(CALLER).await;
        let neighbours = Neighbours::start(&rig.relay).await;
        let before = Before::of(&rig.relay).await;
        Scene { rig, caller, before, beside: Runner::start(neighbours) }
    }

    async fn desktop(&mut self, options: &RawOptions) -> RawSocket {
        let desktop = registered(options, self.rig.account.desktops[0]).await;
        assert_eq!(next_status(&mut self.caller).await.0, "online");
        desktop
    }

    /// What was asked of the desktop is answered because it is gone, its phone is told, and nothing of it is left.
    async fn desktop_is_given_up(&mut self, vanished: Instant, ids: &[&str]) {
        let (mut refused, mut told) = (Vec::new(), None);
        while refused.len() < ids.len() || told.is_none() {
            let frame: Value = serde_json::from_str(&self.caller.next_text().await).unwrap();
            let payload = &frame["payload"];
            match frame["type"].as_str() {
                Some("rpc.response") => refused.push((payload["id"].clone(), payload["error"]["code"].clone())),
                Some("event") => told = Some((payload["payload"]["status"].clone(), payload["payload"]["reason"].clone())),
                _ => panic!("{frame}"),
            }
        }
        let after = vanished.elapsed();
        assert_eq!(told, Some(("reconnecting".into(), "silent".into())));
        assert_eq!(refused, ids.iter().map(|id| ((*id).into(), (-32011).into())).collect::<Vec<(Value, Value)>>());
        assert!(after < GONE_BY, "given up only after {after:?}");
        eventually("it is not listed", async || is_gone(&self.rig, self.rig.account.desktops[0]).await).await;
        self.caller.text(&request("too late", "1")).await;
        assert_eq!(next_refusal(&mut self.caller).await, ("too late".to_owned(), -32011));
    }

    /// The phone is gone in time, and its desktop serves others all the while.
    async fn phone_is_given_up(&mut self, vanished: Instant, desktop: &mut RawSocket) {
        let mut trips = 0;
        eventually("the phone is not listed", async || {
            trips += 1;
            round_trip(&mut self.caller, desktop, &format!("meanwhile-{trips}")).await;
            is_gone(&self.rig, self.rig.account.phones[VICTIM]).await
        })
        .await;
        let after = vanished.elapsed();
        assert!(after > SILENCE / 2 && after < GONE_BY, "given up after {after:?}");
    }

    async fn all_is_given_back(self) {
        self.before.given_back(&self.rig.relay).await;
        let (_neighbours, slowest) = self.beside.stop().await;
        assert!(slowest < SILENCE, "somebody else waited {slowest:?}: until the peer was given up");
    }
}

/// Half of a message, and then nothing.
async fn half_of(socket: &mut RawSocket, message: &str) {
    let header = Frame { mask: Some([0; 4]), ..Frame::header_only(opcode::TEXT, message.len() as u64) };
    socket.write(&[&header.encode(), &message.as_bytes()[..message.len() / 2]].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_whose_end_never_arrives_is_given_up_with_its_requests() {
    let mut scene = Scene::start(&[]).await;
    let proxy = StallProxy::start(scene.rig.relay.ready().public).await;
    let options = RawOptions { address: proxy.address(), ..scene.rig.account.raw_desktop() };
    let desktop = scene.desktop(&options).await;
    proxy.set(Network::HoldsFins);
    drop(desktop);
    let vanished = Instant::now();
    let ids = ["first", "second", "third"];
    for id in ids {
        scene.caller.text(&request_of(id, 256 * KIB)).await;
    }
    scene.desktop_is_given_up(vanished, &ids).await;
    scene.all_is_given_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_whose_end_never_arrives_is_given_up_while_replies_wait_for_it() {
    let mut scene = Scene::start(&[]).await;
    let options = scene.rig.account.raw_desktop();
    let mut desktop = scene.desktop(&options).await;
    let proxy = StallProxy::start(scene.rig.relay.ready().public).await;
    let options = RawOptions { address: proxy.address(), ..scene.rig.account.raw_phone() };
    let mut phone = registered(&options, scene.rig.account.phones[VICTIM]).await;
    phone.text(&request("open", "1")).await;
    let open = next_of(&mut desktop, "rpc.request").await;
    proxy.set(Network::HoldsFins);
    drop(phone);
    let vanished = Instant::now();
    // More than the kernel takes for it.
    let part = response(&open, &result(256 * KIB)).replace(r#""result""#, r#""isFinal":false,"result""#);
    for _ in 0..48 {
        desktop.text(&part).await;
    }
    scene.phone_is_given_up(vanished, &mut desktop).await;
    drop(desktop);
    scene.all_is_given_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_stops_in_the_middle_of_a_large_request_is_cut_off_there() {
    let (bytes, flags) = large_result();
    let mut scene = Scene::start(&flags).await;
    let options = freezing(scene.rig.account.raw_desktop());
    let mut desktop = scene.desktop(&options).await;
    // A heartbeat that it does not answer: its silence is older than what it does not take, and ends it first.
    while !matches!(desktop.read(PATIENCE).await, Received::Frame { opcode: opcode::PING, .. }) {}
    let vanished = Instant::now();
    scene.caller.text(&request_of("large", bytes)).await;
    let mut queued = 0;
    eventually("a part of it is taken", async || {
        queued = queued_bytes(&scene.rig, scene.rig.account.user, scene.rig.account.desktops[0]).await;
        queued > 0 && queued < bytes
    })
    .await;
    scene.desktop_is_given_up(vanished, &["large"]).await;
    scene.all_is_given_back().await;
    assert_cut_off(&mut desktop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_stops_in_the_middle_of_its_large_result_leaves_no_part_of_it() {
    let (bytes, flags) = large_result();
    let mut scene = Scene::start(&flags).await;
    let options = scene.rig.account.raw_desktop();
    let mut desktop = scene.desktop(&options).await;
    scene.caller.text(&request("large", "1")).await;
    let open = next_of(&mut desktop, "rpc.request").await;
    half_of(&mut desktop, &response(&open, &result(bytes))).await;
    scene.desktop_is_given_up(Instant::now(), &["large"]).await;
    assert_eq!(desktop.closed(PATIENCE).await, Some((4004, "silent".to_owned())));
    scene.all_is_given_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_stops_in_the_middle_of_its_large_request_leaves_no_part_of_it() {
    let (bytes, flags) = large_result();
    let mut scene = Scene::start(&flags).await;
    let options = scene.rig.account.raw_desktop();
    let mut desktop = scene.desktop(&options).await;
    let mut phone = scene.rig.phone(VICTIM).await;
    half_of(&mut phone, &request_of("large", bytes)).await;
    // What the desktop gets meanwhile and afterwards are the other phone's requests only.
    scene.phone_is_given_up(Instant::now(), &mut desktop).await;
    assert_eq!(phone.closed(PATIENCE).await, Some((4004, "silent".to_owned())));
    scene.caller.text(&request("next", "1")).await;
    assert_eq!(payload_field(&next_of(&mut desktop, "rpc.request").await, "id"), r#""next""#);
    drop((phone, desktop));
    scene.all_is_given_back().await;
}
