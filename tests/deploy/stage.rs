//! HAProxy as `deploy/haproxy/` has it, two relay processes on one storage behind it, and the script between them.

use crate::{
    programs::{Proxy, adapted, own_address, read},
    support::{
        account::Account,
        data_dir::DataDir,
        raw_socket::RawSocket,
        scale::scaled,
        token::TEST_SECRET,
        wire::{eventually, registered, round_trip},
    },
    units::Units,
};
use relay_endpoints::{
    address::RelayAddress,
    admin::{Admin, ApiError},
};
use serde_json::Value;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/blue-green");
const PUBLIC_PORT: u16 = 8080;
const UNITS_PORT: u16 = 7000;

pub(crate) struct Stage {
    pub(crate) units: Units,
    host: Ipv4Addr,
    haproxy: Option<Proxy>,
    // Behind whoever writes to it.
    directory: TempDir,
    data_dir: DataDir,
}

impl Stage {
    /// Blue serves and is in use; nothing else runs.
    pub(crate) async fn start(data_dir: DataDir) -> Self {
        let (host, directory) = (own_address(), tempfile::Builder::new().prefix("relay-deploy-").tempdir().unwrap());
        for (colour, port) in [("blue", 9090), ("green", 9091)] {
            let database = data_dir.database_url().map(|url| format!("RELAY_DATABASE_URL={url}\n")).unwrap_or_default();
            let variables = format!(
                "RELAY_LISTEN={host}:{}\nRELAY_ADMIN_LISTEN={host}:{port}\nRELAY_DATA_DIR=\"{}\"\nRELAY_JWT_SECRET={TEST_SECRET}\n\
                 RELAY_TRUSTED_PROXIES=127.0.0.1/32\nRELAY_LOG_FORMAT=json\n{database}",
                port - 9090 + 8787,
                data_dir.path().display(),
            );
            fs::write(directory.path().join(format!("{colour}.env")), variables).unwrap();
        }
        fs::write(directory.path().join("relay.map"), read("deploy/haproxy/relay.map")).unwrap();
        let units = Units::listen((host, UNITS_PORT).into(), directory.path()).await;
        let mut stage = Stage { units, host, haproxy: None, directory, data_dir };
        stage.start_haproxy().await;
        stage.units.start("blue").await;
        eventually("blue is ready and HAProxy knows", async || stage.get("/readyz").await.0 == 200).await;
        stage
    }

    /// Anew, if it runs.
    pub(crate) async fn start_haproxy(&mut self) {
        self.haproxy = None;
        let configuration = adapted(
            &haproxy_here(self.directory.path()),
            &[
                ("maxconn 50000", &format!("maxconn {}", scaled(1_500, 5_000))),
                (":443 ssl crt /etc/haproxy/relay.pem alpn http/1.1", &self.public().to_string()),
                ("127.0.0.1:8787", &self.direct("blue").to_string()),
                ("127.0.0.1:8788", &self.direct("green").to_string()),
            ],
        );
        self.haproxy = Some(Proxy::haproxy(self.directory.path(), &configuration, self.public()).await);
    }

    /// Where clients come.
    pub(crate) fn public(&self) -> SocketAddr {
        (self.host, PUBLIC_PORT).into()
    }

    /// Past HAProxy.
    pub(crate) fn direct(&self, colour: &str) -> SocketAddr {
        (self.host, if colour == "blue" { 8787 } else { 8788 }).into()
    }

    pub(crate) fn address(&self) -> RelayAddress {
        format!("http://{}", self.public()).parse().unwrap()
    }

    pub(crate) async fn account(&self, desktops: usize, phones: usize) -> Account {
        Account::at(self.address(), desktops, phones).await
    }

    pub(crate) fn admin(&self, colour: &str) -> Admin {
        let port = if colour == "blue" { 9090 } else { 9091 };
        let token = fs::read_to_string(self.data_dir.path().join("admin-token")).unwrap();
        Admin::new(format!("http://{}:{port}", self.host).parse().unwrap(), token.trim().to_owned()).unwrap()
    }

    /// What this process tells of itself; none where it does not answer.
    pub(crate) async fn status(&self, colour: &str) -> Option<Value> {
        match self.admin(colour).status().await {
            Ok(status) => Some(status),
            Err(ApiError::Unreachable(_)) => None,
            Err(error) => panic!("{colour}: {error}"),
        }
    }

    pub(crate) async fn instance(&self, colour: &str) -> String {
        self.status(colour).await.expect("it answers")["relayInstanceId"].as_str().unwrap().to_owned()
    }

