//! Master arbitration of gNMI: in each role, the writer with the highest election id may write.
//!
//! Ids are kept in memory: writers send theirs with each Set, so the master is known again soon after a restart.

use std::collections::HashMap;

use smol_str::SmolStr;

use super::options::Election;

/// Roles that are remembered. A control plane has a handful; more than this is a client that makes them up.
const MAX_ROLES: usize = 1024;

/// The highest election id of each role.
#[derive(Debug, Default)]
pub(crate) struct Elections(HashMap<SmolStr, u128>);

/// Refusal of a writer by master arbitration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    #[error(
        "election id {id} {} is lower than that of the master, {highest}", role_text(.role)
    )]
    Outvoted { role: SmolStr, id: u128, highest: u128 },
    #[error(
        "cannot remember a writer {}: {MAX_ROLES} roles are known already, which is the limit", role_text(.role)
    )]
    TooManyRoles { role: SmolStr },
}

fn role_text(role: &str) -> String {
    if role.is_empty() { "in the default role".into() } else { format!("in the role `{role}`") }
}

impl Elections {
    /// Checks that no writer of the role has a higher id.
    pub(crate) fn check(&self, election: &Election) -> Result<(), ElectionError> {
        let Election { role, id } = election.clone();
        match self.0.get(&role) {
            Some(&highest) if id < highest => Err(ElectionError::Outvoted { role, id, highest }),
            Some(_) => Ok(()),
            None if self.0.len() >= MAX_ROLES => Err(ElectionError::TooManyRoles { role }),
            None => Ok(()),
        }
    }

    /// Checks the writer, and records its id as the highest of the role.
    pub(crate) fn check_and_record(&mut self, election: &Election) -> Result<(), ElectionError> {
        self.check(election)?;
        self.0.insert(election.role.clone(), election.id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_id_of_each_role_wins() {
        let mut elections = Elections::default();
        for (role, id, is_master) in [
            ("", 5, true),
            ("", 5, true),
            ("", 4, false),
            ("other", 1, true),
            ("", 1 << 64, true),
            ("", u128::from(u64::MAX), false),
            ("other", 0, false),
            ("", u128::MAX, true),
            ("", (1 << 64) + 1, false),
        ] {
            let election = Election { role: role.into(), id };
            assert_eq!(elections.check_and_record(&election).is_ok(), is_master, "{role} {id}");
        }
        let outvoted = elections.check(&Election { role: "".into(), id: 1 }).unwrap_err();
        assert!(outvoted.to_string().contains(&u128::MAX.to_string()), "{outvoted}");
    }

    #[test]
    fn roles_are_bounded() {
        let mut elections = Elections::default();
        let election = |n: usize| Election { role: n.to_string().into(), id: 1 };
        for n in 0..MAX_ROLES {
            elections.check_and_record(&election(n)).unwrap();
        }
        assert!(elections.check_and_record(&election(MAX_ROLES)).is_err());
        elections.check_and_record(&election(0)).unwrap();
    }
}
