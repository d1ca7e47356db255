//! Two relay processes on one storage: each sees the other, says so, and sees it go, also when it was killed.

use crate::support::{data_dir::DataDir, postgres::Server, relay_process::RelayProcess, wire::eventually};
use relay_endpoints::admin::Admin;
use serde_json::{Value, json};
use std::sync::Arc;

/// A third of this passes between two renewals; a killed process is gone after the whole.
const FLAGS: [&str; 4] = ["--log-format", "json", "--reconnect-grace", "6s"];

async fn status(relay: &RelayProcess) -> Value {
    let admin = Admin::new(format!("http://{}", relay.ready().admin).parse().unwrap(), relay.admin_token()).unwrap();
    admin.status().await.unwrap()
}

/// The processes that this one knows, each with its phase and whether it is this one itself.
async fn known(relay: &RelayProcess) -> Vec<(String, Value, Value)> {
    let status = status(relay).await;
    let processes = status["processes"].as_array().unwrap();
    processes.iter().map(|process| (id_in(process), process["phase"].clone(), process["self"].clone())).collect()
}

fn id_in(process: &Value) -> String {
    process["relayInstanceId"].as_str().unwrap().to_owned()
}

fn id(relay: &RelayProcess) -> String {
    relay.ready().relay_instance_id.clone()
}

/// The lines that tell of this other process, in order.
fn told(relay: &RelayProcess, other: &str) -> Vec<(String, String)> {
    let log = relay.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_other = lines.filter(|line| line["instance"] == other);
    of_other.map(|line| (line["level"].as_str().unwrap().to_owned(), line["message"].as_str().unwrap().to_owned())).collect()
}

fn line(level: &str, message: &str) -> (String, String) {
    (level.to_owned(), message.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_shown_and_warned_about_until_it_leaves_or_is_killed() {
    for data_dir in [DataDir::with_sqlite(), DataDir::with_postgres(Server::shared())] {
        let data_dir = Arc::new(data_dir);
        let first = RelayProcess::start_on(Arc::clone(&data_dir), &FLAGS).await;
        let own = (id(&first), json!("serving"), json!(true));
        eventually("it records itself", async || known(&first).await == [own.clone()]).await;

        for is_killed in [false, true] {
            let mut second = RelayProcess::start_on(Arc::clone(&data_dir), &FLAGS).await;
            let other = id(&second);
            let both = [(id(&first), json!("serving"), json!(false)), (other.clone(), json!("serving"), json!(true))];
            eventually("the second sees both", async || known(&second).await == both).await;
            let both = [own.clone(), (other.clone(), json!("serving"), json!(false))];
            eventually("the first sees both", async || known(&first).await == both).await;
            let status = status(&first).await;
            let (row, pid) = (&status["processes"][1], second.ready().pid);
            assert_eq!((row["pid"].as_u64(), &row["version"]), (Some(u64::from(pid)), &status["version"]));
            assert_eq!(status["processes"][0]["startedAt"], status["startedAt"]);

            if is_killed {
                second.kill();
            } else {
                second.signal("TERM");
                assert_eq!(second.exited().await.code(), Some(0));
                let rows = data_dir.sql().await.rows("SELECT instance FROM relay_processes").await;
                assert_eq!(rows, [[id(&first)]], "it took its row away");
            }
            eventually("the first is alone again", async || known(&first).await == [own.clone()]).await;
            let warned = line("WARN", "another relay process serves on this storage");
            assert_eq!(told(&second, &id(&first)), std::slice::from_ref(&warned));
            assert_eq!(told(&first, &other), [warned, line("INFO", "the other relay process serves no longer")]);
        }
    }
}
