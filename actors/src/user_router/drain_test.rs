//! Messages in a router's mailbox when the drain begins.

use super::{
    actor::Routed,
    crash_test::support::{Rig, settle},
};
use crate::{clock, device_socket::Held, mailbox, user_router::message::Input};
use relay_protocol::device::Role;

#[actix::test]
async fn a_message_counts_as_work_until_its_router_has_handled_it() {
    tokio::time::pause();
    let rig = Rig::start();
    let desktop = rig.desktop(rig.device(Role::Desktop)).await;
    let drain = rig.directory.drain();
    assert_eq!(drain.in_flight(), 0, "a registration that is over is none");
    let route = || {
        let (held, work) = (Held::new(desktop.link().clone(), 0), drain.begin_work());
        mailbox::offer(desktop.router.as_ref().unwrap(), Routed { input: Input::Timeout, held, work }).unwrap();
    };
    route();
    route();
    drain.begin(clock::now());
    route();
    assert_eq!(drain.in_flight(), 2, "the third came behind the beginning");
    settle().await;
    assert_eq!(drain.in_flight(), 0);
}
