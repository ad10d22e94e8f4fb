//! Owners that are known to be absent, so that nobody asks for them twice.

use std::collections::{HashMap, VecDeque};

use super::graph::Identity;

/// How many are remembered.
const MAX_ABSENT_OWNERS: usize = 500;

/// Owners that are known to be absent; the least recently asked for are forgotten first.
#[derive(Debug, Default)]
pub(super) struct AbsentOwners {
    last_use: HashMap<Identity, u64>,
    uses: VecDeque<(u64, Identity)>,
    count: u64,
}

impl AbsentOwners {
    pub(super) fn add(&mut self, owner: Identity) {
        self.count += 1;
        self.uses.push_back((self.count, owner.clone()));
        self.last_use.insert(owner, self.count);
        while self.last_use.len() > MAX_ABSENT_OWNERS || self.uses.len() > 2 * MAX_ABSENT_OWNERS {
            let Some((at, oldest)) = self.uses.pop_front() else { return };
            // It may have been asked for since; then a later entry stands for it.
            if self.last_use.get(&oldest) == Some(&at) {
                self.last_use.remove(&oldest);
            }
        }
    }

    pub(super) fn has(&mut self, owner: &Identity) -> bool {
        let is_known = self.last_use.contains_key(owner);
        if is_known {
            self.add(owner.clone());
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: usize) -> Identity {
        Identity { uid: n.to_string().into(), ..Identity::default() }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut absent = AbsentOwners::default();
        for n in 0..MAX_ABSENT_OWNERS {
            absent.add(owner(n));
        }
        assert!(absent.has(&owner(0)));
        absent.add(owner(1000));
        assert!(absent.has(&owner(0)) && !absent.has(&owner(1)) && absent.has(&owner(2)));
        for _ in 0..10 * MAX_ABSENT_OWNERS {
            assert!(absent.has(&owner(0)));
        }
        assert!(absent.uses.len() <= 2 * MAX_ABSENT_OWNERS && absent.last_use.len() <= MAX_ABSENT_OWNERS);
    }
}
