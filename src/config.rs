//! Configuration of `relay serve`: flags over `RELAY_*` environment over a TOML file. Names and defaults are those of the operations
//! page, which scripts rely on; the numbers come from `relay_protocol::limits`.
//!
//! [`ServeConfig`] is the one list: its flags are the `keys` of the file (`file`), of what is printed and of the example (`settings`).

mod file;
mod keys;
mod push;
mod settings;
mod units;

pub use file::{File, FileError};
pub use push::{ApnsSettings, ProviderUrl, PushConfig};
pub use settings::{Settings, example};
pub use units::{ByteSize, ListenAddress, NotASize, NotAnAddress, Period};

use crate::{
    http::{addresses::Cidr, auth::jwks::source::Location},
    limits::{
        CONFIGURED_DURATION_MAX, DATABASE_POOL_SIZE, DRAIN_TIMEOUT, HANDSHAKE_BURST_PER_ADDRESS, HANDSHAKES_PER_ADDRESS,
        MAX_MESSAGE_BYTES_MIN, REQUEST_HEAD_TIMEOUT, SECRET_BYTES_MIN,
    },
    secrets::Secret,
    tls::PairFiles,
    traces::collector::Endpoint,
};
use relay_actors::store::postgres;
use relay_protocol::limits;
use std::{fmt, num::NonZero, path::PathBuf, time::Duration};

/// Where `relay serve` listens for clients unless told otherwise.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:8787";
/// Where `relay serve` listens for operators unless told otherwise.
pub const ADMIN_LISTEN_DEFAULT: &str = "127.0.0.1:9090";
/// Where `relay serve` keeps its files unless told otherwise.
pub const DATA_DIR_DEFAULT: &str = "./relay-data";

/// What is logged unless told otherwise: the relay's own life, without what the web server says about its workers, and without what
/// it says of malformed requests, which it calls errors although only their sender made one.
const LOG_DEFAULT: &str = "info,actix_server=warn,actix_http=off";

/// What `relay serve` runs with. Each value parses; [`ServeConfig::validate`] says whether they fit together, since clap's own
/// relations between flags do not see what a file says.
#[derive(clap::Args, Clone, Debug)]
pub struct ServeConfig {
    /// Address for clients: HTTP API and websocket; port 0 picks a free one
    #[arg(long, env = "RELAY_LISTEN", value_name = "HOST:PORT", default_value = LISTEN_DEFAULT)]
    pub listen: ListenAddress,
    /// Address for operators; keep it off the public network
    #[arg(long, env = "RELAY_ADMIN_LISTEN", value_name = "HOST:PORT", default_value = ADMIN_LISTEN_DEFAULT)]
    pub admin_listen: ListenAddress,
    /// PEM file with the certificate of the public listener, which then speaks TLS; read again when it changes
    #[arg(long, env = "RELAY_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key of --tls-cert
    #[arg(long, env = "RELAY_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Write the addresses in use to this file (JSON) once serving; removed at the end
    #[arg(long, env = "RELAY_READY_FILE", value_name = "PATH")]
    pub ready_file: Option<PathBuf>,
    /// Directory for the embedded database and generated secrets
    #[arg(long, env = "RELAY_DATA_DIR", value_name = "PATH", default_value = DATA_DIR_DEFAULT)]
    pub data_dir: PathBuf,
    /// PostgreSQL instead of the embedded database: postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full
    #[arg(long, env = "RELAY_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<Secret>,
    /// Connections to PostgreSQL at most
    #[arg(long, env = "RELAY_DATABASE_POOL_SIZE", value_name = "COUNT", default_value_t = DATABASE_POOL_SIZE)]
    pub database_pool_size: u16,

    /// HS256 secret of the account tokens, at least 32 bytes [default: generated into the data directory, unless --jwks is given]
    #[arg(long, env = "RELAY_JWT_SECRET", value_name = "SECRET", hide_env_values = true)]
    pub jwt_secret: Option<Secret>,
    /// JWK set with the keys of account tokens signed with RS256 or ES256; read again now and then, and when a token names a key
    /// that is not known. Without --jwt-secret no other tokens are taken
    #[arg(long, env = "RELAY_JWKS", value_name = "FILE|URL")]
    pub jwks: Option<Location>,
    /// Require this `iss` in account tokens
    #[arg(long, env = "RELAY_JWT_ISSUER", value_name = "TEXT")]
    pub jwt_issuer: Option<String>,
    /// Require this `aud` in account tokens
    #[arg(long, env = "RELAY_JWT_AUDIENCE", value_name = "TEXT")]
    pub jwt_audience: Option<String>,
    /// Bearer token of the admin listener, at least 32 bytes [default: generated into the data directory]
    #[arg(long, env = "RELAY_ADMIN_TOKEN", value_name = "SECRET", hide_env_values = true)]
    pub admin_token: Option<Secret>,

