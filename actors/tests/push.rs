//! Pushes from a desktop's socket to a provider and back: the actors driven directly, in paused time. The provider is the test.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use async_trait::async_trait;
use relay_actors::{
    clock::EpochMs,
    mailbox,
    push::{Content, Fate, Gateway, Gateways, HintFate, Kind, Leave, NotTested, Outgoing, Scope, TestPush, Tested, Verdict},
    store::PushTarget,
    user_router::message::Input,
};
use relay_protocol::{
    device::Role,
    envelope::Inbound,
    event::Event,
    id::DeviceId,
    limits::RECONNECT_GRACE,
    push::{Environment, Provider, PushAddress},
};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use support::{Peer, Rig, advance, settle};
use tokio::sync::watch;

const CLAIMED: EpochMs = EpochMs(1_000);

/// Takes what it is given, and says what it was told to say; otherwise that it has it.
#[derive(Default)]
struct Provided {
    sent: Mutex<Vec<Outgoing>>,
    verdicts: Mutex<VecDeque<Verdict>>,
    /// Answers wait until this is false again.
    stalls: watch::Sender<bool>,
    panics: AtomicBool,
}

#[async_trait]
impl Gateway for Provided {
    async fn send(&self, push: &Outgoing) -> Verdict {
        assert!(!self.panics.swap(false, Relaxed), "the provider was told to panic");
        self.sent.lock().unwrap().push(push.clone());
        self.stalls.subscribe().wait_for(|stalls| !stalls).await.unwrap();
        self.verdicts.lock().unwrap().pop_front().unwrap_or(Verdict::Sent { id: Some("1".into()) })
    }
}

impl Provided {
    /// What it has been given since it was last asked.
    fn taken(&self) -> Vec<Outgoing> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }

    fn will_say(&self, verdict: Verdict) {
        self.verdicts.lock().unwrap().push_back(verdict);
    }
}

struct Pushed {
    rig: Rig,
    apns: Arc<Provided>,
    desktop_id: DeviceId,
    phone_id: DeviceId,
}

impl Pushed {
    /// An account with a desktop, and with a phone that has a token.
    fn start() -> Self {
        tokio::time::pause();
        let apns = Arc::<Provided>::default();
        let rig = Rig::with_gateways(Gateways::from([(Provider::Apns, apns.clone() as Arc<dyn Gateway>)]));
        let (desktop_id, phone_id) = (rig.device(Role::Desktop), rig.device(Role::Mobile));
        let token = "token".parse().unwrap();
        let address = PushAddress { provider: Provider::Apns, token, environment: Environment::Production, app_id: None };
        rig.store.push_targets.lock().unwrap().push(PushTarget { device: phone_id, address, claimed_at: CLAIMED });
        Pushed { rig, apns, desktop_id, phone_id }
    }

    fn ended(&self, kind: Kind, fate: Fate) -> u64 {
        self.rig.counters.push.of(Provider::Apns, kind).get(fate.name())
    }

    fn has_token(&self) -> bool {
        !self.rig.store.push_targets.lock().unwrap().is_empty()
    }
}

/// Has a desktop ask for an alert.
async fn notify(peer: &Peer, id: &str) {
    let payload = json!({"notificationId": id, "title": "Title", "body": "Body", "appSessionId": "s"});
    let frame = json!({"type": "event", "payload": {"eventType": "agent:notification", "payload": payload}}).to_string();
    let Ok(Inbound::Event(Event::Notification(notification))) = Inbound::parse(frame.into()) else { panic!("no notification") };
    let step = relay_actors::user_router::actor::Step(Input::Notification { socket: peer.link().id, notification });
    mailbox::offer(peer.router.as_ref().unwrap(), step).unwrap();
    settle().await;
}

fn result(peer: &Peer) -> Value {
    let frame = peer.next();
    assert_eq!(frame["payload"]["eventType"], "agent:notification-result", "{frame}");
    frame["payload"]["payload"].clone()
}

