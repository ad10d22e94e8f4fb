//! SHA-256, and how hashes are shown.

use aws_lc_rs::digest;

/// The hash of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

/// The hash in capital hexadecimal digits.
pub(crate) fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02X}")).collect()
}
