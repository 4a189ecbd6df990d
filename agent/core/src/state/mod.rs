//! What the loop owns, part by part.

mod first_showing;
mod foreign_routes;
mod outbox;
mod waiters;

pub(crate) use first_showing::{FirstShowing, keys_to_show};
pub(crate) use foreign_routes::{as_route, preferred_of, warn_of_shadow};
pub(crate) use outbox::{Batch, Outbox, restore_rows};
pub(crate) use waiters::Resync;