#[actix::test]
async fn a_desktop_that_comes_back_is_told_to_phones_and_one_that_never_left_is_not() {
    let pushed = Pushed::start();
    let mut desktop = pushed.rig.desktop(pushed.desktop_id).await;
    let told = pushed.apns.taken();
    assert!(matches!(told[..], [Outgoing { content: Content::DesktopOnline { desktop, .. }, .. }] if desktop == pushed.desktop_id));
    assert_eq!(told[0].address.token.expose(), "token");

    let second = pushed.rig.desktop(pushed.desktop_id).await;
    assert!(pushed.apns.taken().is_empty(), "a replacement");
    desktop.close().await;
    desktop = second;
    desktop.close().await;
    advance(RECONNECT_GRACE - Duration::from_secs(1)).await;
    desktop = pushed.rig.desktop(pushed.desktop_id).await;
    assert!(pushed.apns.taken().is_empty(), "within the wait");
    desktop.close().await;
    advance(RECONNECT_GRACE + Duration::from_secs(1)).await;
    let _desktop = pushed.rig.desktop(pushed.desktop_id).await;
    assert_eq!(pushed.apns.taken().len(), 1, "after the wait");
    assert_eq!(pushed.ended(Kind::Silent, Fate::Sent), 2);
    assert_eq!(pushed.rig.counters.push.hints.get(HintFate::Told.name()), 2);
}

#[actix::test]
async fn an_alert_goes_by_push_and_never_by_socket_and_is_answered() {
    let pushed = Pushed::start();
    let desktop = pushed.rig.desktop(pushed.desktop_id).await;
    let phone = pushed.rig.phone(pushed.phone_id, pushed.desktop_id).await;
    pushed.apns.taken();
    notify(&desktop, "n").await;
    assert_eq!(result(&desktop), json!({"notificationId": "n", "accepted": true, "devices": 1}));
    let sent = pushed.apns.taken();
    let [Outgoing { content: Content::Alert(alert), .. }] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((&*alert.title, &*alert.body, alert.app_session_id.as_deref()), ("Title", "Body", Some("s")));
    assert_eq!(phone.frames(), Vec::<Value>::new(), "connected phones are pushed to as well, and hear nothing else");

    notify(&desktop, "n").await;
    assert_eq!(result(&desktop), json!({"notificationId": "n", "accepted": true, "devices": 1, "reason": "duplicate"}));
    assert!(pushed.apns.taken().is_empty());
}

/// Push never blocks routing: neither a provider nor storage that stands still delays a call.
#[actix::test]
async fn a_provider_and_a_storage_that_stand_still_delay_no_call() {
    let pushed = Pushed::start();
    let desktop = pushed.rig.desktop(pushed.desktop_id).await;
    let phone = pushed.rig.phone(pushed.phone_id, pushed.desktop_id).await;
    pushed.apns.stalls.send_replace(true);
    notify(&desktop, "n").await;
    assert_eq!(result(&desktop)["accepted"], true, "it is on its way, whatever becomes of it");
    pushed.rig.store.away.store(true, Relaxed);
    notify(&desktop, "m").await;
    assert_eq!(result(&desktop), json!({"notificationId": "m", "accepted": false, "devices": 0, "reason": "unavailable"}));
    phone.request("call", "system.ping").await;
    let request = desktop.next();
    desktop.answer(&request, json!({"ok": true})).await;
    assert_eq!(phone.next()["payload"]["result"], json!({"ok": true}));
}

#[actix::test]
async fn a_desktop_that_left_before_the_answer_may_ask_again() {
    let pushed = Pushed::start();
    let mut desktop = pushed.rig.desktop(pushed.desktop_id).await;
    pushed.apns.taken();
    notify(&desktop, "n").await;
    desktop.close().await;
    let desktop = pushed.rig.desktop(pushed.desktop_id).await;
    notify(&desktop, "n").await;
    assert_eq!(result(&desktop)["reason"], "duplicate");
    assert_eq!(pushed.apns.taken().len(), 1);
}

