//! Formatting: `"%s is %d".format([…])`.

use capstan_api::go;

use super::{Impl, convert, fail, made};
use crate::{
    types::Type,
    value::{List, Map, Val},
};

/// How deep nested lists and maps are printed.
const MAX_DEPTH: u32 = 100;
/// The digits behind the point unless another number is given.
const PRECISION: usize = 6;
/// The most digits behind the point.
const MAX_PRECISION: usize = 1000;

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "format" => |call| match call.args {
            [Val::String(format), Val::List(args)] => match print(format, args) {
                Ok(text) => made(text),
                Err(error) => fail(error),
            },
            _ => None,
        },
        _ => return None,
    })
}

/// A clause: what letter it is and what precision it asks for.
struct Clause {
    letter: char,
    precision: Option<usize>,
    length: usize,
}

fn clause(text: &str) -> Result<Clause, String> {
    let wrong = |error: &str| format!("could not parse formatting clause: {error}");
    let (mut at, mut precision) = (1, None);
    if text[at..].starts_with('.') {
        let digits = text[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let number = &text[at + 1..at + 1 + digits];
        at += 1 + digits;
        if at >= text.len() {
            return Err(wrong("error while parsing precision: could not find end of precision specifier"));
        }
        let parsed = go::atoi(number).map_err(|error| {
            wrong(&format!("error while parsing precision: error while converting precision to integer: {error}"))
        })?;
        precision = usize::try_from(parsed).ok().map(|precision| precision.min(MAX_PRECISION));
    }
    // Clauses are looked at byte by byte.
    let byte = text.as_bytes()[at];
    let letter = char::from(byte);
    if !"sdfebxXo".contains(letter) {
        return Err(wrong(&format!("unrecognized formatting clause \"{letter}\"")));
    }
    Ok(Clause { letter, precision, length: at + 1 })
}

/// Goes through a format: `plain` takes text, `take` takes clauses and the number of their argument.
fn walk(
    format: &str,
    mut plain: impl FnMut(char),
    mut argument: impl FnMut(usize) -> Result<(), String>,
    mut take: impl FnMut(usize, &Clause, &mut dyn FnMut(&str)) -> Result<(), String>,
    out: &mut String,
) -> Result<usize, String> {
    let (mut rest, mut index) = (format, 0);
    while let Some(c) = rest.chars().next() {
        if c != '%' {
            plain(c);
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        if let Some(behind) = rest.strip_prefix("%%") {
            out.push('%');
            rest = behind;
            continue;
        }
        argument(index)?;
        if rest.len() < 2 {
            return Err("unexpected end of string".to_owned());
        }
        let clause = clause(rest)?;
        take(index, &clause, &mut |text| out.push_str(text))?;
        rest = &rest[clause.length..];
        index += 1;
    }
    Ok(index)
}

fn print(format: &str, args: &List<'_>) -> Result<String, String> {
    let mut out = String::new();
    let in_range = |index| if index < args.len() { Ok(()) } else { Err(format!("index {index} out of range")) };
    walk(
        format,
        |_| (),
        in_range,
        |index, clause, push| {
            let value = args.get(index).ok_or_else(|| format!("index {index} out of range"))?;
            let value = value.map_err(|error| error.to_string())?;
            let text = one(&value, clause).map_err(|error| format!("error during formatting: {error}"))?;
            push(&text);
            Ok(())
        },
        &mut out,
    )?;
    Ok(out)
}

/// Looks at a format with arguments of known types, before it is run. What is wrong may be about one argument.
pub(crate) fn check(format: &str, args: &[(Type, &'static str)]) -> Result<(), (Option<usize>, String)> {
    let mut about = None;
    let in_range = |index| if index < args.len() { Ok(()) } else { Err(format!("index {index} out of range")) };
    let seen = walk(
        format,
        |_| (),
        |_| Ok(()),
        |index, clause, _| {
            in_range(index)?;
            let (ty, name) = &args[index];
            if ty.is_dyn() || takes(clause.letter, ty) {
                return Ok(());
            }
            about = Some(index);
            Err(format!("error during formatting: {}", complaint(clause.letter, name)))
        },
        &mut String::new(),
    );
    match seen {
        Err(error) => Err((about, error)),
        Ok(seen) if args.len() > seen => {
            Err((None, format!("too many arguments supplied to string.format (expected {seen}, got {})", args.len())))
        }
        Ok(_) => Ok(()),
    }
}

fn takes(letter: char, ty: &Type) -> bool {
    match letter {
        's' => !matches!(ty, Type::Object(_) | Type::Struct(_) | Type::Opaque(..) | Type::Error),
        'd' | 'o' => matches!(ty, Type::Int | Type::Uint),
        'f' | 'e' => matches!(ty, Type::Double | Type::String),
        'b' => matches!(ty, Type::Int | Type::Uint | Type::Bool),
        _ => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
    }
}

fn complaint(letter: char, given: &str) -> String {
    let what = match letter {
        's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
             timestamps"
        }
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        _ => "only integers, byte buffers, and strings can be formatted as hex",
    };
    format!("{what}, was given {given}")
}

fn one(value: &Val<'_>, clause: &Clause) -> Result<String, String> {
    let precision = clause.precision.unwrap_or(PRECISION);
    let wrong = || Err(complaint(clause.letter, value.type_name()));
    Ok(match (clause.letter, value) {
        ('s', _) => return string(value, 0),
        ('d', Val::Int(_) | Val::Uint(_)) => value.show(),
        ('f' | 'e', _) => {
            let number = match value {
                Val::Double(d) => *d,
                Val::String(text) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => {
                    convert::parse_float(text).unwrap_or(f64::NAN)
                }
                _ => return wrong(),
            };
            if clause.letter == 'f' { fixed(number, precision) } else { scientific(number) }
        }
        ('b', Val::Int(n)) => radix(*n < 0, format!("{:b}", n.unsigned_abs())),
        ('b', Val::Uint(n)) => format!("{n:b}"),
        ('b', Val::Bool(b)) => u8::from(*b).to_string(),
        ('o', Val::Int(n)) => radix(*n < 0, format!("{:o}", n.unsigned_abs())),
        ('o', Val::Uint(n)) => format!("{n:o}"),
        ('x' | 'X', _) => {
            let text = match value {
                Val::Int(n) => radix(*n < 0, format!("{:x}", n.unsigned_abs())),
                Val::Uint(n) => format!("{n:x}"),
                Val::String(text) => hex(text.as_bytes()),
                Val::Bytes(bytes) => hex(bytes),
                _ => return wrong(),
            };
            if clause.letter == 'X' { text.to_ascii_uppercase() } else { text }
        }
        _ => return wrong(),
    })
}

fn radix(negative: bool, digits: String) -> String {
    if negative { format!("-{digits}") } else { digits }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unusual(number: f64) -> Option<String> {
    if number.is_nan() {
        return Some("NaN".to_owned());
    }
    number.is_infinite().then(|| if number > 0.0 { "\u{221e}" } else { "-\u{221e}" }.to_owned())
}

/// With commas between thousands, as people in the United States write numbers.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(text) = unusual(number) {
        return text;
    }
    let text = format!("{:.precision$}", number.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut out = String::new();
    if number.is_sign_negative() {
        out.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// The precision is taken for the width upstream, so that there are always six digits.
fn scientific(number: f64) -> String {
    if let Some(text) = unusual(number) {
        return text;
    }
    let text = format!("{number:.PRECISION$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let raised: String = format!("{:02}", exponent.abs())
        .bytes()
        .map(|digit| ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][usize::from(digit - b'0') % 10])
        .collect();
    format!("{mantissa}×10{}{raised}", if exponent < 0 { "⁻" } else { "" })
}

fn string(value: &Val<'_>, depth: u32) -> Result<String, String> {
    if depth > MAX_DEPTH {
        return Err("value nests too deeply".to_owned());
    }
    Ok(match value {
        Val::Null => "null".to_owned(),
        Val::String(text) => text.to_string(),
        Val::Bytes(bytes) => String::from_utf8(bytes.to_vec()).map_err(|_| "could not convert argument to string")?,
        Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Type(_) => value.show(),
        Val::Duration(nanos) => convert::duration_text(*nanos),
        Val::Timestamp(stamp) => stamp.to_string(),
        Val::List(list) => {
            let items = list.iter().map(|item| element(&item.map_err(|error| error.to_string())?, depth + 1));
            format!("[{}]", items.collect::<Result<Vec<_>, _>>()?.join(", "))
        }
        Val::Map(map) => entries(map, depth)?,
        other => return Err(complaint('s', other.type_name())),
    })
}

fn entries(map: &Map<'_>, depth: u32) -> Result<String, String> {
    let mut pairs = Vec::new();
    for key in map.keys() {
        if !matches!(key, Val::String(_) | Val::Bool(_) | Val::Int(_) | Val::Uint(_)) {
            return Err(format!("no formatting function for map key of type {}", key.type_name()));
        }
        let Some(value) = map.find(&key) else { return Err(format!("could not find key: {}", go::quote(&key.show()))) };
        let value = value.map_err(|error| error.to_string())?;
        pairs.push((element(&key, depth + 1)?, element(&value, depth + 1)?));
    }
    pairs.sort();
    let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    Ok(format!("{{{}}}", pairs.join(", ")))
}

/// An element of a list or a map, quoted.
fn element(value: &Val<'_>, depth: u32) -> Result<String, String> {
    Ok(match value {
        Val::String(text) => go::quote(text),
        Val::Bytes(_) => format!("b{}", go::quote(&string(value, depth)?)),
        Val::Double(d) if d.is_finite() => format!("{d:.PRECISION$}"),
        Val::Double(d) => go::quote(&go::float(*d)),
        Val::Timestamp(_) => format!("timestamp({})", go::quote(&string(value, depth)?)),
        Val::Duration(_) => format!("duration({})", go::quote(&string(value, depth)?)),
        Val::Optional(_)
        | Val::Quantity(_)
        | Val::Semver(_)
        | Val::Url(_)
        | Val::Ip(_)
        | Val::Cidr(_)
        | Val::Format(_)
        | Val::Authz(_)
        | Val::Preserved(_) => return Err(format!("no formatting function for {}", value.type_name())),
        other => string(other, depth)?,
    })
}
