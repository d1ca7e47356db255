//! Who may cause pushes, where they go, and what becomes of them, without actors and without time passing.

use super::super::limits::{
    ATTEMPTS_MAX, DEAD_SUSPICIOUS, DEAD_WINDOW, IN_FLIGHT_MAX, PAUSE_ASKED_MAX, PAUSE_FIRST, PAUSE_MAX, QUEUE_MAX, QUEUE_PER_ACCOUNT_MAX,
    RETRY_FIRST,
};
use super::*;
use crate::{clock, push::gateway::Scope};
use relay_protocol::push::{Environment, PushAddress};
use std::time::Duration;
use uuid::Uuid;

const SECOND: Duration = Duration::from_secs(1);
const CLAIMED: EpochMs = EpochMs(1_000_000);

fn user(number: u128) -> UserId {
    UserId(Uuid::from_u128(number))
}

fn device(number: u128) -> DeviceId {
    DeviceId(Uuid::from_u128(number))
}

fn target(provider: Provider, number: u128) -> PushTarget {
    let token = format!("token-{number}").parse().unwrap();
    let address = PushAddress { provider, token, environment: Environment::Production, app_id: None };
    PushTarget { device: device(number), address, claimed_at: CLAIMED }
}

fn sent() -> Verdict {
    Verdict::Sent { id: None }
}

fn retry(scope: Scope, wait: Option<Duration>) -> Verdict {
    Verdict::Retry { reason: "busy".into(), wait, scope }
}

fn dead(since: Option<EpochMs>) -> Verdict {
    Verdict::TokenDead { reason: "Unregistered".into(), since }
}

struct Rig {
    core: PushCore,
    now: Instant,
    effects: VecDeque<Effect>,
    counters: Arc<PushCounters>,
    last_asker: u64,
}

impl Rig {
    fn new(providers: &[Provider]) -> Self {
        let counters = Arc::<PushCounters>::default();
        let core = PushCore::new(providers.iter().copied(), counters.clone());
        Rig { core, now: clock::now(), effects: VecDeque::new(), counters, last_asker: 0 }
    }

    fn step(&mut self, input: Input) {
        self.core.handle(self.now, input, &mut self.effects);
    }

    fn online(&mut self, account: u128, desktop: u128) {
        self.step(Input::DesktopOnline { user: user(account), desktop: device(desktop), at: EpochMs(7) });
    }

    fn notify(&mut self, account: u128, id: &str) -> AskerId {
        self.last_asker += 1;
        let asker = AskerId(self.last_asker);
        let notification = Notification { id: id.into(), title: "t".into(), body: "b".into(), app_session_id: None };
        self.step(Input::Notify { user: user(account), desktop: device(1), notification, asker });
        asker
    }

    fn look_ups(&mut self) -> Vec<JobId> {
        self.taken(|effect| if let Effect::LookUp { job, .. } = effect { Some(*job) } else { None })
    }

    /// Answers every question, also those that were waiting for the answers, with these phones.
    fn find(&mut self, targets: &[PushTarget]) {
        loop {
            let jobs = self.look_ups();
            if jobs.is_empty() {
                return;
            }
            for job in jobs {
                self.step(Input::Found { job, targets: Some(targets.to_vec()) });
            }
        }
    }

    fn sends(&mut self) -> Vec<(PushId, Outgoing)> {
        self.taken(|effect| if let Effect::Send { push, outgoing, .. } = effect { Some((*push, outgoing.clone())) } else { None })
    }

    fn answers(&mut self) -> Vec<(AskerId, Outcome)> {
        self.taken(|effect| if let Effect::Answer { asker, outcome } = effect { Some((*asker, *outcome)) } else { None })
    }

    fn drops(&mut self) -> Vec<(PushId, DeviceId, EpochMs)> {
        let of = |effect: &Effect| match effect {
            Effect::DropToken { push, device, claimed_at, .. } => Some((*push, *device, *claimed_at)),
            Effect::LookUp { .. } | Effect::Answer { .. } | Effect::Send { .. } | Effect::ReportSuspicious { .. } => None,
        };
        self.taken(of)
    }

