//! Every error of a registration, provoked: a new variant does not compile here until somebody shows how a client comes to see it.

use super::{accepted, naming, next_error, open_desktop, open_phone, resume_of, send, set_eligible};
use crate::support::{PATIENCE, account::Account, raw_socket::RawSocket, relay_process::RelayProcess};
use relay_protocol::{error::RegisterError, version::Version};
use serde_json::{Value, json};
use uuid::Uuid;

/// Has a device of a fresh account fail so: the code that it is told, and whether it may try again.
async fn provoke(relay: &RelayProcess, error: &RegisterError) -> (String, bool) {
    let account = Account::new(relay, 2, 1).await;
    let (desktop, phone) = (account.desktops[0], account.phones[0]);
    let good = naming(desktop, json!({}));
    match error {
        RegisterError::RelayDraining => drain().await,
        RegisterError::InvalidRelayProtocolVersion => fails(&account, &naming(desktop, json!({"relayProtocolVersion": "one"}))).await,
        RegisterError::RelayProtocolPolicyUnavailable => without_table(relay, &account, "compatibility_rules", &good).await,
        RegisterError::ProtocolUpdateRequired(_) => fails(&account, &naming(desktop, json!({"relayProtocolVersion": "1.6"}))).await,
        RegisterError::InvalidDeviceId => fails(&account, &naming("desktop", json!({}))).await,
        RegisterError::MissingTargetDesktop => told(&mut open_phone(&account, None).await, &naming(phone, json!({}))).await,
        RegisterError::InvalidTargetDesktop => told(&mut open_phone(&account, Some(phone)).await, &naming(phone, json!({}))).await,
        RegisterError::DeviceLookupUnavailable => without_table(relay, &account, "devices", &good).await,
        RegisterError::DeviceNotFound => fails(&account, &naming(Uuid::new_v4(), json!({}))).await,
        RegisterError::DeviceOwnershipFailed => {
            let stranger = Account::new(relay, 1, 0).await;
            fails(&account, &naming(stranger.desktops[0], json!({}))).await
        }
        RegisterError::DeviceRoleMismatch => fails(&account, &naming(phone, json!({}))).await,
        RegisterError::DeviceNotEligible => {
            set_eligible(&account, desktop, false).await;
            fails(&account, &good).await
        }
        RegisterError::InvalidResume => {
            let other = accepted(&mut open_desktop(&account).await, &naming(account.desktops[1], json!({})), "registered").await;
            fails(&account, &naming(desktop, resume_of(&other))).await
        }
    }
}

async fn fails(account: &Account, register: &Value) -> (String, bool) {
    told(&mut open_desktop(account).await, register).await
}

async fn told(socket: &mut RawSocket, register: &Value) -> (String, bool) {
    send(socket, "register", register).await;
    next_error(socket).await
}

/// While storage has lost a table.
async fn without_table(relay: &RelayProcess, account: &Account, table: &str, register: &Value) -> (String, bool) {
    let mut socket = open_desktop(account).await;
    let database = relay.data_dir().sql().await;
    database.run(&format!("ALTER TABLE {table} RENAME TO elsewhere")).await;
    let told = told(&mut socket, register).await;
    database.run(&format!("ALTER TABLE elsewhere RENAME TO {table}")).await;
    accepted(&mut socket, register, "registered").await;
    told
}

/// A socket that has not registered when the drain begins is told by its close, which has the same word and asks to come back.
async fn drain() -> (String, bool) {
    let mut relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let mut socket = open_desktop(&account).await;
    relay.signal("TERM");
    let (code, text) = socket.closed(PATIENCE).await.expect("a close frame");
    assert_eq!(relay.exited().await.code(), Some(0));
    (text, code == 1012)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_of_a_registration_is_told_to_a_client() {
    let relay = RelayProcess::start(&["--policy-cache", "0s"]).await;
    for error in RegisterError::all(Version::new(1, 7)) {
        assert_eq!(provoke(&relay, &error).await, (error.code().to_owned(), error.retryable()), "{error:?}");
    }
}