#[actix::test]
async fn a_dead_token_is_forgotten_and_one_that_was_claimed_since_is_not() {
    let pushed = Pushed::start();
    let desktop = pushed.rig.desktop(pushed.desktop_id).await;
    let dead = |since| Verdict::TokenDead { reason: "Unregistered".into(), since };
    pushed.apns.will_say(dead(Some(EpochMs(CLAIMED.0 - 1))));
    notify(&desktop, "old").await;
    assert!(pushed.has_token());
    pushed.apns.will_say(dead(Some(EpochMs(CLAIMED.0 + 1))));
    notify(&desktop, "new").await;
    assert!(!pushed.has_token());
    assert_eq!([Fate::TokenKept, Fate::TokenDead].map(|fate| pushed.ended(Kind::Alert, fate)), [1, 1]);
    assert_eq!(desktop.frames().len(), 2);
    notify(&desktop, "last").await;
    assert_eq!(result(&desktop)["reason"], "noDevices");
}

#[actix::test]
async fn a_push_is_tried_again_when_its_time_has_come() {
    let pushed = Pushed::start();
    let desktop = pushed.rig.desktop(pushed.desktop_id).await;
    pushed.apns.taken();
    let wait = Some(Duration::from_secs(30));
    pushed.apns.will_say(Verdict::Retry { reason: "busy".into(), wait, scope: Scope::Provider });
    notify(&desktop, "n").await;
    assert_eq!(pushed.apns.taken().len(), 1);
    assert_eq!(pushed.rig.counters.push.queue(Provider::Apns).paused.get(), 1);
    advance(Duration::from_secs(29)).await;
    assert!(pushed.apns.taken().is_empty());
    advance(Duration::from_secs(2)).await;
    let again = pushed.apns.taken();
    assert_eq!(again.len(), 1);
    assert_eq!((pushed.ended(Kind::Alert, Fate::Sent), pushed.rig.counters.push.queue(Provider::Apns).paused.get()), (1, 0));
}

#[actix::test]
async fn an_operator_is_told_what_the_provider_says() {
    let pushed = Pushed::start();
    let push = pushed.rig.directory.services().push().unwrap();
    let test = async |device| mailbox::ask(&push, TestPush { device }, Duration::from_secs(5)).await.unwrap();
    let verdict = Verdict::Refused { reason: "TopicDisallowed".into() };
    pushed.apns.will_say(verdict.clone());
    assert_eq!(test(pushed.phone_id).await, Ok(Tested { provider: Provider::Apns, verdict }));
    pushed.rig.store.push_targets.lock().unwrap()[0].address.provider = Provider::Fcm;
    assert_eq!(test(pushed.phone_id).await, Err(NotTested::NotConfigured(Provider::Fcm)));
    pushed.rig.store.push_targets.lock().unwrap().clear();
    assert_eq!(test(pushed.phone_id).await, Err(NotTested::NoToken));
}

#[actix::test]
async fn a_push_actor_that_panics_is_started_anew() {
    let pushed = Pushed::start();
    let desktop = pushed.rig.desktop(pushed.desktop_id).await;
    pushed.apns.taken();
    pushed.apns.panics.store(true, Relaxed);
    notify(&desktop, "n").await;
    for _ in 0..50 {
        desktop.hear();
        advance(Duration::from_millis(100)).await;
    }
    assert_eq!(pushed.rig.counters.push.restarted.get(), 1);
    desktop.frames();
    notify(&desktop, "n").await;
    assert_eq!(result(&desktop)["accepted"], true);
    assert_eq!(pushed.apns.taken().len(), 1);
}

#[actix::test]
async fn a_process_that_ends_waits_for_its_alerts() {
    let pushed = Pushed::start();
    let desktop = pushed.rig.desktop(pushed.desktop_id).await;
    pushed.apns.taken();
    pushed.apns.stalls.send_replace(true);
    notify(&desktop, "n").await;
    let push = pushed.rig.directory.services().push().unwrap();
    let leaving = tokio::spawn(async move { mailbox::ask(&push, Leave, Duration::from_secs(60)).await });
    advance(Duration::from_secs(5)).await;
    assert!(!leaving.is_finished());
    pushed.apns.stalls.send_replace(false);
    settle().await;
    assert!(leaving.is_finished() && leaving.await.unwrap().is_ok());
    assert_eq!(pushed.ended(Kind::Alert, Fate::Sent), 1);
}
