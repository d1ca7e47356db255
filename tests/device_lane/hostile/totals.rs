//! What sockets may hold, each by itself and all together, in both directions: the largest holder goes first, and all is given back.

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    scale::scaled,
    wire::{
        Before, KIB, MIB, Rig, connection_of, eventually, next_of, payload_field, registered, request, request_of, response, round_trip,
    },
};
use std::time::Duration;
use tokio::time::Instant;

const RESULT_BYTES: usize = 240 * KIB;
/// What the allocator may keep of what it was given back.
const MARGIN_KIB: u64 = 32 * 1024;
/// Requests of one phone: three of them fit the bound of one desktop, and their answers are more than the kernel takes and a lane holds.
const ASKED: usize = 40;

fn slow(options: RawOptions) -> RawOptions {
    RawOptions { receive_buffer_bytes: Some(4_096), ..options }
}

/// A phone that reads nothing from now on, and what it has asked for.
async fn frozen(rig: &Rig, desktop: &mut RawSocket, index: usize) -> (RawSocket, Vec<String>) {
    let mut phone = registered(&slow(rig.account.raw_phone()), rig.account.phones[index]).await;
    let mut open = Vec::new();
    for number in 0..ASKED {
        phone.text(&request(&format!("asked-{index}-{number}"), "1")).await;
        open.push(next_of(desktop, "rpc.request").await);
    }
    (phone, open)
}

async fn reply_at_length(desktop: &mut RawSocket, request: &str) {
    let reply = response(request, &format!("\"{}\"", "r".repeat(RESULT_BYTES)));
    // Masked with zeros: many of them are masked byte by byte otherwise.
    let header = Frame { mask: Some([0; 4]), ..Frame::header_only(opcode::TEXT, reply.len() as u64) };
    desktop.write(&[&header.encode(), reply.as_bytes()].concat()).await;
}

/// What waits for a phone; none once it has gone.
async fn queued(rig: &Rig, index: usize) -> Option<usize> {
    let connection = connection_of(&rig.relay, rig.account.user, rig.account.phones[index]).await?;
    Some(usize::try_from(connection["queuedBytes"].as_u64().unwrap()).unwrap())
}

