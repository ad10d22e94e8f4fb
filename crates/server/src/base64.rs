//! Base64 in the two alphabets that upstream uses, read as Go reads it.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose},
};

/// Go pads what it writes, insists on padding, and does not look at the last bits.
const GO: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Base64 with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    GO.encode(bytes)
}

/// The bytes behind base64 with padding, such as the values of a Secret.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    GO.decode(text).ok()
}

/// Base64 for URLs, without padding.
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes behind base64 for URLs, or where it goes wrong. As in Go, line breaks are skipped and the last bits are
/// not looked at.
pub(crate) fn decode_url(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut bits, mut digits) = (0_u32, 0_usize);
    for (at, &c) in text.iter().enumerate() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            b'\n' | b'\r' => continue,
            _ => return Err(at),
        };
        bits = bits << 6 | u32::from(digit);
        digits += 1;
        if digits == 4 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, digits) = (0, 0);
        }
    }
    match digits {
        0 => {}
        1 => return Err(text.len() - 1),
        _ => out.extend_from_slice(&(bits << (6 * (4 - digits))).to_be_bytes()[1..digits]),
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_go() {
        for (text, expected) in [("a", 0), ("a=", 1), ("ab=", 2), ("a\n", 1), ("ab!c", 2), ("abcde", 4), ("YQ==", 2)] {
            assert_eq!(decode_url(text.as_bytes()), Err(expected), "{text}");
        }
        assert_eq!(decode_url(b"YW\nJj"), Ok(b"abc".to_vec()));
        assert_eq!(decode("+/8="), Some(vec![0xfb, 0xff]));
        assert_eq!(decode("-_8="), None);
        assert_eq!(decode("Y==="), None);
        for (bytes, padded) in
            [(&b""[..], ""), (b"a", "YQ=="), (b"ab", "YWI="), (b"abc", "YWJj"), (b"\xfb\xff", "+/8=")]
        {
            assert_eq!(encode(bytes), padded);
        }
    }

    proptest! {
        #[test]
        fn there_and_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode_url(encode_url(&bytes).as_bytes()), Ok(bytes));
        }
    }
}