    /// How long a desktop counts as reconnecting after its socket closed
    #[arg(long, env = "RELAY_RECONNECT_GRACE", value_name = "DURATION", default_value_t = Period(limits::RECONNECT_GRACE))]
    pub reconnect_grace: Period,
    /// Life of a resume session from its last request
    #[arg(long, env = "RELAY_RESUME_TTL", value_name = "DURATION", default_value_t = Period(limits::RESUME_TTL))]
    pub resume_ttl: Period,
    /// Interval of protocol pings
    #[arg(long, env = "RELAY_HEARTBEAT_INTERVAL", value_name = "DURATION", default_value_t = Period(limits::HEARTBEAT_INTERVAL))]
    pub heartbeat_interval: Period,
    /// Close a socket that sent nothing for this long
    #[arg(long, env = "RELAY_SILENCE_TIMEOUT", value_name = "DURATION", default_value_t = Period(limits::SILENCE_TIMEOUT))]
    pub silence_timeout: Period,
    /// Close a socket that has not registered within this time
    #[arg(long, env = "RELAY_REGISTER_TIMEOUT", value_name = "DURATION", default_value_t = Period(limits::REGISTER_TIMEOUT))]
    pub register_timeout: Period,
    /// Deadline of an open request
    #[arg(long, env = "RELAY_PENDING_DEFAULT", value_name = "DURATION", default_value_t = Period(limits::PENDING_DEFAULT))]
    pub pending_default: Period,
    /// Deadline of an initial timeline load
    #[arg(long, env = "RELAY_PENDING_LOAD", value_name = "DURATION", default_value_t = Period(limits::PENDING_LOAD))]
    pub pending_load: Period,
    /// Deadline of an outbox submit
    #[arg(long, env = "RELAY_PENDING_OUTBOX", value_name = "DURATION", default_value_t = Period(limits::PENDING_OUTBOX))]
    pub pending_outbox: Period,
    /// How long a phone's interest in a timeline lasts unless it is renewed
    #[arg(long, env = "RELAY_INTEREST_TTL", value_name = "DURATION", default_value_t = Period(limits::TIMELINE_INTEREST_TTL))]
    pub interest_ttl: Period,
    /// How long a drain waits for routing work in progress: registrations that are being decided, messages on their way
    #[arg(long, env = "RELAY_DRAIN_TIMEOUT", value_name = "DURATION", default_value_t = Period(DRAIN_TIMEOUT))]
    pub drain_timeout: Period,
    /// How long compatibility rules are used before they are read again
    #[arg(long, env = "RELAY_POLICY_CACHE", value_name = "DURATION", default_value_t = Period(limits::POLICY_CACHE))]
    pub policy_cache: Period,

    /// Bytes that may wait for one connection
    #[arg(long, env = "RELAY_OUTBOUND_LIMIT", value_name = "SIZE", default_value_t = ByteSize(limits::OUTBOUND_BYTES_MAX))]
    pub outbound_limit: ByteSize,
    /// How long the first pending event of a phone waits for others to be written with it
    #[arg(long, env = "RELAY_FLUSH_INTERVAL", value_name = "DURATION", default_value_t = Period(limits::EVENT_FLUSH_INTERVAL))]
    pub flush_interval: Period,
    /// Bytes of a phone's pending events that do not wait for others any more
    #[arg(long, env = "RELAY_FLUSH_SIZE", value_name = "SIZE", default_value_t = ByteSize(limits::EVENT_FLUSH_BYTES))]
    pub flush_size: ByteSize,
    /// Bytes of pending events with which a phone that reads nothing is retired
    #[arg(long, env = "RELAY_EVENT_LANE_LIMIT", value_name = "SIZE", default_value_t = ByteSize(limits::EVENT_LANE_BYTES_MAX))]
    pub event_lane_limit: ByteSize,
    /// Bytes that may wait for all connections together
    #[arg(long, env = "RELAY_OUTBOUND_TOTAL", value_name = "SIZE", default_value_t = ByteSize(limits::OUTBOUND_TOTAL_BYTES_MAX))]
    pub outbound_total: ByteSize,
    /// Bytes of messages that all connections together have sent and that are unfinished or not handled yet
    #[arg(long, env = "RELAY_INBOUND_TOTAL", value_name = "SIZE", default_value_t = ByteSize(limits::INBOUND_TOTAL_BYTES_MAX))]
    pub inbound_total: ByteSize,
    /// Largest message that a client may send
    #[arg(long, env = "RELAY_MAX_MESSAGE", value_name = "SIZE", default_value_t = ByteSize(limits::MESSAGE_BYTES_MAX))]
    pub max_message: ByteSize,