    /// Status and `Retry-After` by way of HAProxy.
    pub(crate) async fn get(&self, path: &str) -> (u16, Option<String>) {
        get(self.public(), path).await.expect("HAProxy answers whatever is behind it")
    }

    /// The script with the settings of this stage.
    pub(crate) fn script(&self, arguments: &[&str]) -> Command {
        let path = |name: &str| self.directory.path().join(name);
        let mut command = Command::new(SCRIPT);
        command.args(["--relay", env!("CARGO_BIN_EXE_relay"), "--ready-timeout", "20", "--drain-timeout", "10"]);
        command.arg("--env-dir").arg(self.directory.path()).arg("--proxy-socket").arg(path("relay.sock"));
        command.arg("--proxy-map").arg(path("relay.map"));
        command.args(["--start", &self.units.command("start"), "--stop", &self.units.command("stop")]).args(arguments);
        // Whoever runs it may have another relay in mind.
        command.env("RELAY_ADMIN_URL", "http://127.0.0.1:1").env("RELAY_ADMIN_TOKEN", "of-another-relay").env("RELAY_DATA_DIR", "/nowhere");
        // A group of its own, so that a test can kill all of it at once.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A program for `--relay` that runs this first, with the relay's in `RELAY_PROGRAM`, and is the relay's otherwise.
    pub(crate) fn program(&self, first: &str) -> String {
        let file = self.directory.path().join("relay");
        let relay = env!("CARGO_BIN_EXE_relay");
        fs::write(&file, format!("#!/bin/bash\nRELAY_PROGRAM={relay}\n{first}\nexec {relay} \"$@\"\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file.to_str().unwrap().to_owned()
    }

    /// Runs it to its end: exit code, and all that it said.
    pub(crate) async fn run(&self, arguments: &[&str]) -> (i32, String) {
        let mut script = self.script(arguments);
        let Output { status, stdout, stderr } = tokio::task::spawn_blocking(move || script.output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        (status.code().expect("it ends by itself"), said)
    }

    /// The word of the script about which process is in use.
    pub(crate) async fn in_use(&self) -> String {
        let (code, said) = self.run(&["status"]).await;
        assert_eq!(code, 0, "{said}");
        let lines: Vec<&str> = said.lines().filter(|line| line.contains(" in use ")).collect();
        assert_eq!(lines.len(), 1, "{said}");
        lines[0].split(' ').next().unwrap().to_owned()
    }

    /// What the file says, which HAProxy reads at its next start.
    pub(crate) fn file(&self) -> String {
        fs::read_to_string(self.directory.path().join("relay.map")).unwrap()
    }

    /// Adds to the variables of a colour, for its next start and for the script.
    pub(crate) fn add_variable(&self, colour: &str, line: &str) {
        let file = self.directory.path().join(format!("{colour}.env"));
        let name = line.split('=').next().unwrap();
        let kept: Vec<String> =
            fs::read_to_string(&file).unwrap().lines().filter(|old| !old.starts_with(name)).map(str::to_owned).collect();
        fs::write(file, format!("{}\n{line}\n", kept.join("\n"))).unwrap();
    }

    /// A fresh pair registers and makes a round trip; it is kept open.
    pub(crate) async fn pair(&self) -> Pair {
        let account = self.account(1, 1).await;
        let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
        let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
        round_trip(&mut phone, &mut desktop, "first").await;
        Pair { desktop, phone }
    }
}

/// A desktop and a phone of it.
pub(crate) struct Pair {
    desktop: RawSocket,
    pub(crate) phone: RawSocket,
}

impl Pair {
    /// They still have their sockets.
    pub(crate) async fn works(&mut self) {
        round_trip(&mut self.phone, &mut self.desktop, "again").await;
    }
}

/// The configuration with its files in this directory, for whoever runs the tests.
pub(crate) fn haproxy_here(directory: &Path) -> String {
    let path = directory.display();
    adapted(
        &read("deploy/haproxy/haproxy.cfg"),
        &[
            ("log /dev/log local0", "log stderr format raw local0"),
            ("    user haproxy\n    group haproxy\n", ""),
            ("/run/haproxy/relay.sock", &format!("{path}/relay.sock")),
            ("/etc/haproxy/relay.map", &format!("{path}/relay.map")),
        ],
    )
}

/// Status and `Retry-After`; none where nobody listens.
pub(crate) async fn get(listener: SocketAddr, path: &str) -> Option<(u16, Option<String>)> {
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let answer = client.get(format!("http://{listener}{path}")).send().await.ok()?;
    let retry_after = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    Some((answer.status().as_u16(), retry_after))
}
