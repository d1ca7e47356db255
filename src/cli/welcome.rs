//! What `relay serve` prints once it serves: where it is, and the commands to type next, each ready to paste.

use super::{access::URL_DEFAULT, demo::DemoIds};
use crate::{
    config::{DATA_DIR_DEFAULT, ServeConfig, database_settings},
    server::Serving,
};
use std::{
    borrow::Cow,
    ffi::OsStr,
    fmt::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

/// The start-up text.
pub struct Welcome<'a> {
    /// How this program is called in a shell, see [`program`].
    pub program: &'a str,
    /// What it runs with.
    pub config: &'a ServeConfig,
    /// Where it is.
    pub serving: &'a Serving,
    /// The ids in the commands.
    pub demo: &'a DemoIds,
}

/// How to call this program again: by cargo if cargo started it, else as it was called.
pub fn program(started_by_cargo: bool, called_as: &OsStr) -> String {
    match (started_by_cargo, cfg!(debug_assertions)) {
        (true, false) => "cargo run --release --".to_owned(),
        (true, true) => "cargo run --".to_owned(),
        (false, _) => quoted(&called_as.to_string_lossy()).into_owned(),
    }
}

impl Welcome<'_> {
    /// The commands, in the order in which to type them.
    pub fn commands(&self) -> Vec<String> {
        let Welcome { program, demo: DemoIds { user, desktop, phone }, .. } = self;
        let flags = self.flags();
        // A token decides the account by itself.
        let user = if self.takes_own_tokens() { format!("--user {user} ") } else { String::new() };
        vec![
            format!("{program} device add {user}--role desktop --name 'Demo desktop' --device {desktop}{flags}"),
            format!("{program} device add {user}--role mobile --name 'Demo phone' --device {phone}{flags}"),
            format!("{program} desktop {user}--device {desktop}{flags} --demo-timeline &"),
            format!("{program} phone {user}--device {phone} --desktop {desktop}{flags} call system.ping"),
            format!("{program} phone {user}--device {phone} --desktop {desktop}{flags} watch demo --for 5s"),
        ]
    }

    /// Whether a command can make the token that it sends; else only the issuer can.
    fn takes_own_tokens(&self) -> bool {
        self.config.jwks.is_none() || self.config.jwt_secret.is_some()
    }

    /// How clients speak to the public listener.
    fn scheme(&self) -> &'static str {
        if self.config.tls_cert.is_some() { "https" } else { "http" }
    }

    /// Flags that every command needs beside its own; none where everything is as usual.
    fn flags(&self) -> String {
        let mut flags = String::new();
        let mut add = |flag: &str, value: &str| {
            // Writing to a String cannot fail.
            let _ = write!(flags, " {flag} {}", quoted(value));
        };
        let url = format!("{}://{}", self.scheme(), reachable(self.serving.public));
        if url != URL_DEFAULT {
            add("--url", &url);
        }
        if self.config.data_dir != Path::new(DATA_DIR_DEFAULT) {
            let absolute = std::path::absolute(&self.config.data_dir).unwrap_or_else(|_| self.config.data_dir.clone());
            add("--data-dir", &absolute.to_string_lossy());
        }
        if let Some(issuer) = &self.config.jwt_issuer {
            add("--jwt-issuer", issuer);
        }
        if let Some(audience) = &self.config.jwt_audience {
            add("--jwt-audience", audience);
        }
        flags
    }
}

impl fmt::Display for Welcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "relay {} is serving; Ctrl-C stops it", env!("CARGO_PKG_VERSION"))?;
        writeln!(f)?;
        writeln!(f, "  clients    {}://{}", self.scheme(), self.serving.public)?;
        writeln!(f, "  operators  http://{}", self.serving.admin)?;
        writeln!(f, "  data       {}", self.config.data_dir.display())?;
        if let Ok(Some(database)) = database_settings(self.config.database_url.as_ref()) {
            writeln!(f, "  database   {database}")?;
        }
        writeln!(f)?;
        writeln!(f, "Try it: type these lines into a second terminal, in this directory. They add a desktop and a phone, start the")?;
        writeln!(f, "desktop, let the phone call it, and show what the phone sees of a session for five seconds:")?;
        writeln!(f)?;
        if !self.takes_own_tokens() {
            writeln!(f, "  export RELAY_TOKEN=…  # an account token of your issuer; its sub is the account")?;
        } else if self.config.jwt_secret.is_some() {
            writeln!(f, "  export RELAY_JWT_SECRET=…  # the secret that this server was given")?;
        }
        for command in self.commands() {
            writeln!(f, "  {command}")?;
        }
        writeln!(f)
    }
}

