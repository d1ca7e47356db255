//! Which client versions may work with each other and with this relay (device-lane section 7): the rules, and what follows from them.
//!
//! [`RuleSpec`] is a rule as operators write it and storage keeps it, [`Policy`] is all of them parsed, [`Policy::check`] decides.

use crate::{
    device::Role,
    version::{NotAVersion, Version},
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

#[cfg(test)]
mod tests;

/// Longest platform that a rule names, in characters: no device may have a longer one.
pub const RULE_PLATFORM_CHARS_MAX: usize = 64;
/// Longest message of a rule, in characters: a paragraph on a phone's screen.
pub const RULE_MESSAGE_CHARS_MAX: usize = 500;

/// The relay protocol version that is required whatever the rules say. Seed.
pub fn protocol_floor() -> Version {
    Version::new(1, 7)
}

/// Names a rule. Grows with each one that is added and is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleId(pub i64);

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RuleId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(RuleId)
    }
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleKind {
    /// Demands a lowest version of the application, of the relay protocol, or both.
    Minimum,
    /// Refuses a range of versions.
    Block,
    /// Demands, for a range of versions, a lowest version of the other side.
    Pair,
}

impl RuleKind {
    /// The word in storage and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            RuleKind::Minimum => "minimum",
            RuleKind::Block => "block",
            RuleKind::Pair => "pair",
        }
    }
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text named no kind of rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAKind;

impl fmt::Display for NotAKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rule is minimum, block or pair")
    }
}

impl std::error::Error for NotAKind {}

impl FromStr for RuleKind {
    type Err = NotAKind;

    fn from_str(text: &str) -> Result<Self, NotAKind> {
        match text {
            "minimum" => Ok(RuleKind::Minimum),
            "block" => Ok(RuleKind::Block),
            "pair" => Ok(RuleKind::Pair),
            _ => Err(NotAKind),
        }
    }
}

/// A rule as it is written; its versions are unparsed, since storage may hold what an operator's own SQL put there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleSpec {
    /// What it does.
    pub kind: RuleKind,
    /// Whose versions it is about.
    pub client: Role,
    /// The platform that it names, in any letter case; none: every one.
    pub platform: Option<String>,
    /// Lowest application version of its range; of a minimum, what it demands. None: open.
    pub min_app_version: Option<String>,
    /// Highest application version of its range, itself included. None: open.
    pub max_app_version: Option<String>,
    /// Of a pair: the lowest version of the other side.
    pub pair_min_app_version: Option<String>,
    /// The lowest relay protocol version, of every client, whatever the rest of the rule says. Seed.
    pub minimum_relay_protocol_version: Option<String>,
    /// What clients that it refuses show instead of the relay's text.
    pub message: Option<String>,
}

impl RuleSpec {
    /// Whether the rule may be added.
    ///
    /// # Errors
    /// What is wrong, with the field.
    pub fn validate(&self) -> Result<(), String> {
        let rule = Rule::parse(self).map_err(|column| format!("{column}: {NotAVersion}"))?;
        for (name, text, chars_max) in
            [("platform", &self.platform, RULE_PLATFORM_CHARS_MAX), ("message", &self.message, RULE_MESSAGE_CHARS_MAX)]
        {
            let is_good = |text: &String| !text.trim().is_empty() && !text.contains('\0') && text.chars().count() <= chars_max;
            if !text.as_ref().is_none_or(is_good) {
                return Err(format!("{name} must not be blank, nor longer than {chars_max} characters, and without NUL"));
            }
        }
        if rule.min.as_ref().zip(rule.max.as_ref()).is_some_and(|(min, max)| min > max) {
            return Err("minAppVersion is above maxAppVersion".into());
        }
        match self.kind {
            RuleKind::Minimum if rule.max.is_some() => Err("a minimum has no maxAppVersion".into()),
            RuleKind::Minimum if rule.min.is_none() && self.minimum_relay_protocol_version.is_none() => {
                Err("a minimum demands minAppVersion or minimumRelayProtocolVersion".into())
            }
            RuleKind::Pair if rule.pair_min.is_none() => Err("a pair demands pairMinAppVersion".into()),
            RuleKind::Minimum | RuleKind::Block if rule.pair_min.is_some() => Err("only a pair has pairMinAppVersion".into()),
            RuleKind::Minimum | RuleKind::Block | RuleKind::Pair => Ok(()),
        }
    }
}

/// What a client says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Of the application.
    pub app_version: String,
    /// Such as `macos` or `ios`.
    pub platform: String,
    /// Of the relay protocol that it speaks.
    pub relay_protocol_version: String,
}

