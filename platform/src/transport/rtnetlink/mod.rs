//! rtnetlink.
mod ask;
mod frame;
mod listener;
mod socket;
mod window;
