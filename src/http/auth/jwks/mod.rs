//! The keys of a token issuer, from a JWK set in a file or behind a URL (`--jwks`).
//!
//! [`Jwks`] is the handle of those who verify; [`Reader`] is the one task that reads, so there is never more than one read at a time,
//! and each answers all who wait. What is decided is in [`refresh`] and [`key_set`]; how a set is read is in [`source`].
//!
//! ```text
//!  verifier -- Published::judge --> key, refused, unavailable
//!      |  asks for a generation            ^ new generation
//!      v                                   |
//!    Reader -- Refresh: when? --> Source::read
//! ```

pub mod key_set;
pub mod refresh;
pub mod source;

use crate::http::error::ApiError;
use jsonwebtoken::DecodingKey;
use key_set::{KeyAlgorithm, KeySet};
use refresh::{Published, Refresh, Report, Verdict};
use relay_actors::clock;
use source::{Location, ReadError, Source};
use std::{fmt, io, path::PathBuf};
use tokio::{sync::watch, time::sleep_until};

/// Verifiers' access to the keys.
#[derive(Clone, Debug)]
pub struct Jwks {
    published: watch::Receiver<Published>,
    /// The latest generation that a token waits for.
    wanted: watch::Sender<u64>,
}

/// Why there can be no keys from there. Told before anything is served.
#[derive(Debug)]
pub enum OpenError {
    /// The file cannot be read or is no set.
    File(PathBuf, ReadError),
    /// The file has no key that can be used; what it has instead.
    NoKey(PathBuf, Vec<String>),
    /// There are no root certificates for an https address.
    NoRoots(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::File(path, error) => write!(f, "{}: {error}", path.display()),
            OpenError::NoKey(path, others) if others.is_empty() => write!(f, "{} has no key", path.display()),
            OpenError::NoKey(path, others) => write!(f, "{} has no key that can be used: {}", path.display(), others.join("; ")),
            OpenError::NoRoots(error) => write!(f, "needs root certificates for https, and the system has none: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl Jwks {
    /// Prepares reading from there. A file is read now, since a wrong one is better known before than after; a URL only by the task,
    /// which the caller spawns: issuers may come up later than their relays.
    ///
    /// # Errors
    /// The file has no keys, or https cannot be spoken.
    pub fn open(location: &Location) -> Result<(Self, Reader), OpenError> {
        let keys = match location {
            Location::File(path) => {
                let keys = source::read_file_set(path).map_err(|error| OpenError::File(path.clone(), error))?;
                if keys.is_empty() {
                    let others = keys.left_out().iter().map(ToString::to_string).collect();
                    return Err(OpenError::NoKey(path.clone(), others));
                }
                log(Report { keys_changed: true, ..Report::default() }, Some(&keys), None);
                Some(keys)
            }
            Location::Url(_) => None,
        };
        let source = Source::new(location).map_err(OpenError::NoRoots)?;
        let core = Refresh::new(clock::now(), keys);
        let (publish, published) = watch::channel(core.published().clone());
        let (wanted, wants) = watch::channel(0);
        Ok((Jwks { published, wanted }, Reader { core, source, publish, wants }))
    }

    /// The key of a token with this algorithm and `kid`. Waits for a read only if the key is not known and a read is due to anybody's
    /// question, or under way for that reason.
    ///
    /// # Errors
    /// [`ApiError::TokenInvalid`] if no key is meant, [`ApiError::KeysUnavailable`] if that cannot be said now.
    pub async fn key(&self, algorithm: KeyAlgorithm, kid: Option<&str>) -> Result<DecodingKey, ApiError> {
        let verdict = self.published.borrow().judge(clock::now(), algorithm, kid);
        let Verdict::AskFor(generation) = verdict else { return answer(verdict) };
        self.wanted.send_if_modified(|wanted| std::mem::replace(wanted, generation.max(*wanted)) < generation);
        let mut published = self.published.clone();
        let read = published.wait_for(|published| published.generation >= generation).await;
        // The reader ends with the process.
        answer(read.map_err(|_ended| ApiError::KeysUnavailable)?.judge_finally(algorithm, kid))
    }
}

fn answer(verdict: Verdict) -> Result<DecodingKey, ApiError> {
    match verdict {
        Verdict::Key(key) => Ok(key.decoding_key()),
        Verdict::Refused => Err(ApiError::TokenInvalid),
        Verdict::Unavailable | Verdict::AskFor(_) => Err(ApiError::KeysUnavailable),
    }
}

/// Reads the set when it is time.
pub struct Reader {
    core: Refresh,
    source: Source,
    publish: watch::Sender<Published>,
    wants: watch::Receiver<u64>,
}

impl Reader {
    /// Reads until nobody verifies any more.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                asked = self.wants.changed() => {
                    if asked.is_err() {
                        return;
                    }
                    let generation = *self.wants.borrow_and_update();
                    if !self.core.on_asked(clock::now(), generation) {
                        continue;
                    }
                }
                () = sleep_until(self.core.due().into()) => {}
            }
            let (keys, error) = match self.source.read().await {
                Ok(keys) => (Some(keys), None),
                Err(error) => (None, Some(error)),
            };
            let report = self.core.on_read(clock::now(), keys.clone(), &mut rand::rng());
            self.publish.send_replace(self.core.published().clone());
            log(report, keys.as_ref(), error.as_ref());
        }
    }
}

fn log(report: Report, keys: Option<&KeySet>, error: Option<&ReadError>) {
    if let Some(error) = error {
        if report.begins_to_fail {
            tracing::warn!(%error, "the keys of account tokens cannot be read");
        } else {
            tracing::debug!(%error, "the keys of account tokens still cannot be read");
        }
    }
    if report.recovers {
        tracing::info!("the keys of account tokens can be read again");
    }
    let Some(keys) = keys.filter(|_| report.keys_changed) else { return };
    for left_out in keys.left_out() {
        tracing::debug!(key = %left_out, "left out");
    }
    let (usable, left_out) = (keys.len(), keys.left_out().len());
    if keys.is_empty() {
        tracing::warn!(left_out, "no key of account tokens can be used");
    } else {
        tracing::info!(usable, left_out, "keys of account tokens changed");
    }
}

#[cfg(test)]
mod tests;
