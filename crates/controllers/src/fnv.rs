//! FNV-1a: upstream sorts some lists by this hash of what it prints of their items.

use std::fmt::{self, Write};

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// The 128-bit hash of what is written into it.
struct Hasher(u128);

impl Write for Hasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(PRIME);
        }
        Ok(())
    }
}

/// The 128-bit hash of a text.
pub(crate) fn fnv128a(text: impl fmt::Display) -> u128 {
    let mut hasher = Hasher(OFFSET);
    // Writing into the hasher never fails.
    let _ = write!(hasher, "{text}");
    hasher.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes() {
        // What Go's hash/fnv says.
        let text =
            "(v1.EndpointPort){Name:(string)http Port:(int32)80 Protocol:(v1.Protocol)TCP AppProtocol:(*string)<nil>}";
        assert_eq!(format!("{:032x}", fnv128a(text)), "754b003f50f133a539c60d18cfb30a55");
    }
}
