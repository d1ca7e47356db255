//! A made-up timeline for every session that somebody watches: a draft that grows by a word each time, which is an overlay, a
//! numbered entry with the whole text when it is finished, and with it a regular event.

use super::{Published, Publisher};
use serde::Serialize;
use serde_json::{Map, Value, value::to_raw_value};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{MissedTickBehavior, interval};

/// What the draft says.
const WORDS: [&str; 5] = ["the", "desktop", "has", "something", "new"];
/// `timelineKey` of the draft.
const DRAFT_KEY: &str = "demo:draft";
/// `eventType` of the regular event.
const TICK: &str = "demo:tick";

/// The timeline's script. Pure: it says what to send, and forgets the sessions that nobody watches.
#[derive(Debug, Default)]
pub struct DemoTimeline {
    /// By base session: the generation that it was begun under, and the steps since then.
    sessions: BTreeMap<String, (String, u64)>,
    entries: u64,
}

/// One frame of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Frame {
    Draft { session: String, text: String },
    Entry { session: String, number: u64 },
    Tick { count: u64 },
}

impl DemoTimeline {
    /// Sends the timeline, a step each interval, which must not be zero, while there is somebody to see it. Ends with the desktop.
    pub async fn run(mut self, mut publisher: Publisher, every: Duration) {
        while publisher.watched().await {
            let mut steps = interval(every);
            // A link without room for a while is no reason to hurry afterwards.
            steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                steps.tick().await;
                let live = publisher.live();
                if live.is_empty() {
                    break;
                }
                for frame in self.step(live) {
                    let outcome = frame.publish(&publisher).await;
                    tracing::trace!(?outcome, "a frame of the demo timeline");
                }
            }
        }
    }

    /// The next frames of the sessions that are live, each with its generation. A session whose generation is new begins anew.
    fn step(&mut self, live: Vec<(String, String)>) -> Vec<Frame> {
        let mut before = std::mem::take(&mut self.sessions);
        let mut frames = Vec::new();
        for (session, generation) in live {
            let steps = before.remove(&session).filter(|(begun_under, _)| *begun_under == generation).map_or(0, |(_, steps)| steps);
            let words = usize::try_from(steps % WORDS.len() as u64).unwrap_or_default() + 1;
            frames.push(Frame::Draft { session: session.clone(), text: WORDS[..words].join(" ") });
            if words == WORDS.len() {
                self.entries += 1;
                frames.push(Frame::Entry { session: session.clone(), number: steps / WORDS.len() as u64 + 1 });
                frames.push(Frame::Tick { count: self.entries });
            }
            self.sessions.insert(session, (generation, steps + 1));
        }
        frames
    }
}

impl Frame {
    async fn publish(self, publisher: &Publisher) -> Published {
        #[derive(Serialize)]
        struct Tick {
            count: u64,
        }
        let fields = |kind: &str, value: Value| Map::from_iter([("kind".to_owned(), kind.into()), ("text".to_owned(), value)]);
        match self {
            Frame::Draft { session, text } => publisher.timeline(&session, Some(DRAFT_KEY), || fields("draft", text.into())).await,
            Frame::Entry { session, number } => {
                let text = || format!("entry {number}: {}", WORDS.join(" "));
                publisher.timeline(&session, None, || fields("entry", text().into())).await
            }
            Frame::Tick { count } => {
                let payload = to_raw_value(&Tick { count }).expect("a number serializes");
                publisher.event(TICK, &payload).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(sessions: &[(&str, &str)]) -> Vec<(String, String)> {
        sessions.iter().map(|(session, generation)| ((*session).to_owned(), (*generation).to_owned())).collect()
    }

    fn draft(session: &str, text: &str) -> Frame {
        Frame::Draft { session: session.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_draft_grows_by_a_word_and_ends_as_a_numbered_entry() {
        let mut timeline = DemoTimeline::default();
        for number in 1..=2 {
            assert_eq!(timeline.step(live(&[("s", "g")])), [draft("s", "the")]);
            assert_eq!(timeline.step(live(&[("s", "g")])), [draft("s", "the desktop")]);
            timeline.step(live(&[("s", "g")]));
            timeline.step(live(&[("s", "g")]));
            let last = [
                draft("s", "the desktop has something new"),
                Frame::Entry { session: "s".to_owned(), number },
                Frame::Tick { count: number },
            ];
            assert_eq!(timeline.step(live(&[("s", "g")])), last);
        }
    }

    #[test]
    fn each_session_has_its_own_timeline_which_ends_with_its_generation() {
        let mut timeline = DemoTimeline::default();
        assert_eq!(timeline.step(live(&[("r", "g")])), [draft("r", "the")]);
        assert_eq!(timeline.step(live(&[("r", "g"), ("s", "h")])), [draft("r", "the desktop"), draft("s", "the")]);
        assert_eq!(timeline.step(live(&[("r", "new"), ("s", "h")])), [draft("r", "the"), draft("s", "the desktop")]);
        assert_eq!(timeline.step(Vec::new()), []);
        assert!(timeline.sessions.is_empty());
        assert_eq!(timeline.step(live(&[("s", "h")])), [draft("s", "the")]);
    }
}