    /// Messages and pings that one connection may send at once
    #[arg(long, env = "RELAY_RATE_BURST", value_name = "COUNT", default_value_t = limits::RATE_BURST)]
    pub rate_burst: u32,
    /// Messages and pings that one connection may send a second, in the long run
    #[arg(long, env = "RELAY_RATE_PER_SECOND", value_name = "COUNT", default_value_t = limits::RATE_PER_SECOND)]
    pub rate_per_second: u32,

    /// Handshakes a second that one address may make, and each account at it, in the long run; loopback and trusted proxies are exempt
    #[arg(long, env = "RELAY_HANDSHAKES_PER_ADDRESS", value_name = "COUNT", default_value_t = HANDSHAKES_PER_ADDRESS)]
    pub handshakes_per_address: u32,
    /// Handshakes that one address may make at once, and each account at it
    #[arg(long, env = "RELAY_HANDSHAKE_BURST_PER_ADDRESS", value_name = "COUNT", default_value_t = HANDSHAKE_BURST_PER_ADDRESS)]
    pub handshake_burst_per_address: u32,
    /// Proxies whose X-Forwarded-For is believed, as blocks of addresses
    #[arg(long, env = "RELAY_TRUSTED_PROXIES", value_name = "CIDR,...", value_delimiter = ',')]
    pub trusted_proxies: Vec<Cidr>,
    /// Close a connection that has not sent the whole head of its request within this time, nor finished its TLS handshake before that
    #[arg(long, env = "RELAY_REQUEST_HEAD_TIMEOUT", value_name = "DURATION", default_value_t = Period(REQUEST_HEAD_TIMEOUT))]
    pub request_head_timeout: Period,

    /// What to log: a level, or levels by target such as info,relay_actors=debug
    #[arg(long, env = "RELAY_LOG", value_name = "FILTER", default_value = LOG_DEFAULT)]
    pub log: String,
    /// How to write log lines
    #[arg(long, env = "RELAY_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value_t = LogFormat::Pretty)]
    pub log_format: LogFormat,
    /// Export spans of requests to this collector, by OTLP/HTTP with JSON, as children of the spans that phones name
    #[arg(long, env = "RELAY_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<Endpoint>,

    /// Pushes.
    #[command(flatten)]
    pub push: PushConfig,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// A flag whose value makes no sense, alone or beside another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The flag, with its dashes.
    pub flag: &'static str,
    /// What is wrong with it; never contains a secret.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.flag, self.problem)
    }
}

impl std::error::Error for ConfigError {}

