//! Whose address a call comes from: the peer's, or what trusted proxies say of it (operations page, Security).

use actix_web::http::header::{HeaderMap, HeaderName};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A block of addresses, written `10.0.0.0/8` or `fd00::/8`. Bits behind the prefix are zero, so that a mistyped block is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    prefix_bits: u8,
}

/// The text was no block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotACidr;

impl fmt::Display for NotACidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a block of addresses is ADDRESS/BITS without bits behind the prefix, like 10.0.0.0/8 or fd00::/8 (not ::ffff:10.0.0.0/104)",
        )
    }
}

impl std::error::Error for NotACidr {}

impl FromStr for Cidr {
    type Err = NotACidr;

    fn from_str(text: &str) -> Result<Self, NotACidr> {
        let (network, bits) = text.split_once('/').ok_or(NotACidr)?;
        let network: IpAddr = network.parse().map_err(|_no_address| NotACidr)?;
        let prefix_bits = bits.parse().ok().filter(|_| bits.bytes().all(|byte| byte.is_ascii_digit())).ok_or(NotACidr)?;
        let longest = if network.is_ipv4() { 32 } else { 128 };
        let cidr = Cidr { network, prefix_bits };
        // Addresses are compared as what they stand for, so a block of IPv4 addresses in IPv6 notation would never match.
        if network.to_canonical() != network {
            return Err(NotACidr);
        }
        if prefix_bits <= longest && cidr.masked(network) == network { Ok(cidr) } else { Err(NotACidr) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_bits)
    }
}

impl Cidr {
    /// Whether the block has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4() && self.masked(address) == self.network
    }

    fn masked(&self, address: IpAddr) -> IpAddr {
        let bits = u32::from(self.prefix_bits);
        match address {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0)).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0)).into(),
        }
    }
}

/// The client's address, with which it is counted; none when it is not limited: loopback, and trusted proxies themselves.
///
/// `X-Forwarded-For` counts only from a trusted proxy, and there the last hop that is none. Each hop was written by the one behind it,
/// so a client can invent nothing but what stands in front of its own. What is no address cannot be told apart from other such, and
/// is counted as the proxy that wrote it.
pub fn limited_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Cidr]) -> Option<IpAddr> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|block| block.contains(address));
    let mut address = peer.to_canonical();
    let mut values: Vec<_> = headers.get_all(FORWARDED_FOR).map(|value| value.to_str().unwrap_or("")).collect();
    values.reverse();
    for hop in values.iter().flat_map(|value| value.rsplit(',')) {
        if !is_trusted(address) {
            break;
        }
        match hop.trim().parse::<IpAddr>() {
            Ok(hop) => address = hop.to_canonical(),
            Err(_no_address) => return Some(address),
        }
    }
    (!address.is_loopback() && !is_trusted(address)).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn blocks_parse_strictly_and_print() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "127.0.0.1/32", "192.168.4.0/22", "::/0", "fd00::/8", "::1/128"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
        for text in
            ["", "/", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/+8", "10.0.0/8", "::1/64", "::/129", "a/8", " ::/0"]
        {
            assert_eq!(text.parse::<Cidr>(), Err(NotACidr), "{text:?}");
        }
        assert_eq!("::ffff:10.0.0.0/104".parse::<Cidr>(), Err(NotACidr), "it would never match");
    }

    #[test]
    fn a_block_has_its_addresses_and_no_others() {
        for (block, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("192.168.4.0/22", "192.168.7.255", "192.168.8.0"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("127.0.0.1/32", "127.0.0.1", "127.0.0.2"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("::/0", "ffff::", "1.2.3.4"),
        ] {
            let cidr: Cidr = block.parse().unwrap();
            assert!(cidr.contains(ip(inside)) && !cidr.contains(ip(outside)), "{block}");
        }
    }

    #[test]
    fn only_trusted_proxies_are_believed_and_only_the_last_hop_that_is_none() {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|block| block.parse().unwrap());
        for (peer, forwarded, expected) in [
            ("198.51.100.7", &[][..], Some("198.51.100.7")),
            ("198.51.100.7", &["203.0.113.1"], Some("198.51.100.7")),
            ("10.0.0.1", &["203.0.113.1"], Some("203.0.113.1")),
            ("::ffff:10.0.0.1", &["::ffff:203.0.113.1"], Some("203.0.113.1")),
            ("10.0.0.1", &["127.0.0.1, 203.0.113.1 ,10.0.0.2"], Some("203.0.113.1")),
            ("10.0.0.1", &["127.0.0.1, 203.0.113.1", "fd00::2"], Some("203.0.113.1")),
            ("10.0.0.1", &["nonsense, 203.0.113.1"], Some("203.0.113.1")),
            // The proxy itself, or one behind it: nobody stands in front.
            ("10.0.0.1", &[], None),
            ("10.0.0.1", &["10.0.0.2"], None),
            ("127.0.0.1", &["203.0.113.1"], None),
            ("::1", &[], None),
            ("10.0.0.1", &["127.0.0.1"], None),
            // What the proxy wrote is no address.
            ("10.0.0.1", &["unknown"], Some("10.0.0.1")),
            ("10.0.0.1", &["203.0.113.1:4711"], Some("10.0.0.1")),
            ("10.0.0.1", &["203.0.113.1,"], Some("10.0.0.1")),
        ] {
            let mut headers = HeaderMap::new();
            for value in forwarded {
                headers.append(FORWARDED_FOR, HeaderValue::from_static(value));
            }
            assert_eq!(limited_address(ip(peer), &headers, &trusted), expected.map(ip), "{peer} {forwarded:?}");
        }
    }
}
