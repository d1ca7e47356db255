//! How many handshakes each address may make (operations page): so many at once, so many a second.
//!
//! A handshake with a valid token is counted for its account at its address, every other one for the address alone. So a flood of
//! bad tokens locks out no account behind the same address, and an account that reconnects in a loop locks out no other one.

use super::addresses::{Cidr, limited_address};
use crate::limits::{HANDSHAKE_ADDRESSES_FORGOTTEN_EVERY, HANDSHAKE_ADDRESSES_MAX};
use actix_web::HttpRequest;
use relay_actors::{
    clock,
    counters::Tally,
    device_socket::{Bucket, Rate},
};
use relay_protocol::id::UserId;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What a refused handshake is counted under: the codes of the answers that a way into the socket layer gives, and one for any other.
const REFUSALS: [&str; 9] = [
    "unauthorized",
    "insufficientScope",
    "keysUnavailable",
    "invalidPayload",
    "upgradeRequired",
    "tooManyHandshakes",
    "storageUnavailable",
    "relayDraining",
    OTHER_REFUSAL,
];
const OTHER_REFUSAL: &str = "other";

/// The limit, and what is left of it for whom; and what was refused.
#[derive(Debug)]
pub struct Handshakes {
    rate: Rate,
    trusted_proxies: Vec<Cidr>,
    table: Mutex<Table>,
    refused: Tally,
}

/// Too many; one more is taken after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// How long to wait, rounded up to whole seconds: at least one.
    pub retry_after: Duration,
}

#[derive(Debug)]
struct Table {
    buckets: HashMap<Origin, Bucket>,
    capacity: usize,
    /// Shared by everybody for whom there is no room.
    others: Bucket,
    /// Full buckets are not looked for again before this time.
    forgets_next: Instant,
}

/// Who is counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Origin {
    address: Address,
    account: Option<UserId>,
}

/// One IPv4 address, or the block of 64 bits that one IPv6 subscriber has at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Address {
    V4(u32),
    V6(u64),
}

impl Handshakes {
    /// Everybody has a full bucket.
    pub fn new(rate: Rate, trusted_proxies: Vec<Cidr>) -> Self {
        let table = Mutex::new(Table::new(rate, HANDSHAKE_ADDRESSES_MAX, clock::now()));
        Handshakes { rate, trusted_proxies, table, refused: Tally::new(REFUSALS) }
    }

    /// Counts a handshake that was answered with this code instead of a socket.
    pub fn count_refusal(&self, code: &str) {
        self.refused.count(REFUSALS.into_iter().find(|known| *known == code).unwrap_or(OTHER_REFUSAL));
    }

    /// Refused handshakes by the code of their answer.
    pub fn refused(&self) -> &Tally {
        &self.refused
    }

    /// Counts one handshake of whoever sent this request; with the account of its token, if that was valid.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn count(&self, request: &HttpRequest, account: Option<UserId>) -> Result<(), TooMany> {
        // Without a peer there is no connection: a handler under test.
        let Some(peer) = request.peer_addr() else { return Ok(()) };
        match limited_address(peer.ip(), request.headers(), &self.trusted_proxies) {
            Some(address) => {
                let origin = Origin { address: address.into(), account };
                self.table.lock().unwrap_or_else(PoisonError::into_inner).take(origin, self.rate, clock::now())
            }
            None => Ok(()),
        }
    }
}

impl Table {
    fn new(rate: Rate, capacity: usize, now: Instant) -> Self {
        Table { buckets: HashMap::new(), capacity, others: Bucket::new(rate, now), forgets_next: now }
    }

