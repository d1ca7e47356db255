//! Proxies as child processes, and the texts that they are configured with.

use crate::support::PATIENCE;
use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU8, Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A loopback address that no other test has, so that the ports of the texts can stay as they are.
pub(crate) fn own_address() -> Ipv4Addr {
    // Tests of one process differ in the second byte, processes in the others.
    static TAKEN: AtomicU8 = AtomicU8::new(0);
    let process = std::process::id();
    let [middle, last] = [process / 250 % 250, process % 250].map(|part| u8::try_from(part + 1).unwrap());
    Ipv4Addr::new(127, 64 + TAKEN.fetch_add(1, Relaxed), middle, last)
}

/// A text of the tree with some of it replaced; each piece must be there.
pub(crate) fn adapted(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "there is no {from:?} in\n{text}");
        text.replace(from, to)
    })
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A proxy, ended with its test.
pub(crate) struct Proxy {
    child: Child,
    log: PathBuf,
}

impl Proxy {
    /// HAProxy with this configuration, once it listens at the address.
    pub(crate) async fn haproxy(directory: &Path, configuration: &str, listens: SocketAddr) -> Self {
        let file = directory.join("haproxy.cfg");
        fs::write(&file, configuration).unwrap();
        // Debian has it where only root's PATH leads.
        let mut command = Command::new("/usr/sbin/haproxy");
        command.args(["-db", "-f"]).arg(file);
        Self::start(command, directory.join("haproxy.log"), listens).await
    }

    /// nginx with this as its only server.
    pub(crate) async fn nginx(directory: &Path, configuration: &str, listens: SocketAddr) -> Self {
        let file = directory.join("nginx.conf");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(file).arg("-p").arg(directory).args(["-e", "stderr", "-g", "daemon off;"]);
        Self::start(command, directory.join("nginx.log"), listens).await
    }

    async fn start(mut command: Command, log: PathBuf, listens: SocketAddr) -> Self {
        let output = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let child = command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}; `./dev test` installs it", command.get_program()));
        let mut proxy = Proxy { child, log };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(listens).await.is_err() {
            let ended = proxy.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "the proxy does not listen ({ended:?}):\n{}", proxy.log());
            sleep(POLL_INTERVAL).await;
        }
        proxy
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx ends its workers when it is told to, and orphans them when it is killed.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the proxy's log ends with:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
        }
    }
}
