//! What `relay serve` runs with and where each value comes from (`--print-config`), and the example file.

use super::{
    ConfigError,
    file::File,
    keys::{is_count, is_list, is_secret, is_truth, key, settings, value_name},
};
use clap::{Arg, ArgMatches, parser::ValueSource};
use std::{ffi::OsStr, fmt};
use toml_writer::{ToTomlValue, TomlStringBuilder};

/// Width of the help texts in the example.
const HELP_WIDTH_CHARS: usize = 100;

/// The configuration as it was put together. Its display is a file that gives the same again, but for secrets.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    all: Vec<Setting>,
    exposed: Option<u32>,
}

/// One flag. A secret's value is not kept.
#[derive(Clone, Debug)]
struct Setting {
    key: String,
    value: Value,
    origin: String,
}

#[derive(Clone, Debug)]
enum Value {
    Unset,
    Hidden,
    /// As it stands in TOML.
    Toml(String),
    /// A path that is no text, so TOML cannot hold it.
    NoText,
}

impl Settings {
    /// Of the flags of `relay serve`, read with this file below them.
    pub fn of(matches: &ArgMatches, file: Option<&File>) -> Self {
        let setting = |flag: &Arg| Setting { key: key(flag).to_owned(), value: value(flag, matches), origin: origin(flag, matches, file) };
        Settings { all: settings().iter().map(setting).collect(), exposed: file.and_then(File::exposed) }
    }

    /// Mode of the file, if it holds a secret that everybody may read or write.
    pub fn exposed(&self) -> Option<u32> {
        self.exposed
    }

    /// What is wrong, and where the flag's value comes from.
    pub fn explain(&self, error: &ConfigError) -> String {
        let setting = self.all.iter().find(|setting| error.flag.strip_prefix("--") == Some(&setting.key));
        setting.map_or_else(|| error.to_string(), |setting| format!("{error}\n{} comes from: {}", error.flag, setting.origin))
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Setting { key, value, origin } in &self.all {
            match value {
                Value::Unset => writeln!(f, "# {key} is not set")?,
                Value::Hidden => writeln!(f, "# {key} is set and hidden # {origin}")?,
                Value::Toml(value) => writeln!(f, "{key} = {value} # {origin}")?,
                Value::NoText => writeln!(f, "# {key} is not UTF-8 and cannot stand in a file # {origin}")?,
            }
        }
        Ok(())
    }
}

/// The example file: every key with its help and its default, commented out.
pub fn example() -> String {
    let mut text = String::from(
        "# Configuration of `relay serve --config FILE`, with defaults. Written by `relay serve --print-config=example`.\n\
         # Flags (--listen) and environment (RELAY_LISTEN) are over what stands here. Relative paths start where the relay is started.\n",
    );
    for setting in settings() {
        let help = setting.get_help().map(ToString::to_string).unwrap_or_default();
        let placeholder = if is_truth(&setting) { "false".to_owned() } else { value_name(&setting) };
        let mut values: Vec<&OsStr> = setting.get_default_values().iter().map(|default| default.as_os_str()).collect();
        if values.is_empty() && !is_list(&setting) {
            values.push(OsStr::new(&placeholder));
        }
        text.push('\n');
        for line in wrapped(&help) {
            text.push_str(&format!("# {line}\n"));
        }
        text.push_str(&format!("#{} = {}\n", key(&setting), toml(&setting, &values).unwrap_or_default()));
    }
    text
}

fn value(flag: &Arg, matches: &ArgMatches) -> Value {
    match matches.get_raw(flag.get_id().as_str()) {
        None if is_list(flag) => Value::Toml("[]".to_owned()),
        None => Value::Unset,
        Some(_) if is_secret(flag) => Value::Hidden,
        Some(texts) => toml(flag, &texts.collect::<Vec<_>>()).map_or(Value::NoText, Value::Toml),
    }
}

fn origin(flag: &Arg, matches: &ArgMatches, file: Option<&File>) -> String {
    match matches.value_source(flag.get_id().as_str()) {
        Some(ValueSource::CommandLine) => "flag".to_owned(),
        Some(ValueSource::EnvVariable) => {
            let name = flag.get_env().unwrap_or_default();
            format!("environment, {}", name.display())
        }
        // What a file says is a default to clap.
        _ => match file.and_then(|file| Some((file, file.line_of(key(flag))?))) {
            Some((file, line)) => format!("file, {}:{line}", file.path().display()),
            None => "default".to_owned(),
        },
    }
}