/// What a check comes to. Device-lane section 7, in its order: the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    /// Nobody was described.
    MissingClient,
    /// A version does not parse.
    InvalidVersion,
    /// A relay protocol version is below the required one.
    ProtocolUpdateRequired,
    /// The desktop is below a minimum.
    UnsupportedDesktopVersion,
    /// The phone is below a minimum.
    UnsupportedMobileVersion,
    /// One of the two demands a newer version of the other.
    UnsupportedPair,
    /// A version is in a blocked range.
    BlockedByPolicy,
    /// None of these.
    Compatible,
}

impl Decision {
    fn text(self, required: &Version) -> String {
        match self {
            Decision::MissingClient => "Describe a desktop, a mobile client, or both.".into(),
            Decision::InvalidVersion => format!("A version cannot be read: {NotAVersion}."),
            Decision::ProtocolUpdateRequired => format!("Update the app: this relay needs relay protocol {required} or newer."),
            Decision::UnsupportedDesktopVersion => "This version of the desktop app is no longer supported; update it.".into(),
            Decision::UnsupportedMobileVersion => "This version of the mobile app is no longer supported; update it.".into(),
            Decision::UnsupportedPair => {
                "These versions of the desktop and the mobile app do not work together; update the older one.".into()
            }
            Decision::BlockedByPolicy => "This version of the app is not allowed on this relay.".into(),
            Decision::Compatible => "Compatible.".into(),
        }
    }
}

/// What is said of one client beside the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientResult {
    /// Some rule names its platform with its version in range, or no rule names its platform.
    pub known_version: bool,
    /// Its relay protocol version parses and is not below the required one.
    pub protocol_supported: bool,
}

/// The answer of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckAnswer {
    /// Whether the decision is [`Decision::Compatible`].
    pub compatible: bool,
    /// What it is.
    pub decision: Decision,
    /// For people: that of the rule that decided, or the relay's.
    pub message: String,
    /// Changes with the rules: their number and highest id.
    pub policy_version: String,
    /// What registrations must reach.
    pub required_relay_protocol_version: String,
    /// Of the desktop, if it was described.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desktop: Option<ClientResult>,
    /// Of the phone, if it was described.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mobile: Option<ClientResult>,
}

/// A stored rule that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule {
    /// Which.
    pub id: RuleId,
    /// Its field that is no version.
    pub field: &'static str,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of compatibility rule {} is no version", self.field, self.id)
    }
}

impl std::error::Error for BadRule {}

/// All rules, parsed.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    required: Version,
    version: String,
}

#[derive(Clone, Debug)]
struct Rule {
    kind: RuleKind,
    client: Role,
    platform: Option<String>,
    min: Option<Version>,
    max: Option<Version>,
    pair_min: Option<Version>,
    protocol_min: Option<Version>,
    message: Option<String>,
}

/// A described client whose versions parse.
struct Client<'a> {
    role: Role,
    platform: &'a str,
    app: Version,
    protocol: Version,
}

