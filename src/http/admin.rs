//! What operators may call, on the admin listener only, with the admin token: one module for each part.

mod compat;
mod connections;
mod drain;
mod logs;
pub mod metrics;
mod page;
mod push;
mod status;

#[cfg(test)]
mod drain_tests;

use actix_web::web::ServiceConfig;

pub(super) fn routes(config: &mut ServiceConfig) {
    compat::routes(config);
    connections::routes(config);
    drain::routes(config);
    logs::routes(config);
    metrics::routes(config);
    page::routes(config);
    push::routes(config);
    status::routes(config);
}
