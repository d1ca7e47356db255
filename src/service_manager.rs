//! What the process tells the service manager that started it: the protocol of sd_notify(3), over the socket in `NOTIFY_SOCKET`.
//!
//! Ready, leaving, how far the drain is, and signs of life. Without such a socket nothing is told. A manager that cannot be told is told
//! of in the log and keeps nobody from serving. The relay starts no processes, so the variables reach nobody else.

use crate::limits::{NOTIFY_TIMEOUT, STATUS_INTERVAL};
use relay_actors::{
    drain::Phase,
    relay::{Progress, Relay},
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// The manager of this process, if there is one that wants to be told.
#[derive(Debug, Default)]
pub struct ServiceManager {
    told_at: Option<Channel>,
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct Channel {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl ServiceManager {
    /// As these variables say; those of the environment, in everyday life. `pid` is this process.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>, pid: u32) -> Self {
        let Some(name) = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return ServiceManager::default() };
        let told_at = match Channel::open(&name) {
            Ok(channel) => Some(channel),
            Err(error) => {
                tracing::warn!(%error, socket = ?name, "the service manager cannot be told anything");
                None
            }
        };
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        // The variables of another process may have come along.
        let is_ours = variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(pid.into());
        let watchdog = number("WATCHDOG_USEC").filter(|limit| *limit > 0 && is_ours).map(Duration::from_micros);
        ServiceManager { told_at, watchdog }
    }

    /// The relay serves.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The process is going to end.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Tells how far the drain is, from its begin to its end.
    pub async fn follow_drain(&self, relay: &Relay) {
        relay.left(Phase::Serving).await;
        loop {
            let progress = relay.progress();
            self.tell(&status(progress));
            if progress.phase == Phase::Drained {
                return;
            }
            // Each phase, and what happens within a long one.
            let _ = tokio::time::timeout(STATUS_INTERVAL, relay.left(progress.phase)).await;
        }
    }

    /// Gives signs of life as often as the manager wants them, while `is_alive` answers so. A task that stands still gives none.
    pub async fn give_signs_of_life(&self, is_alive: impl AsyncFn(Duration) -> bool) {
        let Some(limit) = self.watchdog.filter(|_| self.told_at.is_some()) else { return };
        // Twice within the limit, as sd_watchdog_enabled(3) advises.
        let interval = limit / 2;
        loop {
            if is_alive(interval).await {
                self.tell("WATCHDOG=1");
            } else {
                tracing::warn!("the supervisor does not answer; the service manager is given no sign of life");
            }
            tokio::time::sleep(interval).await;
        }
    }

    fn tell(&self, state: &str) {
        let Some(Channel { socket, address }) = &self.told_at else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, "the service manager could not be told");
        }
    }
}

impl Channel {
    fn open(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor an abstract name")),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(NOTIFY_TIMEOUT))?;
        Ok(Channel { socket, address })
    }
}

fn status(Progress { phase, in_flight, sockets_left, elapsed }: Progress) -> String {
    format!("STATUS={phase}: {in_flight} in flight, {sockets_left} sockets left, {} s", elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, future::pending};
    use tokio::sync::Notify;

    /// A manager under an abstract name, or in the file system, and the variables with which it starts a process.
    fn manager(address: &SocketAddr) -> UnixDatagram {
        let socket = UnixDatagram::bind_addr(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn told(socket: &UnixDatagram) -> Vec<String> {
        let mut all = Vec::new();
        let mut buffer = [0; 512];
        while let Ok(length) = socket.recv(&mut buffer) {
            all.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        all
    }

    fn started_with(variables: &[(&str, &str)]) -> ServiceManager {
        ServiceManager::of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()), 7)
    }

    #[test]
    fn both_kinds_of_socket_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("relay-test-{}", std::process::id());
        for (address, variable) in [
            (SocketAddr::from_pathname(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (SocketAddr::from_abstract_name(&name).unwrap(), format!("@{name}")),
        ] {
            let socket = manager(&address);
            let process = started_with(&[("NOTIFY_SOCKET", &variable)]);
            process.ready("serving");
            process.stopping();
            assert_eq!(told(&socket), ["READY=1\nSTATUS=serving", "STOPPING=1"], "{variable}");
        }
    }

    #[test]
    fn a_manager_that_is_not_there_or_not_known_stops_nothing() {
        for variables in [&[][..], &[("NOTIFY_SOCKET", "")], &[("NOTIFY_SOCKET", "vsock:2:1")], &[("NOTIFY_SOCKET", "/nowhere/notify")]] {
            let process = started_with(variables);
            process.ready("serving");
            process.stopping();
        }
    }

    #[test]
    fn signs_of_life_are_for_the_process_that_they_are_asked_of() {
        let limit = |variables: &[(&str, &str)]| {
            let with_socket = [&[("NOTIFY_SOCKET", "@nobody")], variables].concat();
            started_with(&with_socket).watchdog
        };
        assert_eq!(limit(&[("WATCHDOG_USEC", "3000000")]), Some(Duration::from_secs(3)));
        assert_eq!(limit(&[("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", "7")]), Some(Duration::from_secs(3)));
        for without in [
            &[("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", "8")][..],
            &[("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", "x")],
            &[("WATCHDOG_USEC", "0")],
            &[("WATCHDOG_USEC", "soon")],
            &[],
        ] {
            assert_eq!(limit(without), None, "{without:?}");
        }
    }

    #[tokio::test]
    async fn a_sign_is_given_each_time_there_is_life_and_only_then() {
        let name = format!("relay-test-life-{}", std::process::id());
        let socket = manager(&SocketAddr::from_abstract_name(&name).unwrap());
        let process = started_with(&[("NOTIFY_SOCKET", &format!("@{name}")), ("WATCHDOG_USEC", "2000")]);
        let answers = RefCell::new(vec![true, false, true, false, true]);
        let asked_once_more = Notify::new();
        let is_alive = async |limit| {
            assert_eq!(limit, Duration::from_millis(1));
            let answer = answers.borrow_mut().pop();
            match answer {
                Some(answer) => answer,
                None => {
                    asked_once_more.notify_one();
                    pending().await
                }
            }
        };
        tokio::select! {
            () = process.give_signs_of_life(is_alive) => {}
            () = asked_once_more.notified() => {}
        }
        assert_eq!(told(&socket), ["WATCHDOG=1"; 3]);
    }
}
