//! The files in `deploy/`, each held against the program that reads it, and against the relay that it starts.
//!
//! `./dev test` installs the two programs, `promtool` and `systemd-analyze`. Container files are read as far as that goes without a
//! container engine: no image is built here.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "support/mod.rs"]
mod support;

use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use support::{metrics::Scrape, relay_process::RelayProcess};
use yaml_rust2::{Yaml, YamlLoader};

const RELAY: &str = env!("CARGO_BIN_EXE_relay");

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn yaml(name: &str) -> Yaml {
    YamlLoader::load_from_str(&read(name)).unwrap().remove(0)
}

/// What the program printed, of which it must approve.
fn approved(program: &str, command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{program} is needed, which ./dev test installs: {error}"));
    let said = all_of(&output);
    assert!(output.status.success(), "{said}");
    said
}

fn all_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn promtool(arguments: &[&str]) -> String {
    approved("promtool", Command::new("promtool").args(arguments).current_dir(path("deploy/prometheus")))
}

/// Runs `relay serve --print-config` with this environment and these further arguments.
fn configured(environment: &[(String, String)], arguments: &[&str]) -> String {
    let mut command = Command::new(RELAY);
    command.env_clear().envs(environment.iter().cloned()).args(arguments).arg("--print-config");
    approved("relay", &mut command)
}

#[test]
fn prometheus_takes_the_rules_and_the_scrape_configuration() {
    assert!(promtool(&["check", "rules", "--lint-fatal", "alerts.yml"]).contains("SUCCESS"));
    promtool(&["check", "config", "--syntax-only", "scrape.yml"]);
}

#[test]
fn each_alert_fires_for_what_it_is_for_and_is_silent_else() {
    promtool(&["test", "rules", "alerts_test.yml"]);
    let (rules, tests) = (yaml("deploy/prometheus/alerts.yml"), yaml("deploy/prometheus/alerts_test.yml"));
    let names: BTreeSet<&str> = rules["groups"][0]["rules"].as_vec().unwrap().iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    let cases = tests["tests"].as_vec().unwrap().iter().flat_map(|test| test["alert_rule_test"].as_vec().unwrap());
    let (firing, silent): (Vec<&Yaml>, Vec<&Yaml>) = cases.partition(|case| case["exp_alerts"].as_vec().is_some_and(|all| !all.is_empty()));
    for (cases, how) in [(firing, "firing"), (silent, "silent")] {
        assert_eq!(cases.iter().map(|case| case["alertname"].as_str().unwrap()).collect::<BTreeSet<_>>(), names, "{how}");
    }
}

#[tokio::test]
async fn prometheus_takes_what_a_relay_tells_of_itself() {
    let relay = RelayProcess::start(&[]).await;
    let text = Scrape::text(&relay).await;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool is needed, which ./dev test installs");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", all_of(&output));
}

/// Labels of each family, `le` of histograms among them, and those that a scrape adds.
fn labels_of(metrics: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for series in metrics.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0) {
        let (name, inside) = series.split_once('{').unwrap_or((series, ""));
        let names = inside.trim_end_matches('}').split("\",").filter_map(|label| Some(label.split_once('=')?.0));
        labels.entry(name).or_insert_with(|| ["instance", "job"].into()).extend(names);
    }
    labels
}

fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// What stands in matchers and in `by (…)`.
fn labels_in(expression: &str) -> BTreeSet<&str> {
    let matchers = expression.split('{').skip(1).flat_map(|rest| rest[..rest.find('}').unwrap()].split(','));
    let matchers = matchers.map(|matcher| matcher.split(['=', '!']).next().unwrap().trim());
    let grouped = expression.split("by (").skip(1).flat_map(|rest| rest[..rest.find(')').unwrap()].split(',')).map(str::trim);
    matchers.chain(grouped).filter(|name| !name.is_empty()).collect()
}

