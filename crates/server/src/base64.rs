//! Base64 in the two alphabets that upstream uses, read as Go reads it.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64 with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = digits(bytes, STANDARD);
    out.extend(std::iter::repeat_n('=', (3 - bytes.len() % 3) % 3));
    out
}

/// Base64 for URLs, without padding.
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    digits(bytes, URL)
}

fn digits(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for at in 0..=chunk.len() {
            out.push(char::from(alphabet[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    out
}

/// The bytes behind base64 with padding, or where it goes wrong. Padding is not counted.
pub(crate) fn decode(text: &[u8]) -> Result<Vec<u8>, usize> {
    let digits = text.iter().filter(|c| !matches!(c, b'\n' | b'\r')).map(|c| match c {
        // The digits of the other alphabet are wrong here, and what is wrong there too stands for them.
        b'-' | b'_' => b'!',
        b'+' => b'-',
        b'/' => b'_',
        c => *c,
    });
    let mut digits: Vec<u8> = digits.collect();
    let padded = digits.len();
    while padded - digits.len() < 2 && digits.last() == Some(&b'=') {
        digits.pop();
    }
    decode_url(&digits)
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
        assert_eq!(decode(b"+/8\n="), Ok(vec![0xfb, 0xff]));
        assert_eq!(decode(b"-_8="), Err(0));
        assert_eq!(decode(b"Y==="), Err(1));
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
