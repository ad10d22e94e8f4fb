//! The wire: tags, varints and lengths, read forwards and written backwards.

use super::Error;

/// A varint.
pub(super) const VARINT: u8 = 0;
/// Eight bytes.
pub(super) const FIXED64: u8 = 1;
/// A length and so many bytes.
pub(super) const DELIMITED: u8 = 2;
const START_GROUP: u8 = 3;
/// The end of a group.
pub(super) const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// Bytes, and how far they have been read.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
    /// Where the innermost message ends: nothing is read beyond.
    pub(super) end: usize,
}

/// A tag: the number of a field and the form of what follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    pub(super) number: i32,
    pub(super) wire: u8,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0, end: bytes.len() }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            if self.is_at_end() {
                return Err(Error::UnexpectedEnd);
            }
            let byte = self.bytes[self.at];
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::Overflow)
    }

    /// The tag of a field in a message of a type, which errors name.
    pub(super) fn tag(&mut self, ty: impl Fn() -> String) -> Result<Tag, Error> {
        let tag = self.varint()?;
        // Go cuts the number off as well.
        let (number, wire) = ((tag >> 3) as i32, (tag & 7) as u8);
        if wire == END_GROUP {
            return Err(Error::EndGroup(ty()));
        }
        if number <= 0 {
            return Err(Error::IllegalTag { ty: ty(), number, tag });
        }
        Ok(Tag { number, wire })
    }

    /// Where the bytes end whose length comes next.
    pub(super) fn delimited_end(&mut self) -> Result<usize, Error> {
        let length = self.varint()?;
        let length = i64::try_from(length).map_err(|_| Error::NegativeLength)?;
        let end = i64::try_from(self.at).unwrap_or(i64::MAX).checked_add(length).ok_or(Error::NegativeLength)?;
        usize::try_from(end).ok().filter(|end| *end <= self.end).ok_or(Error::UnexpectedEnd)
    }

    /// The bytes behind their length.
    pub(super) fn delimited(&mut self) -> Result<&'a [u8], Error> {
        let end = self.delimited_end()?;
        let bytes = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, Error> {
        let bytes = self.bytes[self.at..self.end].first_chunk::<8>().ok_or(Error::UnexpectedEnd)?;
        self.at += 8;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Passes over the value of a tag, groups with all that is in them.
    pub(super) fn skip(&mut self, mut wire: u8) -> Result<(), Error> {
        let mut depth = 0_usize;
        loop {
            match wire {
                VARINT => _ = self.varint()?,
                FIXED64 => self.pass(8)?,
                DELIMITED => self.at = self.delimited_end()?,
                START_GROUP => depth += 1,
                END_GROUP => depth = depth.checked_sub(1).ok_or(Error::EndOfGroup)?,
                FIXED32 => self.pass(4)?,
                other => return Err(Error::IllegalWireType(other)),
            }
            if depth == 0 {
                return Ok(());
            }
            wire = (self.varint()? & 7) as u8;
        }
    }

    fn pass(&mut self, bytes: usize) -> Result<(), Error> {
        if self.end - self.at < bytes {
            return Err(Error::UnexpectedEnd);
        }
        self.at += bytes;
        Ok(())
    }
}

/// A buffer that is filled from its end, so that a length is known when it is to be written before its bytes.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    /// Where the written bytes begin.
    start: usize,
}

/// How much room a buffer gets first.
const FIRST_BYTES: usize = 1024;

impl Writer {
    /// A buffer that need not grow for so many bytes.
    pub(super) fn with_room(bytes: usize) -> Self {
        Writer { bytes: vec![0; bytes], start: bytes }
    }

    /// How much has been written.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn finish(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn grow(&mut self, needed: usize) {
        let size = (self.len() + needed).max(FIRST_BYTES).saturating_mul(2);
        let mut bytes = vec![0; size];
        let start = size - self.len();
        bytes[start..].copy_from_slice(self.finish());
        (self.bytes, self.start) = (bytes, start);
    }

    /// Puts bytes before those that are there.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if self.start < bytes.len() {
            self.grow(bytes.len());
        }
        let start = self.start - bytes.len();
        self.bytes[start..self.start].copy_from_slice(bytes);
        self.start = start;
    }

    pub(super) fn varint(&mut self, mut value: u64) {
        let mut bytes = [0; 10];
        let mut length = 0;
        while value >= 0x80 {
            bytes[length] = value as u8 | 0x80;
            value >>= 7;
            length += 1;
        }
        bytes[length] = value as u8;
        self.put(&bytes[..=length]);
    }

    pub(super) fn tag(&mut self, number: u32, wire: u8) {
        self.varint(u64::from(number << 3 | u32::from(wire)));
    }

    /// A field of bytes.
    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.put(bytes);
        self.header(number, self.len() - bytes.len());
    }

    /// A field that is a varint.
    pub(super) fn number(&mut self, number: u32, value: u64) {
        self.varint(value);
        self.tag(number, VARINT);
    }

    /// The head of a field whose bytes have been written since the buffer had the length `mark`.
    pub(super) fn header(&mut self, number: u32, mark: usize) {
        self.varint((self.len() - mark) as u64);
        self.tag(number, DELIMITED);
    }
}
