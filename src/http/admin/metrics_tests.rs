use super::*;
use crate::http::{
    admin_routes,
    testing::{ADMIN_TOKEN, Fixture},
};
use actix_web::{App, test as http};
use prometheus_parse::{Scrape, Value};
use relay_actors::{
    clock::EpochMs,
    store::{LiveProcess, ProcessRecord},
};
use relay_protocol::id::RelayInstanceId;
use std::collections::{BTreeMap, BTreeSet};

fn idle() -> String {
    let handshakes_refused = Tally::new(["other"]);
    let (counters, readings, processes) = (Counters::default(), Readings::default(), SeenProcesses::default());
    let process = ProcessFigures::read();
    let (phase, handshakes_refused) = (Phase::Serving, &handshakes_refused);
    let (counters, readings, processes) = (&counters, &readings, &processes);
    Scraped { counters, readings, phase, processes, handshakes_refused, certificate_end: None, process }.to_text()
}

fn parsed(text: &str) -> Scrape {
    Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

#[test]
fn a_parser_of_the_format_reads_every_line() {
    let text = idle();
    let scrape = parsed(&text);
    let kinds: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(kinds.len(), scrape.docs.len(), "each family has its HELP");
    assert!(scrape.docs.values().all(|help| help.ends_with('.')), "{:?}", scrape.docs);
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    let mut read = 0;
    for sample in &scrape.samples {
        let family = ["_sum", "_count"].iter().find_map(|end| sample.metric.strip_suffix(end)).filter(|name| kinds.contains_key(name));
        let kind = kinds[family.unwrap_or(&sample.metric)];
        read += match &sample.value {
            Value::Counter(_) => {
                assert!(kind == "counter" && sample.metric.ends_with("_total"), "{sample:?}");
                1
            }
            Value::Gauge(_) => {
                assert!(kind == "gauge" && !sample.metric.ends_with("_total"), "{sample:?}");
                1
            }
            Value::Histogram(buckets) => {
                assert_eq!((kind, buckets.len()), ("histogram", BUCKETS_MS.len() + 1));
                assert!(
                    buckets.last().unwrap().less_than.is_infinite() && buckets.is_sorted_by(|one, next| one.less_than < next.less_than)
                );
                buckets.len()
            }
            Value::Untyped(_) => {
                assert_eq!(kind, "histogram", "{sample:?}");
                1
            }
            Value::Summary(_) => panic!("{sample:?}"),
        };
    }
    assert_eq!(read, lines, "every line is a sample");
    let series: BTreeSet<&str> = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(series.len(), lines, "each series stands there once");
}

/// So that an alert on a rate sees the first one, and a dashboard shows no gap where nothing happened.
#[test]
fn every_series_is_there_before_anything_happened_at_zero() {
    let text = idle();
    for line in text.lines().filter(|line| line.starts_with("relay_") && !line.starts_with("relay_build_info")) {
        assert!(line.ends_with(" 0") || line == r#"relay_drain_phase{phase="serving"} 1"#, "{line}");
    }
    for series in [
        r#"relay_connections{role="mobile"}"#,
        r#"relay_registrations_total{outcome="resumed"}"#,
        r#"relay_registrations_total{outcome="deviceNotEligible"}"#,
        r#"relay_rpc_requests_total{class="outbox",outcome="expired"}"#,
        r#"relay_rpc_duration_seconds_bucket{class="load",outcome="result",le="0.005"}"#,
        r#"relay_rpc_duration_seconds_bucket{class="load",outcome="result",le="+Inf"}"#,
        r#"relay_refusals_total{reason="tooManyPending",code="-32020"}"#,
        r#"relay_open_requests_peak{bound="client"}"#,
        r#"relay_event_frames_total{fate="coalesced"}"#,
        r#"relay_event_frames_total{fate="staleGeneration"}"#,
        r#"relay_retired_total{reason="saturated"}"#,
        r#"relay_closes_total{reason="connectionLost"}"#,
        r#"relay_persistence_failing{statement="statuses"}"#,
    ] {
        assert!(text.lines().any(|line| line == format!("{series} 0")), "{series}");
    }
}

#[test]
fn values_are_those_that_were_read_and_counted() {
    let handshakes_refused = Tally::new(["unauthorized", "other"]);
    handshakes_refused.count("other");
    let counters = Counters::default();
    counters.rpc.answered(MethodClass::Files, Reply::Error, Duration::from_millis(30));
    counters.rpc.unanswered(MethodClass::Run, Unanswered::Expired);
    counters.dropped.count(DropReason::NoLease.name());
    let readings = Readings {
        phones: 7,
        events: Events { delivered: 5, coalesced: 4, lease_ended: 2, closed: 1 },
        status_lag: Duration::from_millis(1_500),
        failing: vec![Statement::Statuses],
        ..Readings::default()
    };
    let live = |is_draining| LiveProcess {
        record: ProcessRecord {
            instance: RelayInstanceId(uuid::Uuid::new_v4()),
            version: "1".into(),
            host: "host".into(),
            pid: 1,
            started_at: EpochMs(0),
            is_draining,
        },
        last_seen: Duration::ZERO,
    };
    let processes = SeenProcesses { age: None, live: vec![live(false), live(true), live(false)] };
    let (counters, readings, processes) = (&counters, &readings, &processes);
    let (phase, handshakes_refused) = (Phase::Closing, &handshakes_refused);
    let certificate_end = Some(Duration::from_secs(1_900_000_000));
    let scraped = Scraped { counters, readings, phase, processes, handshakes_refused, certificate_end, process: None };
    let text = scraped.to_text();
    let changed: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.ends_with(" 0") && !line.starts_with("relay_build_info"))
        .filter(|line| !line.contains("_bucket") || line.contains("le=\"0.05\""))
        .collect();
    assert_eq!(
        changed,
        [
            r#"relay_drain_phase{phase="closing"} 1"#,
            r#"relay_processes{phase="serving"} 2"#,
            r#"relay_processes{phase="draining"} 1"#,
            r#"relay_connections{role="mobile"} 7"#,
            r#"relay_handshakes_refused_total{code="other"} 1"#,
            r#"relay_rpc_requests_total{class="run",outcome="expired"} 1"#,
            r#"relay_rpc_requests_total{class="files",outcome="error"} 1"#,
            r#"relay_rpc_duration_seconds_bucket{class="files",outcome="error",le="0.05"} 1"#,
            r#"relay_rpc_duration_seconds_sum{class="files",outcome="error"} 0.03"#,
            r#"relay_rpc_duration_seconds_count{class="files",outcome="error"} 1"#,
            r#"relay_event_frames_total{fate="delivered"} 5"#,
            r#"relay_event_frames_total{fate="coalesced"} 4"#,
            r#"relay_event_frames_total{fate="noLease"} 3"#,
            r#"relay_event_frames_total{fate="connectionClosed"} 1"#,
            "relay_persistence_lag_seconds 1.5",
            r#"relay_persistence_failing{statement="statuses"} 1"#,
            "relay_tls_certificate_expiry_seconds 1900000000",
        ]
    );
}

#[actix_web::test]
async fn it_is_for_the_admin_token_only() {
    let fixture = Fixture::new();
    let app = http::init_service(App::new().configure(|config| admin_routes(config, fixture.api.clone()))).await;
    let bare = http::TestRequest::with_uri("/metrics");
    assert_eq!(http::call_service(&app, bare.to_request()).await.status().as_u16(), 401);
    let request = http::TestRequest::with_uri("/metrics").insert_header(("Authorization", format!("Bearer {ADMIN_TOKEN}")));
    let response = http::call_service(&app, request.to_request()).await;
    let headers = response.headers().get("content-type").unwrap().to_str().unwrap().to_owned();
    assert_eq!((response.status().as_u16(), headers.as_str()), (200, CONTENT_TYPE));
    assert!(!parsed(std::str::from_utf8(&http::read_body(response).await).unwrap()).samples.is_empty());
}
