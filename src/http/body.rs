//! Request bodies and queries. Bodies are read within a size and a time, then taken apart field by field so that an error names the field.
//!
//! The content type is not looked at: a call proves itself by its bearer token, which no foreign web page can add.

use super::error::ApiError;
use crate::limits::{API_BODY_BYTES_MAX, API_BODY_DISCARDED_BYTES_MAX, API_BODY_READ_TIMEOUT};
use actix_web::{
    Error, HttpMessage,
    body::{BodySize, BoxBody, MessageBody},
    dev::{self, ServiceRequest, ServiceResponse},
    error::QueryPayloadError,
    http::header,
    middleware::Next,
    web::{self, Bytes, BytesMut, Payload},
};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

/// The whole body.
///
/// # Errors
/// [`ApiError::PayloadTooLarge`], [`ApiError::BodyTimeout`], or [`ApiError::InvalidPayload`] when it ends early.
pub async fn read(payload: Payload) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(API_BODY_READ_TIMEOUT, read_whole(payload)).await {
        Ok(body) => body,
        Err(_elapsed) => Err(ApiError::BodyTimeout),
    }
}

async fn read_whole(mut payload: Payload) -> Result<Bytes, ApiError> {
    let (mut body, mut length) = (BytesMut::new(), 0);
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_broken_off| ApiError::InvalidPayload("the body ended early".into()))?;
        length += chunk.len();
        if length <= API_BODY_BYTES_MAX {
            body.extend_from_slice(&chunk);
        } else if length > API_BODY_DISCARDED_BYTES_MAX {
            break;
        }
    }
    if length > API_BODY_BYTES_MAX { Err(ApiError::PayloadTooLarge) } else { Ok(body.freeze()) }
}

/// Ends a connection whose chunked body was not read to its end, as the server does by itself after one of a stated length. Without
/// this it would go on reading the rest for as long as the client keeps it coming or keeps silent: it does so once it sees that the
/// body has been dropped, so the body is kept until the answer is sent.
///
/// # Errors
/// Those of the handlers.
pub async fn end_unread<B>(mut request: ServiceRequest, next: Next<B>) -> Result<ServiceResponse<BoxBody>, Error>
where
    B: MessageBody + 'static,
{
    if !request.headers().contains_key(header::TRANSFER_ENCODING) {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let kept = Rc::new(RefCell::new(request.take_payload()));
    let read = kept.clone();
    let shared = stream::poll_fn(move |cx| read.borrow_mut().poll_next_unpin(cx));
    request.set_payload(dev::Payload::Stream { payload: Box::pin(shared) });
    let response = next.call(request).await?.map_into_boxed_body();
    Ok(response.map_body(|_, answer| Answer { answer, _request_body: kept }.boxed()))
}

/// The body of an answer, and that of its request until the answer is sent.
struct Answer {
    answer: BoxBody,
    _request_body: Rc<RefCell<dev::Payload>>,
}

impl MessageBody for Answer {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.answer.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.answer).poll_next(cx)
    }
}

/// The fields of a JSON object, unparsed. `T` names them; unknown, missing and duplicate ones are refused by name.
///
/// # Errors
/// [`ApiError::InvalidPayload`].
pub fn fields<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    // An array would do for serde's idea of a struct.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(ApiError::InvalidPayload("the body must be a JSON object".into()));
    }
    serde_json::from_slice(body).map_err(|error| ApiError::InvalidPayload(format!("the body does not fit this call: {error}")))
}

/// The fields of a query. `takes` names them for people.
///
/// # Errors
/// [`ApiError::InvalidPayload`].
pub fn query<T: DeserializeOwned>(text: &str, takes: &str) -> Result<T, ApiError> {
    let refused = |error| {
        let why = match error {
            QueryPayloadError::Deserialize(why) => why.to_string(),
            other => other.to_string(),
        };
        ApiError::InvalidPayload(format!("the query takes {takes}: {why}"))
    };
    web::Query::from_query(text).map(web::Query::into_inner).map_err(refused)
}

/// A field's value.
///
/// # Errors
/// [`ApiError::InvalidPayload`] saying that the field must be `what`.
pub fn value<T: DeserializeOwned>(name: &str, raw: &RawValue, what: &str) -> Result<T, ApiError> {
    serde_json::from_str(raw.get()).map_err(|_of_another_type| ApiError::InvalidPayload(format!("{name} must be {what}")))
}

/// A field's text: not blank, at most this many characters, without NUL, which not every storage can hold.
///
/// # Errors
/// [`ApiError::InvalidPayload`] naming the field.
pub fn text(name: &str, raw: &RawValue, characters_max: usize) -> Result<String, ApiError> {
    let text: String = value(name, raw, "a string")?;
    let problem = if text.contains('\0') {
        "must not contain NUL".into()
    } else if text.trim().is_empty() {
        "must not be blank".into()
    } else if text.chars().count() > characters_max {
        format!("must be at most {characters_max} characters long")
    } else {
        return Ok(text);
    };
    Err(ApiError::InvalidPayload(format!("{name} {problem}")))
}
