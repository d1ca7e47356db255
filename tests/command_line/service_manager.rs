//! `relay serve` under a service manager, which is told as sd_notify(3) describes.

use crate::{
    serve,
    support::{PATIENCE, data_dir::DataDir},
};
use relay_actors::clock;
use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process::{Child, Command, Stdio},
    thread::yield_now,
    time::Duration,
};

/// Ends its process with the test.
struct Service(Child);

impl Service {
    fn start(directory: &DataDir, variables: &[(&str, &str)]) -> Self {
        let mut command = serve(directory);
        command.args(["--ready-file", "ready.json"]).envs(variables.iter().copied());
        Service(command.stdout(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Nothing to do if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn next(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 512];
    let length = manager.recv(&mut buffer).expect("the next state comes");
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

fn socket(address: &SocketAddr) -> UnixDatagram {
    let manager = UnixDatagram::bind_addr(address).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    manager
}

#[test]
fn a_manager_is_told_when_it_serves_how_it_leaves_and_that_it_ends() {
    let directory = DataDir::new();
    let path = directory.path().join("notify");
    let manager = socket(&SocketAddr::from_pathname(&path).unwrap());
    let mut service = Service::start(&directory, &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    let ready = next(&manager);
    assert!(ready.starts_with("READY=1\nSTATUS=serving clients on 127.0.0.1:"), "{ready}");
    // Whoever is told may rely on the file.
    assert!(directory.path().join("ready.json").exists());
    service.signal("-TERM");
    assert_eq!(next(&manager), "STOPPING=1");
    let mut last = String::new();
    while !last.starts_with("STATUS=drained: ") {
        last = next(&manager);
        assert!(last.starts_with("STATUS=") && last.contains(": 0 in flight, 0 sockets left, "), "{last}");
    }
    assert_eq!(service.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_relay_gives_signs_of_life_until_it_stands_still() {
    let directory = DataDir::new();
    let name = format!("relay-command-line-{}", std::process::id());
    let manager = socket(&SocketAddr::from_abstract_name(&name).unwrap());
    let service = Service::start(&directory, &[("NOTIFY_SOCKET", &format!("@{name}")), ("WATCHDOG_USEC", "100000")]);
    // The first may come before it serves.
    for _ in 0..4 {
        let state = next(&manager);
        assert!(state == "WATCHDOG=1" || state.starts_with("READY=1\n"), "{state}");
    }
    service.signal("-STOP");
    wait_until_stopped(service.0.id());
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 512]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    // As long as the manager would wait.
    manager.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(manager.recv(&mut [0; 512]).is_err(), "a process that stands still gives no sign");
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    service.signal("-CONT");
    assert_eq!(next(&manager), "WATCHDOG=1");
}

#[test]
fn a_manager_that_does_not_listen_keeps_nobody_from_serving() {
    let directory = DataDir::new();
    let manager = directory.path().join("nobody");
    let mut service = Service::start(&directory, &[("NOTIFY_SOCKET", manager.to_str().unwrap()), ("WATCHDOG_USEC", "100000")]);
    let deadline = clock::now() + PATIENCE;
    while !directory.path().join("ready.json").exists() {
        assert!(service.0.try_wait().unwrap().is_none() && clock::now() < deadline, "it serves");
        yield_now();
    }
    service.signal("-TERM");
    assert_eq!(service.0.wait().unwrap().code(), Some(0));
}

fn wait_until_stopped(pid: u32) {
    let deadline = clock::now() + PATIENCE;
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        if stat.rsplit_once(") ").unwrap().1.starts_with('T') {
            return;
        }
        assert!(clock::now() < deadline, "{stat}");
        yield_now();
    }
}
