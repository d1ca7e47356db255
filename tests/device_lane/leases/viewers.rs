//! C24 and C28: several viewers of one session, and a viewer that is not the lease's holder any more.

use super::{SESSION, Watched, reaches, watch};
use crate::support::{
    PATIENCE,
    account::Account,
    timeline::{interest, next_update, stream},
    wire::{registered, round_trip},
};

/// C24: whatever one viewer does, the other's flow has no break, and interest ends with the last one.
#[tokio::test]
async fn one_viewer_leaves_and_the_other_one_stays() {
    for how in ["releases", "is cut", "takes it twice and releases it", "releases it twice", "closes"] {
        let Watched { rig, mut desktop, phones: [mut one, mut other], generation } = Watched::start().await;
        reaches(&mut desktop, &generation, 1, &mut [&mut one, &mut other]).await;
        match how {
            "is cut" => one.reset(),
            "closes" => {
                one.frame(&crate::support::raw_socket::Frame::close(1000, "")).await;
                assert_eq!(one.closed(PATIENCE).await.map(|(code, _)| code), Some(1000));
            }
            _ => {
                let twice = how == "takes it twice and releases it";
                let sends: &[bool] = if twice { &[true, true, false] } else { &[false, false] };
                for active in sends {
                    one.text(&interest(SESSION, *active)).await;
                }
                // A request behind them: they have been handled when it arrives.
                round_trip(&mut one, &mut desktop, "behind").await;
            }
        }
        for number in 2..10 {
            reaches(&mut desktop, &generation, number, &mut [&mut other]).await;
        }
        other.text(&interest(SESSION, false)).await;
        let update = loop {
            // The first one's deadline may have been the later one; then the desktop was told the other's.
            let update = next_update(&mut desktop).await;
            if update.lease.is_none() {
                break update;
            }
            assert_eq!(update.generation(), generation, "one viewer {how}");
        };
        assert_eq!(update.session, SESSION, "one viewer {how}");
        drop(rig);
    }
}

/// C28: what a replaced phone still sends neither ends the new one's lease nor takes one; and the same session of another account is
/// another session.
#[tokio::test]
async fn a_connection_that_lost_its_route_has_no_say_in_its_lease() {
    let Watched { rig, mut desktop, phones: [mut old, other], generation } = Watched::start().await;
    drop(other);
    let mut new = rig.phone(0).await;
    let renewed = watch_again(&mut new, &mut desktop, &generation).await;
    // Its close is on the way, or has been read: neither keeps these bytes from the relay.
    for (session, active) in [(SESSION, false), (SESSION, true), ("elsewhere", true)] {
        old.try_write(&crate::support::raw_socket::Frame::text(&interest(session, active)).encode(), PATIENCE).await;
    }
    assert_eq!(old.closed(PATIENCE).await, Some((4002, "replaced".into())));
    round_trip(&mut new, &mut desktop, "behind").await;
    reaches(&mut desktop, &renewed, 1, &mut [&mut new]).await;

    let stranger = Account::new(&rig.relay, 1, 1).await;
    let mut own_desktop = registered(&stranger.raw_desktop(), stranger.desktops[0]).await;
    let mut own_phone = registered(&stranger.raw_phone(), stranger.phones[0]).await;
    let own = watch(&mut own_phone, &mut own_desktop, SESSION).await;
    assert_ne!(own.generation(), renewed);
    own_desktop.text(&stream(SESSION, &renewed, None, 66)).await;
    own_phone.text(&interest(SESSION, false)).await;
    assert_eq!(next_update(&mut own_desktop).await.lease, None);
    reaches(&mut desktop, &renewed, 2, &mut [&mut new]).await;
}

/// Takes a lease after a replacement; the generation that the desktop is told then, past what it is told of the former phones.
async fn watch_again(
    phone: &mut crate::support::raw_socket::RawSocket,
    desktop: &mut crate::support::raw_socket::RawSocket,
    former: &str,
) -> String {
    let mut update = watch(phone, desktop, SESSION).await;
    while update.lease.is_none() || update.generation() == former {
        update = next_update(desktop).await;
    }
    update.generation().to_owned()
}
