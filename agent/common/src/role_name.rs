//! Names of roles that an operator may choose.

/// Most bytes of the name of a role. It stands in every accounting record of its users.
pub const MAX_ROLE_NAME: usize = 64;

/// True for a name that a role may have: letters, digits, `.`, `_` and `-`, beginning with a letter or digit. So it
/// is neither a SPIFFE id nor a pattern of an authz policy nor an identity of a module. `typedef role` of the native
/// model says the same.
pub fn is_role_name(text: &str) -> bool {
    text.len() <= MAX_ROLE_NAME
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}
