//! `relay serve`: the relay itself.

use super::{
    CliError,
    demo::DemoIds,
    help_end, print,
    welcome::{Welcome, program},
};
use crate::{
    config::{File, ServeConfig, Settings, example},
    http::{
        Api,
        auth::{AdminToken, Authenticator, TokenRules, jwks::Jwks},
        compatibility::PolicyCache,
        device_link,
        handshakes::Handshakes,
    },
    limits::DRAIN_STEP_TIMEOUT,
    push_gateways,
    secrets::{ADMIN_TOKEN_FILE, JWT_SECRET_FILE, Secret, SecretError, load_or_generate, prepare_data_dir},
    server::{self, Parts},
    service_manager::ServiceManager,
    signals::EndSignals,
    telemetry, tls,
    traces::{Exporting, Resource, collector::Collector},
    wiring,
};
use clap::ArgMatches;
use relay_actors::{device_socket::Rate, processes::Renewal, relay::DrainLimits};
use std::{ffi::OsString, path::PathBuf, rc::Rc, sync::Arc};
use tokio::sync::oneshot;

/// The command's name.
pub const NAME: &str = "serve";
/// The flag that names the configuration file.
const CONFIG: &str = "config";

/// Flags of `relay serve`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&[
    "relay serve --listen 0.0.0.0:8787 --data-dir ./relay-data",
    "relay serve --config /etc/relay.toml --print-config",
]))]
pub struct Args {
    /// TOML file with any of the flags below as keys, without their dashes; flags and environment are over it
    #[arg(id = CONFIG, long = CONFIG, env = "RELAY_CONFIG", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print the configuration as such a file, with where each value comes from, and end; `=example` prints every key with its default
    #[arg(long, value_name = "WHAT", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "effective")]
    pub print_config: Option<PrintConfig>,
    /// How the configuration was put together: `cli::parse` fills it in
    #[arg(skip)]
    pub settings: Settings,
    /// What it runs with
    #[command(flatten)]
    pub config: ServeConfig,
}

/// What `--print-config` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PrintConfig {
    /// What the relay would run with.
    Effective,
    /// Every key with its help and default, commented out.
    Example,
}

/// The configuration file that the flags of `relay serve` name, if they do.
///
/// # Errors
/// It cannot be used.
pub fn file(flags: &ArgMatches) -> Result<Option<File>, CliError> {
    flags.get_one::<PathBuf>(CONFIG).map(|path| File::read(path).map_err(CliError::usage)).transpose()
}

