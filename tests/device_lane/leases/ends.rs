//! When interest is over, and what outlives whom.

use super::{SESSION, reaches, watch};
use crate::support::{
    PATIENCE,
    account::Account,
    relay_process::RelayProcess,
    running_desktop::RunningDesktop,
    timeline::{interest, next_number, next_update, stream},
    wire::{Rig, next_of, registered, request, round_trip},
};
use relay_endpoints::{
    desktop::{Desktop, Handler, Published, Replies},
    frame::{Event, IncomingRequest},
};
use serde_json::{Map, json, value::RawValue};
use std::time::Duration;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

/// Without a message to anybody: the desktop knows the deadline, the phone its last renewal.
#[tokio::test]
async fn a_lease_that_is_not_renewed_is_over_at_its_deadline() {
    const LEASE: Duration = Duration::from_secs(1);
    let rig = Rig::start(&["--interest-ttl", "1s"], 2).await;
    let (mut desktop, mut one, mut other) = (rig.desktop().await, rig.phone(0).await, rig.phone(1).await);
    let first = watch(&mut one, &mut desktop, SESSION).await;
    assert_eq!(first.lease.as_ref().unwrap().1, 1_000, "milliseconds are left when it is told");
    reaches(&mut desktop, first.generation(), 1, &mut [&mut one]).await;
    let renewed = watch(&mut one, &mut desktop, SESSION).await;
    let told = Instant::now();
    assert_eq!((renewed.generation(), renewed.session.as_str()), (first.generation(), SESSION));
    assert!(renewed.revision > first.revision);

    // The deadline was set before the desktop was told of it.
    sleep_until(told + LEASE).await;
    desktop.text(&stream(SESSION, first.generation(), None, 66)).await;
    desktop.text(&stream(SESSION, first.generation(), Some("k"), 66)).await;
    let again = watch(&mut other, &mut desktop, SESSION).await;
    assert_ne!(again.generation(), first.generation(), "interest begins anew, and nothing was told in between");
    reaches(&mut desktop, again.generation(), 2, &mut [&mut other]).await;
    let own = watch(&mut one, &mut desktop, SESSION).await;
    assert_eq!(own.generation(), again.generation());
    reaches(&mut desktop, again.generation(), 3, &mut [&mut one, &mut other]).await;
}

/// Answers `null`, and passes on the names of the events that it hears.
struct Hearing(mpsc::UnboundedSender<String>);

impl Handler for Hearing {
    async fn handle(&self, _request: IncomingRequest, replies: Replies) {
        replies.result(RawValue::NULL).await.unwrap();
    }

    fn on_event(&self, event: Event) {
        self.0.send(event.event_type).unwrap();
    }
}

/// The library's desktop, by its own clock: the phone's socket stays open, and neither the phone nor the relay says anything more.
#[tokio::test]
async fn a_desktop_whose_phone_vanishes_makes_no_more_frames_from_the_deadline_on() {
    const LEASE: Duration = Duration::from_secs(2);
    let rig = Rig::start(&["--interest-ttl", "2s"], 1).await;
    let (hearing, mut heard) = mpsc::unbounded_channel();
    let desktop = Desktop::new(rig.account.desktop(0), Hearing(hearing));
    let mut publisher = desktop.publisher();
    let mut running = RunningDesktop::run(desktop);
    running.registered().await;
    let mut phone = rig.phone(0).await;
    for number in [1, 2] {
        phone.text(&interest(SESSION, true)).await;
        assert_eq!(timeout(PATIENCE, publisher.watched()).await, Ok(true));
        let told = Instant::now();
        let fields = || Map::from_iter([("n".to_owned(), json!(number))]);
        assert_eq!(publisher.timeline(SESSION, None, fields).await, Published::Sent);
        assert_eq!(next_number(&mut phone).await, number);

        // The deadline was set before the desktop was told of it.
        sleep_until(told + LEASE).await;
        let never = || unreachable!("nobody watches, so nothing is made");
        assert_eq!(publisher.timeline(SESSION, None, never).await, Published::NotWatched);
        assert_eq!(publisher.timeline(SESSION, Some("k"), never).await, Published::NotWatched);
        assert!(publisher.live().is_empty());
        phone.text(&request(&number.to_string(), "1")).await;
        next_of(&mut phone, "rpc.response").await;
        assert_eq!(heard.recv().await.as_deref(), Some("chat:timeline-interest-updated"));
        assert!(heard.is_empty(), "no message comes at the deadline");
    }
}

/// A session's generation lives as long as its interest, whatever becomes of the desktop; a desktop that registers is told of it behind
/// the answer.
#[tokio::test]
async fn a_desktop_that_comes_back_is_told_what_is_watched() {
    let rig = Rig::start(&[], 2).await;
    let (mut one, mut other) = (rig.phone(0).await, rig.phone(1).await);
    one.text(&interest(SESSION, true)).await;
    other.text(&interest("another", true)).await;
    // Its refusal comes behind them.
    for phone in [&mut one, &mut other] {
        phone.text(&request("behind", "1")).await;
        next_of(phone, "rpc.response").await;
    }
    let mut desktop = rig.desktop().await;
    let told = [next_update(&mut desktop).await, next_update(&mut desktop).await];
    assert_eq!([told[0].session.as_str(), told[1].session.as_str()], ["another", SESSION]);
    let generation = told[1].generation().to_owned();
    reaches(&mut desktop, &generation, 1, &mut [&mut one]).await;

    drop(desktop);
    other.text(&interest("another", false)).await;
    other.text(&request("behind-2", "1")).await;
    next_of(&mut other, "rpc.response").await;
    let mut desktop = rig.desktop().await;
    let again = next_update(&mut desktop).await;
    assert_eq!((again.session.as_str(), again.generation()), (SESSION, generation.as_str()));
    assert!(again.revision > told[1].revision && again.instance == told[1].instance);
    reaches(&mut desktop, &generation, 2, &mut [&mut one]).await;
    round_trip(&mut one, &mut desktop, "nothing-else-was-told").await;
}

/// C27: leases are gone with their process. The next one tells nothing of them, and says that it is another one.
#[tokio::test]
async fn a_restarted_relay_knows_no_lease_until_it_is_taken_again() {
    let mut relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
    let before = watch(&mut phone, &mut desktop, SESSION).await;
    relay.kill();
    relay.exited().await;

    let relay = RelayProcess::start_on(relay.data_dir(), &[]).await;
    let account = Account { address: relay.address(), ..account };
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
    desktop.text(&stream(SESSION, before.generation(), None, 66)).await;
    let after = watch(&mut phone, &mut desktop, SESSION).await;
    assert_ne!(after.generation(), before.generation());
    assert_ne!(after.instance, before.instance);
    assert_eq!(after.instance, relay.ready().relay_instance_id);
    reaches(&mut desktop, after.generation(), 1, &mut [&mut phone]).await;
}
