//! The configuration file: TOML whose keys are the flags of `relay serve` without their dashes.
//!
//! A value is read as its flag reads it, and then becomes the flag's default: so flags and environment are over the file without a rule
//! of their own.

use super::{
    ByteSize,
    keys::{definition, expected, is_count, is_list, is_secret, is_truth, key, settings},
};
use crate::{limits::CONFIG_FILE_BYTES_MAX, secrets::Secret};
use clap::{Arg, Command, error::ContextKind};
use std::{
    any::TypeId,
    collections::BTreeMap,
    error::Error,
    fmt, fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use toml::de::{DeTable, DeValue};

/// Bits that let everybody read or write a file. Its group may: a service often reads a file of root's that way.
const EVERYBODY: u32 = 0o006;

/// A configuration file whose keys are all known, and whose values are what their flags take.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    mode: u32,
    entries: BTreeMap<String, Entry>,
}

/// What the file says for one key: texts as on the command line, any of which may be a secret.
#[derive(Debug)]
struct Entry {
    line: usize,
    texts: Vec<Secret>,
}

/// Why a file cannot be used. No text shows a value.
#[derive(Debug)]
pub enum FileError {
    /// The system refused.
    Io(PathBuf, io::Error),
    /// It is over [`CONFIG_FILE_BYTES_MAX`].
    TooLarge(PathBuf),
    /// What stands there is wrong: lines, counted from 1, and why.
    Content(PathBuf, Vec<(usize, String)>),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Io(path, error) => write!(f, "--config {}: {error}", path.display()),
            FileError::TooLarge(path) => write!(f, "--config {}: larger than {CONFIG_FILE_BYTES_MAX} bytes", path.display()),
            FileError::Content(path, problems) => {
                for (index, (line, problem)) in problems.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "\n" };
                    write!(f, "{separator}{}:{line}: {problem}", path.display())?;
                }
                Ok(())
            }
        }
    }
}

impl Error for FileError {}

impl File {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, has a key that is no flag, or a value that its flag would not take; all of these are told.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let io_error = |error| FileError::Io(path.to_owned(), error);
        let file = fs::File::open(path).map_err(io_error)?;
        let mode = file.metadata().map_err(io_error)?.permissions().mode() & 0o7777;
        let mut bytes = Vec::new();
        file.take(CONFIG_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(io_error)?;
        if bytes.len() > CONFIG_FILE_BYTES_MAX {
            return Err(FileError::TooLarge(path.to_owned()));
        }
        let entries = parse(&bytes).map_err(|problems| FileError::Content(path.to_owned(), problems))?;
        Ok(File { path: path.to_owned(), mode, entries })
    }