impl ServeConfig {
    /// Checks what no single flag can know.
    ///
    /// # Errors
    /// The first flag that makes no sense.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_addresses()?;
        self.tls_files()?;
        database_settings(self.database_url.as_ref())?;
        self.pool_size()?;
        self.validate_secrets()?;
        self.validate_durations()?;
        self.validate_sizes()?;
        self.validate_rates()?;
        self.push.validate()?;
        crate::telemetry::check_filter(&self.log).map_err(|error| ConfigError { flag: "--log", problem: error.to_string() })
    }

    /// The bound on connections to PostgreSQL.
    ///
    /// # Errors
    /// It is zero.
    pub fn pool_size(&self) -> Result<NonZero<u16>, ConfigError> {
        let problem = || "must be at least 1: nothing could be stored".to_owned();
        NonZero::new(self.database_pool_size).ok_or_else(|| ConfigError { flag: "--database-pool-size", problem: problem() })
    }

    /// The files of the public listener's certificate and key; none without TLS.
    ///
    /// # Errors
    /// One is given without the other.
    pub fn tls_files(&self) -> Result<Option<PairFiles>, ConfigError> {
        match (&self.tls_cert, &self.tls_key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(PairFiles { certificate: certificate.clone(), key: key.clone() })),
            (Some(_), None) => refuse("--tls-cert", "needs --tls-key, the file with its private key"),
            (None, Some(_)) => refuse("--tls-key", "needs --tls-cert, the file with its certificate"),
        }
    }

    fn validate_addresses(&self) -> Result<(), ConfigError> {
        if self.listen == self.admin_listen && self.listen.port != 0 {
            return refuse("--admin-listen", "must differ from --listen: nothing of the admin side is served to clients");
        }
        Ok(())
    }

    fn validate_secrets(&self) -> Result<(), ConfigError> {
        for (flag, secret) in [("--jwt-secret", &self.jwt_secret), ("--admin-token", &self.admin_token)] {
            if secret.as_ref().is_some_and(|secret| secret.is_too_short()) {
                return refuse(flag, format!("must be at least {SECRET_BYTES_MIN} bytes long"));
            }
        }
        for (flag, text) in [("--jwt-issuer", &self.jwt_issuer), ("--jwt-audience", &self.jwt_audience)] {
            if text.as_ref().is_some_and(|text| text.is_empty()) {
                return refuse(flag, "must not be empty; leave it out to accept any");
            }
        }
        Ok(())
    }

    fn validate_durations(&self) -> Result<(), ConfigError> {
        let may_be_zero = [
            ("--reconnect-grace", self.reconnect_grace),
            ("--drain-timeout", self.drain_timeout),
            ("--policy-cache", self.policy_cache),
            ("--flush-interval", self.flush_interval),
        ];
        let positive = [
            ("--resume-ttl", self.resume_ttl),
            ("--heartbeat-interval", self.heartbeat_interval),
            ("--silence-timeout", self.silence_timeout),
            ("--register-timeout", self.register_timeout),
            ("--request-head-timeout", self.request_head_timeout),
            ("--pending-default", self.pending_default),
            ("--pending-load", self.pending_load),
            ("--pending-outbox", self.pending_outbox),
            ("--interest-ttl", self.interest_ttl),
        ];
        for (flag, duration) in positive {
            if duration.0 == Duration::ZERO {
                return refuse(flag, "must be longer than zero");
            }
        }
        for (flag, duration) in positive.into_iter().chain(may_be_zero) {
            if duration.0 > CONFIGURED_DURATION_MAX {
                return refuse(flag, format!("must be at most {}", Period(CONFIGURED_DURATION_MAX)));
            }
        }
        if self.silence_timeout <= self.heartbeat_interval {
            let problem = format!("({}) must be longer than --heartbeat-interval ({})", self.silence_timeout, self.heartbeat_interval);
            return refuse("--silence-timeout", problem + ": a quiet client is only heard when it answers a ping");
        }
        Ok(())
    }

    fn validate_sizes(&self) -> Result<(), ConfigError> {
        if self.max_message.0 < MAX_MESSAGE_BYTES_MIN {
            return refuse("--max-message", format!("must be at least {}", ByteSize(MAX_MESSAGE_BYTES_MIN)));
        }
        let needed = self.max_message.0.saturating_add(limits::ENVELOPE_BYTES_MAX);
        if self.outbound_limit.0 < needed {
            let needed = ByteSize(needed);
            return refuse("--outbound-limit", format!("must be at least {needed}: one --max-message and the 4KiB that the relay adds"));
        }
        if self.flush_size.0 == 0 {
            return refuse("--flush-size", "must be at least 1B; --flush-interval 0s lets nothing wait");
        }
        if self.flush_size > self.event_lane_limit {
            let (size, limit) = (self.flush_size, self.event_lane_limit);
            return refuse("--flush-size", format!("({size}) must be at most --event-lane-limit ({limit}): a full buffer is written"));
        }
        if self.event_lane_limit > self.outbound_limit {
            let (lane, limit) = (self.event_lane_limit, self.outbound_limit);
            return refuse("--event-lane-limit", format!("({lane}) must be at most --outbound-limit ({limit}): it is part of that"));
        }
        for (flag, total, of_one, limit) in [
            ("--outbound-total", self.outbound_total, "--outbound-limit", self.outbound_limit),
            ("--inbound-total", self.inbound_total, "--max-message", self.max_message),
        ] {
            if total < limit {
                return refuse(flag, format!("({total}) must be at least {of_one} ({limit}): one connection may hold that much"));
            }
        }
        Ok(())
    }

    fn validate_rates(&self) -> Result<(), ConfigError> {
        for (flag, count, otherwise) in [
            ("--rate-burst", self.rate_burst, "nothing could be sent"),
            ("--rate-per-second", self.rate_per_second, "nothing could be sent"),
            ("--handshakes-per-address", self.handshakes_per_address, "nobody could connect"),
            ("--handshake-burst-per-address", self.handshake_burst_per_address, "nobody could connect"),
        ] {
            if count == 0 {
                return refuse(flag, format!("must be at least 1: {otherwise}"));
            }
        }
        Ok(())
    }
}