#[tokio::test]
async fn the_dashboard_asks_for_what_there_is() {
    let relay = RelayProcess::start(&["--tls-cert", "tests/support/tls/issuer.pem", "--tls-key", "tests/support/tls/issuer.key"]).await;
    let metrics = Scrape::text(&relay).await;
    let labels = labels_of(&metrics);
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/dashboard.json")).unwrap();
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let mut rules = Vec::new();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: each panel has its id");
        assert_eq!(panel["datasource"], source, "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{title} is in the grid");
        for cell in (x..x + w).flat_map(|column| (y..y + h).map(move |row| (column, row))) {
            assert!(cells.insert(cell), "{title} overlaps at {cell:?}");
        }
        let targets = panel["targets"].as_array().unwrap();
        let references: BTreeSet<&str> = targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert_eq!(references.len(), targets.len(), "{title}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            let named: Vec<&str> = words(expression).filter(|word| labels.contains_key(word)).collect();
            let asked = words(expression).filter(|word| word.starts_with("relay_") || word.starts_with("process_")).count();
            assert!(asked > 0 && named.len() == asked, "{title}: {expression}");
            for label in labels_in(expression) {
                assert!(named.iter().any(|name| labels[name].contains(label)), "{title}: no {label} in {expression}");
            }
            let filled = expression.replace("$instance", ".*").replace("$__rate_interval", "1m").replace("$__range", "1h");
            assert!(!filled.contains('$'), "{title}: {filled}");
            rules.push(json!({"record": format!("panel:{}", rules.len()), "expr": filled}));
        }
    }
    let variables: Vec<&Value> = dashboard["templating"]["list"].as_array().unwrap().iter().map(|variable| &variable["type"]).collect();
    assert_eq!(variables, ["datasource", "query"]);
    // JSON is YAML.
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()]);
}

/// Variables of a file as systemd reads them.
fn environment(name: &str) -> Vec<(String, String)> {
    let text = read(name);
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once('=').unwrap()).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The values of a setting of the unit, in order.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

#[test]
fn systemd_takes_the_unit_and_leaves_the_process_little() {
    let unit = read("deploy/systemd/relay@.service");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay@blue.service");
    // It wants the program to be there, which is not installed here.
    fs::write(&file, unit.replace("/usr/local/bin/relay", RELAY)).unwrap();
    let analyze = |arguments: &[&str]| approved("systemd-analyze", Command::new("systemd-analyze").args(arguments).arg(&file));
    let said = analyze(&["verify", "--man=no"]);
    assert!(said.is_empty(), "{said}");
    // In tenths: 96 is unprotected, and 14 is what a server that listens keeps.
    analyze(&["security", "--offline=true", "--threshold=15", "--no-pager"]);
}

#[test]
fn both_colours_start_with_the_units_variables_and_share_their_data() {
    let unit = read("deploy/systemd/relay@.service");
    let [start] = settings(&unit, "ExecStart")[..] else { panic!("{unit}") };
    let (program, arguments) = start.split_once(' ').unwrap();
    assert_eq!((program, settings(&unit, "EnvironmentFile")), ("/usr/local/bin/relay", vec!["/etc/relay/%i.env"]));
    let mut listeners = BTreeSet::new();
    let mut directories = BTreeSet::new();
    for colour in ["blue", "green"] {
        let of_unit = settings(&unit, "Environment")[0].replace("%i", colour);
        let of_unit = of_unit.split(' ').map(|pair| pair.split_once('=').unwrap());
        let mut all: Vec<(String, String)> = of_unit.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        all.extend(environment(&format!("deploy/systemd/{colour}.env")));
        let printed = configured(&all, &arguments.split(' ').collect::<Vec<_>>());
        for line in printed.lines() {
            if line.starts_with("listen = ") || line.starts_with("admin-listen = ") {
                let (_, value) = line.split_once(" = ").unwrap();
                listeners.insert(value.split('#').next().unwrap().trim().to_owned());
            }
            if line.starts_with("data-dir = ") {
                directories.insert(line.split('#').next().unwrap().trim().to_owned());
            }
        }
    }
    assert_eq!(listeners.len(), 4, "{listeners:?}");
    assert_eq!(directories.into_iter().collect::<Vec<_>>(), ["data-dir = \"/var/lib/relay\""]);
    assert_eq!(settings(&unit, "StateDirectory"), ["relay"]);
}

/// `--drain-timeout` is a minute unless told otherwise, and the runbook names 11 s more.
#[test]
fn whoever_ends_a_relay_waits_for_its_drain() {
    const DRAIN_SECONDS: u64 = 60 + 11;
    let seconds = |text: &str| text.trim_end_matches('s').parse::<u64>().unwrap();
    let unit = read("deploy/systemd/relay@.service");
    assert!(seconds(settings(&unit, "TimeoutStopSec")[0]) > DRAIN_SECONDS);
    let relay = &yaml("deploy/compose.yaml")["services"]["relay"];
    assert!(seconds(relay["stop_grace_period"].as_str().unwrap()) > DRAIN_SECONDS);
    assert_eq!(relay["stop_signal"].as_str(), Some("SIGTERM"));
    assert!(read("deploy/Dockerfile").contains("\nSTOPSIGNAL SIGTERM\n"));
}

