//! `register`: the first frame of a socket, and every check that stands between it and a route (device-lane section 3).

use crate::{
    device::{DeviceFacts, Role},
    envelope::{RegisterFields, string},
    error::{FrameError, RegisterError},
    id::{DeviceId, Route, SessionId, UserId},
    version::Version,
};
use serde_json::value::RawValue;
use std::fmt;

/// The payload of `register`, shape checked, values not yet judged.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Register {
    /// `deviceId`.
    pub device_id: String,
    /// `relayProtocolVersion`.
    pub relay_protocol_version: Option<String>,
    /// `deviceName`; for logs of clients, not stored.
    pub device_name: Option<String>,
    /// `sessionId`.
    pub session_id: Option<String>,
    /// `resumeToken`: a secret.
    pub resume_token: Option<String>,
    /// `targetDesktopDeviceId`.
    pub target_desktop_device_id: Option<String>,
}

impl fmt::Debug for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Register")
            .field("device_id", &self.device_id)
            .field("relay_protocol_version", &self.relay_protocol_version)
            .field("resumes", &self.resume_token.is_some())
            .finish_non_exhaustive()
    }
}

/// A resume session that a registration names.
#[derive(Clone, PartialEq, Eq)]
pub struct ResumeClaim {
    /// The session.
    pub session: SessionId,
    /// What proves it. A secret.
    pub token: String,
}

/// Who a registration says it is, once its own text has been judged.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim {
    /// The route that it asks for.
    pub route: Route,
    /// The session that it resumes; an error when only half of one was given, or its id is no UUID.
    pub resume: Result<Option<ResumeClaim>, RegisterError>,
}

impl Register {
    pub(crate) fn read(fields: &RegisterFields<'_>) -> Result<Self, FrameError> {
        let optional = |name: &str, raw: Option<&RawValue>| match raw.filter(|raw| raw.get() != "null") {
            None => Ok(None),
            Some(raw) => {
                let text = string(raw).ok_or_else(|| FrameError::invalid(format_args!("`{name}` is not a string")))?;
                Ok(Some(text.into_owned()))
            }
        };
        Ok(Register {
            device_id: optional("deviceId", fields.device_id)?.ok_or_else(|| FrameError::invalid("missing field `deviceId`"))?,
            relay_protocol_version: optional("relayProtocolVersion", fields.relay_protocol_version)?,
            device_name: optional("deviceName", fields.device_name)?,
            session_id: optional("sessionId", fields.session_id)?,
            resume_token: optional("resumeToken", fields.resume_token)?,
            target_desktop_device_id: optional("targetDesktopDeviceId", fields.target_desktop_device_id)?,
        })
    }

    /// The version that the client speaks. Checked before any look-up.
    ///
    /// # Errors
    /// [`RegisterError::InvalidRelayProtocolVersion`].
    pub fn version(&self) -> Result<Option<Version>, RegisterError> {
        let parse = |text: &String| text.parse().map_err(|_not_a_version| RegisterError::InvalidRelayProtocolVersion);
        self.relay_protocol_version.as_ref().map(parse).transpose()
    }

    /// The devices that a look-up should bring: the socket's own, and a phone's target. Ids that do not parse are left out; they
    /// fail later, in their turn.
    pub fn devices_to_look_up(&self, role: Role, header_target: Option<&str>) -> Vec<DeviceId> {
        let target = match role {
            Role::Desktop => None,
            Role::Mobile => header_target.or(self.target_desktop_device_id.as_deref()),
        };
        [Some(self.device_id.as_str()), target].into_iter().flatten().filter_map(|text| text.parse().ok()).collect()
    }

    /// Judges what the frame itself says, from the version gate to the target. `required` is the version that the rules demand.
    ///
    /// # Errors
    /// The first that applies, in the order of [`RegisterError`].
    pub fn claim(
        &self,
        role: Role,
        header_target: Option<&str>,
        required: Result<&Version, RegisterError>,
    ) -> Result<Claim, RegisterError> {
        let version = self.version()?;
        let required = required?;
        if version.is_none_or(|version| version < *required) {
            return Err(RegisterError::ProtocolUpdateRequired(required.clone()));
        }
        let device = self.device_id.parse().map_err(|_not_a_uuid| RegisterError::InvalidDeviceId)?;
        let route = match role {
            Role::Desktop => Route::Desktop(device),
            Role::Mobile => Route::Phone { phone: device, desktop: self.target(header_target)? },
        };
        Ok(Claim { route, resume: self.resume() })
    }