    fn taken<T>(&mut self, of: impl Fn(&Effect) -> Option<T>) -> Vec<T> {
        let taken = self.effects.iter().filter_map(&of).collect();
        self.effects.retain(|effect| of(effect).is_none());
        taken
    }

    fn judge(&mut self, provider: Provider, push: PushId, verdict: Verdict) {
        self.step(Input::Judged { provider, push, verdict });
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.step(Input::Timeout);
    }

    /// Lets time pass up to the next timer, which must be in the future: one that is due already would spin.
    fn pass_to_timer(&mut self) -> Duration {
        let at = self.core.next_timeout(self.now).unwrap();
        assert!(at > self.now, "a timer that is due");
        let waited = at - self.now;
        self.pass(waited);
        waited
    }

    fn ended(&self, provider: Provider, kind: super::super::Kind, fate: Fate) -> u64 {
        self.counters.of(provider, kind).get(fate.name())
    }

    /// Notifications of accounts of their own, so that no rate is in the way, for one phone each.
    fn fill_with_alerts(&mut self, accounts: std::ops::Range<u128>, each: usize) {
        for account in accounts {
            for number in 0..each {
                self.notify(account, &format!("n{number}"));
                self.find(&[target(APNS, account)]);
            }
        }
    }
}

const APNS: Provider = Provider::Apns;
const ALERT: super::super::Kind = super::super::Kind::Alert;
const SILENT: super::super::Kind = super::super::Kind::Silent;

#[test]
fn an_alert_goes_to_every_phone_with_a_token_and_the_desktop_is_told_how_many() {
    let mut rig = Rig::new(&[APNS, Provider::Fcm]);
    let asker = rig.notify(1, "n");
    assert!(rig.answers().is_empty(), "nobody knows yet");
    rig.find(&[target(APNS, 11), target(Provider::Fcm, 12)]);
    assert_eq!(rig.answers(), [(asker, Outcome::Accepted { devices: 2 })]);
    let sends = rig.sends();
    assert_eq!(sends.iter().map(|(_, outgoing)| outgoing.address.provider).collect::<Vec<_>>(), [APNS, Provider::Fcm]);
    for (_, Outgoing { content, collapse_key, keep_for, .. }) in &sends {
        assert!(matches!(content, Content::Alert(alert) if &*alert.title == "t" && alert.desktop == Some(device(1))));
        assert_eq!((collapse_key, *keep_for), (&sends[0].1.collapse_key, ALERT_KEPT_FOR));
    }
}

#[test]
fn a_registration_is_told_silently_and_the_newest_of_one_desktop_is_enough() {
    let mut rig = Rig::new(&[APNS]);
    rig.online(1, 1);
    rig.online(1, 1);
    rig.online(1, 2);
    rig.find(&[target(APNS, 11)]);
    let sends = rig.sends();
    assert_eq!(sends.len(), 2);
    assert_eq!(sends[0].1.content, Content::DesktopOnline { desktop: device(1), at: EpochMs(7) });
    assert_ne!(sends[0].1.collapse_key, sends[1].1.collapse_key);
    assert!(sends[0].1.collapse_key.len() <= 64);
    assert_eq!([HintFate::Told, HintFate::Coalesced].map(|fate| rig.counters.hints.get(fate.name())), [2, 1]);
    rig.online(1, 1);
    rig.find(&[target(APNS, 11)]);
    assert_eq!(rig.sends().len(), 1, "it registered once more, behind the answer");
}

