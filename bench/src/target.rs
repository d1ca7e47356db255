//! Servers to measure: how a peer gets in.

use crate::{
    error::Error,
    frame::{self, Kind},
    http::{self, Post},
    link::{self, Incoming, Opening, Receiver, Sender, Window},
    peer::{Peer, Role},
};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;
use std::{fmt, net::SocketAddr, time::Duration};

/// The version this generator speaks (device lane, section 3).
const RELAY_PROTOCOL_VERSION: &str = "1.7";
/// Tokens outlive any run.
const TOKEN_SECONDS: u64 = 24 * 3600;
/// A healthy server answers within milliseconds; its own limit is 10 s as well.
const REGISTER_LIMIT: Duration = Duration::from_secs(10);

/// What kind of server it is.
#[derive(Clone)]
pub enum Kin {
    /// [`crate::floor`].
    Floor,
    /// The relay's device lane.
    Relay {
        /// The HS256 secret it was started with.
        jwt_secret: String,
    },
}

/// A server at an address.
#[derive(Clone)]
pub struct Target {
    /// Where its public listener is.
    pub addr: SocketAddr,
    /// How to get in.
    pub kin: Kin,
}

/// A registered connection.
pub struct Link {
    /// Whose it is.
    pub peer: Peer,
    /// Its sending half.
    pub sender: Sender,
    /// Its receiving half.
    pub receiver: Receiver,
}

impl fmt::Display for Kin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kin::Floor => "floor",
            Kin::Relay { .. } => "relay",
        })
    }
}

impl Target {
    /// What must exist before sockets open: the relay wants a device row for each peer.
    pub async fn prepare(&self, peers: &[Peer]) -> Result<(), Error> {
        let Kin::Relay { jwt_secret } = &self.kin else { return Ok(()) };
        let count = u32::try_from(peers.len()).unwrap_or(u32::MAX);
        http::post_all(self.addr, "/api/devices", count, |index| device_row(peers[index as usize], jwt_secret)).await
    }

    /// Connects and registers one peer.
    pub async fn connect(&self, peer: Peer) -> Result<Link, Error> {
        self.connect_with(peer, Window::Wide).await
    }

    /// As [`Target::connect`], with a window of the caller's choice.
    pub async fn connect_with(&self, peer: Peer, window: Window) -> Result<Link, Error> {
        let registering = async {
            let Upgrade { path, headers } = self.upgrade(peer)?;
            let spread = peer.pair.wrapping_add(peer.number.into());
            let opening = Opening { addr: self.addr, path: &path, headers: &headers, spread, window };
            let (mut sender, mut receiver) = link::open(opening).await?;
            sender.send(register(peer)).await?;
            loop {
                match receiver.receive().await {
                    Incoming::Message(text) => match frame::kind(&text) {
                        Kind::Registered => return Ok(Link { peer, sender, receiver }),
                        Kind::Error => {
                            return Err(Error::Refused { step: "registration", answer: String::from_utf8_lossy(&text).into_owned() });
                        }
                        Kind::Request | Kind::Response | Kind::Other => {}
                    },
                    Incoming::Ping(body) => sender.pong(&body).await?,
                    Incoming::Closed => return Err(Error::Closed { during: "registration" }),
                }
            }
        };
        tokio::time::timeout(REGISTER_LIMIT, registering).await.map_err(|_elapsed| Error::TooSlow { step: "registration" })?
    }

    fn upgrade(&self, peer: Peer) -> Result<Upgrade, Error> {
        match &self.kin {
            Kin::Floor => Ok(Upgrade { path: format!("/{}/{}", peer.pair, peer.role.wire_name()), headers: Vec::new() }),
            Kin::Relay { jwt_secret } => {
                let mut headers = vec![("Authorization", bearer(peer, jwt_secret)?), ("X-Client-Type", peer.role.wire_name().to_owned())];
                if peer.role == Role::Phone {
                    headers.push(("X-Target-Desktop-Device-ID", peer.desktop_device()));
                }
                Ok(Upgrade { path: "/ws/device-link".to_owned(), headers })
            }
        }
    }
}

/// What the websocket upgrade asks with.
struct Upgrade {
    path: String,
    headers: Vec<(&'static str, String)>,
}

fn register(peer: Peer) -> Vec<u8> {
    let device = peer.device();
    format!(r#"{{"type":"register","payload":{{"deviceId":"{device}","relayProtocolVersion":"{RELAY_PROTOCOL_VERSION}"}}}}"#).into_bytes()
}

fn device_row(peer: Peer, jwt_secret: &str) -> Result<Post, Error> {
    let (device, role) = (peer.device(), peer.role.wire_name());
    Ok(Post {
        headers: vec![("Authorization", bearer(peer, jwt_secret)?)],
        body: format!(r#"{{"deviceId":"{device}","role":"{role}","deviceName":"bench {role}","platform":"linux","appVersion":"1.0.0"}}"#),
    })
}

fn bearer(peer: Peer, jwt_secret: &str) -> Result<String, Error> {
    #[derive(Serialize)]
    struct Claims {
        sub: String,
        exp: u64,
    }
    let claims = Claims { sub: peer.user(), exp: jsonwebtoken::get_current_timestamp() + TOKEN_SECONDS };
    let key = EncodingKey::from_secret(jwt_secret.as_bytes()).map_err(Error::Token)?;
    let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).map_err(Error::Token)?;
    Ok(format!("Bearer {token}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn relay() -> Target {
        Target { addr: SocketAddr::from(([127, 0, 0, 1], 1)), kin: Kin::Relay { jwt_secret: SECRET.to_owned() } }
    }

    #[test]
    fn a_phone_names_its_desktop_and_a_desktop_does_not() {
        let names = |peer| relay().upgrade(peer).expect("headers").headers.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(Peer::desktop(3)), ["Authorization", "X-Client-Type"]);
        assert_eq!(names(Peer::phone(3)), ["Authorization", "X-Client-Type", "X-Target-Desktop-Device-ID"]);
    }

    #[test]
    fn a_token_is_signed_for_the_account_of_its_pair() {
        let bearer = bearer(Peer::phone(3), SECRET).expect("a token");
        let token = bearer.strip_prefix("Bearer ").expect("a bearer token");
        let key = jsonwebtoken::DecodingKey::from_secret(SECRET.as_bytes()).expect("a key");
        let claims =
            jsonwebtoken::decode::<Value>(token, &key, &jsonwebtoken::Validation::new(Algorithm::HS256)).expect("a valid token").claims;
        assert_eq!(claims["sub"], Value::from(Peer::desktop(3).user()));
    }

    #[test]
    fn a_device_row_holds_what_the_api_asks_for() {
        let post = device_row(Peer::phone(1), SECRET).expect("a row");
        assert_eq!(
            serde_json::from_str::<Value>(&post.body).expect("valid JSON"),
            json!({"deviceId": Peer::phone(1).device(), "role": "mobile", "deviceName": "bench mobile", "platform": "linux", "appVersion": "1.0.0"})
        );
    }

    #[test]
    fn a_registration_states_the_protocol_version() {
        let frame: Value = serde_json::from_slice(&register(Peer::desktop(1))).expect("valid JSON");
        assert_eq!(frame, json!({"type": "register", "payload": {"deviceId": Peer::desktop(1).device(), "relayProtocolVersion": "1.7"}}));
    }
}
