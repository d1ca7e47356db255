use super::*;
use proptest::{collection::vec, prelude::*};

fn made_under(session: &str, generation: &str) -> MadeUnder {
    MadeUnder { session: session.to_owned(), generation: generation.to_owned() }
}

fn key(session: &str, key: &str) -> OverlayKey {
    OverlayKey { session: session.to_owned(), key: key.to_owned() }
}

fn other(text: &str) -> Pending {
    Pending { kind: Kind::Other, text: text.to_owned() }
}

fn entry(session: &str, generation: &str, text: &str) -> Pending {
    Pending { kind: Kind::Entry(made_under(session, generation)), text: text.to_owned() }
}

fn overlay(session: &str, generation: &str, name: &str, text: &str) -> Pending {
    Pending { kind: Kind::Overlay(made_under(session, generation), key(session, name)), text: text.to_owned() }
}

fn filled(events: impl IntoIterator<Item = Pending>) -> EventBuffer {
    let mut buffer = EventBuffer::default();
    for event in events {
        assert!(buffer.has_room(&event), "{event:?}");
        buffer.push(event);
    }
    buffer
}

/// What comes out, everything being live.
fn drained(buffer: &mut EventBuffer) -> Vec<String> {
    std::iter::from_fn(|| buffer.pop(|_| true)).collect()
}

#[test]
fn an_overlay_takes_the_place_of_the_one_with_its_key_at_the_end() {
    let mut buffer = filled([
        overlay("s", "g", "k", "old"),
        overlay("s", "g", "l", "another key"),
        overlay("r", "g", "k", "another session"),
        entry("s", "g", "entry"),
        other("other"),
        overlay("s", "g", "k", "new"),
    ]);
    assert_eq!(drained(&mut buffer), ["another key", "another session", "entry", "other", "new"]);
    assert_eq!(buffer.clear(), (0, Fates { written: 5, replaced: 1, interest_ended: 0 }));
    // What was written is replaced by nothing.
    buffer = filled([overlay("s", "g", "k", "1")]);
    assert_eq!(buffer.pop(|_| true).as_deref(), Some("1"));
    buffer.push(overlay("s", "g", "k", "2"));
    assert_eq!(drained(&mut buffer), ["2"]);
    assert_eq!(buffer.clear().1.replaced, 0);
}

#[test]
fn each_bound_at_its_edge() {
    let regular = |count: usize| (0..count).map(|number| if number % 2 == 0 { other("o") } else { entry("s", "g", "e") });
    let overlays = |count: usize| (0..count).map(|number| overlay("s", "g", &number.to_string(), "v"));
    let of_bytes = |count: usize| other(&"x".repeat(count));
    let newer = |text: &str| overlay("s", "g", "0", text);
    for (held, event, has_room) in [
        (regular(63).collect::<Vec<_>>(), other("o"), true),
        (regular(64).collect(), other("o"), false),
        (regular(64).collect(), entry("s", "g", "e"), false),
        // The two kinds have their own numbers.
        (regular(64).collect(), newer("v"), true),
        (overlays(64).collect(), other("o"), true),
        (overlays(63).collect(), overlay("s", "g", "63", "v"), true),
        (overlays(64).collect(), overlay("s", "g", "64", "v"), false),
        (overlays(64).collect(), overlay("r", "g", "0", "v"), false),
        (overlays(64).collect(), newer("v"), true),
        (vec![of_bytes(1)], of_bytes(PENDING_BYTES_MAX - 1), true),
        (vec![of_bytes(1)], of_bytes(PENDING_BYTES_MAX), false),
        // A large event is taken when it is alone.
        (vec![], of_bytes(PENDING_BYTES_MAX + 1), true),
        (vec![of_bytes(PENDING_BYTES_MAX + 1)], other("o"), false),
        // What is replaced does not count.
        (vec![of_bytes(1), newer(&"x".repeat(PENDING_BYTES_MAX - 1))], newer(&"y".repeat(PENDING_BYTES_MAX - 1)), true),
        (vec![of_bytes(1), newer(&"x".repeat(PENDING_BYTES_MAX - 1))], newer(&"y".repeat(PENDING_BYTES_MAX)), false),
        (vec![newer("v")], newer(&"y".repeat(PENDING_BYTES_MAX + 1)), true),
    ] {
        let told = (held.len(), held.iter().map(|event| event.text.len()).sum::<usize>(), event.kind.clone(), event.text.len());
        let mut buffer = filled(held);
        assert_eq!(buffer.has_room(&event), has_room, "{told:?}");
        drained(&mut buffer);
        assert!(buffer.has_room(&event), "emptied: {told:?}");
    }
}

#[test]
fn what_was_made_under_an_interest_that_is_over_is_never_written() {
    let events = || [entry("s", "g", "ended"), overlay("s", "h", "k", "live"), other("other"), overlay("r", "g", "k", "unknown")];
    let is_live = |under: &MadeUnder| *under == made_under("s", "h");

    let mut buffer = filled(events());
    assert_eq!(std::iter::from_fn(|| buffer.pop(is_live)).collect::<Vec<_>>(), ["live", "other"]);
    assert_eq!(buffer.clear(), (0, Fates { written: 2, replaced: 0, interest_ended: 2 }));

    let mut buffer = filled(events());
    buffer.drop_ended(is_live);
    assert!(buffer.has_place(Some(&key("r", "k"))));
    assert_eq!(drained(&mut buffer), ["live", "other"]);
    // An ended one holds no place of a key, and no bytes.
    let mut buffer = filled((0..64).map(|number| overlay("s", "g", &number.to_string(), "v")));
    assert!(!buffer.has_place(Some(&key("s", "new"))));
    buffer.drop_ended(is_live);
    assert!(buffer.has_place(Some(&key("s", "new"))));
    assert!(buffer.has_room(&other(&"x".repeat(PENDING_BYTES_MAX + 1))));
}