/// Replies until this much waits for the phone.
async fn fill(rig: &Rig, desktop: &mut RawSocket, beside: &mut RawSocket, phone: (usize, &mut Vec<String>), bytes: usize) {
    let (index, open) = phone;
    while queued(rig, index).await.expect("it is within its bound") < bytes {
        reply_at_length(desktop, &open.pop().expect("the kernel takes less than all replies")).await;
        // The reply has passed when a later one of the same desktop has.
        round_trip(beside, desktop, &format!("passed-{index}-{}", open.len())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn past_what_all_lanes_may_hold_the_largest_goes_and_the_others_stay() {
    const TOTAL: usize = 6 * MIB;
    let mut rig = Rig::start(&["--max-message=256KiB", "--outbound-limit=4MiB", "--outbound-total=6MiB"], 4).await;
    let (mut desktop, mut beside) = (rig.desktop().await, rig.phone(3).await);
    let before = Before::of(&rig.relay).await;
    let (large, mut large_open) = frozen(&rig, &mut desktop, 0).await;
    let (middle, mut middle_open) = frozen(&rig, &mut desktop, 1).await;
    let (small, mut small_open) = frozen(&rig, &mut desktop, 2).await;
    fill(&rig, &mut desktop, &mut beside, (0, &mut large_open), 3 * MIB).await;
    fill(&rig, &mut desktop, &mut beside, (1, &mut middle_open), 2 * MIB).await;
    let held = queued(&rig, 0).await.unwrap() + queued(&rig, 1).await.unwrap();
    fill(&rig, &mut desktop, &mut beside, (2, &mut small_open), TOTAL - held - 400 * KIB).await;
    // None is full by itself. A request might be refused until the largest has gone; a reply is not.
    for _ in 0..2 {
        reply_at_length(&mut desktop, &small_open.pop().expect("room ends before")).await;
    }
    eventually("the largest has gone", async || queued(&rig, 0).await.is_none()).await;
    round_trip(&mut beside, &mut desktop, "beside").await;
    let left = [queued(&rig, 1).await.expect("the middle one stays"), queued(&rig, 2).await.expect("the small one stays")];
    assert!(left[0] >= 2 * MIB && left.iter().sum::<usize>() <= TOTAL, "{left:?}");
    drop((large, middle, small));
    before.all_well(&mut rig.relay, MARGIN_KIB).await;
    assert!(rig.relay.log().contains("sockets hold too much together"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_far_over_its_bound_is_retired_although_it_goes_on_reading() {
    const LIMIT: usize = MIB;
    let mut rig = Rig::start(&["--max-message=256KiB", "--outbound-limit=1MiB"], 2).await;
    let (mut desktop, mut beside) = (rig.desktop().await, rig.phone(1).await);
    let before = Before::of(&rig.relay).await;
    let (mut phone, open) = frozen(&rig, &mut desktop, 0).await;
    let reading = tokio::spawn(async move {
        let mut taken = 0;
        // Half a megabyte a second: its transport never stands still for long.
        loop {
            let step = phone.discard(4 * KIB, PATIENCE).await;
            taken += step;
            if step < 4 * KIB {
                return taken;
            }
            tokio::time::sleep(Duration::from_millis(8)).await;
        }
    });
    for (index, request) in open.iter().enumerate() {
        reply_at_length(&mut desktop, request).await;
        round_trip(&mut beside, &mut desktop, &format!("beside-{index}")).await;
        let Some(queued) = queued(&rig, 0).await else { break };
        assert!(queued <= LIMIT + 260 * KIB, "{queued} bytes wait");
    }
    eventually("it is retired", async || queued(&rig, 0).await.is_none()).await;
    let taken = tokio::time::timeout(PATIENCE, reading).await.expect("its connection ends").unwrap();
    assert!(taken < ASKED * RESULT_BYTES, "all {taken} bytes came");
    before.all_well(&mut rig.relay, MARGIN_KIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_keeps_up_is_never_retired_however_much_is_sent() {
    let rig = Rig::start(&["--max-message=256KiB", "--outbound-limit=1MiB", "--outbound-total=1MiB"], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    // Three results are in flight at a time: less than may wait. In sum it is many times as much. The phone reads while the desktop
    // sends: what it does not take keeps the relay from hearing it.
    for round in 0..scaled(20, 300) {
        for index in 0..3 {
            phone.text(&request(&format!("{round}-{index}"), "1")).await;
        }
        let desktop_answers = async {
            for _ in 0..3 {
                let received = next_of(&mut desktop, "rpc.request").await;
                reply_at_length(&mut desktop, &received).await;
            }
        };
        let phone_reads = async {
            for index in 0..3 {
                let answer = next_of(&mut phone, "rpc.response").await;
                assert_eq!(payload_field(&answer, "id"), format!("\"{round}-{index}\""));
            }
        };
        tokio::join!(desktop_answers, phone_reads);
    }
    assert!(!rig.relay.log().contains("sockets hold too much together"));
}

const CLAIM: usize = 900 * KIB;
const INBOUND: [&str; 2] = ["--max-message=1MiB", "--inbound-total=4MiB"];
/// As many claims as fit.
const FIT: usize = 4;

/// Phones of one account that have sent the header of a large request and one byte of it. The rest of each.
async fn claiming(rig: &Rig, phones: std::ops::Range<usize>) -> Vec<(RawSocket, Vec<u8>)> {
    let mut claiming = Vec::new();
    for index in phones {
        let mut phone = rig.phone(index).await;
        let mut begun = Frame::text(&request_of(&format!("claim-{index}"), CLAIM)).encode();
        let rest = begun.split_off(15);
        phone.write(&begun).await;
        claiming.push((phone, rest));
    }
    claiming
}

#[tokio::test(flavor = "multi_thread")]
async fn past_what_all_may_have_sent_the_oldest_of_the_largest_goes() {
    let mut rig = Rig::start(&INBOUND, FIT + 3).await;
    let (mut desktop, mut beside) = (rig.desktop().await, rig.phone(FIT + 2).await);
    let before = Before::of(&rig.relay).await;
    // One that is small, and older than all.
    let mut small = rig.phone(FIT + 1).await;
    let mut small_begun = Frame::text(&request_of("small", 64 * KIB)).encode();
    let small_rest = small_begun.split_off(15);
    small.write(&small_begun).await;
    let mut claims = Vec::new();
    for index in 0..FIT {
        claims.extend(claiming(&rig, index..index + 1).await);
        // Ages are told in milliseconds.
        round_trip(&mut beside, &mut desktop, &format!("beside-{index}")).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    claims.extend(claiming(&rig, FIT..FIT + 1).await);
    let (mut oldest, _) = claims.remove(0);
    assert_eq!(oldest.closed(PATIENCE).await, Some((4003, "saturated".to_owned())));
    // All others can finish what they began.
    small.write(&small_rest).await;
    next_of(&mut desktop, "rpc.request").await;
    for (phone, rest) in &mut claims {
        phone.write(rest).await;
        let received = next_of(&mut desktop, "rpc.request").await;
        desktop.text(&response(&received, "1")).await;
        next_of(phone, "rpc.response").await;
    }
    drop((oldest, claims, small));
    before.all_well(&mut rig.relay, MARGIN_KIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_claimed_is_given_back_however_it_ends() {
    let rig = Rig::start(&INBOUND, FIT).await;
    let mut desktop = rig.desktop().await;
    for round in 0..scaled(10, 200) {
        // Were a byte kept each time, they would soon not fit any more.
        for (index, (mut phone, rest)) in claiming(&rig, 0..FIT).await.into_iter().enumerate() {
            match (round + index) % 5 {
                0 => phone.reset(),
                1 => phone.finish_writing().await,
                2 => phone.frame(&Frame { rsv: 1, ..Frame::text("x") }).await,
                3 => {
                    phone.write(&rest[..rest.len() - 3]).await;
                    drop(phone);
                }
                _ => {
                    phone.write(&rest).await;
                    let received = next_of(&mut desktop, "rpc.request").await;
                    desktop.text(&response(&received, "1")).await;
                    next_of(&mut phone, "rpc.response").await;
                }
            }
        }
        eventually("only the desktop is left", async || {
            crate::support::wire::connections(&rig.relay, Some(rig.account.user)).await.len() == 1
        })
        .await;
    }
    assert!(!rig.relay.log().contains("sockets hold too much together"), "{}", rig.relay.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_claims_passes_the_bound_by_no_more_than_one_message() {
    let claimants = scaled(60, 400);
    let mut rig = Rig::start(&INBOUND, 0).await;
    let mut phones = Vec::new();
    for _ in 0..claimants.div_ceil(20) {
        let account = Account::new(&rig.relay, 1, 20).await;
        for device in &account.phones {
            phones.push(registered(&account.raw_phone(), *device).await);
        }
    }
    let header = Frame::header_only(opcode::TEXT, CLAIM as u64).encode();
    let all = phones.iter_mut().map(|phone| phone.write(&header));
    futures_util::future::join_all(all).await;
    let deadline = Instant::now() + PATIENCE;
    while phones.len() > FIT {
        assert!(Instant::now() < deadline, "{} claims of 900 KiB are held", phones.len());
        let mut held = Vec::new();
        for mut phone in phones {
            let received = phone.read(Duration::from_millis(10)).await;
            if received == Received::Nothing {
                held.push(phone);
            } else {
                assert_eq!(received.close(), Some((4003, "saturated".to_owned())));
            }
        }
        phones = held;
    }
    assert!(rig.relay.alive());
}
