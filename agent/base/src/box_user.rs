//! Users of the box whom the agent trusts.

/// True for root and the user of the agent: both can do all that the agent can. A file that others could have made or
/// changed decides nothing.
pub fn is_root_or_own(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}
