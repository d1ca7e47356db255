//! What devices do, as `/metrics` counts it: each scenario moves exactly the series that it should.

use crate::support::{
    PATIENCE,
    metrics::Scrape,
    raw_socket::{Frame, RawOptions, RawSocket},
    relay_process::RelayProcess,
    timeline::{interest, next_number, next_update, stream},
    wire::{Rig, eventually, next_of, next_refusal, registered, request, response, round_trip},
};
use relay_protocol::device::Role;
use serde_json::{Value, json};

const SESSION: &str = "session-7";

#[tokio::test]
async fn registrations_and_requests_move_their_series_and_no_other() {
    let rig = Rig::start(&[], 1).await;
    let nothing = Scrape::of(&rig.relay).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let ready = Scrape::of(&rig.relay).await;
    let moved = [
        "relay_accounts +1",
        r#"relay_connections{role="desktop"} +1"#,
        r#"relay_connections{role="mobile"} +1"#,
        r#"relay_push_desktop_online_total{outcome="notConfigured"} +1"#,
        r#"relay_registrations_total{outcome="registered"} +2"#,
    ];
    assert_eq!(ready.moved_since(&nothing), moved);

    round_trip(&mut phone, &mut desktop, "one").await;
    round_trip(&mut phone, &mut desktop, "other").await;
    phone.text(&request("failing", "1")).await;
    let received = next_of(&mut desktop, "rpc.request").await;
    desktop.text(&response(&received, r#"{"code":1,"message":"no"}"#).replace(r#""result""#, r#""error""#)).await;
    next_of(&mut phone, "rpc.response").await;
    phone.text(&request("unknown", "1").replace("files.readContent", "files.none")).await;
    assert_eq!(next_refusal(&mut phone).await.1, -32601);
    phone.text(&request("open", "1")).await;
    next_of(&mut desktop, "rpc.request").await;
    phone.text(&request("open", "1")).await;
    assert_eq!(next_refusal(&mut phone).await.1, -32021);
    phone.text("{}").await;
    next_of(&mut phone, "error").await;
    let asked = Scrape::of(&rig.relay).await;
    let moved = [
        r#"relay_frame_errors_total{code="invalidPayload"} +1"#,
        "relay_open_requests +1",
        r#"relay_open_requests_peak{bound="client"} +1"#,
        r#"relay_open_requests_peak{bound="desktop"} +1"#,
        r#"relay_open_requests_peak{bound="process"} +1"#,
        r#"relay_open_requests_peak{bound="user"} +1"#,
        r#"relay_refusals_total{reason="duplicateRequest",code="-32021"} +1"#,
        r#"relay_refusals_total{reason="methodNotFound",code="-32601"} +1"#,
        r#"relay_rpc_duration_seconds_count{class="files",outcome="error"} +1"#,
        r#"relay_rpc_duration_seconds_count{class="files",outcome="result"} +2"#,
        r#"relay_rpc_requests_total{class="files",outcome="error"} +1"#,
        r#"relay_rpc_requests_total{class="files",outcome="refused"} +1"#,
        r#"relay_rpc_requests_total{class="files",outcome="result"} +2"#,
    ];
    assert_eq!(asked.moved_since(&ready), moved);

    desktop.frame(&Frame::close(1000, "")).await;
    assert_eq!(next_refusal(&mut phone).await, ("open".to_owned(), -32011));
    phone.text(&request("away", "1")).await;
    assert_eq!(next_refusal(&mut phone).await.1, -32011);
    let moved = [
        r#"relay_closes_total{reason="closedByPeer"} +1"#,
        r#"relay_connections{role="desktop"} -1"#,
        "relay_open_requests -1",
        r#"relay_refusals_total{reason="desktopReconnecting",code="-32011"} +2"#,
        r#"relay_rpc_requests_total{class="files",outcome="desktopLost"} +1"#,
        r#"relay_rpc_requests_total{class="files",outcome="refused"} +1"#,
    ];
    let mut now = Scrape::of(&rig.relay).await;
    eventually("the desktop's socket goes", async || {
        now = Scrape::of(&rig.relay).await;
        now.get(r#"relay_connections{role="desktop"}"#) == 0.0
    })
    .await;
    assert_eq!(now.moved_since(&asked), moved);
}

#[tokio::test]
async fn events_are_counted_by_what_became_of_them() {
    // Long enough for everything that is sent meanwhile, so that it is one flush.
    let rig = Rig::start(&["--flush-interval", "2s"], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let before = Scrape::of(&rig.relay).await;
    phone.text(&interest(SESSION, true)).await;
    let update = next_update(&mut desktop).await;
    let frame = |key, number| Frame::text(&stream(SESSION, update.generation(), key, number)).encode();
    desktop.write(&[frame(Some("k"), 1), frame(None, 2), frame(Some("k"), 3), frame(Some("k"), 4)].concat()).await;
    for number in [2, 4] {
        assert_eq!(next_number(&mut phone).await, number);
    }
    desktop.text(&stream(SESSION, &rig.account.user.to_string(), None, 5)).await;
    desktop.text(&stream("another", update.generation(), None, 6)).await;
    round_trip(&mut phone, &mut desktop, "behind").await;
    let watched = Scrape::of(&rig.relay).await;
    assert_eq!(watched.get("relay_leases"), 1.0);

    // It waits while its lease ends.
    desktop.text(&stream(SESSION, update.generation(), None, 7)).await;
    round_trip(&mut phone, &mut desktop, "it waits").await;
    phone.text(&interest(SESSION, false)).await;
    round_trip(&mut phone, &mut desktop, "it is gone").await;
    let moved = [
        r#"relay_event_frames_total{fate="coalesced"} +2"#,
        r#"relay_event_frames_total{fate="delivered"} +2"#,
        r#"relay_event_frames_total{fate="noLease"} +2"#,
        r#"relay_event_frames_total{fate="staleGeneration"} +1"#,
    ];
    let of_events = |scrape: &Scrape| -> Vec<String> {
        scrape.moved_since(&before).into_iter().filter(|line| line.contains("event_frames") || line.contains("leases")).collect()
    };
    assert_eq!(of_events(&Scrape::of(&rig.relay).await), moved);
}

#[tokio::test]
async fn a_peer_that_is_given_up_and_a_handshake_that_is_refused_are_counted() {
    let rig = Rig::start(&["--silence-timeout", "600ms", "--heartbeat-interval", "200ms"], 0).await;
    let mut desktop = registered(&rig.account.raw_desktop(), rig.account.desktops[0]).await;
    let registered = Scrape::of(&rig.relay).await;
    assert_eq!(desktop.closed(PATIENCE).await, Some((4004, "silent".to_owned())));
    drop(desktop);
    eventually("its socket goes", async || Scrape::of(&rig.relay).await.get(r#"relay_closes_total{reason="silent"}"#) == 1.0).await;
    let of_nobody = RawOptions::device_link(&rig.account.address, "nobodys", Role::Desktop, None);
    assert!(RawSocket::try_open(&of_nobody).await.is_err());
    let moved = [
        r#"relay_closes_total{reason="silent"} +1"#,
        r#"relay_connections{role="desktop"} -1"#,
        r#"relay_handshakes_refused_total{code="unauthorized"} +1"#,
        r#"relay_retired_total{reason="silent"} +1"#,
    ];
    assert_eq!(Scrape::of(&rig.relay).await.moved_since(&registered), moved);
}

/// A running process logs more, or less, from the next line on.
#[tokio::test]
async fn the_log_filter_is_replaced_while_the_relay_runs() {
    let rig = Rig::start(&[], 1).await;
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let url = format!("http://{}/admin/log", rig.relay.ready().admin);
    let put = async |filter: &str| {
        let request = client.put(&url).bearer_auth(rig.relay.admin_token()).body(json!({"filter": filter}).to_string());
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let opened = |relay: &RelayProcess| relay.log().matches("socket opened").count();
    drop(rig.desktop().await);
    assert_eq!(opened(&rig.relay), 0);

    let filter = "info,relay_actors::device_socket=debug,actix_http=off";
    assert_eq!(put(filter).await, (200, json!({"filter": filter})));
    drop(rig.desktop().await);
    assert_eq!(opened(&rig.relay), 1);

    let (status, refused) = put("off,relay=loud").await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(status == 400 && message.contains("part 2, \"relay=loud\""), "{refused}");
    let shown = client.get(&url).bearer_auth(rig.relay.admin_token()).send().await.unwrap();
    assert_eq!(shown.json::<Value>().await.unwrap(), json!({"filter": filter}), "it stayed");
    drop(rig.desktop().await);
    assert_eq!(opened(&rig.relay), 2);

    // Their last lines must not be on the way any more.
    eventually("the three are gone", async || rig.relay.log().matches(" closed user=").count() == 3).await;
    assert_eq!(put("off").await.0, 200);
    let lines = rig.relay.log().lines().count();
    drop(rig.desktop().await);
    round_trip(&mut rig.phone(0).await, &mut rig.desktop().await, "silently").await;
    assert_eq!(rig.relay.log().lines().count(), lines);
    assert_eq!(client.get(&url).send().await.unwrap().status(), 401);
}
