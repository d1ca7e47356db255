//! A desktop: it answers two methods, and streams a session while somebody watches it. docs/clients.md says how to run it.

use relay_endpoints::{
    desktop::{
        Desktop, DesktopOptions, Pong, Published, Publisher, State,
        router::{Call, HandlerError, Namespace, NoParams, Router, idempotency::Idempotency},
    },
    link::LinkOptions,
};
use relay_protocol::id::{DeviceId, UserId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    env,
    error::Error,
    path::PathBuf,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::time::sleep;

/// What the phone sends with `session.rename`; a field that is not here is refused with -32602.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rename {
    session_id: String,
    name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Renamed {
    renamed: u64,
}

/// Runs once for each idempotency key, however often it is asked for: the router's memory sees to that.
async fn rename(_call: Call, params: Rename) -> Result<Renamed, HandlerError> {
    static RENAMES: AtomicU64 = AtomicU64::new(0);
    println!("{} is now {}", params.session_id, params.name);
    Ok(Renamed { renamed: RENAMES.fetch_add(1, Ordering::Relaxed) + 1 })
}

async fn ping(_call: Call, _: NoParams) -> Result<Pong, HandlerError> {
    Ok(Pong::now())
}

/// Tells each watched session how far the work is, ten times a second.
async fn stream(mut publisher: Publisher) {
    let mut step = 0;
    while publisher.watched().await {
        step += 1;
        for (session, _generation) in publisher.live() {
            let fields = || Map::from_iter([("text".to_owned(), Value::from(format!("step {step}")))]);
            // A newer frame of the same key takes the place of this one on its way.
            if publisher.timeline(&session, Some("draft"), fields).await == Published::TooLarge {
                eprintln!("a step of {session} does not fit a frame");
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn from_environment<T: FromStr<Err: Error + 'static>>(name: &str) -> Result<T, Box<dyn Error>> {
    let value = env::var(name).map_err(|error| format!("{name}: {error}"))?;
    value.parse().map_err(|error| format!("{name}: {error}").into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let account: UserId = from_environment("ACCOUNT")?;
    let device: DeviceId = from_environment("DESKTOP")?;
    let keys: PathBuf = from_environment("KEYS")?;
    let router = Router::new(account)
        .idempotency(Idempotency::open(&keys)?)
        .namespace(Namespace::new("system").on("ping", ping))
        .namespace(Namespace::new("session").on("rename", rename));

    let link = LinkOptions::desktop(from_environment("RELAY")?, from_environment("TOKEN")?);
    let desktop = Desktop::new(DesktopOptions::new(link, device), router);
    tokio::spawn(stream(desktop.publisher()));
    // It comes back by itself until that cannot help any more.
    let ended = desktop.run(|state| match state {
        State::Registered(_) => println!("registered"),
        State::Waiting { cause, wait } => println!("not connected: {cause}; again in {wait:?}"),
    });
    Err(ended.await.into())
}