#[test]
fn what_keeps_an_alert_from_being_sent_is_named_and_its_id_stays_free() {
    let mut rig = Rig::new(&[APNS]);
    let asker = rig.notify(1, "n");
    rig.find(&[]);
    assert_eq!(rig.answers(), [(asker, Outcome::Refused(NotSent::NoDevices))]);
    let asker = rig.notify(1, "n");
    rig.find(&[target(Provider::Fcm, 11)]);
    assert_eq!(rig.answers(), [(asker, Outcome::Refused(NotSent::NotConfigured))]);
    let asker = rig.notify(1, "n");
    let job = rig.look_ups()[0];
    rig.step(Input::Found { job, targets: None });
    assert_eq!(rig.answers(), [(asker, Outcome::Refused(NotSent::Unavailable))]);
    let asker = rig.notify(1, "n");
    rig.find(&[target(APNS, 11)]);
    assert_eq!(rig.answers(), [(asker, Outcome::Accepted { devices: 1 })]);
    assert_eq!(rig.counters.notifications.read().filter(|(_, count)| *count == 1).count(), 4);

    let mut rig = Rig::new(&[]);
    let asker = rig.notify(1, "n");
    assert_eq!(rig.answers(), [(asker, Outcome::Refused(NotSent::NotConfigured))]);
    rig.online(1, 1);
    assert!(rig.look_ups().is_empty(), "storage is not asked for nothing");
}

#[test]
fn a_notification_id_is_sent_once_a_day_whoever_asks_meanwhile() {
    let mut rig = Rig::new(&[APNS]);
    let [first, second] = [rig.notify(1, "n"), rig.notify(1, "n")];
    rig.find(&[target(APNS, 11), target(APNS, 12)]);
    let accepted = Outcome::Accepted { devices: 2 };
    assert_eq!(rig.answers(), [(first, accepted), (second, accepted)], "both wait for one answer");
    assert_eq!(rig.sends().len(), 2);
    let third = rig.notify(1, "n");
    assert_eq!(rig.answers(), [(third, Outcome::AcceptedBefore { devices: 2 })]);
    let other = rig.notify(2, "n");
    rig.find(&[target(APNS, 13)]);
    assert_eq!(rig.answers(), [(other, Outcome::Accepted { devices: 1 })], "another account's is another one");
    rig.now += relay_protocol::limits::NOTIFICATION_ID_MEMORY;
    rig.notify(1, "n");
    rig.find(&[target(APNS, 11)]);
    assert_eq!(rig.sends().len(), 2, "a day later; and the other account's");
}

#[test]
fn an_account_over_its_rate_is_refused_and_no_other_one_is() {
    let mut rig = Rig::new(&[APNS]);
    for number in 0..ALERTS_BURST {
        rig.notify(1, &number.to_string());
    }
    let [over, other] = [rig.notify(1, "over"), rig.notify(2, "other")];
    rig.find(&[target(APNS, 11)]);
    let answers = rig.answers();
    assert_eq!(answers.len(), ALERTS_BURST as usize + 2);
    assert!(answers.contains(&(over, Outcome::Refused(NotSent::RateLimited))));
    assert!(answers.contains(&(other, Outcome::Accepted { devices: 1 })));
    rig.now += ALERT_INTERVAL;
    let again = rig.notify(1, "over");
    rig.find(&[target(APNS, 11)]);
    assert_eq!(rig.answers(), [(again, Outcome::Accepted { devices: 1 })]);

    for desktop in 0..=u128::from(SILENT_BURST) {
        rig.online(1, desktop);
    }
    assert_eq!(rig.counters.hints.get(HintFate::RateLimited.name()), 1);
}

#[test]
fn storage_is_asked_a_few_questions_at_once_alerts_first() {
    let mut rig = Rig::new(&[APNS]);
    for account in 0..100 {
        rig.online(account, 1);
    }
    let first = rig.look_ups();
    assert_eq!(first.len(), LOOK_UPS_AT_ONCE);
    let asker = rig.notify(200, "n");
    assert!(rig.look_ups().is_empty());
    rig.step(Input::Found { job: first[0], targets: Some(Vec::new()) });
    let job = rig.look_ups()[0];
    rig.step(Input::Found { job, targets: Some(Vec::new()) });
    assert_eq!(rig.answers(), [(asker, Outcome::Refused(NotSent::NoDevices))], "the alert overtook 92 registrations");
}

