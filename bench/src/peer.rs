//! Who connects. Ids are fixed, so that a second run against the same data directory finds its devices again.

/// Which end of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers calls.
    Desktop,
    /// Makes calls.
    Phone,
}

impl Role {
    /// The word in headers and device rows.
    pub fn wire_name(self) -> &'static str {
        match self {
            Role::Desktop => "desktop",
            Role::Phone => "mobile",
        }
    }
}

/// One device. All devices of a pair belong to one account; most pairs have one phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Which end.
    pub role: Role,
    /// The pair's number.
    pub pair: u32,
    /// Which phone of the pair.
    pub number: u16,
}

/// First group of the ids, one per kind of thing.
const USER: u32 = 0xbe9c_0001;
const DESKTOP: u32 = 0xbe9c_0002;
const PHONE: u32 = 0xbe9c_0003;

fn uuid(kind: u32, number: u16, pair: u32) -> String {
    format!("{kind:08x}-{number:04x}-4000-8000-{pair:012x}")
}

impl Peer {
    /// The desktop of a pair.
    pub fn desktop(pair: u32) -> Self {
        Self { role: Role::Desktop, pair, number: 0 }
    }

    /// The phone of a pair.
    pub fn phone(pair: u32) -> Self {
        Self::nth_phone(pair, 0)
    }

    /// One of several phones of a pair; the first is [`Peer::phone`].
    pub fn nth_phone(pair: u32, number: u16) -> Self {
        Self { role: Role::Phone, pair, number }
    }

    /// The account's UUID.
    pub fn user(self) -> String {
        uuid(USER, 0, self.pair)
    }

    /// This device's UUID.
    pub fn device(self) -> String {
        match self.role {
            Role::Desktop => self.desktop_device(),
            Role::Phone => uuid(PHONE, self.number, self.pair),
        }
    }

    /// The UUID of the pair's desktop.
    pub fn desktop_device(self) -> String {
        uuid(DESKTOP, 0, self.pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hyphenated_and_differ_by_kind_and_pair() {
        let ids = [
            Peer::desktop(1).user(),
            Peer::desktop(2).user(),
            Peer::desktop(1).device(),
            Peer::phone(1).device(),
            Peer::nth_phone(1, 1).device(),
            Peer::nth_phone(1, u16::MAX).device(),
            Peer::phone(u32::MAX).device(),
        ];
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(id.len(), 36, "{id}");
            assert_eq!(id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{id}");
            assert!(!ids[..n].contains(id), "{id} twice");
        }
        assert_eq!(Peer::phone(7).desktop_device(), Peer::desktop(7).device());
        assert_eq!(Peer::nth_phone(7, 9).user(), Peer::desktop(7).user());
    }
}
