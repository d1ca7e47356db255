//! C73: connections that end, refuse, or stand still, with pushes around it. What the server did not look at is sent once more, at once;
//! what it may have looked at is not, and is the push actor's to try again.

use super::{
    alert, apns,
    frames::{Connection, FrameServer, INTERNAL_ERROR, REFUSED_STREAM, Request},
};
use crate::support::PATIENCE;
use futures_util::future::join_all;
use relay_actors::push::{Gateway, Scope, Verdict};
use relay_protocol::push::Provider;
use std::{collections::BTreeSet, time::Duration};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

/// As many as the case has.
const PUSHES: usize = 200;
const MANY_STREAMS: u32 = 1_000;

/// So many pushes at once to this server.
fn send(server: &FrameServer, count: usize) -> JoinHandle<Vec<Verdict>> {
    let apns = apns(&server.url());
    tokio::spawn(async move {
        let pushes: Vec<_> = (0..count).map(|number| alert(Provider::Apns, &number.to_string())).collect();
        join_all(pushes.iter().map(|push| apns.send(push))).await
    })
}

async fn verdicts(sending: JoinHandle<Vec<Verdict>>) -> Vec<Verdict> {
    timeout(PATIENCE, sending).await.expect("every push has its verdict").unwrap()
}

fn sent() -> Verdict {
    Verdict::Sent { id: None }
}

/// Takes what comes until all of these have been taken.
async fn take_all(connection: &mut Connection, taken: &mut Vec<String>, all: usize) {
    while taken.len() < all {
        let Request { stream, id } = connection.next().await.expect("the rest comes on this connection");
        connection.take(stream).await;
        taken.push(id);
    }
}

fn assert_each_once(taken: &[String]) {
    let each: BTreeSet<_> = taken.iter().collect();
    assert_eq!((each.len(), taken.len()), (PUSHES, PUSHES));
}

#[tokio::test(flavor = "multi_thread")]
async fn c73_an_idle_connection_that_was_told_to_go_away_is_replaced_within_a_second() {
    let server = FrameServer::start().await;
    let apns = apns(&server.url());
    let send = |id: &'static str| {
        let apns = apns.clone();
        tokio::spawn(async move { apns.send(&alert(Provider::Apns, id)).await })
    };
    let first = send("first");
    let mut old = server.accept(MANY_STREAMS).await;
    let request = old.next().await.unwrap();
    old.take(request.stream).await;
    assert_eq!(first.await.unwrap(), sent());
    old.go_away(request.stream).await;
    // The client closes what it will not use any more.
    assert_eq!(old.next().await, None);

    let begun = Instant::now();
    let second = send("second");
    let mut new = server.accept(MANY_STREAMS).await;
    let request = new.next().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    new.take(request.stream).await;
    assert_eq!((request.id.as_str(), second.await.unwrap()), ("second", sent()));
}

#[tokio::test(flavor = "multi_thread")]
async fn c73_streams_above_the_last_one_are_sent_again_and_those_below_are_not() {
    let server = FrameServer::start().await;
    let sending = send(&server, PUSHES);
    let mut old = server.accept(MANY_STREAMS).await;
    let mut requests = old.requests(PUSHES).await;
    // Bodies come in an order of their own.
    requests.sort();
    let (below, above) = requests.split_at(80);
    // Told twice, as servers do: first that they will, then from where on.
    old.go_away(i32::MAX as u32).await;
    old.go_away(below.last().unwrap().stream).await;
    let mut taken = Vec::new();
    for Request { stream, id } in below {
        old.take(*stream).await;
        taken.push(id.clone());
    }
    let mut new = server.accept(MANY_STREAMS).await;
    let again = new.requests(above.len()).await;
    let ids = |requests: &[Request]| requests.iter().map(|request| request.id.clone()).collect::<BTreeSet<_>>();
    assert_eq!(ids(&again), ids(above));
    for Request { stream, id } in again {
        new.take(stream).await;
        taken.push(id);
    }
    assert_eq!(verdicts(sending).await, vec![sent(); PUSHES]);
    assert_each_once(&taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn c73_a_server_that_takes_one_stream_at_a_time_gets_them_one_by_one() {
    let server = FrameServer::start().await;
    let sending = send(&server, PUSHES);
    let mut connection = server.accept(20).await;
    let mut taken = Vec::new();
    let first = connection.requests(20).await;
    // In the middle of the burst, as Apple does behind a refusal.
    connection.allow(1).await;
    for Request { stream, id } in first {
        connection.take(stream).await;
        taken.push(id);
    }
    take_all(&mut connection, &mut taken, PUSHES).await;
    assert_eq!(verdicts(sending).await, vec![sent(); PUSHES]);
    assert_each_once(&taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn c73_a_refused_stream_is_sent_again_once() {
    let server = FrameServer::start().await;
    let sending = send(&server, PUSHES);
    let mut connection = server.accept(MANY_STREAMS).await;
    for Request { stream, .. } in connection.requests(PUSHES).await {
        connection.reset(stream, REFUSED_STREAM).await;
    }
    let mut taken = Vec::new();
    take_all(&mut connection, &mut taken, PUSHES).await;
    assert_eq!(verdicts(sending).await, vec![sent(); PUSHES]);
    assert_each_once(&taken);

    let sending = send(&server, 1);
    let mut connection = server.accept(MANY_STREAMS).await;
    for _ in 0..2 {
        let request = connection.next().await.unwrap();
        connection.reset(request.stream, REFUSED_STREAM).await;
    }
    let verdict = verdicts(sending).await.remove(0);
    assert!(matches!(verdict, Verdict::Retry { scope: Scope::Provider, .. }), "twice is the provider's state: {verdict:?}");
}

/// The provider may have sent it to the phone.
#[tokio::test(flavor = "multi_thread")]
async fn c73_a_push_that_may_have_been_taken_is_not_sent_again_at_once() {
    let server = FrameServer::start().await;
    let sending = send(&server, 2);
    let mut connection = server.accept(MANY_STREAMS).await;
    let requests = connection.requests(2).await;
    connection.reset(requests[0].stream, INTERNAL_ERROR).await;
    drop(connection);
    for verdict in verdicts(sending).await {
        assert!(matches!(verdict, Verdict::Retry { scope: Scope::Push, .. }), "{verdict:?}");
    }
}

/// Real time: the pings are the library's, by its own clock.
#[tokio::test(flavor = "multi_thread")]
async fn c73_a_connection_that_stands_still_is_given_up_and_the_next_push_has_another() {
    let server = FrameServer::start().await;
    let apns = apns(&server.url());
    let stuck = {
        let apns = apns.clone();
        tokio::spawn(async move { apns.send(&alert(Provider::Apns, "stuck")).await })
    };
    let mut old = server.accept(MANY_STREAMS).await;
    old.silent = true;
    let request = old.next().await.unwrap();
    assert_eq!(request.id, "stuck");
    let reading = tokio::spawn(async move { old.next().await });
    let verdict = timeout(PATIENCE, stuck).await.expect("it has a deadline").unwrap();
    assert!(matches!(verdict, Verdict::Retry { .. }), "{verdict:?}");
    assert_eq!(reading.await.unwrap(), None, "the connection was ended");
    let next = tokio::spawn(async move { apns.send(&alert(Provider::Apns, "next")).await });
    let mut new = server.accept(MANY_STREAMS).await;
    let request = new.next().await.unwrap();
    new.take(request.stream).await;
    assert_eq!((request.id.as_str(), next.await.unwrap()), ("next", sent()));
}
