//! Who is alive stays online: a desktop that has nothing to say (C21), and one that says more than its phone takes (C22).

use super::watch::{Watcher, presences, routes};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    relay_process::RelayProcess,
    running_desktop::RunningDesktop,
    scale::scaled,
    wire::{KIB, next_of, payload_field, registered, request, response},
};
use relay_endpoints::desktop::SampleRouter;
use relay_protocol::{
    device::Presence::Online,
    limits::{RATE_BURST, RATE_PER_SECOND},
};
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{Instant, interval, sleep, timeout},
};

const SILENCE: Duration = Duration::from_millis(1_200);

/// Every limit that ends something by time is many times shorter than the idleness.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_desktop_stays_listed_and_answers() {
    let limits = ["--silence-timeout=1200ms", "--heartbeat-interval=200ms", "--reconnect-grace=200ms", "--policy-cache=200ms"];
    let more = ["--resume-ttl=300ms", "--register-timeout=500ms", "--pending-default=300ms"];
    let relay = RelayProcess::start(&[&limits[..], &more].concat()).await;
    let account = Account::new(&relay, 1, 2).await;
    let desktop = account.desktops[0];
    let (mut idle, _) = RunningDesktop::start(account.desktop(0), SampleRouter).await;
    let only_it = [desktop.to_string()];
    let idle_until = Instant::now() + SILENCE * u32::try_from(scaled(3, 50)).unwrap();
    while Instant::now() < idle_until {
        assert_eq!(presences(&account).await[&desktop], Online);
        assert_eq!(routes(&relay, account.user).await, only_it);
        sleep(SILENCE / 10).await;
    }
    // No phone was there in all that time; the first one that comes is served at once.
    let mut watcher = Watcher::connect(&account, 0, 0).await;
    assert_eq!(watcher.target().status, Online);
    assert_eq!(watcher.call().await, Ok(()));
    assert_eq!(watcher.pending().await, []);
    let state = timeout(Duration::ZERO, idle.state()).await;
    assert!(state.is_err(), "its connection has been the same all the time: {state:?}");
}

/// Progress of one long answer, at the highest rate that is allowed.
struct Stream {
    desktop: RawSocket,
    request: String,
    filler: String,
    sent: usize,
    /// How much has been sent, for a phone that keeps behind it.
    progress: watch::Sender<usize>,
    /// When the relay pinged; it gets no pong, so that nothing but the stream is a sign of life.
    pings: Vec<Instant>,
}

impl Stream {
    async fn send(&mut self) {
        let result = format!("\"{} {}\"", self.sent, self.filler);
        let part = response(&self.request, &result).replace(r#""result":"#, r#""isFinal":false,"result":"#);
        self.desktop.text(&part).await;
        self.sent += 1;
        self.progress.send_replace(self.sent);
    }

    /// A burst, and then as many a second as the limit gives back.
    async fn run(mut self, length: Duration) -> Self {
        // Registering took one of them.
        for _ in 1..RATE_BURST {
            self.send().await;
        }
        let end = Instant::now() + length;
        let mut pace = interval(Duration::from_secs(1) / RATE_PER_SECOND);
        while Instant::now() < end {
            let due = pace.tick();
            tokio::pin!(due);
            loop {
                tokio::select! {
                    biased;
                    received = self.desktop.read(PATIENCE) => {
                        assert!(is_ping(&received), "{received:?}");
                        self.pings.push(Instant::now());
                    }
                    _ = &mut due => break,
                }
            }
            self.send().await;
        }
        self
    }
}

/// The number of the next part, and how many pings came before it.
async fn next_part(phone: &mut RawSocket) -> (usize, usize) {
    let mut pings = 0;
    loop {
        let received = phone.read(PATIENCE).await;
        if is_ping(&received) {
            pings += 1;
            continue;
        }
        let text = received.text().unwrap_or_else(|| panic!("{received:?}"));
        if !text.starts_with(r#"{"type":"event""#) {
            let (number, _) = payload_field(text, "result").trim_start_matches('"').split_once(' ').unwrap();
            return (number.parse().unwrap(), pings);
        }
    }
}

/// Waits until so much has been sent, and holds nothing of the channel then.
async fn at_least(sent: &mut watch::Receiver<usize>, count: usize) {
    if sent.wait_for(|sent| *sent >= count).await.is_err() {
        // The stream has ended, which its task tells.
        std::future::pending::<()>().await;
    }
}

fn is_ping(received: &Received) -> bool {
    matches!(received, Received::Frame { opcode: opcode::PING, .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_desktop_that_streams_faster_than_its_phone_reads_stays_online() {
    let length = SILENCE * u32::try_from(scaled(3, 50)).unwrap();
    let heartbeat = Duration::from_millis(200);
    let flags = ["--silence-timeout=1200ms", "--heartbeat-interval=200ms"];
    let rate = [format!("--rate-burst={RATE_BURST}"), format!("--rate-per-second={RATE_PER_SECOND}")];
    let relay = RelayProcess::start(&flags.into_iter().chain(rate.iter().map(String::as_str)).collect::<Vec<_>>()).await;
    let account = Account::new(&relay, 1, 2).await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let slow = RawOptions { receive_buffer_bytes: Some(64 * 1024), ..account.raw_phone() };
    let mut phone = registered(&slow, account.phones[0]).await;
    let mut watcher = Watcher::connect(&account, 1, 0).await;
    phone.text(&request("long", "1")).await;
    let request = next_of(&mut desktop, "rpc.request").await;

    // At soak a part is smaller, so that what the phone leaves unread fits its lane.
    let filler = "x".repeat(scaled(32, 4) * KIB);
    let (progress, mut sent) = watch::channel(0);
    let stream = Stream { desktop, request, filler, sent: 0, progress, pings: Vec::new() };
    let mut streaming = tokio::spawn(stream.run(length));
    let (mut read, mut pings_at_phone) = (0, 0);
    let mut stream = loop {
        tokio::select! {
            stream = &mut streaming => break stream.unwrap(),
            // One part for each three that were sent.
            () = at_least(&mut sent, 3 * (read + 1)) => {
                let (number, pings) = next_part(&mut phone).await;
                assert_eq!(number, read, "in order, none missing");
                read += 1;
                pings_at_phone += pings;
                // A slow reader's pongs are late; that it is there it says by itself.
                phone.frame(&Frame::new(opcode::PONG, "")).await;
                if read % 50 == 0 {
                    assert_eq!(presences(&account).await[&account.desktops[0]], Online);
                }
            }
        }
    };
    assert!(read * 2 < stream.sent, "the phone took {read} of {}: it was not slow", stream.sent);
    assert!(pings_at_phone > 0, "pings pass what waits for the phone");
    let least = usize::try_from(length.as_millis() / heartbeat.as_millis() / 2).unwrap();
    assert!(stream.pings.len() >= least, "{} pings in {length:?}", stream.pings.len());
    let gaps = stream.pings.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.max().unwrap() < SILENCE, "a desktop that streams hears the relay's pings in time");

    // Everything arrives, and nobody has seen the desktop anything but online.
    while read < stream.sent {
        assert_eq!(next_part(&mut phone).await.0, read);
        read += 1;
        for socket in [&mut phone, &mut stream.desktop] {
            socket.frame(&Frame::new(opcode::PONG, "")).await;
        }
    }
    let answer = async {
        let call = next_of(&mut stream.desktop, "rpc.request").await;
        stream.desktop.text(&response(&call, "1")).await;
    };
    let (events, ()) = tokio::join!(watcher.pending(), answer);
    assert_eq!(events, []);
    assert_eq!(watcher.target().status, Online);
}
