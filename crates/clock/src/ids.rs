//! Identity and randomness.

use std::{
    cell::RefCell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A source of identity that can be shared between tasks.
pub type SharedIds = Arc<dyn Ids>;

/// The letters and digits of generated names: no vowels and none that look alike, so that no word appears by chance.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Where uids, suffixes of generated names and jitter come from.
///
/// Implementors give [`fill`](Ids::fill); the rest follows from it. May be called from any thread; never blocks for
/// long.
pub trait Ids: fmt::Debug + Send + Sync + 'static {
    /// Fills `bytes` with random ones.
    fn fill(&self, bytes: &mut [u8]);

    /// A number from all of `u64`.
    fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A number from `0..below`, each equally likely; 0 when `below` is 0.
    fn below(&self, below: u64) -> u64 {
        // Lemire's multiply-shift: the bias is below 2^-32 for every bound that is used here (lengths, percentages).
        ((u128::from(self.number()) * u128::from(below)) >> 64) as u64
    }

    /// A fraction from `0.0..1.0`, for jitter.
    fn fraction(&self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A new uid: a version 4 UUID in its usual form.
    fn uid(&self) -> String {
        let mut b = [0; 16];
        self.fill(&mut b);
        b[6] = b[6] & 0x0f | 0x40;
        b[8] = b[8] & 0x3f | 0x80;
        let mut uid = String::with_capacity(36);
        for (at, byte) in b.into_iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                uid.push('-');
            }
            uid.extend([byte >> 4, byte & 0xf].map(|digit| char::from(HEX[usize::from(digit)])));
        }
        uid
    }

    /// What `generateName` appends: `length` letters and digits.
    fn suffix(&self, length: usize) -> String {
        (0..length).map(|_| char::from(SUFFIX_ALPHABET[self.below(SUFFIX_ALPHABET.len() as u64) as usize])).collect()
    }
}

/// The operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsIds;

/// What was asked for at once and not given out yet: asking is a system call, and every object that is made needs 16
/// bytes.
struct Drawn {
    bytes: [u8; 512],
    left: usize,
}

thread_local! {
    static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn { bytes: [0; 512], left: 0 }) };
}

impl Ids for OsIds {
    fn fill(&self, bytes: &mut [u8]) {
        DRAWN.with_borrow_mut(|drawn| {
            if bytes.len() > drawn.bytes.len() / 4 {
                return ask(bytes);
            }
            if bytes.len() > drawn.left {
                ask(&mut drawn.bytes);
                drawn.left = drawn.bytes.len();
            }
            let (rest, taken) = drawn.bytes[..drawn.left].split_at_mut(drawn.left - bytes.len());
            bytes.copy_from_slice(taken);
            taken.fill(0);
            drawn.left = rest.len();
        });
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the operating system is asked")]
fn ask(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system has randomness");
}

/// The same sequence for the same seed: for simulations that can be replayed.
///
/// Not for secrets. Tasks that share one draw from one sequence, so who draws when decides who gets what.
#[derive(Debug)]
pub struct SeededIds {
    state: AtomicU64,
}

impl SeededIds {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SeededIds { state: AtomicU64::new(seed) }
    }

    /// SplitMix64: a counter, mixed.
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Ids for SeededIds {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        let (a, b) = (SeededIds::new(7), SeededIds::new(7));
        assert_eq!((a.uid(), a.suffix(5), a.number()), (b.uid(), b.suffix(5), b.number()));
        assert_ne!(SeededIds::new(8).uid(), SeededIds::new(7).uid());
    }

    #[test]
    fn uids_are_version_4_uuids() {
        for ids in [&OsIds as &dyn Ids, &SeededIds::new(1)] {
            let uid = ids.uid();
            let parts: Vec<_> = uid.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{uid}");
            assert_eq!(&uid[14..15], "4");
            assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
        }
    }

    #[test]
    fn suffixes_and_numbers_stay_in_their_range() {
        let ids = SeededIds::new(3);
        let suffix = ids.suffix(1_000);
        assert!(suffix.bytes().all(|b| SUFFIX_ALPHABET.contains(&b)));
        assert!(SUFFIX_ALPHABET.iter().all(|&b| suffix.contains(char::from(b))), "every letter comes up");
        assert!((0..1_000).all(|_| ids.below(10) < 10));
        assert_eq!(ids.below(0), 0);
        assert!((0..1_000).all(|_| (0.0..1.0).contains(&ids.fraction())));
    }
}
