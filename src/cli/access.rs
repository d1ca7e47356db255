//! How a client command reaches a relay: where, and as whom. The public API for an account, the admin listener for an operator.

use super::CliError;
use crate::{
    config::DATA_DIR_DEFAULT,
    http::auth::{TokenRules, mint},
    secrets::{Secret, admin_token_in, jwt_secret_in},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use relay_actors::clock::EpochMs;
use relay_endpoints::{address::RelayAddress, admin::Admin};
use relay_protocol::id::UserId;
use serde::Deserialize;
use std::{path::PathBuf, time::Duration};

/// Where a relay that was started without flags is.
pub const URL_DEFAULT: &str = "http://127.0.0.1:8787";

/// Where the admin listener of a relay that was started without flags is.
pub const ADMIN_URL_DEFAULT: &str = "http://127.0.0.1:9090";

/// Flags of every command that calls the admin listener.
#[derive(clap::Args, Clone, Debug)]
pub struct AdminAccess {
    /// Where the relay's admin listener is
    #[arg(long, env = "RELAY_ADMIN_URL", value_name = "URL", default_value = ADMIN_URL_DEFAULT)]
    pub admin_url: RelayAddress,
    /// Bearer token of the admin listener [default: the data directory's]
    #[arg(long, env = "RELAY_ADMIN_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub admin_token: Option<Secret>,
    /// Data directory of the relay, for its generated token
    #[arg(long, env = "RELAY_DATA_DIR", value_name = "PATH", default_value = DATA_DIR_DEFAULT)]
    pub data_dir: PathBuf,
}

impl AdminAccess {
    /// A client; nothing is sent yet.
    ///
    /// # Errors
    /// There is no token to send.
    pub fn client(&self) -> Result<Admin, CliError> {
        let token = match &self.admin_token {
            Some(token) => token.clone(),
            None => admin_token_in(&self.data_dir).map_err(CliError::failed)?,
        };
        Admin::new(self.admin_url.clone(), token.expose().to_owned()).map_err(CliError::failed)
    }
}

/// Flags of every command that calls the public API.
#[derive(clap::Args, Clone, Debug)]
pub struct Access {
    /// Where the relay is
    #[arg(long, env = "RELAY_URL", value_name = "URL", default_value = URL_DEFAULT)]
    pub url: RelayAddress,
    /// Account to act for; a token is made for it with the data directory's secret
    #[arg(long, env = "RELAY_USER", value_name = "UUID", required_unless_present = "token")]
    pub user: Option<UserId>,
    /// Account token (JWT) or API key to use instead; decides the account
    #[arg(long, env = "RELAY_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<Secret>,
    /// Where the secret comes from
    #[command(flatten)]
    pub signing: Signing,
}

impl Access {
    /// The token to send: the given one, or a fresh one of this life.
    ///
    /// # Errors
    /// There is no secret to make one with.
    pub fn bearer(&self, ttl: Duration) -> Result<String, CliError> {
        match (&self.token, self.user) {
            (Some(token), _) => Ok(token.expose().to_owned()),
            (None, Some(user)) => self.signing.mint(user, ttl),
            (None, None) => Err(CliError::usage("give --user UUID, or an account token or API key in RELAY_TOKEN")),
        }
    }

    /// The account that this acts for: what the token says, or, with an API key, which says nothing, what `--user` does.
    ///
    /// # Errors
    /// Neither does.
    pub fn account(&self) -> Result<UserId, CliError> {
        let said = self.token.as_ref().and_then(|token| subject(token.expose()));
        said.or(self.user).ok_or_else(|| CliError::usage("give --user UUID: an API key does not say whose it is"))
    }
}

/// The account that a JWT says, not checked: the relay does that.
fn subject(token: &str) -> Option<UserId> {
    #[derive(Deserialize)]
    struct Claims {
        sub: UserId,
    }
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    Some(serde_json::from_slice::<Claims>(&claims).ok()?.sub)
}

/// Flags of every command that makes account tokens: those of `relay serve` that decide which are valid.
#[derive(clap::Args, Clone, Debug)]
pub struct Signing {
    /// Data directory of the relay, for its generated secret
    #[arg(long, env = "RELAY_DATA_DIR", value_name = "PATH", default_value = DATA_DIR_DEFAULT)]
    pub data_dir: PathBuf,
    /// Secret of account tokens, if the relay was given one
    #[arg(long, env = "RELAY_JWT_SECRET", value_name = "SECRET", hide_env_values = true)]
    pub jwt_secret: Option<Secret>,
    /// `iss` of account tokens, if the relay requires one
    #[arg(long, env = "RELAY_JWT_ISSUER", value_name = "TEXT")]
    pub jwt_issuer: Option<String>,
    /// `aud` of account tokens, if the relay requires one
    #[arg(long, env = "RELAY_JWT_AUDIENCE", value_name = "TEXT")]
    pub jwt_audience: Option<String>,
}

impl Signing {
    /// A token for this account, valid from now on.
    ///
    /// # Errors
    /// There is no secret to make one with.
    pub fn mint(&self, user: UserId, ttl: Duration) -> Result<String, CliError> {
        let secret = match &self.jwt_secret {
            Some(secret) if secret.is_too_short() => return Err(CliError::usage("--jwt-secret is too short for any relay to accept")),
            Some(secret) => secret.clone(),
            None => jwt_secret_in(&self.data_dir).map_err(CliError::failed)?,
        };
        let rules = TokenRules { secret: Some(secret), jwks: None, issuer: self.jwt_issuer.clone(), audience: self.jwt_audience.clone() };
        mint(&rules, user, ttl, EpochMs::now()).map_err(CliError::failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        access: Access,
    }

    const SAID: &str = "a11ce000-0000-4000-8000-000000000001";
    const GIVEN: &str = "b0b00000-0000-4000-8000-000000000002";

    fn account(flags: &[&str]) -> Result<UserId, CliError> {
        Cli::try_parse_from(std::iter::once("relay").chain(flags.iter().copied())).unwrap().access.account()
    }

    #[test]
    fn a_token_says_whose_it_is_and_an_api_key_does_not() {
        let jwt = format!("h.{}.s", URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"{SAID}","exp":1}}"#)));
        for (flags, expected) in [
            (&["--token", &jwt][..], SAID),
            (&["--token", &jwt, "--user", GIVEN], SAID),
            (&["--token", "rk_0123", "--user", GIVEN], GIVEN),
            (&["--user", GIVEN], GIVEN),
        ] {
            assert_eq!(account(flags).unwrap(), expected.parse().unwrap(), "{flags:?}");
        }
        for token in ["rk_0123", "h.!.s", "h..s", "h"] {
            assert_eq!(account(&["--token", token]).unwrap_err().exit_code(), 2, "{token}");
        }
    }
}
