//! Who a bearer token speaks for, and what it allows (device-lane section 1).

use crate::id::{ApiKeyId, UserId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// One thing that a credential may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Opens device sockets.
    Rpc,
    /// Reads: methods that are no mutations, and `GET` calls.
    Read,
    /// Changes: mutations, and HTTP calls that change something.
    Write,
}

impl Scope {
    /// Every scope, in the order in which they are written.
    pub const ALL: [Scope; 3] = [Scope::Rpc, Scope::Read, Scope::Write];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Rpc => "rpc",
            Scope::Read => "read",
            Scope::Write => "write",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Scope::Rpc => 1,
            Scope::Read => 2,
            Scope::Write => 4,
        }
    }
}

/// A set of scopes. Written as a list of names: `rpc,read` for people, an array in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

impl Scopes {
    /// None.
    pub const NONE: Scopes = Scopes(0);
    /// All three: what a JWT always has.
    pub const ALL: Scopes = Scopes(7);

    /// This set with `scope` in it.
    #[must_use]
    pub const fn with(self, scope: Scope) -> Scopes {
        Scopes(self.0 | scope.bit())
    }

    /// Whether `scope` is in it.
    pub fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Whether all of `others` are in it.
    pub fn contains_all(self, others: Scopes) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether nothing is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes in it, in their order.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }
}

/// Names with commas between them.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, scope) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            f.write_str(scope.as_str())?;
        }
        Ok(())
    }
}

/// A text that names something else than scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAScope(pub String);

impl fmt::Display for NotAScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no scope; scopes are {}", self.0, Scopes::ALL)
    }
}

impl std::error::Error for NotAScope {}

impl FromStr for Scope {
    type Err = NotAScope;

    fn from_str(text: &str) -> Result<Self, NotAScope> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or_else(|| NotAScope(text.to_owned()))
    }
}

/// Names with commas between them, each at most once in effect; the empty text is the empty set.
impl FromStr for Scopes {
    type Err = NotAScope;

    fn from_str(text: &str) -> Result<Self, NotAScope> {
        text.split(',').filter(|_| !text.is_empty()).try_fold(Scopes::NONE, |scopes, name| Ok(scopes.with(name.parse()?)))
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Scope::as_str))
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().try_fold(Scopes::NONE, |scopes, name| Ok(scopes.with(name.parse().map_err(serde::de::Error::custom)?)))
    }
}

/// The bearer of a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The account.
    pub user: UserId,
    /// What the token allows.
    pub scopes: Scopes,
    /// The API key, if it is one: revoking it closes the sockets that it opened.
    pub api_key: Option<ApiKeyId>,
}

impl Identity {
    /// The bearer of a JWT.
    pub fn of_jwt(user: UserId) -> Self {
        Identity { user, scopes: Scopes::ALL, api_key: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_scopes_print_and_parse() {
        for (text, scopes) in [
            ("", Scopes::NONE),
            ("rpc", Scopes::NONE.with(Scope::Rpc)),
            ("rpc,write", Scopes::NONE.with(Scope::Write).with(Scope::Rpc)),
            ("rpc,read,write", Scopes::ALL),
        ] {
            assert_eq!(scopes.to_string(), text);
            assert_eq!(text.parse(), Ok(scopes));
            let json = serde_json::to_string(&scopes).unwrap();
            assert_eq!(serde_json::from_str::<Scopes>(&json).unwrap(), scopes);
        }
        assert_eq!("write,rpc,rpc".parse(), "rpc,write".parse::<Scopes>());
        for text in ["RPC", "rpc, read", "rpc,", "admin"] {
            assert!(text.parse::<Scopes>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_set_contains_its_parts() {
        let some: Scopes = "rpc,read".parse().unwrap();
        assert!(some.contains(Scope::Read) && !some.contains(Scope::Write));
        assert!(Scopes::ALL.contains_all(some) && !some.contains_all(Scopes::ALL) && some.contains_all(Scopes::NONE));
        assert!(Scopes::NONE.is_empty() && !some.is_empty());
    }
}