/// An address to connect to: a listener on all interfaces is reached on the loopback one.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A word as a POSIX shell reads it back.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
pub(super) mod testing {
    /// The words of a command as a shell reads it. Knows single quotes, and a backslash outside of them.
    pub(in crate::cli) fn words(command: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), None, false);
        let mut characters = command.chars();
        while let Some(character) = characters.next() {
            if character == ' ' && !quoted {
                words.extend(word.take());
                continue;
            }
            let word = word.get_or_insert_with(String::new);
            match character {
                '\'' => quoted = !quoted,
                '\\' if !quoted => word.extend(characters.next()),
                character => word.push(character),
            }
        }
        words.extend(word);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::words, *};
    use crate::cli::Cli;
    use clap::Parser;
    use relay_protocol::id::RelayInstanceId;
    use std::collections::BTreeSet;
    use uuid::Uuid;

    fn demo() -> DemoIds {
        DemoIds {
            user: "a11ce000-0000-4000-8000-000000000001".parse().unwrap(),
            desktop: "de5c0000-0000-4000-8000-000000000003".parse().unwrap(),
            phone: "f0e00000-0000-4000-8000-000000000004".parse().unwrap(),
        }
    }

    fn serving(public: &str) -> Serving {
        let admin = "127.0.0.1:9090".parse().unwrap();
        Serving { public: public.parse().unwrap(), admin, relay_instance_id: RelayInstanceId(Uuid::nil()), pid: 1 }
    }

    fn text(flags: &[&str], public: &str) -> (String, Vec<String>) {
        let (config, serving, demo) = (Cli::serve_config(flags), serving(public), demo());
        let welcome = Welcome { program: "relay", config: &config, serving: &serving, demo: &demo };
        (welcome.to_string(), welcome.commands())
    }

    #[test]
    fn the_usual_start_needs_no_flags_and_no_editing() {
        let (text, commands) = text(&[], "127.0.0.1:8787");
        assert_eq!(
            commands,
            [
                "relay device add --user a11ce000-0000-4000-8000-000000000001 --role desktop --name 'Demo desktop' \
                 --device de5c0000-0000-4000-8000-000000000003",
                "relay device add --user a11ce000-0000-4000-8000-000000000001 --role mobile --name 'Demo phone' \
                 --device f0e00000-0000-4000-8000-000000000004",
                "relay desktop --user a11ce000-0000-4000-8000-000000000001 --device de5c0000-0000-4000-8000-000000000003 \
                 --demo-timeline &",
                "relay phone --user a11ce000-0000-4000-8000-000000000001 --device f0e00000-0000-4000-8000-000000000004 \
                 --desktop de5c0000-0000-4000-8000-000000000003 call system.ping",
                "relay phone --user a11ce000-0000-4000-8000-000000000001 --device f0e00000-0000-4000-8000-000000000004 \
                 --desktop de5c0000-0000-4000-8000-000000000003 watch demo --for 5s",
            ]
        );
        let lines: BTreeSet<&str> = text.lines().map(str::trim).collect();
        for command in &commands {
            assert!(lines.contains(command.as_str()), "{text}");
        }
        for shown in ["http://127.0.0.1:8787", "http://127.0.0.1:9090", "./relay-data"] {
            assert!(text.contains(shown), "{text}");
        }
    }

    #[test]
    fn what_is_not_as_usual_stands_in_every_command() {
        let flags = ["--data-dir", "/srv/my relay", "--jwt-issuer", "issuer", "--jwt-audience", "it's"];
        for (public, url) in [("0.0.0.0:8787", None), ("0.0.0.0:80", Some("http://127.0.0.1:80")), ("[::]:80", Some("http://[::1]:80"))] {
            let (_, commands) = text(&flags, public);
            for command in commands {
                assert_eq!(command.contains("--url"), url.is_some(), "{command}");
                assert!(url.is_none_or(|url| command.contains(url)), "{command}");
                assert!(command.contains(r"--data-dir '/srv/my relay' --jwt-issuer issuer --jwt-audience 'it'\''s'"), "{command}");
            }
        }
    }

    #[test]
    fn the_commands_are_ones_that_this_program_takes() {
        for flags in [&[][..], &["--data-dir", "/srv/my relay", "--jwt-issuer", "it's"]] {
            let (_, commands) = text(flags, "127.0.0.1:1");
            for command in &commands {
                let words = words(command.strip_suffix(" &").unwrap_or(command));
                assert!(flags.iter().all(|flag| words.iter().any(|word| word == flag)), "{words:?}");
                Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{command}: {error}"));
            }
        }
    }

    #[test]
    fn a_given_secret_is_asked_for_and_never_shown() {
        let secret = "a-secret-that-is-long-enough-to-be-one";
        let (text, _) = text(&["--jwt-secret", secret, "--admin-token", secret], "127.0.0.1:8787");
        assert!(text.contains("export RELAY_JWT_SECRET=") && !text.contains(secret), "{text}");
    }

    #[test]
    fn a_database_server_is_named_without_its_password() {
        let (shown, _) = text(&["--database-url", "postgres://relay:hush@db.internal/data"], "127.0.0.1:8787");
        assert!(shown.contains("database   data at db.internal:5432") && !shown.contains("hush"), "{shown}");
        assert!(!text(&[], "127.0.0.1:8787").0.contains("database "));
    }

    #[test]
    fn where_only_an_issuer_makes_tokens_one_is_asked_for_and_no_account_is_made_up() {
        let (issuer_only, both) =
            (["--jwks", "keys.json"], ["--jwks", "keys.json", "--jwt-secret", "a-secret-that-is-long-enough-to-be-one"]);
        let (shown, commands) = text(&issuer_only, "127.0.0.1:8787");
        assert!(shown.contains("export RELAY_TOKEN=") && !shown.contains("RELAY_JWT_SECRET"), "{shown}");
        for command in &commands {
            assert!(!command.contains("--user") && !command.contains("  "), "{command}");
            let words = words(command.strip_suffix(" &").unwrap_or(command));
            let at = words.iter().position(|word| word == "--device").unwrap();
            let with_token = [&words[..at], &["--token".to_owned(), "a.b.c".to_owned()], &words[at..]].concat();
            Cli::try_parse_from(with_token).unwrap_or_else(|error| panic!("{command}: {error}"));
        }
        let (shown, commands) = text(&both, "127.0.0.1:8787");
        assert!(shown.contains("RELAY_JWT_SECRET") && commands.iter().all(|command| command.contains("--user")), "{shown}");
    }

    #[test]
    fn the_program_is_called_as_it_was() {
        assert!(program(true, OsStr::new("target/release/relay")).starts_with("cargo run "));
        assert_eq!(program(false, OsStr::new("./target/release/relay")), "./target/release/relay");
        assert_eq!(program(false, OsStr::new("/opt/my tools/relay")), "'/opt/my tools/relay'");
    }
}