#[test]
fn with_the_connection_everything_goes() {
    let mut buffer = filled([other("o"), overlay("s", "g", "k", "v"), overlay("s", "g", "k", "w")]);
    assert_eq!(buffer.clear(), (2, Fates { written: 0, replaced: 1, interest_ended: 0 }));
    assert_eq!((buffer.pop(|_| true), buffer.bytes), (None, 0));
}

/// A list in the order of writing, searched from end to end each time.
#[derive(Debug, Default)]
struct Model(Vec<Pending>);

impl Model {
    fn without_replaced(&self, event: &Pending) -> Vec<Pending> {
        let is_replaced = |held: &Pending| event.kind.key().is_some() && held.kind.key() == event.kind.key();
        self.0.iter().filter(|held| !is_replaced(held)).cloned().collect()
    }

    fn has_room(&self, event: &Pending, limits: BufferLimits) -> bool {
        let mut after = self.without_replaced(event);
        after.push(event.clone());
        let keyed = after.iter().filter(|event| event.kind.key().is_some()).count();
        let bytes: usize = after.iter().map(|event| event.text.len()).sum();
        let (is_over, fits) = match event.kind {
            Kind::Overlay(..) => (keyed > limits.keys, bytes <= limits.bytes),
            Kind::Other | Kind::Entry(_) => (after.len() - keyed > limits.regular, bytes <= limits.bytes),
        };
        !is_over && (fits || after.iter().rev().skip(1).all(|event| event.text.is_empty()))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(Pending),
    /// Writes the next one, while these generations of the sessions are live.
    Pop([u8; 2]),
    DropEnded([u8; 2]),
    Clear,
}

fn is_live(generations: [u8; 2]) -> impl Fn(&MadeUnder) -> bool {
    move |under| generations[usize::from(under.session == "s1")].to_string() == under.generation
}

fn steps() -> impl Strategy<Value = Step> {
    let (session, generation, name, length) = (0..2_u8, 0..3_u8, 0..4_u8, 0..12_usize);
    let event = (0..3_u8, session, generation, name, length).prop_map(|(kind, session, generation, name, length)| {
        let (session, text) = (format!("s{session}"), "x".repeat(length));
        match kind {
            0 => other(&text),
            1 => entry(&session, &generation.to_string(), &text),
            _ => overlay(&session, &generation.to_string(), &name.to_string(), &text),
        }
    });
    let live = [0..3_u8, 0..3_u8];
    prop_oneof![
        8 => event.prop_map(Step::Push),
        4 => live.clone().prop_map(Step::Pop),
        1 => live.prop_map(Step::DropEnded),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #[test]
    fn does_as_a_list_does(steps in vec(steps(), 1..60)) {
        let limits = BufferLimits { bytes: 24, regular: 3, keys: 3 };
        let (mut buffer, mut model) = (EventBuffer { limits, ..EventBuffer::default() }, Model::default());
        let mut fates = Fates::default();
        for step in steps {
            match step {
                Step::Push(event) => {
                    let has_room = model.has_room(&event, limits);
                    prop_assert_eq!(buffer.has_room(&event), has_room, "{:?}", event);
                    if has_room {
                        let left = model.without_replaced(&event);
                        fates.replaced += (model.0.len() - left.len()) as u64;
                        model.0 = left;
                        model.0.push(event.clone());
                        buffer.push(event);
                    }
                }
                Step::Pop(generations) => {
                    let is_live = is_live(generations);
                    let stays = |event: &Pending| event.kind.made_under().is_none_or(&is_live);
                    let first = model.0.iter().position(stays);
                    fates.interest_ended += first.unwrap_or(model.0.len()) as u64;
                    let written = first.map(|first| model.0[first].text.clone());
                    model.0.drain(..first.map_or(model.0.len(), |first| first + 1));
                    fates.written += u64::from(written.is_some());
                    prop_assert_eq!(buffer.pop(&is_live), written);
                }
                Step::DropEnded(generations) => {
                    let is_live = is_live(generations);
                    let before = model.0.len();
                    model.0.retain(|event| event.kind.made_under().is_none_or(&is_live));
                    fates.interest_ended += (before - model.0.len()) as u64;
                    buffer.drop_ended(&is_live);
                }
                Step::Clear => {
                    prop_assert_eq!(buffer.clear(), (model.0.len(), fates));
                    (model, fates) = (Model::default(), Fates::default());
                }
            }
            prop_assert_eq!(buffer.bytes, model.0.iter().map(|event| event.text.len()).sum::<usize>());
            prop_assert_eq!(buffer.overlays.len(), model.0.iter().filter(|event| event.kind.key().is_some()).count());
        }
        prop_assert_eq!(buffer.clear(), (model.0.len(), fates));
    }
}
