//! Presence over real sockets: what phones are told, what `GET /api/devices` and `GET /admin/connections` show, and what is stored
//! (device-lane section 5).
//!
//! | module | shows |
//! | --- | --- |
//! | `watch` | the phone that watches, and the views to compare with |
//! | `events` | the events themselves: fields, reasons, revisions, the reconnect wait |
//! | `replacement` | the end of an old socket that comes after the new one's registration (C14) |
//! | `several` | several connections of one account, closed in every order (C16) |
//! | `teardown` | ends that come twice, at once, or in the wrong order (C17) |
//! | `removal` | devices that are removed while they cannot answer (C19) |
//! | `liveness` | desktops that are idle (C21) or stream (C22) stay online |
//! | `stored` | statuses on disk, after a crash and after an orderly end |

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod events;
mod history;
mod liveness;
mod removal;
mod replacement;
mod several;
mod stored;
mod teardown;
mod watch;