fn strings(list: &Yaml) -> Vec<&str> {
    list.as_vec().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

#[test]
fn container_files_name_what_there_is_and_run_what_the_relay_knows() {
    let dockerfile = read("deploy/Dockerfile");
    let ignored = read("deploy/Dockerfile.dockerignore");
    let mut sources = 0;
    for line in dockerfile.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.starts_with("--from")) {
        let words: Vec<&str> = line.split(' ').collect();
        for source in &words[..words.len() - 1] {
            assert!(path(source).exists(), "there is no {source}");
            let top = source.split('/').next().unwrap();
            assert!(ignored.lines().any(|line| line == format!("!{top}")), "{top} does not reach the builder");
            sources += 1;
        }
    }
    assert!(sources > 10);
    let rust = read("Cargo.toml").lines().find_map(|line| Some(line.strip_prefix("rust-version = \"")?.trim_end_matches('"').to_owned()));
    assert!(dockerfile.contains(&format!("FROM rust:{}-slim", rust.unwrap())));
    let user = dockerfile.find("\nUSER relay\n").unwrap();
    assert!(user < dockerfile.find("\nENTRYPOINT ").unwrap());

    let of_image = dockerfile.lines().find_map(|line| line.strip_prefix("ENV ")).unwrap();
    let of_image: Vec<(String, String)> =
        of_image.split(' ').map(|pair| pair.split_once('=').unwrap()).map(|(name, value)| (name.into(), value.into())).collect();
    let printed = configured(&of_image, &["serve"]);
    assert!(printed.contains("listen = \"0.0.0.0:8787\"") && printed.contains("admin-listen = \"127.0.0.1:9090\""), "{printed}");

    let compose = yaml("deploy/compose.yaml");
    let (relay, postgres) = (&compose["services"]["relay"], &compose["services"]["postgres"]);
    let build = path("deploy").join(relay["build"]["context"].as_str().unwrap());
    assert!(build.join(relay["build"]["dockerfile"].as_str().unwrap()).exists());
    assert_eq!(relay["depends_on"]["postgres"]["condition"].as_str(), Some("service_healthy"));
    assert!(strings(&postgres["healthcheck"]["test"]).contains(&"pg_isready"));
    for service in [relay, postgres] {
        for volume in strings(&service["volumes"]) {
            let (name, _) = volume.split_once(':').unwrap();
            assert!(compose["volumes"].as_hash().unwrap().contains_key(&Yaml::String(name.to_owned())), "{name}");
        }
    }
    // The admin listener is not published.
    assert_eq!(strings(&relay["ports"]), ["127.0.0.1:8787:8787"]);

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.toml");
    fs::write(&file, "database-url = \"postgres://relay:p@postgres/relay?sslmode=disable\"\n").unwrap();
    let command = strings(&relay["command"]);
    let filled: Vec<&str> =
        command.iter().map(|word| if *word == "/run/secrets/relay.toml" { file.to_str().unwrap() } else { word }).collect();
    assert_ne!(command, filled, "the secret is where it is looked for");
    assert!(configured(&of_image, &filled).contains("database-url"));
}

#[tokio::test]
async fn the_health_check_of_the_container_files_tells_a_relay_that_serves_from_none() {
    let dockerfile = read("deploy/Dockerfile");
    let (_, check) = dockerfile.split_once("HEALTHCHECK ").unwrap();
    let (_, check) = check.lines().next().unwrap().split_once("CMD ").unwrap();
    let check: Vec<String> = serde_json::from_str(check).unwrap();
    let compose = yaml("deploy/compose.yaml");
    assert_eq!(strings(&compose["services"]["relay"]["healthcheck"]["test"])[1..], check);
    let (program, arguments) = check.split_first().unwrap();
    assert_eq!(program, "relay");
    let mut relay = RelayProcess::start(&[]).await;
    let (directory, admin) = (relay.data_dir(), format!("http://{}", relay.ready().admin));
    let is_healthy = || {
        let mut command = Command::new(RELAY);
        command.env_clear().env("RELAY_DATA_DIR", directory.path()).env("RELAY_ADMIN_URL", &admin).args(arguments);
        command.output().unwrap().status.success()
    };
    assert!(is_healthy());
    relay.kill();
    assert!(!is_healthy());
}
