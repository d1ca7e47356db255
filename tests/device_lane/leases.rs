//! Timeline leases over real sockets: who is told of interest, who gets which frame, and when that is over.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::support::{
    raw_socket::RawSocket,
    timeline::{Update, interest, next_number, next_update, stream},
    wire::Rig,
};

mod ends;
mod frames;
mod viewers;

const SESSION: &str = "session-7";

/// Takes a lease; what the desktop is told of it.
async fn watch(phone: &mut RawSocket, desktop: &mut RawSocket, session: &str) -> Update {
    phone.text(&interest(session, true)).await;
    next_update(desktop).await
}

/// A frame under this generation reaches these phones, each as the next event from a desktop.
async fn reaches(desktop: &mut RawSocket, generation: &str, number: u64, phones: &mut [&mut RawSocket]) {
    desktop.text(&stream(SESSION, generation, None, number)).await;
    for phone in phones {
        assert_eq!(next_number(phone).await, number);
    }
}

/// A desktop and two phones that watch the session, and its generation.
struct Watched {
    rig: Rig,
    desktop: RawSocket,
    phones: [RawSocket; 2],
    generation: String,
}

impl Watched {
    async fn start() -> Self {
        let rig = Rig::start(&["--flush-interval", "20ms"], 2).await;
        let mut desktop = rig.desktop().await;
        let mut phones = [rig.phone(0).await, rig.phone(1).await];
        let first = watch(&mut phones[0], &mut desktop, SESSION).await;
        let second = watch(&mut phones[1], &mut desktop, SESSION).await;
        assert_eq!(first.generation(), second.generation(), "one generation for the session");
        Watched { rig, desktop, phones, generation: first.generation().to_owned() }
    }
}
