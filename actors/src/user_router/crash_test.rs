//! A router that panics: what the framework leaves behind, and that its devices do not notice for long.

#[path = "../../tests/support/mod.rs"]
pub(super) mod support;

use super::actor::{Crash, Step};
use crate::{mailbox, user_router::message::Input};
use relay_protocol::device::Role;
use serde_json::json;
use support::{Rig, settle};

/// A panic ends an actor for good, even under the framework's own supervisor. Its sockets are told to come back, and do.
#[actix::test]
async fn trap_5_a_router_that_panics_is_counted_and_its_devices_register_again() {
    tokio::time::pause();
    let rig = Rig::start();
    let (desktop_id, phone_id) = (rig.device(Role::Desktop), rig.device(Role::Mobile));
    let mut desktop = rig.desktop(desktop_id).await;
    let mut phone = rig.phone(phone_id, desktop_id).await;
    phone.request("lost", "system.ping").await;
    desktop.next();
    assert_eq!(rig.process.open(), 1);
    let kept = desktop.router.clone().unwrap();
    mailbox::offer(&kept, Crash).unwrap();
    settle().await;

    assert_eq!(rig.counters.routers_failed.get(), 1);
    assert_eq!(rig.process.open(), 0, "the panic has given the place of its open request back");
    assert_eq!(rig.directory.len(), 0, "nobody finds a router that has ended");
    for peer in [&desktop, &phone] {
        assert_eq!(peer.next(), json!({"close": 1011, "reason": "routerFailed"}));
    }
    let refused = mailbox::offer(&kept, Step(Input::Timeout));
    assert!(matches!(refused, Err(mailbox::Refused::Gone(_))), "{refused:?}");

    let fresh_desktop = rig.desktop(desktop_id).await;
    let fresh_phone = rig.phone(phone_id, desktop_id).await;
    // The old sockets end when they have been closed; that is late news for the fresh router.
    desktop.close().await;
    phone.close().await;
    fresh_phone.request("again", "system.ping").await;
    let request = fresh_desktop.next();
    fresh_desktop.answer(&request, json!("well")).await;
    assert_eq!(fresh_phone.next()["payload"]["result"], "well");
    assert_eq!((rig.counters.routers_failed.get(), rig.directory.len()), (1, 1));
}
