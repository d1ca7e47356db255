//! `relay serve --config` and `--print-config`: which value counts, where it came from, and what is wrong with a file.

use crate::{relay, support::data_dir::DataDir, text};
use clap::{Arg, Args};
use relay::config::ServeConfig;
use std::{
    any::TypeId,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Output, Stdio},
};

const MARKER: &str = "hush-hush-hush-hush-hush-hush-hush-hush";
const PRINT: [&str; 2] = ["serve", "--print-config"];

/// The three ways to set a key, weakest first.
#[derive(Clone, Copy, Debug)]
enum Layer {
    File = 1,
    Environment,
    Flag,
}

/// The flags that are keys, as the program defines them.
fn settings() -> Vec<Arg> {
    ServeConfig::augment_args(clap::Command::new("relay")).get_arguments().cloned().collect()
}

fn key(setting: &Arg) -> &str {
    setting.get_long().unwrap()
}

fn is(setting: &Arg, types: &[TypeId]) -> bool {
    types.iter().any(|known| setting.get_value_parser().type_id() == *known)
}

/// A value that no other layer gives, nor the default.
fn sample(setting: &Arg, layer: Layer) -> String {
    let number = layer as usize;
    if is(setting, &[TypeId::of::<bool>()]) {
        return (number % 2 == 1).to_string();
    }
    let possible = setting.get_possible_values();
    if !possible.is_empty() {
        return possible[number % possible.len()].get_name().to_owned();
    }
    match setting.get_value_names().unwrap()[0].as_str() {
        "HOST:PORT" => format!("127.0.0.1:700{number}"),
        "COUNT" => format!("77{number}"),
        "SIZE" => format!("77{number}KiB"),
        "DURATION" => format!("77{number}s"),
        "APP,..." => format!("org.example.layer-{number}"),
        "CIDR,..." => format!("10.{number}.0.0/16"),
        "URL" if key(setting) == "database-url" => format!("postgres://layer-{number}/d"),
        "URL" => format!("http://layer-{number}"),
        "SECRET" => format!("{MARKER}-{number}"),
        "PATH" | "FILE" | "FILE|URL" | "TEXT" | "FILTER" => format!("layer-{number}"),
        other => panic!("--{} takes {other}: a sample of that is missing here", key(setting)),
    }
}

/// The sample as it stands in a file.
fn in_toml(setting: &Arg, layer: Layer) -> String {
    let text = sample(setting, layer);
    if is(setting, &[TypeId::of::<bool>(), TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()]) {
        text
    } else if setting.get_value_delimiter().is_some() {
        format!("[\"{text}\"]")
    } else {
        format!("\"{text}\"")
    }
}

fn variable(setting: &Arg) -> (String, String) {
    (setting.get_env().unwrap().to_str().unwrap().to_owned(), sample(setting, Layer::Environment))
}

fn flag(setting: &Arg) -> String {
    let name = format!("--{}", key(setting));
    if setting.get_action().takes_values() { format!("{name}={}", sample(setting, Layer::Flag)) } else { name }
}

/// The line that `--print-config` has for the key when the layer decides it. `line` is where the file sets it.
fn expected(setting: &Arg, layer: Layer, line: usize) -> String {
    let origin = match layer {
        Layer::File => format!("file, relay.toml:{line}"),
        Layer::Environment => format!("environment, {}", variable(setting).0),
        Layer::Flag => "flag".to_owned(),
    };
    if setting.is_hide_env_values_set() {
        format!("# {} is set and hidden # {origin}", key(setting))
    } else {
        format!("{} = {} # {origin}", key(setting), in_toml(setting, layer))
    }
}

