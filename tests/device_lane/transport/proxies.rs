//! C41: idle connections behind three proxies: one that cuts what is idle, one that falls silent instead, one that keeps pings to
//! itself. A second of the wire is twenty milliseconds here.

use super::{Rig, round_trip};
use crate::support::{
    PATIENCE,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    running_desktop::{RunningDesktop, Seen},
    scale::scaled,
    stall_proxy::{Network, StallProxy},
    wire::{connection_of, connections, eventually, next_refusal, next_status, registered, request},
};
use relay_endpoints::{
    desktop::{DesktopOptions, SampleRouter},
    link::{Ended, LinkOptions},
    phone::{Phone, PhoneOptions},
};
use std::time::Duration;
use tokio::time::Instant;

const FLAGS: [&str; 2] = ["--heartbeat-interval=600ms", "--silence-timeout=3600ms"];
const HEARTBEAT: Duration = Duration::from_millis(600);
const SILENCE: Duration = Duration::from_millis(3_600);
/// The shortest patience with idle connections that is known of, 55 s, against pings every 30 s.
const IDLE_MAX: Duration = Duration::from_millis(1_100);

fn through(proxy: &StallProxy, options: RawOptions) -> RawOptions {
    RawOptions { address: proxy.address(), ..options }
}

/// Longer than the silence limit; ten minutes at soak, to scale.
fn idleness() -> Duration {
    Duration::from_millis(scaled(4_500, 12_000) as u64)
}

/// Answers pings and does nothing else; how many there were.
async fn idle(socket: &mut RawSocket, length: Duration) -> usize {
    let (end, mut pings) = (Instant::now() + length, 0);
    loop {
        match socket.read(end.saturating_duration_since(Instant::now())).await {
            Received::Frame { opcode: opcode::PING, payload, .. } => {
                socket.frame(&Frame::new(opcode::PONG, payload)).await;
                pings += 1;
            }
            Received::Nothing => return pings,
            other @ (Received::Frame { .. } | Received::End | Received::EndInsideFrame | Received::Reset) => {
                panic!("{other:?} after {pings} pings")
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_cuts_idle_connections_never_finds_one() {
    let rig = Rig::start(&FLAGS, 1).await;
    let proxy = StallProxy::start(rig.relay.ready().public).await;
    proxy.set(Network::CutsIdle(IDLE_MAX));
    let mut desktop = registered(&through(&proxy, rig.account.raw_desktop()), rig.account.desktops[0]).await;
    let mut phone = registered(&through(&proxy, rig.account.raw_phone()), rig.account.phones[0]).await;
    let length = idleness();
    let pings = tokio::join!(idle(&mut desktop, length), idle(&mut phone, length));
    let due = usize::try_from(length.as_millis() / HEARTBEAT.as_millis()).unwrap();
    assert!(pings.0.min(pings.1) >= due / 2, "{pings:?} pings in {length:?}");
    round_trip(&mut phone, &mut desktop, "after").await;
}

/// The shipped clients on one side, the relay on the other: each by its own count.
#[tokio::test(flavor = "multi_thread")]
async fn when_a_proxy_falls_silent_both_sides_find_out() {
    let rig = Rig::start(&FLAGS, 2).await;
    let proxy = StallProxy::start(rig.relay.ready().public).await;
    let mut watcher = rig.phone(1).await;
    let hurried = |link: LinkOptions| LinkOptions {
        address: format!("http://{}", proxy.address()).parse().unwrap(),
        silence_limit: SILENCE / 2,
        ..link
    };
    let (address, token, target) = (rig.account.address.clone(), rig.account.token.clone(), rig.account.desktops[0]);
    let desktop = DesktopOptions::new(hurried(LinkOptions::desktop(address.clone(), token.clone())), target);
    let (mut desktop, _) = RunningDesktop::start(desktop, SampleRouter).await;
    let phone = PhoneOptions::new(hurried(LinkOptions::phone(address, token, target)), rig.account.phones[0]);
    let phone = Phone::connect(phone).await.unwrap();
    phone.call("system.ping", None, None).await.unwrap();
    assert_eq!(next_status(&mut watcher).await.0, "online");

    proxy.set(Network::Stalls);
    let stalled = Instant::now();
    let relay_finds_out = async {
        let (status, reason, _) = next_status(&mut watcher).await;
        assert_eq!((status.as_str(), reason.as_str()), ("reconnecting", "silent"));
        stalled.elapsed()
    };
    let clients_find_out = async {
        let Seen::Waiting(cause) = desktop.state().await else { panic!("the desktop is registered again") };
        eventually("the phone knows", async || phone.ended().is_some()).await;
        assert_eq!(phone.ended(), Some(Ended::Silent(SILENCE / 2)));
        (cause, stalled.elapsed())
    };
    let (relay_after, (cause, clients_after)) = tokio::join!(relay_finds_out, clients_find_out);
    assert_eq!(cause, Ended::Silent(SILENCE / 2).to_string());
    // Their limits, a second, and what a busy machine takes.
    assert!(relay_after < SILENCE + Duration::from_secs(3), "the relay found out after {relay_after:?}");
    assert!(clients_after < SILENCE / 2 + Duration::from_secs(3), "the clients found out after {clients_after:?}");
    eventually("only the watcher is left", async || connections(&rig.relay, Some(rig.account.user)).await.len() == 1).await;
    watcher.text(&request("gone", "1")).await;
    assert_eq!(next_refusal(&mut watcher).await, ("gone".to_owned(), -32011));
    proxy.set(Network::Works);
    desktop.registered().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_that_swallows_pings_whoever_sends_anything_else_stays() {
    const HEARTBEAT_OF_CLIENTS: Duration = Duration::from_millis(600);
    let rig = Rig::start(&FLAGS, 2).await;
    let proxy = StallProxy::swallowing_pings(rig.relay.ready().public).await;
    let mut desktop = registered(&through(&proxy, rig.account.raw_desktop()), rig.account.desktops[0]).await;
    let mut phone = registered(&through(&proxy, rig.account.raw_phone()), rig.account.phones[0]).await;
    let mut mute = registered(&through(&proxy, rig.account.raw_phone()), rig.account.phones[1]).await;
    // One sends its heartbeat as a message and the other nothing but answers; neither sees a ping or a pong.
    let (end, start) = (Instant::now() + idleness(), Instant::now());
    let talking = async {
        while Instant::now() < end {
            for socket in [&mut phone, &mut desktop] {
                socket.frame(&Frame::new(opcode::PING, "swallowed")).await;
                socket.text(r#"{"type":"ping","payload":{}}"#).await;
                let Received::Frame { opcode: opcode::TEXT, .. } = socket.read(PATIENCE).await else { panic!("no pong in text comes") };
            }
            tokio::time::sleep(HEARTBEAT_OF_CLIENTS).await;
        }
    };
    let being_mute = async {
        let closed = mute.closed(PATIENCE).await;
        assert_eq!(closed, Some((4004, "silent".to_owned())));
        start.elapsed()
    };
    let ((), mute_for) = tokio::join!(talking, being_mute);
    assert!(mute_for >= SILENCE && mute_for < SILENCE + Duration::from_secs(3), "judged after {mute_for:?}");
    assert!(connection_of(&rig.relay, rig.account.user, rig.account.phones[1]).await.is_none());
    round_trip(&mut phone, &mut desktop, "after").await;
}
