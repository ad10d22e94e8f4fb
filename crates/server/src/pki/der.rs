//! Just enough DER to write certificates and to take certificate requests apart.

pub(super) const BOOLEAN_TRUE: &[u8] = &[0x01, 0x01, 0xff];
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// The tag of a constructed field with this number.
pub(super) const fn field(number: u8) -> u8 {
    0xa0 | number
}

/// The tag of a primitive field with this number.
pub(super) const fn implicit(number: u8) -> u8 {
    0x80 | number
}

/// An element of these parts.
pub(super) fn element<P: AsRef<[u8]>>(tag: u8, parts: &[P]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.as_ref().len()).sum();
    let mut out = vec![tag];
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let significant = &bytes[length.leading_zeros() as usize / 8..];
        out.push(0x80 | significant.len() as u8);
        out.extend_from_slice(significant);
    }
    for part in parts {
        out.extend_from_slice(part.as_ref());
    }
    out
}

/// A number that is not negative.
pub(super) fn unsigned(big_endian: &[u8]) -> Vec<u8> {
    let zeros = big_endian.iter().take_while(|&&byte| byte == 0).count();
    let digits = &big_endian[zeros..];
    // A leading zero keeps it from being read as a negative one, and stands for zero itself.
    let pad: &[u8] = if digits.first().is_none_or(|&first| first >= 0x80) { &[0] } else { &[] };
    element(INTEGER, &[pad, digits])
}

/// Whole bytes as bits.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes])
}

/// An element as it was read.
#[derive(Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) contents: &'a [u8],
    /// With tag and length.
    pub(super) whole: &'a [u8],
}

impl<'a> Element<'a> {
    /// What is inside, if it has this tag.
    pub(super) fn of(self, tag: u8) -> Option<&'a [u8]> {
        (self.tag == tag).then_some(self.contents)
    }
}

/// Reads one element after the other; ends where something is no element.
pub(super) struct Elements<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, &first) = (self.0.first()?, self.0.get(1)?);
        let (header, length) = if first < 0x80 {
            (2, usize::from(first))
        } else {
            let digits = usize::from(first & 0x7f);
            // Lengths of more than four bytes are those of no certificate.
            if !(1..=4).contains(&digits) {
                return None;
            }
            let bytes = self.0.get(2..2 + digits)?;
            (2 + digits, bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)))
        };
        let end = header.checked_add(length)?;
        let whole = self.0.get(..end)?;
        self.0 = &self.0[end..];
        Some(Element { tag, contents: &whole[header..], whole })
    }
}
