//! `relay bench`: what it starts, prints and leaves behind.

use crate::{
    finish, relay,
    support::{data_dir::DataDir, wire::eventually},
    text,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

/// A run that is as short as one can be that counts something.
const SHORT: [&str; 6] = ["--pairs=2", "--window=2", "--size=300", "--warm=0", "--secs=0.3", "--json"];

/// The measures that are compared, each with the ratio of its two figures. A floor of zero has none: CPU time is counted in ticks.
fn compared(report: &Value) -> BTreeSet<&str> {
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        let (floor, relay) = (row["floor"].as_f64().unwrap(), row["relay"].as_f64().unwrap());
        match row["ratio"].as_f64() {
            Some(ratio) => assert!((ratio - relay / floor).abs() < 0.01, "{row}"),
            None => assert!(floor == 0.0, "{row}"),
        }
    }
    rows.iter().map(|row| row["measure"].as_str().unwrap()).collect()
}

fn bench(directory: &DataDir, arguments: &[&str]) -> Value {
    // What somebody has set for a relay of theirs is none of this one's: it would take no token of the generator's.
    let output = relay(directory).arg("bench").args(arguments).env("RELAY_JWT_ISSUER", "https://elsewhere.example").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn round_trips_are_measured_against_a_relay_and_a_floor_of_its_own() {
    let directory = DataDir::with_sqlite();
    let closed = bench(&directory, &[&["rpc"], &SHORT[..]].concat());
    let open = bench(&directory, &[&["rpc", "--rate=200"], &SHORT[..]].concat());
    for (report, setting) in [(&closed, "window"), (&open, "rate")] {
        let compared = compared(report);
        for measure in ["server_cpu_s_per_1k", "round_trips_per_s", "p50_us", "p99_us", "p999_us", "rss_mib"] {
            assert!(compared.contains(measure), "no {measure} in {report}");
        }
        for server in ["floor", "relay"] {
            let figures = &report[server][0];
            assert!(figures["round_trips"].as_u64().unwrap() > 0, "{figures}");
            assert_eq!((&figures["target"], &figures["pairs"], &figures["errors"]), (&server.into(), &2.into(), &0.into()));
            assert_eq!((&figures["params_bytes"], figures[setting].is_number()), (&300.into(), true), "{figures}");
        }
    }
    assert_eq!(closed["relay"][0]["window"], 2);
    assert_eq!(open["relay"][0]["unanswered"], 0);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "its relay has a data directory of its own");
}