/// What is printed with these variables and flags; it need not make sense together.
fn printed(directory: &DataDir, environment: &[(String, String)], flags: &[String]) -> Vec<String> {
    let mut command = relay(directory);
    let output = command.env_clear().env("RELAY_CONFIG", "relay.toml").envs(environment.iter().cloned()).args(PRINT).args(flags);
    let output = output.output().unwrap();
    assert!(!output.stdout.is_empty() && matches!(output.status.code(), Some(0 | 2)), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains(MARKER) && !text(&output.stderr).contains(MARKER));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn with_file(content: &str) -> DataDir {
    let directory = DataDir::with_sqlite();
    fs::write(directory.path().join("relay.toml"), content).unwrap();
    directory
}

fn print(directory: &DataDir, arguments: &[&str]) -> Output {
    relay(directory).args(PRINT).args(arguments).output().unwrap()
}

#[test]
fn every_key_can_be_set_in_each_of_three_ways_and_the_stronger_one_counts() {
    let settings = settings();
    let content: String = settings.iter().map(|setting| format!("{} = {}\n", key(setting), in_toml(setting, Layer::File))).collect();
    let directory = with_file(&content);
    let all = |layer| settings.iter().enumerate().map(|(index, setting)| expected(setting, layer, index + 1)).collect::<Vec<_>>();
    let environment: Vec<(String, String)> = settings.iter().map(variable).collect();
    let (of_file, of_environment) = (all(Layer::File), all(Layer::Environment));
    assert_eq!(printed(&directory, &[], &[]), of_file);
    assert_eq!(printed(&directory, &environment, &[]), of_environment);
    // One at a time: none hangs on another that is set elsewhere.
    for (index, setting) in settings.iter().enumerate() {
        let mut wanted = of_file.clone();
        wanted[index] = of_environment[index].clone();
        assert_eq!(printed(&directory, &environment[index..=index], &[]), wanted);
        wanted[index] = expected(setting, Layer::Flag, index + 1);
        assert_eq!(printed(&directory, &environment[index..=index], &[flag(setting)]), wanted);
    }
}

#[test]
fn what_is_printed_is_a_file_that_gives_the_same() {
    let directory = with_file("trusted-proxies = [\"10.0.0.0/8\", \"fd00::/8\"]\nlog = 'info,\"x\"=warn'\nlisten = \"[::1]:0\"");
    let values = |output: &Output| -> Vec<String> {
        text(&output.stdout).lines().map(|line| line.rsplit_once(" # ").map_or(line, |(value, _)| value).to_owned()).collect()
    };
    let first = print(&directory, &["--config", "relay.toml", "--data-dir", "a \"b\" \\ # c", "--rate-burst", "1000"]);
    fs::write(directory.path().join("again.toml"), &first.stdout).unwrap();
    let second = print(&directory, &["--config", "again.toml"]);
    assert_eq!(values(&first), values(&second));
    assert!(text(&second.stdout).contains("data-dir = \"a \\\"b\\\" \\\\ # c\" # file, again.toml:"), "{}", text(&second.stdout));
    assert!(!text(&second.stdout).contains("# default\n"));
}

#[test]
fn printing_starts_nothing_and_tells_whether_it_would() {
    let directory = with_file("silence-timeout = \"30s\"");
    let fine = print(&directory, &[]);
    assert_eq!((fine.status.code(), text(&fine.stderr)), (Some(0), ""));
    let example = relay(&directory).args(["serve", "--print-config=example"]).output().unwrap();
    assert_eq!((example.status.code(), text(&example.stdout)), (Some(0), relay::config::example().as_str()));
    let senseless = print(&directory, &["--config", "relay.toml"]);
    assert_eq!(senseless.status.code(), Some(2));
    assert!(text(&senseless.stdout).contains("silence-timeout = \"30s\" # file, relay.toml:1\n"));
    assert!(text(&senseless.stderr).ends_with("\n--silence-timeout comes from: file, relay.toml:1\n"), "{}", text(&senseless.stderr));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no data directory was made");
}

#[test]
fn a_file_that_is_wrong_ends_the_start_with_2_and_is_told_with_file_and_line() {
    for (content, told) in [
        ("\nlisen = \"127.0.0.1:0\"", "error: relay.toml:2: unknown key lisen; the nearest known one is listen\n"),
        ("rate-burst = true", "error: relay.toml:1: rate-burst takes COUNT, like 300, not true or false\n"),
        ("x", "error: relay.toml:1: is no TOML: "),
        ("rate-burst = 0", "error: --rate-burst must be at least 1: nothing could be sent\n--rate-burst comes from: file, relay.toml:1\n"),
    ] {
        let directory = with_file(content);
        let output = relay(&directory).args(["serve", "--config", "relay.toml"]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
        assert!(text(&output.stderr).starts_with(told), "{}", text(&output.stderr));
    }
    let missing = relay(&DataDir::with_sqlite()).args(["serve", "--config", "relay.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).starts_with("error: --config relay.toml: "), "{}", text(&missing.stderr));
}

#[test]
fn a_secret_of_the_file_is_used_and_shown_nowhere_and_a_file_that_everybody_may_read_is_warned_about() {
    let content = format!("listen = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\nlog = \"trace\"\njwt-secret = \"{MARKER}\"\n");
    let directory = with_file(&content);
    for (mode, is_warned_about) in [(0o644, true), (0o640, false)] {
        fs::set_permissions(directory.path().join("relay.toml"), fs::Permissions::from_mode(mode)).unwrap();
        let mut command = relay(&directory);
        command.env("NO_COLOR", "1").args(["serve", "--config", "relay.toml"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        let told: Vec<String> = lines.by_ref().take_while(|line| !line.contains(" serving")).collect();
        process.kill().unwrap();
        process.wait().unwrap();
        let told = told.join("\n") + &lines.collect::<Vec<_>>().join("\n");
        assert_eq!(told.contains("everybody may read or write the secrets"), is_warned_about, "{told}");
        assert!(!told.contains(MARKER), "{told}");
        assert!(!directory.path().join("relay-data/jwt-secret").exists(), "the file's is used");
    }
}