/// Values as they stand in TOML; none if one is no text.
fn toml(flag: &Arg, values: &[&OsStr]) -> Option<String> {
    let texts = values.iter().map(|value| value.to_str()).collect::<Option<Vec<&str>>>()?;
    let bare = is_truth(flag) || is_count(flag);
    let write = |text: &&str| if bare { (*text).to_owned() } else { TomlStringBuilder::new(text).as_basic().to_toml_value() };
    let written: Vec<String> = texts.iter().map(write).collect();
    let written = written.join(", ");
    Some(if is_list(flag) { format!("[{written}]") } else { written })
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > HELP_WIDTH_CHARS {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::definition;
    use std::{fs, os::unix::ffi::OsStrExt, path::Path};

    fn read(flags: &[&OsStr]) -> ArgMatches {
        definition().try_get_matches_from([OsStr::new("relay")].iter().chain(flags)).unwrap()
    }

    fn printed(flags: &[&str]) -> String {
        Settings::of(&read(&flags.iter().map(OsStr::new).collect::<Vec<_>>()), None).to_string()
    }

    #[test]
    fn each_key_has_one_line_with_its_value_and_origin() {
        let text = printed(&["--rate-burst=9", "--jwt-secret=hush", "--data-dir=a \"b\"\\c\td", "--trusted-proxies=10.0.0.0/8,fd00::/8"]);
        assert_eq!(text.lines().count(), settings().len());
        for line in [
            "listen = \"127.0.0.1:8787\" # default",
            "rate-burst = 9 # flag",
            "data-dir = \"a \\\"b\\\"\\\\c\\td\" # flag",
            "trusted-proxies = [\"10.0.0.0/8\", \"fd00::/8\"] # flag",
            "# jwks is not set",
            "# jwt-secret is set and hidden # flag",
            "# admin-token is not set",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!text.contains("hush"));
        assert!(printed(&[]).contains("trusted-proxies = [] # default\n"));
    }

    #[test]
    fn a_path_that_is_no_text_is_told_and_not_changed() {
        let matches = read(&[OsStr::new("--data-dir"), OsStr::from_bytes(b"caf\xe9")]);
        let text = Settings::of(&matches, None).to_string();
        assert!(text.contains("# data-dir is not UTF-8 and cannot stand in a file # flag\n"), "{text}");
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_origin() {
        let settings = Settings::of(&read(&[OsStr::new("--rate-burst=0")]), None);
        let error = ConfigError { flag: "--rate-burst", problem: "must be at least 1".into() };
        assert_eq!(settings.explain(&error), "--rate-burst must be at least 1\n--rate-burst comes from: flag");
    }

    #[test]
    fn the_example_has_every_key_and_gives_the_defaults() {
        let example = example();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("relay.toml");
        let of_file = |text: &str| {
            fs::write(&path, text).unwrap();
            let file = File::read(&path).unwrap();
            let matches = file.below(definition()).try_get_matches_from(["relay"]).unwrap();
            (settings().iter().filter(|setting| file.line_of(key(setting)).is_some()).count(), Settings::of(&matches, None).to_string())
        };
        assert_eq!(of_file(&example), (0, printed(&[])), "nothing of it is set before its lines are uncommented");
        let lines = example.lines().filter_map(|line| line.strip_prefix('#')).filter(|line| !line.starts_with(' '));
        let (with_default, without): (Vec<&str>, Vec<&str>) = lines.partition(|line| {
            let setting = settings().into_iter().find(|setting| line.starts_with(&format!("{} = ", key(setting)))).expect(line);
            is_list(&setting) || !setting.get_default_values().is_empty()
        });
        assert_eq!(of_file(&with_default.join("\n")), (with_default.len(), printed(&[])));
        assert_eq!(with_default.len() + without.len(), settings().len());
    }

    #[test]
    fn the_example_of_the_source_tree_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/relay.example.toml");
        assert!(fs::read_to_string(path).unwrap() == example(), "relay serve --print-config=example > deploy/relay.example.toml");
    }
}