    fn target(&self, header: Option<&str>) -> Result<DeviceId, RegisterError> {
        let parse = |text: &str| text.parse::<DeviceId>().map_err(|_not_a_uuid| RegisterError::InvalidTargetDesktop);
        match (header, self.target_desktop_device_id.as_deref()) {
            (None, None) => Err(RegisterError::MissingTargetDesktop),
            (Some(one), None) | (None, Some(one)) => parse(one),
            (Some(one), Some(other)) => {
                let target = parse(one)?;
                if parse(other)? == target { Ok(target) } else { Err(RegisterError::InvalidTargetDesktop) }
            }
        }
    }

    fn resume(&self) -> Result<Option<ResumeClaim>, RegisterError> {
        match (&self.session_id, &self.resume_token) {
            (None, None) => Ok(None),
            (Some(session), Some(token)) => {
                let session = session.parse().map_err(|_not_a_uuid| RegisterError::InvalidResume)?;
                Ok(Some(ResumeClaim { session, token: token.clone() }))
            }
            (Some(_), None) | (None, Some(_)) => Err(RegisterError::InvalidResume),
        }
    }
}

impl Claim {
    /// Holds the claim against the rows that the look-up brought.
    ///
    /// # Errors
    /// The first that applies, in the order of [`RegisterError`].
    pub fn check_rows(&self, user: UserId, role: Role, rows: &[DeviceFacts]) -> Result<(), RegisterError> {
        let row = |id: DeviceId| rows.iter().find(|row| row.id == id);
        let device = row(self.route.device()).ok_or(RegisterError::DeviceNotFound)?;
        if device.user != user {
            return Err(RegisterError::DeviceOwnershipFailed);
        }
        if device.role != role {
            return Err(RegisterError::DeviceRoleMismatch);
        }
        if !device.relay_eligible {
            return Err(RegisterError::DeviceNotEligible);
        }
        if let Route::Phone { desktop, .. } = self.route {
            row(desktop).filter(|row| row.user == user && row.role == Role::Desktop).ok_or(RegisterError::InvalidTargetDesktop)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Inbound;

    const PHONE: &str = "11111111-1111-4111-8111-111111111111";
    const DESKTOP: &str = "22222222-2222-4222-8222-222222222222";
    const OTHER: &str = "44444444-4444-4444-8444-444444444444";

    fn id<T: std::str::FromStr>(text: &str) -> T
    where
        T::Err: fmt::Debug,
    {
        text.parse().unwrap()
    }

    fn register() -> Register {
        Register { device_id: PHONE.into(), relay_protocol_version: Some("1.7".into()), ..Register::default() }
    }

    fn claim(register: &Register, role: Role, header: Option<&str>) -> Result<Claim, RegisterError> {
        register.claim(role, header, Ok(&Version::new(1, 7)))
    }

    #[test]
    fn the_shape_is_strict() {
        let read = |payload: &str| Inbound::parse(format!("{{\"type\":\"register\",\"payload\":{payload}}}").into());
        assert!(matches!(
            read(&format!("{{\"deviceId\":\"{PHONE}\",\"resumeToken\":null,\"deviceName\":\"Pixel \\u0039\"}}")),
            Ok(Inbound::Register(register)) if register.device_name.as_deref() == Some("Pixel 9") && register.resume_token.is_none()
        ));
        for payload in [
            "{}",
            "{\"deviceId\":null}",
            "{\"deviceId\":7}",
            "[]",
            "{\"deviceId\":\"a\",\"userId\":\"u\"}",
            "{\"deviceId\":\"a\",\"deviceId\":\"a\"}",
            "{\"deviceId\":\"a\",\"relayProtocolVersion\":1.7}",
            "{\"deviceId\":\"\\ud800\"}",
        ] {
            assert!(matches!(read(payload), Err(FrameError::InvalidPayload(_))), "{payload}");
        }
    }

    #[test]
    fn the_version_gate_comes_first() {
        let with = |version: Option<&str>| Register {
            relay_protocol_version: version.map(Into::into),
            device_id: "nonsense".into(),
            ..register()
        };
        let judge = |version, required| with(version).claim(Role::Desktop, None, required).err();
        let required = Version::new(1, 10);
        assert_eq!(judge(Some("x"), Err(RegisterError::RelayProtocolPolicyUnavailable)), Some(RegisterError::InvalidRelayProtocolVersion));
        assert_eq!(
            judge(Some("0"), Err(RegisterError::RelayProtocolPolicyUnavailable)),
            Some(RegisterError::RelayProtocolPolicyUnavailable)
        );
        assert_eq!(judge(None, Ok(&required)), Some(RegisterError::ProtocolUpdateRequired(required.clone())));
        assert_eq!(judge(Some("1.9.9"), Ok(&required)), Some(RegisterError::ProtocolUpdateRequired(required.clone())));
        assert_eq!(judge(Some("1.10"), Ok(&required)), Some(RegisterError::InvalidDeviceId));
        assert_eq!(judge(Some("2"), Ok(&required)), Some(RegisterError::InvalidDeviceId));
    }

    #[test]
    fn a_phone_names_one_desktop() {
        let with = |payload: Option<&str>| Register { target_desktop_device_id: payload.map(Into::into), ..register() };
        let target =
            |header: Option<&str>, payload: Option<&str>| claim(&with(payload), Role::Mobile, header).map(|claim| claim.route.desktop());
        let upper = "22222222-2222-4222-8222-222222222222".to_uppercase();
        assert_eq!(target(None, None), Err(RegisterError::MissingTargetDesktop));
        for (header, payload) in [(Some(DESKTOP), None), (None, Some(DESKTOP)), (Some(DESKTOP), Some(upper.as_str()))] {
            assert_eq!(target(header, payload), Ok(id(DESKTOP)));
        }
        for (header, payload) in
            [(Some(DESKTOP), Some(OTHER)), (Some("x"), None), (None, Some("")), (Some(DESKTOP), Some("x")), (Some("x"), Some(DESKTOP))]
        {
            assert_eq!(target(header, payload), Err(RegisterError::InvalidTargetDesktop), "{header:?} {payload:?}");
        }
        assert_eq!(claim(&with(Some(DESKTOP)), Role::Desktop, Some("x")).unwrap().route, Route::Desktop(id(PHONE)));
    }

    #[test]
    fn half_a_resume_is_no_resume() {
        let with = |session: Option<&str>, token: Option<&str>| {
            let register = Register { session_id: session.map(Into::into), resume_token: token.map(Into::into), ..register() };
            claim(&register, Role::Desktop, None).unwrap().resume.map(|resume| resume.is_some())
        };
        assert_eq!(with(None, None), Ok(false));
        assert_eq!(with(Some(OTHER), Some("t")), Ok(true));
        for (session, token) in [(Some(OTHER), None), (None, Some("t")), (Some("x"), Some("t"))] {
            assert_eq!(with(session, token), Err(RegisterError::InvalidResume));
        }
    }

    #[test]
    fn rows_are_checked_in_order() {
        let (user, stranger): (UserId, UserId) = (id(OTHER), id(DESKTOP));
        let phone = DeviceFacts { id: id(PHONE), user, role: Role::Mobile, relay_eligible: true };
        let desktop = DeviceFacts { id: id(DESKTOP), user, role: Role::Desktop, relay_eligible: true };
        let claim = claim(&register(), Role::Mobile, Some(DESKTOP)).unwrap();
        let check = |rows: &[DeviceFacts]| claim.check_rows(user, Role::Mobile, rows);
        assert_eq!(check(&[phone.clone(), desktop.clone()]), Ok(()));
        assert_eq!(check(&[]), Err(RegisterError::DeviceNotFound));
        let wrong = |change: fn(&mut DeviceFacts)| {
            let mut row = phone.clone();
            change(&mut row);
            row
        };
        let foreign = DeviceFacts { user: stranger, role: Role::Desktop, ..phone.clone() };
        assert_eq!(check(&[foreign]), Err(RegisterError::DeviceOwnershipFailed));
        assert_eq!(check(&[wrong(|row| (row.role, row.relay_eligible) = (Role::Desktop, false))]), Err(RegisterError::DeviceRoleMismatch));
        assert_eq!(check(&[wrong(|row| row.relay_eligible = false)]), Err(RegisterError::DeviceNotEligible));
        assert_eq!(check(std::slice::from_ref(&phone)), Err(RegisterError::InvalidTargetDesktop));
        for target in [DeviceFacts { user: stranger, ..desktop.clone() }, DeviceFacts { role: Role::Mobile, ..desktop }] {
            assert_eq!(check(&[phone.clone(), target]), Err(RegisterError::InvalidTargetDesktop));
        }
        let resting = DeviceFacts { relay_eligible: false, id: id(DESKTOP), user, role: Role::Desktop };
        assert_eq!(check(&[phone.clone(), resting]), Ok(()), "an ineligible desktop is a target that is offline");
    }

    #[test]
    fn secrets_stay_out_of_debug_output() {
        let register = Register { resume_token: Some("hush".into()), ..register() };
        assert!(!format!("{register:?}").contains("hush"));
    }
}
