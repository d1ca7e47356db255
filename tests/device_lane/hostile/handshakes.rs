//! Connections that never get as far as a socket that works (C43): silent ones, heads that come byte by byte or never end, upgrades
//! without a registration; many at once, and more than there are descriptors.

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{RawOptions, RawSocket},
    relay_process::RelayProcess,
    scale::scaled,
    wire::{Before, KIB, MIB, connections, eventually, registered, round_trip},
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// The server's clock ticks twice a second, and a busy machine takes its time.
const TOLERANCE: Duration = Duration::from_secs(4);
const FLAGS: [&str; 2] = ["--request-head-timeout=2s", "--register-timeout=2s"];
const LIVEZ: &str = "GET /livez HTTP/1.1\r\nHost: relay\r\n\r\n";

/// How a connection wastes time.
#[derive(Clone, Copy, Debug)]
enum Waste {
    Silent,
    /// A byte of the head every now and then.
    Dribbled,
    /// One header that is longer than any.
    EndlessHeader,
    /// A whole request, and then a head that does not end.
    SecondHead,
    /// An upgrade with a valid token, and nothing then.
    Unregistered,
}

const ALL: [Waste; 5] = [Waste::Silent, Waste::Dribbled, Waste::EndlessHeader, Waste::SecondHead, Waste::Unregistered];

/// Wastes time until the relay ends the connection; how long that took.
async fn wasted(waste: Waste, options: &RawOptions) -> Duration {
    let start = Instant::now();
    let mut socket = match waste {
        Waste::Unregistered => RawSocket::open(options).await,
        Waste::Silent | Waste::Dribbled | Waste::EndlessHeader | Waste::SecondHead => RawSocket::connect(options.address, None).await,
    };
    match waste {
        Waste::Silent | Waste::Unregistered => {}
        Waste::Dribbled => {
            for byte in LIVEZ.bytes().cycle().filter(|byte| *byte != b'\n') {
                if start.elapsed() > HEAD_TIMEOUT + TOLERANCE || !socket.try_write(&[byte], PATIENCE).await {
                    break;
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
        Waste::EndlessHeader => {
            let head = format!("GET /livez HTTP/1.1\r\nHost: relay\r\nX-Long: {}", "x".repeat(MIB));
            // It may be ended before all is taken.
            let _ = socket.try_write(head.as_bytes(), PATIENCE).await;
        }
        Waste::SecondHead => {
            socket.write(LIVEZ.as_bytes()).await;
            let _ = socket.try_write(b"GET /livez HTTP/1.1\r\nX: ", PATIENCE).await;
        }
    }
    let _ = socket.discard(usize::MAX, PATIENCE).await;
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_waste_time_ends_within_it() {
    let mut relay = RelayProcess::start(&FLAGS).await;
    let account = Account::new(&relay, 1, 0).await;
    let before = Before::of(&relay).await;
    let options = account.raw_desktop();
    for (waste, took) in futures_util::future::join_all(ALL.map(async |waste| (waste, wasted(waste, &options).await))).await {
        assert!(took < HEAD_TIMEOUT + TOLERANCE, "{waste:?} took {took:?}");
        if matches!(waste, Waste::Silent | Waste::Dribbled | Waste::Unregistered) {
            assert!(took > HEAD_TIMEOUT / 2, "{waste:?} was ended early, after {took:?}");
        }
    }
    before.all_well(&mut relay, 8 * 1024).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_many_that_waste_time_keep_nobody_out_and_cost_little() {
    let mut relay = RelayProcess::start(&FLAGS).await;
    let account = Account::new(&relay, 1, 0).await;
    let before = Before::of(&relay).await;
    let options = account.raw_desktop();
    let each = scaled(300, 1_500);
    let (start_kib, start) = (relay.rss_kib(), Instant::now());
    let wasting = ALL.map(|waste| {
        let options = options.clone();
        tokio::spawn(async move { futures_util::future::join_all((0..each).map(|_| wasted(waste, &options))).await })
    });
    let mut trips = 0;
    while start.elapsed() < HEAD_TIMEOUT {
        let fresh = Account::new(&relay, 1, 1).await;
        let connecting = Instant::now();
        let mut desktop = registered(&fresh.raw_desktop(), fresh.desktops[0]).await;
        let mut phone = registered(&fresh.raw_phone(), fresh.phones[0]).await;
        round_trip(&mut phone, &mut desktop, "fresh").await;
        let took = connecting.elapsed();
        assert!(took < Duration::from_secs(1), "a fresh pair took {took:?}");
        trips += 1;
    }
    assert!(trips > 0);
    for task in wasting {
        task.await.unwrap();
    }
    // A connection without a request costs two buffers; the heads that do not end, up to what the server takes of one.
    let grown_kib = relay.rss_peak_kib().saturating_sub(start_kib);
    let allowed_kib = u64::try_from(4 * each * 32 + each * 256 + 32 * KIB).unwrap();
    assert!(grown_kib < allowed_kib, "{grown_kib} KiB for {} connections", 5 * each);
    before.given_back(&relay).await;
    assert!(relay.alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_limit_of_descriptors_further_connections_wait_and_operators_get_in() {
    // Room for 64 connections or less, whatever the number of processors.
    let mut relay = RelayProcess::start_with_descriptors(256, &FLAGS).await;
    let account = Account::new(&relay, 1, 1).await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
    let mut silent = Vec::new();
    for _ in 0..150 {
        silent.push(RawSocket::connect(relay.ready().public, None).await);
    }
    eventually("the relay has taken as many as it can", async || relay.descriptors() > 256 - 128).await;
    let busy = relay.cpu_time();
    for trip in 0..20 {
        round_trip(&mut phone, &mut desktop, &format!("full-{trip}")).await;
        assert_eq!(connections(&relay, Some(account.user)).await.len(), 2, "operators get in");
        sleep(Duration::from_millis(25)).await;
    }
    // A loop that spins would have used half a second or more.
    let used = relay.cpu_time() - busy;
    assert!(used < Duration::from_millis(400), "{used:?}");
    assert!(relay.descriptors() <= 256);
    // The silent ones are ended in their turn, those that wait as well, and then there is room again.
    for mut socket in silent {
        assert!(socket.discard(usize::MAX, PATIENCE).await < KIB, "an answer at most, and the end");
    }
    let mut fresh = registered(&account.raw_phone(), account.phones[0]).await;
    round_trip(&mut fresh, &mut desktop, "afterwards").await;
    assert!(relay.alive());
}
