//! `relay token`: an account token for a local secret.

use super::{CliError, access::Signing, help_end, print};
use crate::{
    config::Period,
    limits::{CONFIGURED_DURATION_MAX, TOKEN_TTL},
};
use relay_protocol::id::UserId;

/// Flags of `relay token`.
#[derive(clap::Args, Debug)]
#[command(after_help = help_end(&["relay token --user 0f8fad5b-d9cb-469f-a165-70867728950e --ttl 15m"]))]
pub struct Args {
    /// The account
    #[arg(long, env = "RELAY_USER", value_name = "UUID")]
    pub user: UserId,
    /// How long the token is valid
    #[arg(long, value_name = "DURATION", default_value_t = Period(TOKEN_TTL))]
    pub ttl: Period,
    /// Where the secret comes from
    #[command(flatten)]
    pub signing: Signing,
}

/// Prints the token, alone on its line.
///
/// # Errors
/// There is no secret to make one with.
pub fn run(args: &Args) -> Result<(), CliError> {
    if args.ttl.0.is_zero() || args.ttl.0 > CONFIGURED_DURATION_MAX {
        let longest = Period(CONFIGURED_DURATION_MAX);
        return Err(CliError::usage(format!("--ttl must be longer than zero and at most {longest}")));
    }
    print(format_args!("{}\n", args.signing.mint(args.user, args.ttl.0)?))
}