/// The case: 10,000 queued pushes with a dead provider.
#[test]
fn a_dead_provider_leaves_a_bounded_queue_that_drops_silent_pushes_first() {
    let mut rig = Rig::new(&[APNS]);
    for account in 0..QUEUE_MAX as u128 + IN_FLIGHT_MAX as u128 {
        rig.online(account, 1);
        rig.find(&[target(APNS, account)]);
    }
    assert_eq!(rig.sends().len(), IN_FLIGHT_MAX, "nobody answers");
    let depth = |rig: &Rig| rig.core.depths(rig.now).map(|(_, depth)| (depth.alerts, depth.silents, depth.in_flight)).next().unwrap();
    assert_eq!(depth(&rig), (0, QUEUE_MAX, IN_FLIGHT_MAX));
    rig.online(20_000, 1);
    rig.find(&[target(APNS, 20_000)]);
    assert_eq!((depth(&rig).1, rig.ended(APNS, SILENT, Fate::Overflow)), (QUEUE_MAX, 1), "no room for one more");

    rig.fill_with_alerts(30_000..30_000 + QUEUE_MAX as u128 / 20, 20);
    assert_eq!(depth(&rig), (QUEUE_MAX, 0, IN_FLIGHT_MAX), "each alert took the place of a silent push");
    assert!(rig.answers().iter().all(|(_, outcome)| *outcome == Outcome::Accepted { devices: 1 }));
    let asker = rig.notify(90_000, "n");
    rig.find(&[target(APNS, 1)]);
    assert_eq!(rig.answers(), [(asker, Outcome::Refused(NotSent::Overloaded))]);
    assert_eq!(rig.ended(APNS, SILENT, Fate::Overflow), 1 + QUEUE_MAX as u64);
    assert_eq!(rig.ended(APNS, ALERT, Fate::Overflow), 1);

    // What has become too old makes room, also while the provider is away.
    rig.now += ALERT_LIFE;
    let asker = rig.notify(90_000, "n");
    rig.find(&[target(APNS, 1)]);
    assert_eq!(rig.answers(), [(asker, Outcome::Accepted { devices: 1 })]);
    assert_eq!(rig.ended(APNS, ALERT, Fate::Expired), QUEUE_MAX as u64);
}

#[test]
fn one_account_cannot_take_the_room_of_all() {
    let mut rig = Rig::new(&[APNS]);
    let phones: Vec<_> = (0..64).map(|number| target(APNS, number)).collect();
    let mut devices = 0;
    for number in 0..ALERTS_BURST {
        rig.notify(1, &number.to_string());
        rig.find(&phones);
        devices += rig.answers().iter().map(|(_, told)| if let Outcome::Accepted { devices } = told { *devices } else { 0 }).sum::<usize>();
    }
    assert_eq!(devices, QUEUE_PER_ACCOUNT_MAX + IN_FLIGHT_MAX);
    let asker = rig.notify(2, "n");
    rig.find(&phones[..1]);
    assert_eq!(rig.answers(), [(asker, Outcome::Accepted { devices: 1 })]);
}

#[test]
fn alerts_go_before_silent_pushes() {
    let mut rig = Rig::new(&[APNS]);
    for account in 0..=IN_FLIGHT_MAX as u128 {
        rig.online(account, 1);
        rig.find(&[target(APNS, account)]);
    }
    let (push, _) = rig.sends()[0];
    rig.notify(500, "n");
    rig.find(&[target(APNS, 1)]);
    rig.judge(APNS, push, sent());
    assert!(matches!(rig.sends()[..], [(_, Outgoing { content: Content::Alert(_), .. })]));
}

#[test]
fn a_push_that_is_to_be_tried_again_waits_longer_each_time_and_is_given_up() {
    let mut rig = Rig::new(&[APNS]);
    rig.notify(1, "n");
    rig.find(&[target(APNS, 11)]);
    let mut waits = Vec::new();
    for attempt in 1..=ATTEMPTS_MAX {
        let (push, _) = rig.sends()[0];
        rig.judge(APNS, push, retry(Scope::Push, None));
        if attempt < ATTEMPTS_MAX {
            waits.push(rig.pass_to_timer());
        }
    }
    assert_eq!(waits, [RETRY_FIRST, 2 * RETRY_FIRST, 4 * RETRY_FIRST, PAUSE_MAX]);
    assert_eq!((rig.ended(APNS, ALERT, Fate::GivenUp), rig.counters.retries.get("apns")), (1, u64::from(ATTEMPTS_MAX) - 1));
    assert!(rig.core.is_idle() && rig.core.next_timeout(rig.now).is_none());
}

