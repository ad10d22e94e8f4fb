//! What goes over a connection: frames, taken apart and put together without I/O.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::{Headers, Inflater};

/// The largest frame that is taken.
pub const MAX_FRAME: usize = 1 << 20;
/// The largest block of headers, unpacked.
pub const MAX_HEADERS: usize = 64 * 1024;

const VERSION: u16 = 0x8003;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const FIN: u8 = 1;
/// Why a stream is reset: whoever made it does not want it any more.
const CANCEL: u8 = 5;

/// What a peer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A new stream.
    Open {
        /// Its number.
        stream: u32,
        /// Its headers, names in lower case.
        headers: Headers,
        /// Nothing more will come on it.
        fin: bool,
    },
    /// Bytes on a stream.
    Data {
        /// Its number.
        stream: u32,
        /// The bytes.
        bytes: Bytes,
        /// Nothing more will come on it.
        fin: bool,
    },
    /// A stream that ends at once.
    Reset {
        /// Its number.
        stream: u32,
    },
    /// To be answered with the same number.
    Ping(u32),
    /// No more streams will come.
    GoAway,
    /// Something that needs no answer.
    Other,
}

/// Why a peer can't be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpdyError {
    /// Another version.
    Version,
    /// Too large.
    TooLarge,
    /// Headers that can't be unpacked.
    Headers,
    /// A frame that is too short for what it is.
    Short,
}

/// Takes bytes apart into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    inflater: Inflater,
}

impl Decoder {
    /// More bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame that is complete.
    ///
    /// # Errors
    /// The peer can't be understood; nothing after this can be either.
    pub fn decode(&mut self) -> Result<Option<Frame>, SpdyError> {
        let Some(head) = self.buffer.get(..8) else { return Ok(None) };
        let length = usize::from(head[5]) << 16 | usize::from(head[6]) << 8 | usize::from(head[7]);
        if length > MAX_FRAME {
            return Err(SpdyError::TooLarge);
        }
        if self.buffer.len() < 8 + length {
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(8 + length).freeze();
        let word = frame.get_u32();
        let flags = frame.get_u8();
        frame.advance(3);
        if word & 0x8000_0000 == 0 {
            return Ok(Some(Frame::Data { stream: word, bytes: frame, fin: flags & FIN != 0 }));
        }
        let version = u16::try_from(word >> 16).unwrap_or_default();
        if version != VERSION {
            return Err(SpdyError::Version);
        }
        let kind = u16::try_from(word & 0xffff).unwrap_or_default();
        let number = |frame: &mut Bytes| {
            if frame.remaining() < 4 { Err(SpdyError::Short) } else { Ok(frame.get_u32() & 0x7fff_ffff) }
        };
        Ok(Some(match kind {
            SYN_STREAM => {
                let stream = number(&mut frame)?;
                number(&mut frame)?;
                if frame.remaining() < 2 {
                    return Err(SpdyError::Short);
                }
                frame.advance(2);
                let headers = self.inflater.headers(&frame)?;
                Frame::Open { stream, headers, fin: flags & FIN != 0 }
            }
            RST_STREAM => Frame::Reset { stream: number(&mut frame)? },
            PING => {
                if frame.remaining() < 4 {
                    return Err(SpdyError::Short);
                }
                Frame::Ping(frame.get_u32())
            }
            GOAWAY => Frame::GoAway,
            // Headers of a reply or of an open stream: their packing depends on all before, so they are unpacked.
            SYN_REPLY | 8 => {
                number(&mut frame)?;
                self.inflater.headers(&frame)?;
                Frame::Other
            }
            _ => Frame::Other,
        }))
    }
}

/// Puts frames together. Headers are not packed, only wrapped: an unpacker can't tell.
#[derive(Debug, Default)]
pub struct Encoder {
    begun: bool,
}

impl Encoder {
    /// The answer to a new stream, without headers.
    #[must_use]
    pub fn reply(&mut self, stream: u32) -> Bytes {
        let mut payload = BytesMut::new();
        payload.put_u32(stream);
        self.block(&mut payload, &0u32.to_be_bytes());
        control(SYN_REPLY, 0, &payload)
    }

    /// A new stream: what a client sends.
    #[must_use]
    pub fn open(&mut self, stream: u32, headers: &Headers) -> Bytes {
        let mut payload = BytesMut::new();
        payload.put_u32(stream);
        payload.put_u32(0);
        payload.put_u16(0);
        let mut block = BytesMut::new();
        block.put_u32(u32::try_from(headers.len()).unwrap_or(0));
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.put_u32(u32::try_from(text.len()).unwrap_or(0));
            block.put_slice(text.as_bytes());
        }
        self.block(&mut payload, &block);
        control(SYN_STREAM, 0, &payload)
    }