/// Serves until a signal ends it.
///
/// # Errors
/// The configuration makes no sense, or serving cannot start or go on.
pub fn run(args: &Args) -> Result<(), CliError> {
    let config = &args.config;
    let valid = config.validate().map_err(|error| CliError::usage(args.settings.explain(&error)));
    match args.print_config {
        Some(PrintConfig::Example) => return print(example()),
        // What makes no sense is shown too: whoever asks may look for just that.
        Some(PrintConfig::Effective) => return print(&args.settings).and(valid),
        None => valid?,
    }
    let log = telemetry::init(&config.log, config.log_format).map_err(CliError::failed)?;
    if let (Some(path), Some(mode)) = (&args.file, args.settings.exposed()) {
        let (file, mode) = (path.display(), format!("{mode:04o}"));
        tracing::warn!(%file, mode, "everybody may read or write the secrets in the configuration file");
    }
    let jwks = config.jwks.as_ref().map(Jwks::open).transpose();
    let (jwks, jwks_reader) = jwks.map_err(|error| CliError::usage(format!("--jwks {error}")))?.unzip();
    let tls = config.tls_files().map_err(CliError::usage)?.map(tls::open).transpose();
    let (tls, tls_renewal) = tls.map_err(CliError::usage)?.unzip();
    let collector = config.otlp_endpoint.as_ref().map(Collector::new).transpose();
    let collector = collector.map_err(|error| CliError::usage(format!("--otlp-endpoint needs root certificates for https: {error}")))?;
    let gateways = push_gateways::open(&config.push).map_err(|error| CliError::usage(args.settings.explain(&error)))?;
    prepare_data_dir(&config.data_dir).map_err(CliError::data_dir)?;
    let jwt_secret = match (&config.jwt_secret, &jwks) {
        // Who names an issuer does not want tokens of somebody else, so none are made possible.
        (None, Some(_)) => None,
        (given, _) => Some(secret(config, given.as_ref(), JWT_SECRET_FILE).map_err(CliError::data_dir)?),
    };
    let admin_token = secret(config, config.admin_token.as_ref(), ADMIN_TOKEN_FILE).map_err(CliError::data_dir)?;
    let rules = TokenRules { secret: jwt_secret, jwks, issuer: config.jwt_issuer.clone(), audience: config.jwt_audience.clone() };
    let demo = DemoIds::of(&config.data_dir).map_err(|error| CliError::data_dir(format!("{}: {error}", config.data_dir.display())))?;

    actix_web::rt::System::new().block_on(async {
        let mut signals = EndSignals::catch().map_err(CliError::failed)?;
        let store = tokio::select! {
            opened = wiring::open_store(config) => opened.map_err(|error| CliError::storage(&error))?,
            () = signals.next() => {
                tracing::info!("stopped before the database was there");
                return Ok(());
            }
        };
        let authenticator = Authenticator::new(&rules, store.clone()).map_err(CliError::failed)?;
        if let Some(reader) = jwks_reader {
            // It ends with this thread's arbiter.
            actix_web::rt::spawn(reader.run());
        }
        let certificate = tls_renewal.as_ref().map(tls::Renewal::certificate);
        if let Some(renewal) = tls_renewal {
            actix_web::rt::spawn(renewal.run());
        }
        let actors = wiring::start_actors(config, store.clone(), gateways);
        // They start here: an actor that is dropped before its start, since serving fails at once, starts where no runtime is, and panics.
        tokio::task::yield_now().await;
        let relay = actors.relay;
        let resource = Resource { instance: relay.instance_id() };
        let exporting = collector.zip(actors.spans);
        let exporting = exporting.map(|(collector, spans)| Exporting::start(spans, collector, resource, relay.counters().clone()));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let renewal = Renewal::within(config.reconnect_grace.0);
        let heartbeat = relay.heartbeat(store.clone(), env!("CARGO_PKG_VERSION"), host, renewal);
        // What never comes to serve is no process that others should see.
        let (serves, served) = oneshot::channel::<()>();
        let heartbeat = actix_web::rt::spawn(async move {
            if served.await.is_ok() {
                heartbeat.run().await;
            }
        });
        let handshakes = Rate { burst: config.handshake_burst_per_address, per_second: config.handshakes_per_address };
        let api = Api {
            store,
            relay: Arc::new(relay.clone()),
            authenticator,
            admin_token: AdminToken::new(&admin_token),
            handshakes: Handshakes::new(handshakes, config.trusted_proxies.clone()),
            policy: PolicyCache::new(config.policy_cache.0),
            log,
            certificate,
        };
        let on_connect = Arc::new(device_link::on_connect(config.silence_timeout.0));
        let parts = Parts { api, device_link: actors.device_link, on_connect, tls };
        let manager = Rc::new(ServiceManager::of(|name| std::env::var_os(name), std::process::id()));
        let (watched, life) = (relay.clone(), manager.clone());
        actix_web::rt::spawn(async move { life.give_signs_of_life(async |limit| watched.supervisor_answers(limit).await).await });
        let (drained, progress) = (relay.clone(), manager.clone());
        actix_web::rt::spawn(async move { progress.follow_drain(&drained).await });
        let (signalled, stopping, drain_timeout) = (relay.clone(), manager.clone(), config.drain_timeout.0);
        actix_web::rt::spawn(async move {
            signals.next().await;
            tracing::info!("stopping");
            stopping.stopping();
            signalled.begin_drain(true);
            signals.insisted().await;
            tracing::warn!("a second signal: ending at once");
            std::process::exit(1);
        });
        let stop = async move {
            relay.drain(DrainLimits { work: drain_timeout, step: DRAIN_STEP_TIMEOUT }).await;
            relay.may_end().await;
            // It takes the row of this process away first. That it failed has been told.
            let _ = heartbeat.await;
            if let Some(exporting) = exporting {
                exporting.finish().await;
            }
        };
        let called_as = std::env::args_os().next().unwrap_or_else(|| OsString::from("relay"));
        let program = program(std::env::var_os("CARGO").is_some(), &called_as);
        let on_ready = |serving: &server::Serving| {
            // Gone only if the heartbeat is, with the process.
            let _ = serves.send(());
            manager.ready(&format!("serving clients on {}, operators on {}", serving.public, serving.admin));
            if let Err(error) = print(Welcome { program: &program, config, serving, demo: &demo }) {
                tracing::warn!(%error, "the start-up text could not be printed");
            }
        };
        server::run(config, parts, stop, on_ready).await.map_err(CliError::failed)
    })
}

/// The given secret, or the data directory's.
fn secret(config: &ServeConfig, given: Option<&Secret>, file: &str) -> Result<Secret, SecretError> {
    match given {
        Some(secret) => Ok(secret.clone()),
        None => load_or_generate(&config.data_dir, file),
    }
}