/// What `--database-url` says, where it is given. Read here and not as the flag is: the command line's own error would quote it.
///
/// # Errors
/// It is no database URL.
pub fn database_settings(url: Option<&Secret>) -> Result<Option<postgres::Settings>, ConfigError> {
    let settings = url.map(|url| postgres::Settings::parse(url.expose())).transpose();
    settings.map_err(|error| ConfigError { flag: "--database-url", problem: error.to_string() })
}

fn refuse<T>(flag: &'static str, problem: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError { flag, problem: problem.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Command {
        #[command(flatten)]
        serve: ServeConfig,
    }

    fn parsed(flags: &[&str]) -> ServeConfig {
        Command::try_parse_from(["relay"].iter().chain(flags)).unwrap().serve
    }

    #[test]
    fn defaults_are_those_of_the_operations_page_and_valid() {
        let config = parsed(&[]);
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(config.listen.to_string(), "127.0.0.1:8787");
        assert_eq!(config.admin_listen.to_string(), "127.0.0.1:9090");
        assert_eq!(config.data_dir, PathBuf::from("./relay-data"));
        let seconds = |duration: Period| duration.0.as_secs();
        assert_eq!(seconds(config.reconnect_grace), 90);
        assert_eq!(seconds(config.resume_ttl), 24 * 3600);
        assert_eq!((seconds(config.heartbeat_interval), seconds(config.silence_timeout)), (30, 180));
        assert_eq!(seconds(config.register_timeout), 10);
        assert_eq!(seconds(config.drain_timeout), 60);
        assert_eq!((seconds(config.pending_default), seconds(config.pending_load), seconds(config.pending_outbox)), (90, 120, 31 * 60));
        assert_eq!(seconds(config.policy_cache), 60);
        assert_eq!((config.rate_burst, config.rate_per_second), (300, 150));
        assert_eq!((config.database_url, config.database_pool_size), (None, 10));
        assert_eq!((config.handshake_burst_per_address, config.handshakes_per_address), (200, 50));
        assert_eq!((config.trusted_proxies, seconds(config.request_head_timeout)), (Vec::new(), 10));
        assert_eq!((config.outbound_limit.to_string(), config.max_message.to_string()), ("64MiB".into(), "32MiB".into()));
        assert_eq!(config.flush_interval.0.as_millis(), 250);
        assert_eq!((config.flush_size.to_string(), config.event_lane_limit.to_string()), ("64KiB".into(), "512KiB".into()));
        assert_eq!((config.outbound_total.to_string(), config.inbound_total.to_string()), ("1GiB".into(), "1GiB".into()));
    }

    #[test]
    fn nonsense_is_refused_and_names_the_flag() {
        let short = "x".repeat(31);
        for (flags, flag) in [
            (vec!["--silence-timeout", "30s"], "--silence-timeout"),
            (vec!["--heartbeat-interval", "180s"], "--silence-timeout"),
            (vec!["--heartbeat-interval", "0s"], "--heartbeat-interval"),
            (vec!["--pending-load", "0s"], "--pending-load"),
            (vec!["--resume-ttl", "1000000years"], "--resume-ttl"),
            (vec!["--jwt-secret", &short], "--jwt-secret"),
            (vec!["--admin-token", &short], "--admin-token"),
            (vec!["--jwt-issuer", ""], "--jwt-issuer"),
            (vec!["--max-message", "65535"], "--max-message"),
            (vec!["--outbound-limit", "32MiB"], "--outbound-limit"),
            (vec!["--outbound-limit", "33558527"], "--outbound-limit"),
            (vec!["--flush-size", "0"], "--flush-size"),
            (vec!["--flush-size", "524289"], "--flush-size"),
            (vec!["--event-lane-limit", "65535"], "--flush-size"),
            (vec!["--event-lane-limit", "67108865"], "--event-lane-limit"),
            (vec!["--flush-interval", "1000000years"], "--flush-interval"),
            (vec!["--outbound-total", "67108863"], "--outbound-total"),
            (vec!["--outbound-limit", "2GiB"], "--outbound-total"),
            (vec!["--inbound-total", "33554431"], "--inbound-total"),
            (vec!["--handshakes-per-address", "0"], "--handshakes-per-address"),
            (vec!["--handshake-burst-per-address", "0"], "--handshake-burst-per-address"),
            (vec!["--request-head-timeout", "0s"], "--request-head-timeout"),
            (vec!["--rate-burst", "0"], "--rate-burst"),
            (vec!["--rate-per-second", "0"], "--rate-per-second"),
            (vec!["--admin-listen", "127.0.0.1:8787"], "--admin-listen"),
            (vec!["--tls-cert", "a.pem"], "--tls-cert"),
            (vec!["--tls-key", "a.key"], "--tls-key"),
            (vec!["--database-url", "mysql://u:p@h/d"], "--database-url"),
            (vec!["--database-url", "postgres://u:p@h/d?sslmode=maybe"], "--database-url"),
            (vec!["--database-pool-size", "0"], "--database-pool-size"),
            (vec!["--log", "relay=loud"], "--log"),
        ] {
            let error = parsed(&flags).validate().unwrap_err();
            assert_eq!(error.flag, flag, "{flags:?}: {error}");
            assert!(!error.to_string().contains(&short));
        }
    }

    #[test]
    fn trusted_proxies_are_a_list_of_blocks() {
        let config = parsed(&["--trusted-proxies", "10.0.0.0/8,fd00::/8", "--trusted-proxies=127.0.0.1/32"]);
        let blocks: Vec<String> = config.trusted_proxies.iter().map(Cidr::to_string).collect();
        assert_eq!(blocks, ["10.0.0.0/8", "fd00::/8", "127.0.0.1/32"]);
        for text in ["", "10.0.0.1", "10.0.0.1/8", "10.0.0.0/8,", "10.0.0.0/8, fd00::/8"] {
            assert!(Command::try_parse_from(["relay", "--trusted-proxies", text]).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_rate_is_a_whole_number() {
        for flag in ["--rate-burst", "--rate-per-second", "--handshakes-per-address", "--handshake-burst-per-address"] {
            for text in ["", "-1", "1.5", "many", "4294967296"] {
                assert!(Command::try_parse_from(["relay", &format!("{flag}={text}")]).is_err(), "{flag}={text}");
            }
        }
    }

    #[test]
    fn values_at_the_edge_are_accepted() {
        for flags in [
            vec!["--silence-timeout", "30001ms"],
            vec!["--reconnect-grace", "0s", "--policy-cache", "0s"],
            vec!["--jwt-secret", &"x".repeat(32)],
            vec!["--max-message", "64KiB"],
            vec!["--outbound-limit", "33558528"],
            vec!["--flush-interval", "0s", "--flush-size", "1", "--event-lane-limit", "1"],
            vec!["--event-lane-limit", "64MiB", "--flush-size", "64MiB"],
            vec!["--outbound-total", "64MiB", "--inbound-total", "32MiB"],
            vec!["--rate-burst", "1", "--rate-per-second", "1"],
            vec!["--rate-burst", "4294967295", "--rate-per-second", "4294967295"],
            vec!["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"],
            vec!["--log", "warn,relay_actors=trace"],
            vec!["--database-url", "postgres://u:p@h/d", "--database-pool-size", "1"],
        ] {
            assert_eq!(parsed(&flags).validate(), Ok(()), "{flags:?}");
        }
    }

    #[test]
    fn secrets_show_neither_in_debug_output_nor_in_help() {
        let secret = "a-secret-that-is-long-enough-to-be-one";
        let database_url = format!("postgres://relay:{secret}@h/d");
        let config = parsed(&["--jwt-secret", secret, "--admin-token", secret, "--database-url", &database_url]);
        assert!(!format!("{config:?}").contains(secret));
        let help = <Command as clap::CommandFactory>::command();
        let settings = database_settings(config.database_url.as_ref()).unwrap().unwrap();
        assert!(!format!("{settings} {settings:?}").contains(secret));
        for name in ["jwt_secret", "admin_token", "database_url"] {
            let argument = help.get_arguments().find(|argument| argument.get_id() == name).unwrap();
            assert!(argument.is_hide_env_values_set(), "{name}");
        }
    }

    #[test]
    fn every_flag_has_its_environment_name() {
        for argument in <Command as clap::CommandFactory>::command().get_arguments() {
            let expected = format!("RELAY_{}", argument.get_id().as_str().to_uppercase());
            assert_eq!(argument.get_env().unwrap().to_str(), Some(expected.as_str()));
        }
    }
}
