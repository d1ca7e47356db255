//! The connection's input, shared by the gate that reads it and, after the actor has ended, by the linger that discards it.

use actix_web::web::Payload;
use bytes::Bytes;
use futures_core::Stream;
use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

#[derive(Clone)]
pub(super) struct SharedInput(Rc<RefCell<Payload>>);

impl SharedInput {
    pub(super) fn new(payload: Payload) -> Self {
        SharedInput(Rc::new(RefCell::new(payload)))
    }

    /// The next bytes; `None` at the end, however it came.
    pub(super) fn poll_chunk(&self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match Pin::new(&mut *self.0.borrow_mut()).poll_next(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(chunk))) => Poll::Ready(Some(chunk)),
            // A broken connection is an ended one: whoever reads has nobody to tell.
            Poll::Ready(Some(Err(_)) | None) => Poll::Ready(None),
        }
    }

    /// Reads and discards what there is. True at the end of the input.
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>) -> bool {
        loop {
            match self.poll_chunk(cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => return true,
                Poll::Ready(Some(_)) => {}
            }
        }
    }
}
