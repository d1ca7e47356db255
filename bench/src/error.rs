//! What can go wrong while measuring.

use fastwebsockets::WebSocketError;
use std::{fmt, io};

/// Why a measurement could not be made, or should not be believed.
#[derive(Debug)]
pub enum Error {
    /// The operating system refused something.
    Io {
        /// What was being done, as in "connect".
        doing: &'static str,
        /// The refusal.
        source: io::Error,
    },
    /// A websocket broke the protocol or its connection.
    WebSocket(WebSocketError),
    /// The other side ended the connection.
    Closed {
        /// What it interrupted.
        during: &'static str,
    },
    /// The server answered, and the answer was no.
    Refused {
        /// What was asked for.
        step: &'static str,
        /// What came back.
        answer: String,
    },
    /// A step took longer than a healthy server on loopback needs.
    TooSlow {
        /// The step.
        step: &'static str,
    },
    /// A server process could not be started or ended early.
    Server(String),
    /// A signal ended the run before it was done.
    Interrupted,
    /// The token could not be signed.
    Token(jsonwebtoken::errors::Error),
    /// The run finished, but some calls failed: its figures describe a server that drops work.
    Unclean {
        /// Calls with a wrong answer, or connections lost.
        errors: u64,
        /// Calls given up.
        timeouts: u64,
        /// The first failure, in words.
        first: String,
    },
}

impl Error {
    /// An adapter for `map_err` that names what was being done.
    pub fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { doing, source }
    }

    /// Whether no connection came about or one was lost, so that the same run may succeed later.
    pub fn is_connection_lost(&self) -> bool {
        match self {
            Error::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::TimedOut
            ),
            Error::WebSocket(_) | Error::Closed { .. } | Error::TooSlow { .. } => true,
            Error::Refused { .. } | Error::Server(_) | Error::Interrupted | Error::Token(_) | Error::Unclean { .. } => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, source } => write!(f, "{doing}: {source}"),
            Error::WebSocket(error) => write!(f, "websocket: {error}"),
            Error::Closed { during } => write!(f, "connection closed during {during}"),
            Error::Refused { step, answer } => write!(f, "{step} refused: {answer}"),
            Error::TooSlow { step } => write!(f, "{step} took too long"),
            Error::Server(what) => f.write_str(what),
            Error::Interrupted => f.write_str("ended by a signal, without figures"),
            Error::Token(error) => write!(f, "token: {error}"),
            Error::Unclean { errors, timeouts, first } => {
                write!(f, "{errors} errors and {timeouts} timeouts, so the figures are not to be trusted; first failure: {first}")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<WebSocketError> for Error {
    fn from(error: WebSocketError) -> Self {
        Error::WebSocket(error)
    }
}
