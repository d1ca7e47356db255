//! Which signals begin a drain, and which of them hurry one that has begun.

use super::{DRAINED_WITHIN, admin, draining, frozen, told};
use crate::{
    closes::{desktop, phone},
    support::{account::Account, relay_process::RelayProcess, wire::eventually},
};
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn each_signal_that_ends_a_process_drains_it_first() {
    for signal in ["TERM", "INT", "HUP"] {
        let mut relay = RelayProcess::start(&[]).await;
        let account = Account::new(&relay, 1, 1).await;
        let sockets = [desktop(&account, 0).await.0, phone(&account, 0, 0).await.0];
        relay.signal(signal);
        for socket in sockets {
            assert_eq!(told(socket).await.unwrap(), draining(), "SIG{signal}");
        }
        assert_eq!(relay.exited().await.code(), Some(0), "SIG{signal}");
        assert!(relay.log().contains("drained"), "SIG{signal}: {}", relay.log());
    }
}

/// A peer that reads nothing keeps each of these drains from ending at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_after_a_call_does_not_hurry_and_a_hangup_after_a_signal_neither() {
    for by_call in [true, false] {
        let mut relay = RelayProcess::start(&[]).await;
        let account = Account::new(&relay, 1, 1).await;
        let (_stalled, caller) = frozen(&relay, &account, 0, 0).await;
        let begun = Instant::now();
        if by_call {
            admin(&relay).drain(false).await.unwrap();
        } else {
            relay.signal("TERM");
        }
        assert_eq!(told(caller).await.unwrap(), draining());
        eventually("it waits for the other socket", async || relay.log().contains("closing sockets")).await;
        assert!(!relay.log().contains("drained"), "it has to wait: {}", relay.log());
        relay.signal(if by_call { "TERM" } else { "HUP" });
        assert_eq!(relay.exited().await.code(), Some(0), "by call: {by_call}");
        assert!(begun.elapsed() < DRAINED_WITHIN, "it took {:?}", begun.elapsed());
        let log = relay.log();
        assert!(log.contains("drained") && !log.contains("a second signal"), "{log}");
    }
}

/// As `nohup` starts it.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_to_outlive_its_terminal_ignores_hangups_and_nothing_else() {
    let mut relay = RelayProcess::start_behind("trap '' HUP", &[]).await;
    relay.signal("HUP");
    relay.signal("INT");
    assert_eq!(relay.exited().await.code(), Some(0), "by the interrupt, as the first signal");
    assert!(!relay.log().contains("a second signal"), "{}", relay.log());

    let relay = RelayProcess::start_behind("trap '' HUP", &[]).await;
    relay.signal("HUP");
    // What it would answer to somebody new if it were leaving.
    for _ in 0..20 {
        assert_eq!(super::get(relay.ready().public, "/readyz").await, Some(200));
    }
    assert!(!relay.log().contains("stopping"), "{}", relay.log());
}
