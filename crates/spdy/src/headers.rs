//! Blocks of headers: one zlib stream a direction, with a dictionary that both sides know.

use bytes::{Buf as _, Bytes};
use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_HAS_MORE_INPUT},
};

use crate::frame::{MAX_HEADERS, SpdyError};

/// Names and values.
pub type Headers = Vec<(String, String)>;

/// The dictionary of SPDY/3.
static DICTIONARY: &[u8] = include_bytes!("dictionary.bin");
/// How far back a packed stream may point.
const WINDOW: usize = 32 * 1024;
/// The bit of zlib's second byte that says that a dictionary is used.
const WITH_DICTIONARY: u8 = 0x20;

/// Unpacks the blocks of one direction, in their order.
pub struct Inflater {
    state: Box<DecompressorOxide>,
    /// What was unpacked last, in a ring; the dictionary to begin with.
    window: Box<[u8]>,
    at: usize,
    begun: bool,
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl Default for Inflater {
    fn default() -> Self {
        let mut window = vec![0; WINDOW].into_boxed_slice();
        window[..DICTIONARY.len()].copy_from_slice(DICTIONARY);
        Inflater { state: Box::default(), window, at: DICTIONARY.len(), begun: false }
    }
}

impl Inflater {
    /// The headers of a block.
    ///
    /// # Errors
    /// It can't be unpacked, or is too large.
    pub fn headers(&mut self, mut block: &[u8]) -> Result<Headers, SpdyError> {
        if !self.begun {
            self.begun = true;
            let [method, flags, rest @ ..] = block else { return Err(SpdyError::Headers) };
            if method & 0x0f != 8 || (u16::from(*method) << 8 | u16::from(*flags)) % 31 != 0 {
                return Err(SpdyError::Headers);
            }
            // Who doesn't use the dictionary never points into it.
            block = if flags & WITH_DICTIONARY == 0 { rest } else { rest.get(4..).ok_or(SpdyError::Headers)? };
        }
        let mut out = Vec::new();
        loop {
            let (status, read, written) =
                decompress(&mut self.state, block, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            out.extend_from_slice(&self.window[self.at..self.at + written]);
            self.at = (self.at + written) % WINDOW;
            block = &block[read..];
            if out.len() > MAX_HEADERS {
                return Err(SpdyError::TooLarge);
            }
            match status {
                TINFLStatus::NeedsMoreInput if block.is_empty() => break,
                TINFLStatus::HasMoreOutput => {}
                _ => return Err(SpdyError::Headers),
            }
        }
        parse(out.into())
    }
}

fn parse(mut block: Bytes) -> Result<Headers, SpdyError> {
    fn text(block: &mut Bytes) -> Result<String, SpdyError> {
        let length = block.try_get_u32().map_err(|_| SpdyError::Headers)? as usize;
        if block.remaining() < length {
            return Err(SpdyError::Headers);
        }
        Ok(String::from_utf8_lossy(&block.split_to(length)).into_owned())
    }
    let count = block.try_get_u32().map_err(|_| SpdyError::Headers)?;
    let mut all = Vec::new();
    for _ in 0..count {
        let (name, value) = (text(&mut block)?, text(&mut block)?);
        all.push((name.to_lowercase(), value));
    }
    Ok(all)
}
