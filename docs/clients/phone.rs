//! A phone: it calls the desktop, changes something twice with one key, and watches a session. docs/clients.md says how to run it.

use relay_endpoints::{
    link::LinkOptions,
    phone::{Client, ClientOptions, PhoneOptions, Request, client::MemoryStore},
};
use relay_protocol::id::DeviceId;
use serde_json::value::RawValue;
use std::{env, error::Error, str::FromStr};
use uuid::Uuid;

fn from_environment<T: FromStr<Err: Error + 'static>>(name: &str) -> Result<T, Box<dyn Error>> {
    let value = env::var(name).map_err(|error| format!("{name}: {error}"))?;
    value.parse().map_err(|error| format!("{name}: {error}").into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let device: DeviceId = from_environment("PHONE")?;
    let link = LinkOptions::phone(from_environment("RELAY")?, from_environment("TOKEN")?, from_environment("DESKTOP")?);
    // A real phone keeps the session in its keychain: that is another `ResumeStore`.
    let phone = Client::connect(ClientOptions::new(PhoneOptions::new(link, device)), MemoryStore::default()).await?;
    // Without the window of the session, which this desktop does not have.
    let mut watch = phone.watch_with("session-7", None);

    println!("ping: {}", phone.call(Request::new("system.ping"))?.result().await?);
    // One key for one intention, however often it is sent.
    let params = RawValue::from_string(r#"{"sessionId":"session-7","name":"Notes"}"#.to_owned())?;
    let rename = Request { params: Some(params), idempotency_key: Some(Uuid::new_v4().to_string()), ..Request::new("session.rename") };
    for _ in 0..2 {
        println!("rename: {}", phone.call(rename.clone())?.result().await?);
    }
    loop {
        let event = watch.next().await?;
        if event.event_type == "chat:stream" {
            println!("timeline: {}", event.payload);
            break;
        }
    }
    drop(watch);
    phone.close().await;
    Ok(())
}