    fn take(&mut self, origin: Origin, rate: Rate, now: Instant) -> Result<(), TooMany> {
        if self.buckets.len() >= self.capacity && !self.buckets.contains_key(&origin) {
            self.forget_full(now);
        }
        let bucket = if self.buckets.len() < self.capacity || self.buckets.contains_key(&origin) {
            self.buckets.entry(origin).or_insert_with(|| Bucket::new(rate, now))
        } else {
            &mut self.others
        };
        bucket.take(now).map_err(|until| {
            let seconds = until.saturating_duration_since(now).as_nanos().div_ceil(1_000_000_000);
            TooMany { retry_after: Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX).max(1)) }
        })
    }

    /// A full bucket is like none at all.
    fn forget_full(&mut self, now: Instant) {
        if now < self.forgets_next {
            return;
        }
        self.buckets.retain(|_, bucket| !bucket.is_full(now));
        self.forgets_next = now + HANDSHAKE_ADDRESSES_FORGOTTEN_EVERY;
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Address::V4(address.to_bits()),
            IpAddr::V6(address) => {
                let [network @ .., _, _, _, _, _, _, _, _] = address.octets();
                Address::V6(u64::from_be_bytes(network))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const RATE: Rate = Rate { burst: 3, per_second: 2 };

    fn origin(address: &str, account: Option<u128>) -> Origin {
        Origin { address: address.parse::<IpAddr>().unwrap().into(), account: account.map(|number| UserId(Uuid::from_u128(number))) }
    }

    /// How many are taken until one is refused, and how long that one is to wait.
    fn taken(table: &mut Table, origin: Origin, now: Instant) -> (u32, Duration) {
        let mut count = 0;
        loop {
            match table.take(origin, RATE, now) {
                Ok(()) => count += 1,
                Err(TooMany { retry_after }) => return (count, retry_after),
            }
        }
    }

    #[test]
    fn an_address_has_its_burst_and_then_its_rate_and_is_told_when() {
        let now = clock::now();
        let mut table = Table::new(RATE, 10, now);
        let one = origin("198.51.100.7", None);
        assert_eq!(taken(&mut table, one, now), (3, Duration::from_secs(1)));
        assert_eq!(taken(&mut table, one, now + Duration::from_millis(499)).0, 0);
        assert_eq!(taken(&mut table, one, now + Duration::from_millis(500)).0, 1);
        assert_eq!(taken(&mut table, one, now + Duration::from_secs(100)).0, 3);
    }

    #[test]
    fn addresses_and_accounts_do_not_take_from_each_other() {
        let now = clock::now();
        let mut table = Table::new(RATE, 10, now);
        for origin in [
            origin("198.51.100.7", None),
            origin("198.51.100.8", None),
            origin("198.51.100.7", Some(1)),
            origin("198.51.100.7", Some(2)),
            origin("198.51.100.8", Some(1)),
            origin("2001:db8:0:1::1", None),
            origin("2001:db8:0:2::1", None),
        ] {
            assert_eq!(taken(&mut table, origin, now).0, 3, "{origin:?}");
        }
        assert_eq!(taken(&mut table, origin("2001:db8:0:1:ffff::2", None), now).0, 0, "one subscriber has many addresses");
    }

    #[test]
    fn the_table_is_bounded_and_forgets_full_buckets_first() {
        let now = clock::now();
        let mut table = Table::new(RATE, 100, now);
        let address = |number: u32| Origin { address: Address::V4(number), account: None };
        for number in 0..100 {
            assert_eq!(table.take(address(number), RATE, now), Ok(()));
        }
        // Nobody can be forgotten: those who come now share one bucket.
        assert_eq!(taken(&mut table, address(100), now).0, 3);
        assert_eq!(taken(&mut table, address(101), now).0, 0);
        assert_eq!(table.buckets.len(), 100);
        assert_eq!(taken(&mut table, address(0), now).0, 2, "who is known keeps its own");
        // In a second all but that one are full again.
        let later = now + HANDSHAKE_ADDRESSES_FORGOTTEN_EVERY;
        assert_eq!(taken(&mut table, address(101), later).0, 3);
        assert_eq!(table.buckets.len(), 2);
    }
}