    /// The command with what the file says in place of its defaults.
    pub fn below(&self, command: Command) -> Command {
        settings().into_iter().fold(command, |command, setting| match self.entries.get(key(&setting)) {
            Some(entry) => command.mut_arg(setting.get_id(), |flag| {
                let texts: Vec<String> = entry.texts.iter().map(|text| text.expose().to_owned()).collect();
                flag.default_values(texts)
            }),
            None => command,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In which line it sets this key, counted from 1.
    pub fn line_of(&self, key: &str) -> Option<usize> {
        self.entries.get(key).map(|entry| entry.line)
    }

    /// Its mode, if everybody may read or write it and it holds a secret.
    pub fn exposed(&self) -> Option<u32> {
        let holds_secret = settings().iter().any(|setting| is_secret(setting) && self.entries.contains_key(key(setting)));
        (holds_secret && self.mode & EVERYBODY != 0).then_some(self.mode)
    }
}

fn parse(bytes: &[u8]) -> Result<BTreeMap<String, Entry>, Vec<(usize, String)>> {
    let line_at = |offset: usize| 1 + bytes.iter().take(offset).filter(|byte| **byte == b'\n').count();
    let text = std::str::from_utf8(bytes).map_err(|error| vec![(line_at(error.valid_up_to()), "is not UTF-8".to_owned())])?;
    let table = DeTable::parse(text).map_err(|error| {
        // Its own display quotes the line, which may hold a secret.
        let offset = error.span().map_or(0, |span| span.start);
        vec![(line_at(offset), format!("is no TOML: {}", error.message()))]
    })?;
    let settings = settings();
    let mut entries = BTreeMap::new();
    let mut problems = Vec::new();
    for (name, value) in table.get_ref() {
        let line = line_at(name.span().start);
        let Some(setting) = settings.iter().find(|setting| key(setting) == name.get_ref().as_ref()) else {
            problems.push((line, unknown(name.get_ref(), value.get_ref(), &settings)));
            continue;
        };
        match texts(setting, value.get_ref()) {
            Ok(texts) => drop(entries.insert(key(setting).to_owned(), Entry { line, texts })),
            Err(problem) => problems.push((line_at(value.span().start), problem)),
        }
    }
    problems.sort();
    if problems.is_empty() { Ok(entries) } else { Err(problems) }
}

fn unknown(name: &str, value: &DeValue<'_>, settings: &[Arg]) -> String {
    if matches!(value, DeValue::Table(_)) {
        return format!("{name} is a table; every key stands at the top, outside of tables");
    }
    let as_key = name.to_lowercase().replace('_', "-");
    let nearest = settings.iter().map(key).min_by_key(|known| strsim::osa_distance(&as_key, known)).unwrap_or_default();
    format!("unknown key {name}; the nearest known one is {nearest}")
}

/// The value as texts of the command line, or why the flag would not take it.
fn texts(setting: &Arg, value: &DeValue<'_>) -> Result<Vec<Secret>, String> {
    let wrong_type = |found: &DeValue<'_>| format!("{} takes {}, not {}", key(setting), expected(setting), kind(found));
    let text = |value: &DeValue<'_>| scalar(setting, value).ok_or_else(|| wrong_type(value));
    let texts = match value.as_array().filter(|_| is_list(setting)) {
        Some(items) => items.iter().map(|item| text(item.get_ref())).collect::<Result<Vec<_>, _>>()?,
        None => vec![text(value)?],
    };
    if !setting.get_action().takes_values() {
        return Ok(texts.into_iter().map(Secret::new).collect());
    }
    let flags = texts.iter().map(|text| format!("--{}={text}", key(setting)));
    let read = definition().try_get_matches_from([String::from("relay")].into_iter().chain(flags));
    let read = read.map_err(|error| format!("{} takes {}{}", key(setting), expected(setting), reason(setting, &error)))?;
    // As the flag splits them. For an empty list the environment may have answered.
    let pieces = read.get_raw(setting.get_id().as_str()).unwrap_or_default();
    Ok(pieces.filter(|_| !texts.is_empty()).map(|piece| Secret::new(piece.to_string_lossy())).collect())
}

/// A single value as the text of its flag; none if it has another type.
fn scalar(setting: &Arg, value: &DeValue<'_>) -> Option<String> {
    let is_size = setting.get_value_parser().type_id() == TypeId::of::<ByteSize>();
    match value {
        DeValue::String(text) => setting.get_action().takes_values().then(|| text.clone().into_owned()),
        DeValue::Integer(number) if is_count(setting) || is_size => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Boolean(truth) => is_truth(setting).then(|| truth.to_string()),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// What the flag's own reader says; nothing of a secret, which it might quote.
fn reason(setting: &Arg, error: &clap::Error) -> String {
    let is_told_already = error.get(ContextKind::ValidValue).is_some();
    match error.source() {
        Some(source) if !is_secret(setting) && !is_told_already => format!(": {source}"),
        Some(_) | None => String::new(),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LogFormat, ServeConfig};
    use clap::FromArgMatches;

    const MARKER: &str = "hush-hush-hush-hush-hush-hush-hush-hush";

    fn file(text: &str) -> Result<File, FileError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("relay.toml");
        fs::write(&path, text).unwrap();
        File::read(&path)
    }

    fn config(text: &str, flags: &[&str]) -> ServeConfig {
        let command = file(text).unwrap().below(definition());
        let matches = command.try_get_matches_from(["relay"].iter().chain(flags)).unwrap();
        ServeConfig::from_arg_matches(&matches).unwrap()
    }

    fn problems(text: &str) -> String {
        match file(text) {
            Err(FileError::Content(_, problems)) => problems.iter().map(|(line, problem)| format!("{line}: {problem}\n")).collect(),
            other @ (Ok(_) | Err(FileError::Io(..) | FileError::TooLarge(_))) => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn values_of_every_type_are_read_as_their_flags_read_them() {
        let text = "# a comment\n\
            listen = \"[::1]:80\"\n\
            jwt-secret = '''hush'''\n\
            rate-burst = 7\n\
            rate-per-second = \"8\"\n\
            outbound-limit = 67_108_864\n\
            max-message = 0x10000\n\
            flush-size = \"1KiB\"\n\
            resume-ttl = \"1h 30m\"\n\
            trusted-proxies = [\"10.0.0.0/8\", \"fd00::/8,127.0.0.1/32\"]\n\
            log-format = \"json\"\n";
        let config = config(text, &[]);
        assert_eq!(config.listen.to_string(), "[::1]:80");
        assert_eq!(config.jwt_secret, Some(Secret::new("hush")));
        assert_eq!((config.rate_burst, config.rate_per_second), (7, 8));
        assert_eq!((config.outbound_limit.0, config.max_message.0, config.flush_size.0), (64 << 20, 64 << 10, 1 << 10));
        assert_eq!(config.resume_ttl.0.as_secs(), 90 * 60);
        assert_eq!(config.trusted_proxies, ["10.0.0.0/8", "fd00::/8", "127.0.0.1/32"].map(|block| block.parse().unwrap()));
        assert_eq!((config.log_format, config.jwks), (LogFormat::Json, None));
    }

    #[test]
    fn a_list_may_be_a_text_or_empty() {
        let blocks = |text| config(text, &[]).trusted_proxies.len();
        assert_eq!(blocks("trusted-proxies = \"10.0.0.0/8,fd00::/8\""), 2);
        assert_eq!(blocks("trusted-proxies = []"), 0);
    }

    #[test]
    fn a_flag_is_over_the_file_and_replaces_a_list_whole() {
        let text = "trusted-proxies = [\"10.0.0.0/8\", \"fd00::/8\"]\nrate-burst = 7\njwt-secret = \"of the file\"\nrate-per-second = 9";
        let config = config(text, &["--trusted-proxies", "127.0.0.1/32", "--rate-burst=8", "--jwt-secret", "of the flag"]);
        assert_eq!(config.trusted_proxies, ["127.0.0.1/32".parse().unwrap()]);
        assert_eq!((config.rate_burst, config.rate_per_second), (8, 9));
        assert_eq!(config.jwt_secret, Some(Secret::new("of the flag")));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
        for (text, told) in [
            ("\n\nlisten-on = \"x\"", "3: unknown key listen-on; the nearest known one is listen\n"),
            ("DATA_DIR = \"x\"", "1: unknown key DATA_DIR; the nearest known one is data-dir\n"),
            ("hearbeat-intervall = \"30s\"", "1: unknown key hearbeat-intervall; the nearest known one is heartbeat-interval\n"),
            ("--listen = \"x\"", "1: unknown key --listen; the nearest known one is listen\n"),
            ("rate.burst = 5", "1: rate is a table; every key stands at the top, outside of tables\n"),
            ("log = \"info\"\n[serve]\nlisten = \"x\"", "2: serve is a table; every key stands at the top, outside of tables\n"),
            // Neither is a key: a file that named another would be a chain, and one that printed would never serve.
            ("config = \"x\"", "1: unknown key config; the nearest known one is log\n"),
            ("print-config = \"effective\"", "1: unknown key print-config; the nearest known one is apns-topic\n"),
        ] {
            assert_eq!(problems(text), told);
        }
    }

    #[test]
    fn a_wrong_type_or_value_is_named_with_its_line_and_what_is_expected() {
        let address = "listen takes HOST:PORT in quotes, like \"127.0.0.1:8787\"";
        let block = "trusted-proxies takes CIDR,... in quotes, or a list of such";
        for (text, told) in [
            ("\nlisten = 8787", format!("2: {address}, not a whole number\n")),
            ("listen = [\"127.0.0.1:1\"]", format!("1: {address}, not a list\n")),
            ("listen = \"8787\"", format!("1: {address}: an address is HOST:PORT, like 127.0.0.1:8787, [::1]:8787 or localhost:0\n")),
            ("rate-burst = 1.5", "1: rate-burst takes COUNT, like 300, not a number with a point\n".into()),
            ("rate-burst = \"many\"", "1: rate-burst takes COUNT, like 300: invalid digit found in string\n".into()),
            ("rate-burst = -1", "1: rate-burst takes COUNT, like 300: -1 is not in 0..=4294967295\n".into()),
            ("reconnect-grace = 90", "1: reconnect-grace takes DURATION in quotes, like \"90s\", not a whole number\n".into()),
            ("jwt-issuer = true", "1: jwt-issuer takes TEXT in quotes, not true or false\n".into()),
            ("jwks = 2026-01-01", "1: jwks takes FILE|URL in quotes, not a date or time\n".into()),
            ("log-format = \"xml\"", "1: log-format takes one of \"pretty\", \"json\"\n".into()),
            ("outbound-limit = \"64MB\"", {
                "1: outbound-limit takes SIZE in quotes, like \"64MiB\": a size is a whole number of B, KiB, MiB or GiB, like 32MiB\n"
                    .into()
            }),
            ("trusted-proxies = [\"10.0.0.0/8\", 5]", format!("1: {block}, not a whole number\n")),
            ("trusted-proxies = {}", format!("1: {block}, not a table\n")),
        ] {
            assert_eq!(problems(text), told);
        }
    }

    #[test]
    fn all_problems_are_told_in_the_order_of_the_lines() {
        let told = problems("silence-timeout = 5\nlistem = \"x\"\nadmin-listen = 7\n");
        let lines: Vec<&str> = told.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(lines, ["1:", "2:", "3:"], "{told}");
    }

    #[test]
    fn what_is_no_toml_is_named_with_its_line() {
        for (text, line) in
            [("log = \"info\"\nlisten", "2: "), ("log = \"info\"\n\nlog = \"warn\"", "3: "), ("= 1", "1: "), ("log = info", "1: ")]
        {
            let told = problems(text);
            assert!(told.starts_with(&format!("{line}is no TOML: ")), "{text}: {told}");
        }
    }

    #[test]
    fn no_problem_and_no_debug_output_shows_a_secret() {
        for text in [
            format!("jwt-secret = [\"{MARKER}\"]"),
            format!("admin-token = \"{MARKER}"),
            format!("jwt-secret = {MARKER}"),
            format!("jwt-secret = \"{MARKER}\\q\""),
            format!("jwt-secret = \"{MARKER}\" \"{MARKER}\""),
            format!("database-url = \"{MARKER}\"\ndatabase-url = \"{MARKER}\""),
            format!("jwt_secret = \"{MARKER}\""),
        ] {
            let error = file(&text).unwrap_err();
            assert!(!format!("{error}").contains("hush") && !format!("{error:?}").contains("hush"), "{error}");
        }
        let file = file(&format!("database-url = \"postgres://u:{MARKER}@h/d\"\nadmin-token = \"{MARKER}\"")).unwrap();
        assert!(!format!("{file:?}").contains("hush"));
    }

    #[test]
    fn what_the_flags_reader_says_of_a_secret_is_not_told() {
        for (is_secret, told) in [(true, ""), (false, ": invalid digit found in string")] {
            let number = Arg::new("x").long("x").value_parser(clap::value_parser!(u16)).hide_env_values(is_secret);
            let error = Command::new("relay").arg(&number).try_get_matches_from(["relay", "--x=hush"]).unwrap_err();
            assert_eq!(reason(&number, &error), told);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing.toml");
        assert!(File::read(&missing).unwrap_err().to_string().starts_with(&format!("--config {}: ", missing.display())));
        assert!(matches!(File::read(directory.path()), Err(FileError::Io(..))));
        let path = directory.path().join("relay.toml");
        fs::write(&path, b"log = \"info\"\nlisten = \"\xff\"").unwrap();
        assert_eq!(File::read(&path).unwrap_err().to_string(), format!("{}:2: is not UTF-8", path.display()));
        fs::write(&path, vec![b'\n'; CONFIG_FILE_BYTES_MAX]).unwrap();
        assert!(File::read(&path).is_ok());
        fs::write(&path, vec![b'\n'; CONFIG_FILE_BYTES_MAX + 1]).unwrap();
        assert!(matches!(File::read(&path), Err(FileError::TooLarge(_))));
    }

    #[test]
    fn a_file_with_secrets_is_exposed_when_everybody_may_read_or_write_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("relay.toml");
        let exposed = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            File::read(&path).unwrap().exposed()
        };
        for key in ["jwt-secret", "admin-token", "database-url"] {
            let text = format!("{key} = \"{MARKER}\"");
            assert_eq!(exposed(&text, 0o644), Some(0o644), "{key}");
            assert_eq!(exposed(&text, 0o602), Some(0o602), "{key}");
            assert_eq!(exposed(&text, 0o660), None, "{key}: its group may be the service's");
        }
        assert_eq!(exposed("log = \"info\"", 0o666), None);
    }
}
