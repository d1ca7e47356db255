//! When a provider token is made anew. Apple refuses one that is older than an hour, and a key that makes them more often than every
//! 20 minutes (case C74); so one is made every 40 minutes, and used for every push to both services.

use super::{key::ApnsKey, sensitive};
use hyper::header::HeaderValue;
use relay_actors::clock::EpochMs;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Age at which a token is made anew.
const AGE_MAX: Duration = Duration::from_secs(40 * 60);
/// Age from which one may be.
const AGE_MIN: Duration = Duration::from_secs(20 * 60);
/// By how much the wall clock may have moved against a token before it is made anew.
const CLOCK_STEP_MAX: Duration = Duration::from_secs(60);

/// A token in use.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// `Authorization`.
    pub(super) header: HeaderValue,
    made: Instant,
    /// What it says of itself.
    issued_at: EpochMs,
}

/// When tokens were made.
#[derive(Debug, Default)]
struct State {
    token: Option<Token>,
    /// When one was made last because Apple had called another expired.
    renewed: Option<Instant>,
}

/// The token of one key.
pub(super) struct ProviderToken {
    key: ApnsKey,
    state: Mutex<State>,
}

impl ProviderToken {
    pub(super) fn new(key: ApnsKey) -> Self {
        ProviderToken { key, state: Mutex::default() }
    }

    /// The token to send with.
    ///
    /// # Errors
    /// It could not be signed, in words for the log.
    pub(super) fn current(&self, now: Instant, wall: EpochMs) -> Result<Token, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.token {
            Some(token) if !is_due(token, now, wall) => Ok(token.clone()),
            Some(_) | None => self.make(&mut state, now, wall),
        }
    }

    /// Another token, since Apple calls this one expired; none when that has been tried just before. Everybody who was refused under
    /// one token gets the same new one.
    ///
    /// # Errors
    /// As [`ProviderToken::current`].
    pub(super) fn renewed(&self, refused: &Token, now: Instant, wall: EpochMs) -> Result<Option<Token>, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = state.token.as_ref().filter(|token| token.made != refused.made) {
            return Ok(Some(token.clone()));
        }
        if state.renewed.is_some_and(|at| now < at + AGE_MIN) {
            return Ok(None);
        }
        state.renewed = Some(now);
        self.make(&mut state, now, wall).map(Some)
    }

    fn make(&self, state: &mut State, now: Instant, wall: EpochMs) -> Result<Token, String> {
        let signed = self.key.sign(wall.0 / 1_000).map_err(|error| format!("providerTokenNotSigned: {error}"))?;
        let header = sensitive(&format!("bearer {signed}")).ok_or("providerTokenNotSigned")?;
        let token = Token { header, made: now, issued_at: wall };
        state.token = Some(token.clone());
        Ok(token)
    }
}

/// Old enough, or the wall clock was set: then what the token says of itself is wrong, and it may come from the future.
fn is_due(token: &Token, now: Instant, wall: EpochMs) -> bool {
    let age = now.saturating_duration_since(token.made);
    let expected = token.issued_at.plus(age);
    let step = u64::try_from((wall.0 - expected.0).abs()).unwrap_or(u64::MAX);
    age >= AGE_MAX || (age >= AGE_MIN && Duration::from_millis(step) > CLOCK_STEP_MAX)
}

#[cfg(test)]
mod tests {
    use super::{super::key::tests::P256, *};
    use relay_actors::clock;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Apple, as far as tokens go: at least 20 minutes between two, none older than an hour, none from the future.
    struct Rig {
        tokens: ProviderToken,
        start: Instant,
        now: Instant,
        wall: EpochMs,
        seen: Vec<(Instant, HeaderValue)>,
    }

    impl Rig {
        fn new() -> Self {
            let now = clock::now();
            let key = ApnsKey::parse(P256, "KEY0000001", "TEAM000001").unwrap();
            Rig { tokens: ProviderToken::new(key), start: now, now, wall: EpochMs(1_800_000_000_000), seen: Vec::new() }
        }

        fn pass(&mut self, time: Duration) {
            (self.now, self.wall) = (self.now + time, self.wall.plus(time));
        }

        fn see(&mut self, token: &Token) {
            if self.seen.last().is_none_or(|(_, last)| *last != token.header) {
                if let Some((last, _)) = self.seen.last() {
                    assert!(self.now - *last >= AGE_MIN, "two tokens within 20 minutes, after {:?}", self.now - self.start);
                }
                self.seen.push((self.now, token.header.clone()));
            }
        }

        fn send(&mut self) -> Token {
            let token = self.tokens.current(self.now, self.wall).unwrap();
            self.see(&token);
            token
        }
    }

    #[test]
    fn c74_over_five_hours_no_token_is_too_old_and_none_comes_too_early() {
        let mut rig = Rig::new();
        for _ in 0..5 * 60 * 4 {
            let token = rig.send();
            assert!(rig.now - token.made <= 60 * MINUTE);
            rig.pass(MINUTE / 4);
        }
        assert_eq!(rig.seen.len(), 8, "one every 40 minutes");
    }

    #[test]
    fn c74_all_who_are_refused_under_one_token_get_one_new_one() {
        let mut rig = Rig::new();
        let refused = rig.send();
        rig.pass(30 * MINUTE);
        let fresh = rig.tokens.renewed(&refused, rig.now, rig.wall).unwrap().unwrap();
        assert_ne!(fresh.header, refused.header);
        for _ in 0..100 {
            assert_eq!(rig.tokens.renewed(&refused, rig.now, rig.wall).unwrap().unwrap().header, fresh.header);
        }
        assert_eq!(rig.send().header, fresh.header);
        assert!(rig.tokens.renewed(&fresh, rig.now, rig.wall).unwrap().is_none(), "Apple would say that it is too often");
        rig.pass(AGE_MIN);
        assert!(rig.tokens.renewed(&fresh, rig.now, rig.wall).unwrap().is_some());
    }

    #[test]
    fn c74_a_clock_that_steps_back_leaves_no_token_from_the_future_for_long() {
        let mut rig = Rig::new();
        rig.send();
        rig.pass(5 * MINUTE);
        rig.wall = rig.wall.minus(120 * MINUTE);
        let before = rig.send();
        assert_eq!(rig.seen.len(), 1, "too early for another");
        rig.pass(15 * MINUTE);
        let after = rig.send();
        assert_eq!(rig.seen.len(), 2);
        assert!(before.issued_at > rig.wall && after.issued_at <= rig.wall);
    }
}