/// While one push waits for another try the others go on.
#[test]
fn a_phone_that_is_asked_too_often_holds_nobody_up() {
    let mut rig = Rig::new(&[APNS]);
    rig.notify(1, "n");
    rig.find(&[target(APNS, 11)]);
    let (push, _) = rig.sends()[0];
    rig.judge(APNS, push, retry(Scope::Push, Some(30 * SECOND)));
    rig.notify(2, "n");
    rig.find(&[target(APNS, 12)]);
    assert_eq!(rig.sends().len(), 1);
    assert_eq!(rig.pass_to_timer(), 30 * SECOND, "as long as the provider asks for");
    assert_eq!(rig.sends().len(), 1);
}

#[test]
fn a_provider_that_fails_gets_nothing_for_a_while_and_then_one_push_to_try() {
    let mut rig = Rig::new(&[APNS]);
    rig.fill_with_alerts(0..10, 20);
    let sends = rig.sends();
    assert_eq!(sends.len(), IN_FLIGHT_MAX);
    for (push, _) in &sends {
        rig.judge(APNS, *push, retry(Scope::Provider, None));
    }
    assert!(rig.sends().is_empty() && rig.core.depths(rig.now).all(|(_, depth)| depth.is_paused));
    let mut waits = vec![rig.pass_to_timer()];
    for _ in 0..8 {
        let tried = rig.sends();
        assert_eq!(tried.len(), 1, "one tries the way for all");
        assert!(rig.core.next_timeout(rig.now).is_none_or(|at| at > rig.now), "no timer is due while it is under way");
        rig.judge(APNS, tried[0].0, retry(Scope::Provider, None));
        waits.push(rig.pass_to_timer());
    }
    let expected: Vec<_> = [1, 2, 4, 8, 16, 32, 60, 60, 60].map(|factor| factor * PAUSE_FIRST).into();
    assert_eq!(waits, expected, "those in flight together failed once");
    let (push, _) = rig.sends()[0];
    rig.judge(APNS, push, sent());
    assert_eq!(rig.sends().len(), IN_FLIGHT_MAX, "it works again");
}

#[test]
fn a_provider_is_not_asked_before_the_time_that_it_names_within_reason() {
    for (asked, waited) in [(300 * SECOND, 300 * SECOND), (Duration::from_secs(86_400), PAUSE_ASKED_MAX)] {
        let mut rig = Rig::new(&[APNS, Provider::Fcm]);
        rig.notify(1, "n");
        rig.find(&[target(APNS, 11)]);
        let (push, _) = rig.sends()[0];
        rig.judge(APNS, push, retry(Scope::Provider, Some(asked)));
        rig.notify(2, "n");
        rig.find(&[target(APNS, 12), target(Provider::Fcm, 13)]);
        assert_eq!(rig.sends().len(), 1, "the other provider goes on");
        assert_eq!(rig.pass_to_timer(), waited);
        assert_eq!(rig.sends().len(), 1);
    }
}

#[test]
fn a_late_success_does_not_end_a_pause() {
    let mut rig = Rig::new(&[APNS]);
    rig.fill_with_alerts(0..10, 10);
    let sends = rig.sends();
    rig.judge(APNS, sends[0].0, retry(Scope::Provider, Some(10 * SECOND)));
    rig.judge(APNS, sends[1].0, sent());
    assert!(rig.sends().is_empty());
}

#[test]
fn a_push_that_has_waited_too_long_is_not_sent() {
    let mut rig = Rig::new(&[APNS]);
    rig.fill_with_alerts(0..1, 1);
    let (push, _) = rig.sends()[0];
    rig.judge(APNS, push, retry(Scope::Provider, Some(PAUSE_ASKED_MAX)));
    rig.online(5, 1);
    rig.find(&[target(APNS, 11)]);
    rig.pass_to_timer();
    let sends = rig.sends();
    assert!(matches!(sends[..], [(_, Outgoing { content: Content::Alert(_), .. })]), "{sends:?}");
    rig.judge(APNS, sends[0].0, sent());
    assert_eq!((rig.sends().len(), rig.ended(APNS, SILENT, Fate::Expired)), (0, 1));
}