impl Policy {
    /// Takes the rules in the order of their ids.
    ///
    /// # Errors
    /// The first [`BadRule`]: a policy with a part left out could allow what it forbids.
    pub fn new<'a>(rules: impl IntoIterator<Item = (RuleId, &'a RuleSpec)>) -> Result<Self, BadRule> {
        let (mut parsed, mut highest_id) = (Vec::new(), RuleId(0));
        for (id, rule) in rules {
            parsed.push(Rule::parse(rule).map_err(|field| BadRule { id, field })?);
            highest_id = highest_id.max(id);
        }
        let required = parsed.iter().filter_map(|rule| rule.protocol_min.clone()).fold(protocol_floor(), Version::max);
        Ok(Policy { version: format!("{}.{highest_id}", parsed.len()), rules: parsed, required })
    }

    /// Decides about one client or a pair.
    pub fn check(&self, desktop: Option<&Descriptor>, mobile: Option<&Descriptor>) -> CheckAnswer {
        let (decision, rule) = self.decide(desktop, mobile);
        CheckAnswer {
            compatible: decision == Decision::Compatible,
            decision,
            message: rule.and_then(|rule| rule.message.clone()).unwrap_or_else(|| decision.text(&self.required)),
            policy_version: self.version.clone(),
            required_relay_protocol_version: self.required.to_string(),
            desktop: desktop.map(|descriptor| self.result(Role::Desktop, descriptor)),
            mobile: mobile.map(|descriptor| self.result(Role::Mobile, descriptor)),
        }
    }

    /// With the rule behind the decision. A protocol version has none: it is demanded of every client, and the message of a rule speaks
    /// to the one that it is about.
    fn decide<'s>(&'s self, desktop: Option<&Descriptor>, mobile: Option<&Descriptor>) -> (Decision, Option<&'s Rule>) {
        let described = [(Role::Desktop, desktop), (Role::Mobile, mobile)];
        let clients: Result<Vec<Client<'_>>, NotAVersion> =
            described.iter().filter_map(|(role, descriptor)| descriptor.map(|descriptor| Client::parse(*role, descriptor))).collect();
        let Ok(clients) = clients else { return (Decision::InvalidVersion, None) };
        if clients.is_empty() {
            return (Decision::MissingClient, None);
        }
        if clients.iter().any(|client| client.protocol < self.required) {
            return (Decision::ProtocolUpdateRequired, None);
        }
        for client in &clients {
            let is_too_old = |rule: &&Rule| rule.min.as_ref().is_some_and(|min| client.app < *min);
            if let Some(rule) = self.about(client, RuleKind::Minimum).find(is_too_old) {
                let decision = match client.role {
                    Role::Desktop => Decision::UnsupportedDesktopVersion,
                    Role::Mobile => Decision::UnsupportedMobileVersion,
                };
                return (decision, Some(rule));
            }
        }
        if let [desktop, mobile] = &clients[..] {
            for (client, other) in [(desktop, mobile), (mobile, desktop)] {
                let is_too_old = |rule: &&Rule| rule.pair_min.as_ref().is_some_and(|min| other.app < *min);
                if let Some(rule) = self.about(client, RuleKind::Pair).filter(|rule| rule.has_in_range(&client.app)).find(is_too_old) {
                    return (Decision::UnsupportedPair, Some(rule));
                }
            }
        }
        for client in &clients {
            if let Some(rule) = self.about(client, RuleKind::Block).find(|rule| rule.has_in_range(&client.app)) {
                return (Decision::BlockedByPolicy, Some(rule));
            }
        }
        (Decision::Compatible, None)
    }

    /// The rules of this kind for a client, oldest first.
    fn about<'s, 'c>(&'s self, client: &'c Client<'_>, kind: RuleKind) -> impl Iterator<Item = &'s Rule> + use<'s, 'c> {
        self.rules.iter().filter(move |rule| rule.kind == kind && rule.is_about(client.role, client.platform))
    }

    fn result(&self, role: Role, descriptor: &Descriptor) -> ClientResult {
        let app = descriptor.app_version.parse::<Version>();
        let protocol = descriptor.relay_protocol_version.parse::<Version>();
        let mut naming = self.rules.iter().filter(|rule| rule.platform.is_some() && rule.is_about(role, &descriptor.platform)).peekable();
        let is_known = |app: &Version| naming.peek().is_none() || naming.any(|rule| rule.has_in_range(app));
        ClientResult {
            known_version: app.as_ref().is_ok_and(is_known),
            protocol_supported: protocol.is_ok_and(|protocol| protocol >= self.required),
        }
    }
}

impl Rule {
    /// Or the field that is no version.
    fn parse(spec: &RuleSpec) -> Result<Self, &'static str> {
        let version = |field: &'static str, text: &Option<String>| text.as_deref().map(str::parse).transpose().map_err(|NotAVersion| field);
        Ok(Rule {
            kind: spec.kind,
            client: spec.client,
            platform: spec.platform.clone(),
            min: version("minAppVersion", &spec.min_app_version)?,
            max: version("maxAppVersion", &spec.max_app_version)?,
            pair_min: version("pairMinAppVersion", &spec.pair_min_app_version)?,
            protocol_min: version("minimumRelayProtocolVersion", &spec.minimum_relay_protocol_version)?,
            message: spec.message.clone(),
        })
    }

    fn is_about(&self, client: Role, platform: &str) -> bool {
        self.client == client && self.platform.as_ref().is_none_or(|named| named.eq_ignore_ascii_case(platform))
    }

    fn has_in_range(&self, app: &Version) -> bool {
        self.min.as_ref().is_none_or(|min| min <= app) && self.max.as_ref().is_none_or(|max| app <= max)
    }
}

impl<'a> Client<'a> {
    fn parse(role: Role, descriptor: &'a Descriptor) -> Result<Self, NotAVersion> {
        let (app, protocol) = (descriptor.app_version.parse()?, descriptor.relay_protocol_version.parse()?);
        Ok(Client { role, platform: &descriptor.platform, app, protocol })
    }
}
