//! The database goes away under traffic and comes back, or greets with an error.

use crate::{
    rig::{Rig, Traffic, burst_works, is_unavailable, statuses, storage_is_well, try_register, works_again},
    support::{
        account::Account,
        data_dir::DataDir,
        postgres::{OwnServer, Stop},
        raw_socket::RawSocket,
        relay_process::RelayProcess,
        scale::scaled,
        wire::{eventually, registered},
    },
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::block_in_place,
    time::{Instant, sleep},
};

/// Half of a core, in a build without optimisation that answers calls meanwhile: a relay that spins takes a whole one.
const CPU_SHARE_MAX: f64 = 0.5;

/// C65.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_database_is_over_when_it_is_back() {
    let server = OwnServer::start();
    let data_dir = Arc::new(DataDir::with_postgres(server.server().clone()));
    let mut relay = RelayProcess::start_on(Arc::clone(&data_dir), &[]).await;
    let account = Account::new(&relay, 3, 1).await;
    let devices = account.devices();
    let traffic = Traffic::start(&account).await;
    let pauses = [(Stop::Fast, 0), (Stop::Immediate, 0), (Stop::Fast, scaled(2, 120)), (Stop::Immediate, scaled(2, 10))];
    for (how, pause_s) in pauses {
        let pause = Duration::from_secs(pause_s as u64);
        let leaving = registered(&account.raw_desktop(), account.desktops[1]).await;
        burst_works(&devices).await;
        block_in_place(|| server.stop(how));
        drop(leaving);
        if !pause.is_zero() {
            is_unavailable(devices.list().await);
            let mut coming = RawSocket::open(&account.raw_desktop()).await;
            assert_eq!(try_register(&mut coming, account.desktops[2]).await, Err("deviceLookupUnavailable".to_owned()));
            let (cpu, begun) = (relay.cpu_time(), Instant::now());
            sleep(pause).await;
            let share = (relay.cpu_time() - cpu).as_secs_f64() / begun.elapsed().as_secs_f64();
            assert!(share < CPU_SHARE_MAX, "{share} of a core while the database is away");
        }
        block_in_place(|| server.start_again());
        works_again(&devices, Instant::now()).await;
        // Connections that died with the database are not handed to one caller after another.
        burst_works(&devices).await;
        assert!(relay.alive());
        let sql = data_dir.sql().await;
        eventually("the newest status is stored", async || statuses(&sql).await[&account.desktops[1]] == "reconnecting").await;
    }
    storage_is_well(&relay).await;
    traffic.was_never_disturbed().await;
}

/// A server that greets every client with this error, as one that starts or is full does.
async fn greeting_with(code: &'static str, message: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (client, _from) = listener.accept().await.unwrap();
            // A client that leaves early is no trouble of this server.
            tokio::spawn(greet(client, format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0")));
        }
    });
    address
}

async fn greet(mut client: TcpStream, fields: String) -> std::io::Result<()> {
    const TLS_REQUEST: u32 = 80_877_103;
    loop {
        let length = client.read_u32().await?;
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        client.read_exact(&mut body).await?;
        if body[..4] != TLS_REQUEST.to_be_bytes() {
            break;
        }
        client.write_all(b"N").await?;
    }
    let length = u32::try_from(fields.len() + 4).unwrap();
    client.write_all(&[b"E", &length.to_be_bytes()[..], fields.as_bytes()].concat()).await?;
    client.shutdown().await
}

/// C65: replies of a server that starts, and of one that is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_starts_or_is_full_is_tried_again() {
    let Rig { mut relay, account, proxy, server, .. } = Rig::start(2).await;
    let devices = account.devices();
    let traffic = Traffic::start(&account).await;
    for (code, message) in [("57P03", "the database system is starting up"), ("53300", "sorry, too many clients already")] {
        burst_works(&devices).await;
        proxy.lead_to(greeting_with(code, message).await);
        proxy.cut();
        for _again in 0..3 {
            is_unavailable(devices.list().await);
        }
        let mut coming = RawSocket::open(&account.raw_desktop()).await;
        assert_eq!(try_register(&mut coming, account.desktops[1]).await, Err("deviceLookupUnavailable".to_owned()));
        let back = Instant::now();
        proxy.lead_to(server.address());
        works_again(&devices, back).await;
        burst_works(&devices).await;
        assert_eq!(try_register(&mut coming, account.desktops[1]).await, Ok(()));
        assert!(relay.alive());
    }
    storage_is_well(&relay).await;
    traffic.was_never_disturbed().await;
}
