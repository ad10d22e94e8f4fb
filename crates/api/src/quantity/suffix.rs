//! The suffixes of quantities: `m`, `k`, `Gi`, `e6`.

use std::fmt;

/// How a quantity is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// With an exponent: `12e6`.
    DecimalExponent,
    /// With a suffix that stands for a power of two: `12Mi`.
    BinarySI,
    /// With a suffix that stands for a power of ten: `12M`.
    #[default]
    DecimalSI,
}

impl Format {
    /// What small amounts and fractions are written in that have no binary suffix.
    pub(super) fn or_decimal(self) -> Format {
        if self == Format::BinarySI { Format::DecimalSI } else { self }
    }
}

const DECIMAL: [(&str, i64); 10] =
    [("", 0), ("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

const BINARY: [(&str, i64); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The exponent that a suffix stands for, to the base of its format.
pub(super) fn interpret(suffix: &str) -> Option<(Format, i32)> {
    let find = |table: &[(&str, i64)]| table.iter().find(|(name, _)| *name == suffix).map(|(_, exponent)| *exponent);
    if let Some(exponent) = find(&DECIMAL) {
        return Some((Format::DecimalSI, i32::try_from(exponent).ok()?));
    }
    if let Some(exponent) = find(&BINARY) {
        return Some((Format::BinarySI, i32::try_from(exponent).ok()?));
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Upstream keeps the low 32 bits of what a user wrote.
    #[expect(clippy::cast_possible_truncation, reason = "as upstream")]
    Some((Format::DecimalExponent, exponent as i32))
}

/// Writes the suffix for `10^exponent`, or for `2^exponent` in the binary format.
///
/// What has no suffix gets none: upstream prints `1000E` as `1`.
pub(super) fn write(format: Format, exponent: i64, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let table = match format {
        Format::DecimalSI => &DECIMAL[..],
        Format::BinarySI => &BINARY[..],
        Format::DecimalExponent if exponent == 0 => return Ok(()),
        Format::DecimalExponent => return write!(out, "e{exponent}"),
    };
    out.write_str(table.iter().find(|(_, e)| *e == exponent).map_or("", |(name, _)| *name))
}