#[test]
fn a_dead_token_is_forgotten_unless_it_was_claimed_since() {
    let mut rig = Rig::new(&[APNS]);
    let later = EpochMs(CLAIMED.0 + 1);
    let earlier = EpochMs(CLAIMED.0 - 1);
    for (since, is_dropped) in [(None, true), (Some(later), true), (Some(CLAIMED), true), (Some(earlier), false)] {
        rig.online(1, 1);
        rig.find(&[target(APNS, 11)]);
        let (push, _) = rig.sends()[0];
        rig.judge(APNS, push, dead(since));
        let drops = rig.drops();
        assert_eq!(drops, if is_dropped { vec![(push, device(11), CLAIMED)] } else { vec![] }, "{since:?}");
        assert_eq!(rig.core.is_idle(), !is_dropped, "it holds its place until storage has answered");
        if is_dropped {
            rig.step(Input::Dropped { provider: APNS, push });
        }
        assert!(rig.core.is_idle());
    }
    assert_eq!([Fate::TokenDead, Fate::TokenKept].map(|fate| rig.ended(APNS, SILENT, fate)), [3, 1]);
}

/// C72: a wrong key makes every token look dead.
#[test]
fn c72_when_most_tokens_are_called_dead_none_is_forgotten_any_more_for_a_while() {
    let mut rig = Rig::new(&[APNS]);
    let told = |rig: &mut Rig, account: u128, verdict: Verdict| {
        rig.notify(account, "n");
        rig.find(&[target(APNS, account)]);
        let (push, _) = rig.sends()[0];
        rig.judge(APNS, push, verdict);
        let drops = rig.drops().len();
        rig.step(Input::Dropped { provider: APNS, push });
        drops
    };
    let dropped: usize = (0..50).map(|account| told(&mut rig, account, dead(None))).sum();
    assert_eq!(dropped as u64, DEAD_SUSPICIOUS);
    assert_eq!(rig.ended(APNS, ALERT, Fate::TokenKept), 50 - DEAD_SUSPICIOUS);
    let reports = rig.taken(|effect| if let Effect::ReportSuspicious { provider } = effect { Some(*provider) } else { None });
    assert_eq!(reports, [APNS], "operators are told once");
    rig.now += DEAD_WINDOW;
    assert_eq!(told(&mut rig, 100, dead(None)), 1, "later it may be the tokens again");

    // Many dead ones among many good ones are nothing strange.
    rig.now += DEAD_WINDOW;
    let dropped: usize = (0..100).map(|account| told(&mut rig, 1_000 + account, if account % 2 == 0 { sent() } else { dead(None) })).sum();
    assert_eq!(dropped, 50);
}

#[test]
fn a_process_that_ends_sends_its_alerts_and_nothing_silent() {
    let mut rig = Rig::new(&[APNS]);
    rig.fill_with_alerts(0..4, 20);
    let in_flight = rig.sends();
    rig.online(50, 1);
    rig.find(&[target(APNS, 11)]);
    rig.online(51, 1);
    rig.step(Input::Leave);
    assert_eq!(rig.ended(APNS, SILENT, Fate::Shutdown), 1);
    rig.find(&[target(APNS, 12)]);
    let mut pushes = in_flight;
    while let Some((push, outgoing)) = pushes.pop() {
        assert!(!outgoing.content.is_silent());
        assert!(!rig.core.is_idle());
        rig.judge(APNS, push, sent());
        pushes.extend(rig.sends());
    }
    assert!(rig.core.is_idle());
    assert_eq!(rig.ended(APNS, ALERT, Fate::Sent), 80);
    let asker = rig.notify(60, "n");
    assert_eq!(rig.answers().last(), Some(&(asker, Outcome::Refused(NotSent::Overloaded))));
}
