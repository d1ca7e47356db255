//! What a desktop answers when a method has no result. The relay carries these unread; the numbers stand in the contract manifest and
//! are never reused, not even for another side's meaning.

/// One meaning of a desktop's error (seed "Two layers protect different operations", device-lane section 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DesktopError {
    /// The request could not be parsed.
    ParseError,
    /// The request is none that a desktop understands.
    InvalidRequest,
    /// No handler has this name.
    MethodNotFound,
    /// The params do not have the method's shape, or the idempotency key is blank or too long.
    InvalidParams,
    /// A fault of the desktop. Whether something ran is unknown.
    Internal,
    /// The caller is not signed in at what the method needs.
    Unauthorized,
    /// The request is of another account than the desktop's.
    Forbidden,
    /// What the params name is not there.
    NotFound,
    /// What the params ask for does not fit the present state, or the key was used for other params.
    Conflict,
    /// The values are not allowed, or the result breaks the contract.
    Validation,
    /// The account's billing forbids it.
    Billing,
    /// The account has to pay first.
    PaymentRequired,
    /// This desktop does not have the method's function.
    NotImplemented,
    /// The desktop's storage failed.
    Database,
    /// Something that the desktop uses failed.
    ExternalService,
    /// A request with this key is running; nothing was started.
    OperationRunning,
    /// A request with this key was cut off, or its result could not be kept: whether it ran is unknown, and it never runs again.
    OutcomeUnknown,
    /// There is no room for another key; nothing was started.
    TooManyKeys,
}

/// What a repeat with the same key may do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The repeat gets the same answer.
    Terminal,
    /// The repeat runs again.
    Retryable,
    /// Whether it ran is unknown: the repeat is told [`DesktopError::OutcomeUnknown`].
    Ambiguous,
}

impl DesktopError {
    /// Every variant.
    pub const ALL: [DesktopError; 18] = [
        DesktopError::ParseError,
        DesktopError::InvalidRequest,
        DesktopError::MethodNotFound,
        DesktopError::InvalidParams,
        DesktopError::Internal,
        DesktopError::Unauthorized,
        DesktopError::Forbidden,
        DesktopError::NotFound,
        DesktopError::Conflict,
        DesktopError::Validation,
        DesktopError::Billing,
        DesktopError::PaymentRequired,
        DesktopError::NotImplemented,
        DesktopError::Database,
        DesktopError::ExternalService,
        DesktopError::OperationRunning,
        DesktopError::OutcomeUnknown,
        DesktopError::TooManyKeys,
    ];

    /// The word in the contract manifest.
    pub fn name(self) -> &'static str {
        match self {
            DesktopError::ParseError => "parseError",
            DesktopError::InvalidRequest => "invalidRequest",
            DesktopError::MethodNotFound => "methodNotFound",
            DesktopError::InvalidParams => "invalidParams",
            DesktopError::Internal => "internal",
            DesktopError::Unauthorized => "unauthorized",
            DesktopError::Forbidden => "forbidden",
            DesktopError::NotFound => "notFound",
            DesktopError::Conflict => "conflict",
            DesktopError::Validation => "validation",
            DesktopError::Billing => "billing",
            DesktopError::PaymentRequired => "paymentRequired",
            DesktopError::NotImplemented => "notImplemented",
            DesktopError::Database => "database",
            DesktopError::ExternalService => "externalService",
            DesktopError::OperationRunning => "operationRunning",
            DesktopError::OutcomeUnknown => "outcomeUnknown",
            DesktopError::TooManyKeys => "tooManyKeys",
        }
    }

    /// The JSON-RPC number.
    pub fn code(self) -> i32 {
        match self {
            DesktopError::ParseError => -32700,
            DesktopError::InvalidRequest => -32600,
            DesktopError::MethodNotFound => -32601,
            DesktopError::InvalidParams => -32602,
            DesktopError::Internal => -32603,
            DesktopError::Unauthorized => -32040,
            DesktopError::Forbidden => -32041,
            DesktopError::NotFound => -32042,
            DesktopError::Conflict => -32043,
            DesktopError::Validation => -32044,
            DesktopError::Billing => -32045,
            DesktopError::PaymentRequired => -32046,
            DesktopError::NotImplemented => -32047,
            DesktopError::Database => -32048,
            DesktopError::ExternalService => -32049,
            DesktopError::OperationRunning => -32050,
            DesktopError::OutcomeUnknown => -32051,
            DesktopError::TooManyKeys => -32052,
        }
    }

    /// What the meaning alone says; an error that is flagged retryable is [`ErrorClass::Retryable`] whatever it means.
    pub fn class(self) -> ErrorClass {
        match self {
            DesktopError::InvalidRequest
            | DesktopError::MethodNotFound
            | DesktopError::InvalidParams
            | DesktopError::Unauthorized
            | DesktopError::Forbidden
            | DesktopError::NotFound
            | DesktopError::Conflict
            | DesktopError::Validation
            | DesktopError::Billing
            | DesktopError::PaymentRequired
            | DesktopError::NotImplemented => ErrorClass::Terminal,
            DesktopError::ParseError | DesktopError::OperationRunning | DesktopError::TooManyKeys => ErrorClass::Retryable,
            DesktopError::Internal | DesktopError::Database | DesktopError::ExternalService | DesktopError::OutcomeUnknown => {
                ErrorClass::Ambiguous
            }
        }
    }

    /// Whether the answer is flagged so that a phone may send the same again, with the same key: nothing was started.
    pub fn is_retryable(self) -> bool {
        match self {
            DesktopError::OperationRunning | DesktopError::TooManyKeys => true,
            DesktopError::ParseError
            | DesktopError::InvalidRequest
            | DesktopError::MethodNotFound
            | DesktopError::InvalidParams
            | DesktopError::Internal
            | DesktopError::Unauthorized
            | DesktopError::Forbidden
            | DesktopError::NotFound
            | DesktopError::Conflict
            | DesktopError::Validation
            | DesktopError::Billing
            | DesktopError::PaymentRequired
            | DesktopError::NotImplemented
            | DesktopError::Database
            | DesktopError::ExternalService
            | DesktopError::OutcomeUnknown => false,
        }
    }

    /// The meaning of a number; `None` for one that desktops do not have.
    pub fn of_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|error| i64::from(error.code()) == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_and_word_stands_for_one_meaning() {
        for error in DesktopError::ALL {
            assert_eq!(DesktopError::of_code(error.code().into()), Some(error));
            assert_eq!(DesktopError::ALL.iter().filter(|other| other.name() == error.name()).count(), 1, "{}", error.name());
        }
        assert_eq!(DesktopError::of_code(-32012), None);
    }

    #[test]
    fn what_is_flagged_retryable_is_retryable() {
        for error in DesktopError::ALL.into_iter().filter(|error| error.is_retryable()) {
            assert_eq!(error.class(), ErrorClass::Retryable, "{}", error.name());
        }
    }
}