#[test]
fn storms_and_idle_connections_are_compared_as_well_and_shown_as_a_table() {
    let directory = DataDir::with_sqlite();
    for (arguments, measure) in [
        (&["bench", "storm", "--devices=20"][..], "all_registered_s"),
        (&["bench", "idle", "--pairs=5", "--hold=0.1", "--settle=0.1"], "kib_per_connection"),
    ] {
        let output = finish(&directory, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let table = text(&output.stdout);
        assert!(table.starts_with(&format!("scenario {}, ", arguments[1])), "{table}");
        let row = table.lines().find(|line| line.starts_with(measure)).unwrap_or_else(|| panic!("no {measure} in {table}"));
        assert!(row.split_whitespace().count() == 4, "floor, relay, ratio: {row}");
        assert!(text(&output.stderr).ends_with("round 1 of 1: floor\nround 1 of 1: relay\n"), "{}", text(&output.stderr));
    }
}

#[test]
fn timelines_to_many_phones_are_compared_and_nothing_of_them_is_lost() {
    let directory = DataDir::with_sqlite();
    let report = bench(&directory, &["fanout", "--phones=3", "--rate=600", "--size=300", "--secs=0.5", "--warm=0", "--json"]);
    let compared = compared(&report);
    for measure in ["server_cpu_s_per_1m", "delivered_per_s", "p50_us", "p99_us", "rss_mib"] {
        assert!(compared.contains(measure), "no {measure} in {report}");
    }
    for server in ["floor", "relay"] {
        let figures = &report[server][0];
        assert_eq!((&figures["target"], &figures["phones"], &figures["payload_bytes"]), (&server.into(), &3.into(), &300.into()));
        assert_eq!((&figures["lost"], &figures["errors"]), (&0.into(), &0.into()), "{figures}");
        assert!(figures["delivered"].as_u64().unwrap() > 0, "{figures}");
    }
}

#[test]
fn the_memory_of_large_results_is_compared() {
    let directory = DataDir::with_sqlite();
    let report = bench(&directory, &["big", "--mib=2", "--count=2", "--settle=0.1", "--json"]);
    let compared = compared(&report);
    for measure in ["mib_per_s", "server_cpu_s_per_gib", "one_peak_growth_mib", "one_kept_growth_mib", "peak_growth_mib", "kept_growth_mib"]
    {
        assert!(compared.contains(measure), "no {measure} in {report}");
    }
    for server in ["floor", "relay"] {
        let figures = &report[server][0];
        assert_eq!((&figures["mib"], &figures["results"], &figures["errors"]), (&2.into(), &2.into(), &0.into()), "{figures}");
        assert!(figures["one_peak_growth_mib"].as_f64().unwrap() >= figures["one_kept_growth_mib"].as_f64().unwrap(), "{figures}");
    }
}

/// A connection whose lane has been full for a second is closed, and ended 2 s later: within the span, and then the phone comes back.
#[test]
fn heavy_a_pair_is_measured_alone_with_phones_that_read_and_with_phones_that_read_nothing() {
    let directory = DataDir::with_sqlite();
    let crowd = ["slow", "--frozen=3", "--rounds=1", "--rate=20", "--json"];
    let heavy = bench(&directory, &[&crowd[..], &["--event-rate=50", "--event-size=32768", "--secs=10", "--warm=0"]].concat());
    let light = bench(&directory, &[&crowd[..], &["--event-rate=5", "--event-size=200", "--secs=0.5", "--warm=0"]].concat());
    for report in [&heavy, &light] {
        assert_eq!((&report["scenario"], &report["frozen"], &report["errors"]), (&"slow".into(), &3.into(), &0.into()), "{report}");
        for measure in ["p99_us_alone", "p99_us_reading", "p99_us_frozen", "p99_ratio", "p99_ratio_to_alone", "peak_kib_per_frozen"] {
            assert!(report[measure].is_number(), "no {measure} in {report}");
        }
    }
    assert!(heavy["retired"].as_u64().unwrap() >= 3 && heavy["retired_after_s_p50"].as_f64().unwrap() > 1.0, "{heavy}");
    assert_eq!((&light["retired"], &light["retired_after_s_p50"]), (&0.into(), &Value::Null), "{light}");
}

#[test]
fn what_cannot_be_measured_ends_by_its_cause() {
    let directory = DataDir::with_sqlite();
    let run = |arguments: &[&str]| {
        let output = finish(&directory, &[&["bench", "rpc"], arguments].concat());
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, told) = run(&["--target=floor", "--addr=127.0.0.1:1"]);
    assert_eq!(code, Some(3), "nothing listens there: {told}");
    let (code, told) = run(&["--target=relay", "--addr=127.0.0.1:1"]);
    assert_eq!(code, Some(2), "without its secret: {told}");
    let (code, told) = run(&["--server-arg=--no-such-flag", "--pairs=1", "--secs=0.1", "--warm=0"]);
    assert_eq!(code, Some(1));
    assert!(told.contains("--no-such-flag"), "what the relay said is shown: {told}");
}

/// Nobody is left to end a server that was started for a run.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_run_with_what_it_started() {
    let directory = DataDir::with_sqlite();
    for signal in ["-TERM", "-INT"] {
        let mut run = relay(&directory)
            .args(["bench", "rpc", "--pairs=1", "--secs=600"])
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "round 1 of 1: floor"));
        let data: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let ready: Value = serde_json::from_slice(&fs::read(data[0].join("ready.json")).unwrap()).unwrap();
        let server = format!("/proc/{}", ready["pid"]);
        assert!(Path::new(&server).exists());
        assert!(Command::new("kill").args([signal, &run.id().to_string()]).status().unwrap().success());
        assert_eq!(run.wait().unwrap().code(), Some(1));
        assert_eq!(lines.next().unwrap().unwrap(), "error: ended by a signal, without figures");
        eventually("its server is gone", async || is_over(&server)).await;
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "and its data");
    }
}

/// A process that was killed may wait to be reaped by whoever it fell to.
fn is_over(process: &str) -> bool {
    let status = fs::read_to_string(format!("{process}/status")).unwrap_or_default();
    status.is_empty() || status.contains("State:\tZ")
}
