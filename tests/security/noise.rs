//! C82: an account at line rate with the dearest calls there are. Health answers in time, other accounts' round trips go on, and the
//! noisy one is limited.

use crate::support::{
    PATIENCE,
    account::Account,
    neighbours::Neighbours,
    raw_socket::{Frame, RawSocket, Received, opcode},
    relay_process::RelayProcess,
    scale::scaled,
    wire::{KIB, registered, request, request_of},
};
use relay_endpoints::devices::NewDevice;
use relay_protocol::device::Role;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};

/// What an orchestrator that restarts processes commonly waits for.
const HEALTH_MAX: Duration = Duration::from_secs(1);
/// Of 99 of 100 round trips: within this, people notice little.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);
const NOISY: usize = 5;

/// The limits that a relay has by itself; tests raise them otherwise.
const LIMITS: [&str; 4] = ["--rate-burst", "300", "--rate-per-second", "150"];

/// Between two round trips of a normal client: it stays within the limits.
const ROUND_TRIP_PAUSE: Duration = Duration::from_millis(50);

/// A normal client until told to stop: how long each round trip took.
async fn round_trips(mut pair: Neighbours, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut taken = Vec::new();
    while !stop.load(Relaxed) {
        let begun = Instant::now();
        pair.round_trip().await;
        taken.push(begun.elapsed());
        sleep(ROUND_TRIP_PAUSE).await;
    }
    taken
}

/// Sends what costs most over one socket after the other, until told to stop: registrations, large requests, small ones.
async fn sockets(account: Arc<Account>, index: usize, stop: Arc<AtomicBool>, limited: Arc<AtomicUsize>) {
    let burst: Vec<u8> = (0..200).flat_map(|count| Frame::text(&request(&format!("small-{count}"), "1")).encode()).collect();
    let large = Frame::text(&request_of("large", 512 * KIB)).encode();
    while !stop.load(Relaxed) {
        let Ok(mut socket) = RawSocket::try_open(&account.raw_phone()).await else { return };
        socket.register(account.phones[index]).await;
        for bytes in [&burst, &large, &burst, &large, &burst] {
            if !socket.try_write(bytes, Duration::from_secs(1)).await {
                break;
            }
            while let Received::Frame { payload, .. } = socket.read(Duration::from_millis(1)).await {
                if payload.windows(6).any(|window| window == b"-32028") {
                    limited.fetch_add(1, Relaxed);
                }
            }
        }
        socket.frame(&Frame::new(opcode::CLOSE, "")).await;
    }
}

/// Adds devices and lists them, one call after the other.
async fn calls(account: Arc<Account>, stop: Arc<AtomicBool>) {
    let device = NewDevice {
        device_id: None,
        role: Role::Mobile,
        device_name: "n".repeat(200),
        platform: "linux".to_owned(),
        app_version: "1".to_owned(),
        relay_eligible: None,
    };
    let devices = account.devices();
    while !stop.load(Relaxed) {
        // At some time there are as many as there may be.
        let _ = devices.register(&device).await;
        devices.list().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_an_account_at_line_rate_delays_neither_health_nor_others() {
    let relay = RelayProcess::start(&LIMITS).await;
    let account = Arc::new(Account::new(&relay, 1, NOISY).await);
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let desktop = tokio::spawn(async move { desktop.discard(usize::MAX, Duration::MAX).await });
    let (stop, limited) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut normal = Vec::new();
    for _ in 0..scaled(10, 100) {
        normal.push(tokio::spawn(round_trips(Neighbours::start(&relay).await, stop.clone())));
    }
    let mut noise = Vec::new();
    for index in 0..NOISY {
        noise.push(tokio::spawn(sockets(account.clone(), index, stop.clone(), limited.clone())));
        noise.push(tokio::spawn(calls(account.clone(), stop.clone())));
    }
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let until = Instant::now() + Duration::from_secs(u64::try_from(scaled(5, 120)).unwrap());
    let mut checks = 0;
    // A machine with other work may need longer to be as noisy as is refused.
    let is_noisy = || limited.load(Relaxed) > 0 || Instant::now() > until + PATIENCE;
    while Instant::now() < until || !is_noisy() {
        for address in [relay.ready().public, relay.ready().admin] {
            let asked = timeout(HEALTH_MAX, client.get(format!("http://{address}/livez")).send()).await;
            assert_eq!(asked.expect("health answers in time").unwrap().status(), 200, "check {checks}");
        }
        checks += 1;
        sleep(Duration::from_millis(50)).await;
    }
    stop.store(true, Relaxed);
    let mut taken = Vec::new();
    for pair in normal {
        taken.extend(pair.await.unwrap());
    }
    for task in noise {
        task.await.unwrap();
    }
    taken.sort_unstable();
    let p99 = taken[taken.len() * 99 / 100];
    assert!(p99 < ROUND_TRIP_MAX, "the 99th percentile of {} round trips of others is {p99:?}", taken.len());
    assert!(limited.load(Relaxed) > 0, "nothing of the noise was refused");
    desktop.abort();
}