    /// A block of headers as a stored block of one endless zlib stream.
    fn block(&mut self, out: &mut BytesMut, block: &[u8]) {
        if !self.begun {
            self.begun = true;
            out.put_slice(&[0x78, 0x01]);
        }
        for chunk in block.chunks(usize::from(u16::MAX)) {
            let length = u16::try_from(chunk.len()).unwrap_or(u16::MAX);
            out.put_u8(0);
            out.put_u16_le(length);
            out.put_u16_le(!length);
            out.put_slice(chunk);
        }
        // An empty block tells the other side to hand out what it has: Go fails where the frame ends otherwise.
        out.put_slice(&[0, 0, 0, 0xff, 0xff]);
    }
}

/// Bytes on a stream.
#[must_use]
pub fn data(stream: u32, bytes: &[u8], fin: bool) -> Bytes {
    let mut out = BytesMut::with_capacity(8 + bytes.len());
    out.put_u32(stream & 0x7fff_ffff);
    head(&mut out, if fin { FIN } else { 0 }, bytes.len());
    out.put_slice(bytes);
    out.freeze()
}

/// The answer to a ping.
#[must_use]
pub fn ping(number: u32) -> Bytes {
    control(PING, 0, &number.to_be_bytes())
}

/// Ends a stream at once, both ways; what is still to come on it is not wanted.
#[must_use]
pub fn reset(stream: u32) -> Bytes {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&(stream & 0x7fff_ffff).to_be_bytes());
    payload[7] = CANCEL;
    control(RST_STREAM, 0, &payload)
}

fn control(kind: u16, flags: u8, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(8 + payload.len());
    out.put_u16(VERSION);
    out.put_u16(kind);
    head(&mut out, flags, payload.len());
    out.put_slice(payload);
    out.freeze()
}

fn head(out: &mut BytesMut, flags: u8, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX) & 0x00ff_ffff;
    out.put_u32(u32::from(flags) << 24 | length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut() {
        let headers: Headers = vec![("streamtype".into(), "data".into()), ("port".into(), "8080".into())];
        let mut encoder = Encoder::default();
        let all = [
            encoder.open(1, &headers),
            data(1, b"hello", false),
            ping(7),
            encoder.open(3, &headers),
            data(3, b"", true),
            reset(3),
        ]
        .concat();
        for size in [1, 3, 7, all.len()] {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for chunk in all.chunks(size) {
                decoder.push(chunk);
                while let Some(frame) = decoder.decode().unwrap() {
                    frames.push(frame);
                }
            }
            let expected = [
                Frame::Open { stream: 1, headers: headers.clone(), fin: false },
                Frame::Data { stream: 1, bytes: "hello".into(), fin: false },
                Frame::Ping(7),
                Frame::Open { stream: 3, headers: headers.clone(), fin: false },
                Frame::Data { stream: 3, bytes: "".into(), fin: true },
                Frame::Reset { stream: 3 },
            ];
            assert_eq!(frames, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn headers_packed_by_zlib_with_the_dictionary() {
        // Two blocks of one stream: `streamtype: error, port: 80`, `streamtype: data, port: 80`; made by zlib.
        let blocks: [&[u8]; 2] = [include_bytes!("testdata-1.bin"), include_bytes!("testdata-2.bin")];
        let mut inflater = Inflater::default();
        for (block, kind) in blocks.into_iter().zip(["error", "data"]) {
            let headers = inflater.headers(block).unwrap();
            assert_eq!(headers, vec![("streamtype".to_owned(), kind.to_owned()), ("port".to_owned(), "80".to_owned())]);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(0u8.., 0..512), control in 0u8..12) {
            let mut decoder = Decoder::default();
            let length = u8::try_from(bytes.len() % 256).unwrap();
            decoder.push(&[0x80, 3, 0, control, 0, 0, 0, length]);
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.decode() {}
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            decoder.decode().unwrap_err()
        };
        assert_eq!(refused(&[0x80, 2, 0, 1, 0, 0, 0, 0]), SpdyError::Version);
        assert_eq!(refused(&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff]), SpdyError::TooLarge);
        assert_eq!(refused(&[0x80, 3, 0, 1, 0, 0, 0, 2, 1, 1]), SpdyError::Short);
        let mut bad = vec![0x80, 3, 0, 1, 0, 0, 0, 14];
        bad.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9]);
        assert_eq!(refused(&bad), SpdyError::Headers);
    }
}
