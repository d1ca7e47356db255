//! What `--database-url` says: where the database is, who connects, and how the connection is protected.
//!
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…&sslrootcert=…`, and whatever else tokio-postgres knows.

use super::{
    pool::{CONNECT_TIMEOUT, STATEMENT_TIMEOUT},
    tls::{Authorities, Tls},
};
use std::{fmt, time::Duration};
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

/// Quiet connections are probed after this time: a pool's are idle for long.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time between probes that nobody answers.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Probes without an answer that end a connection.
const KEEPALIVE_RETRIES: u32 = 3;
/// What was sent and not acknowledged for this long ends a connection: longer than anybody waits for an answer.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// A parsed database URL. Its `Debug` and `Display` texts hold no password.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) config: Config,
    pub(super) tls: Tls,
}

/// Why a text is no database URL. Holds no part of it but the names of options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(String);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

/// Where the database is, for people: `DATABASE at HOST:PORT`, or `HOST:PORT` when the URL names neither database nor user.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        if !database.is_empty() {
            write!(f, "{database} at ")?;
        }
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let ports = self.config.get_ports();
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            let separator = if index == 0 { "" } else { ", " };
            match host {
                Host::Tcp(host) => write!(f, "{separator}{host}:{port}")?,
                Host::Unix(directory) => write!(f, "{separator}{}:{port}", directory.display())?,
            }
        }
        Ok(())
    }
}

impl Settings {
    /// Parses a URL. `sslmode` is `disable`, `prefer` (the default), `require` or `verify-full`; the last two are one: TLS, with the
    /// server's name and chain verified. `sslrootcert` is a PEM file with the authorities to trust instead of the system's, and
    /// makes `require` the default.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(url: &str) -> Result<Settings, SettingsError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(SettingsError("must start with postgres://".into()));
        }
        let (url, own) = take_own_options(url)?;
        let mut config: Config =
            url.parse().map_err(|error| SettingsError(format!("is not understood: {}", super::error::describe(&error))))?;
        if config.get_hosts().is_empty() {
            return Err(SettingsError("names no host".into()));
        }
        let tls = match (own.mode.as_deref(), own.authorities) {
            (None | Some("require" | "verify-full"), Some(path)) => Tls::Verified(Authorities::File(path.into())),
            (Some("require" | "verify-full"), None) => Tls::Verified(Authorities::System),
            (Some("disable"), None) => Tls::Off,
            (None | Some("prefer"), None) => Tls::Offered,
            (Some("disable" | "prefer"), Some(_path)) => {
                return Err(SettingsError("has sslrootcert, and an sslmode that verifies nothing: leave one of them out".into()));
            }
            (Some(_other), _) => return Err(SettingsError("has an sslmode that is not disable, prefer, require or verify-full".into())),
        };
        config.ssl_mode(match tls {
            Tls::Off => SslMode::Disable,
            Tls::Offered => SslMode::Prefer,
            Tls::Verified(_) => SslMode::Require,
        });
        protect(&mut config);
        Ok(Settings { config, tls })
    }
}

/// What the URL leaves open is set so that nothing hangs. The limit on statements is always this relay's.
fn protect(config: &mut Config) {
    // Notices tell of tables that exist already; tokio-postgres would log them.
    let options = config.get_options().map(|options| format!("{options} ")).unwrap_or_default();
    config.options(format!("{options}-c statement_timeout={} -c client_min_messages=warning", STATEMENT_TIMEOUT.as_millis()));
    if config.get_application_name().is_none() {
        config.application_name("relay");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_idle(KEEPALIVE_IDLE).keepalives_interval(KEEPALIVE_INTERVAL).keepalives_retries(KEEPALIVE_RETRIES);
    }
}

/// Options that tokio-postgres does not know, or knows fewer values of.
#[derive(Default)]
struct OwnOptions {
    mode: Option<String>,
    authorities: Option<String>,
}

/// Splits the URL where tokio-postgres does: a password may hold a question mark.
fn take_own_options(url: &str) -> Result<(String, OwnOptions), SettingsError> {
    let after_credentials = url.find('@').map_or(0, |at| at + 1);
    let Some(query_at) = url[after_credentials..].find('?').map(|at| after_credentials + at) else {
        return Ok((url.to_owned(), OwnOptions::default()));
    };
    let (base, query) = (&url[..query_at], &url[query_at + 1..]);
    let mut own = OwnOptions::default();
    let mut others = Vec::new();
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let own = match name {
            "sslmode" => &mut own.mode,
            "sslrootcert" => &mut own.authorities,
            _ => {
                others.push(option);
                continue;
            }
        };
        let value = percent_encoding::percent_decode_str(value).decode_utf8();
        *own = Some(value.map_err(|_not_utf8| SettingsError(format!("has an option {name} that is no text")))?.into_owned());
    }
    Ok((format!("{base}?{}", others.join("&")), own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(query: &str) -> Result<Tls, String> {
        Settings::parse(&format!("postgres://u:p@h/d{query}")).map(|settings| settings.tls).map_err(|error| error.to_string())
    }

    #[test]
    fn sslmode_and_sslrootcert_decide_the_protection() {
        let file = || Tls::Verified(Authorities::File("/etc/a b.pem".into()));
        for (query, expected) in [
            ("", Tls::Offered),
            ("?sslmode=prefer", Tls::Offered),
            ("?sslmode=disable", Tls::Off),
            ("?sslmode=require", Tls::Verified(Authorities::System)),
            ("?connect_timeout=3&sslmode=verify-full", Tls::Verified(Authorities::System)),
            ("?sslrootcert=/etc/a%20b.pem", file()),
            ("?sslrootcert=/etc/a%20b.pem&sslmode=verify-full&connect_timeout=3", file()),
        ] {
            assert_eq!(tls(query), Ok(expected), "{query}");
        }
        for query in ["?sslmode=", "?sslmode=allow", "?sslmode=verify-ca", "?sslmode=disable&sslrootcert=/a", "?sslrootcert=%ff", "?no=1"] {
            assert!(tls(query).is_err(), "{query}");
        }
    }

    #[test]
    fn what_the_url_says_stays_and_what_it_leaves_open_is_bounded() {
        let plain = Settings::parse("postgres://u:p@h/d").unwrap().config;
        assert_eq!(plain.get_connect_timeout(), Some(&CONNECT_TIMEOUT));
        assert_eq!(plain.get_tcp_user_timeout(), Some(&TCP_USER_TIMEOUT));
        assert_eq!((plain.get_keepalives_idle(), plain.get_keepalives_retries()), (KEEPALIVE_IDLE, Some(KEEPALIVE_RETRIES)));
        assert_eq!(
            (plain.get_application_name(), plain.get_options()),
            (Some("relay"), Some("-c statement_timeout=2000 -c client_min_messages=warning"))
        );
        let said = "postgres://u:p@h/d?connect_timeout=9&application_name=x&options=-c%20work_mem%3D64kB";
        let said = Settings::parse(said).unwrap().config;
        assert_eq!(said.get_connect_timeout(), Some(&Duration::from_secs(9)));
        assert_eq!(
            (said.get_application_name(), said.get_options()),
            (Some("x"), Some("-c work_mem=64kB -c statement_timeout=2000 -c client_min_messages=warning"))
        );
    }

    #[test]
    fn a_password_is_taken_as_it_is_and_shown_nowhere() {
        let settings = Settings::parse("postgres://user:hush?sslmode=%26@one,[::1]:6000/data?sslmode=require").unwrap();
        assert_eq!(settings.config.get_password(), Some(&b"hush?sslmode=&"[..]));
        assert_eq!(settings.to_string(), "data at one:5432, ::1:6000");
        assert!(!format!("{settings:?}").contains("hush"));
        assert_eq!(Settings::parse("postgres://one").unwrap().to_string(), "one:5432", "nothing stands for what is not named");
        for url in ["postgres://user:hush@h:port/d", "postgres://user:hush@h/d?hush", "user:hush@h", "postgres://user:hush@", "host=hush"] {
            let error = Settings::parse(url).unwrap_err().to_string();
            assert!(!error.contains("hush") || url.ends_with("?hush"), "{error}");
            assert!(["must ", "names ", "is "].iter().any(|verb| error.starts_with(verb)), "{error}");
        }
    }
}
