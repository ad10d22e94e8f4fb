//! From a message to a value, without recursion.
//!
//! As in JSON's strict decoding one thing differs from Go on purpose: of a message that comes twice where there is one,
//! the last one counts, where Go merges. Nobody writes such.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{
    Error, frame,
    shape::{Either, Plan, Shape},
    wire::{DELIMITED, FIXED64, Reader, Tag, VARINT},
};
use crate::{
    Map, MicroTime, Quantity, Str, Time, Value, json,
    schema::{NodeRef, Schema},
};

/// How many messages may be inside each other. JSON has at most two containers where there is one message.
pub const MAX_DEPTH: usize = json::MAX_DEPTH / 2;

/// The largest number of a field that a schema knows.
const MAX_NUMBER: i32 = 0xff;

/// Decodes a message in its envelope into the type of `schema`; `apiVersion` and `kind` are those of the envelope.
///
/// # Errors
/// Says in Go's words why the bytes are no such message. Unknown fields are passed over.
pub fn decode(schema: &Schema, bytes: &[u8]) -> Result<Value, Error> {
    let envelope = frame::envelope(bytes)?;
    let mut value = decode_message(schema, envelope.raw)?;
    if let Some(object) = value.as_object_mut() {
        for (name, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if !text.is_empty() {
                object.insert(name, text);
            }
        }
    }
    Ok(value)
}

/// Decodes a message without an envelope.
///
/// # Errors
/// As [`decode`].
pub fn decode_message(schema: &Schema, message: &[u8]) -> Result<Value, Error> {
    let mut decoder = Decoder { reader: Reader::new(message), frames: Vec::new(), spare: Vec::new() };
    decoder.frames.push(Frame::new(Body::Struct { node: schema.root(), slots: Vec::new() }, message.len()));
    decoder.run()
}

struct Decoder<'s, 'a> {
    reader: Reader<'a>,
    frames: Vec<Frame<'s>>,
    /// Room for the fields of messages to come.
    spare: Vec<Slots>,
}

/// What has been read of the fields of a message, by their positions.
type Slots = Vec<(usize, Slot)>;

/// A message that is being read.
struct Frame<'s> {
    body: Body<'s>,
    /// Where it ends, and the messages in it that JSON does not show: the fields of those are its own.
    ends: [usize; 3],
    /// How many of those are open.
    level: usize,
    /// Their numbers, as in [`Numbered::path`](crate::schema::Numbered::path).
    path: u32,
    /// Where the value goes that is being read.
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    One(usize),
    List(usize),
    Map(usize),
}

enum Body<'s> {
    Struct { node: NodeRef<'s>, slots: Slots },
    Entry { shape: Shape<'s>, key: Str, value: Option<Value> },
    Wrapped { items: NodeRef<'s>, values: Vec<Value> },
    Either { either: Either<'s>, one: Option<Value>, many: Vec<Value> },
}

/// What has been read of a field.
enum Slot {
    One(Value),
    List(Vec<Value>),
    Map(Vec<(Str, Value)>),
}

/// What has become of a message that has been read.
enum Closed {
    Value(Value),
    Entry(Str, Value),
}

impl<'s> Frame<'s> {
    fn new(body: Body<'s>, end: usize) -> Self {
        Frame { body, ends: [end; 3], level: 0, path: 0, place: Place::One(0) }
    }

    fn type_name(&self) -> String {
        let name = match &self.body {
            Body::Struct { node, .. } => node.type_name(),
            Body::Entry { .. } => Some("Entry"),
            Body::Wrapped { .. } => Some("ExtraValue"),
            Body::Either { either: Either::Bool(_), .. } => Some("JSONSchemaPropsOrBool"),
            Body::Either { either: Either::List(_), .. } => Some("JSONSchemaPropsOrArray"),
            Body::Either { .. } => Some("JSONSchemaPropsOrStringArray"),
        };
        name.unwrap_or_default().to_owned()
    }

    /// The field that is being read, as Go calls it as far as that can be guessed.
    fn field_name(&self) -> String {
        let name = match (&self.body, self.place) {
            (Body::Struct { node, .. }, Place::One(at) | Place::List(at) | Place::Map(at)) => match node.field_at(at) {
                field if field.name.as_str() == "metadata" => field.node.type_name().unwrap_or_default(),
                field => field.name.as_str(),
            },
            _ => "items",
        };
        let mut letters = name.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
    }

    fn slot(&mut self, position: usize, new: fn() -> Slot) -> Option<&mut Slot> {
        let Body::Struct { slots, .. } = &mut self.body else { return None };
        let at = match slots.iter().rposition(|(at, _)| *at == position) {
            Some(at) => at,
            None => {
                slots.push((position, new()));
                slots.len() - 1
            }
        };
        Some(&mut slots[at].1)
    }

    fn put(&mut self, closed: Closed) {
        match (self.place, closed) {
            (Place::Map(position), Closed::Entry(key, value)) => {
                if let Some(Slot::Map(entries)) = self.slot(position, || Slot::Map(Vec::new())) {
                    entries.push((key, value));
                }
            }
            (_, Closed::Value(value) | Closed::Entry(_, value)) => self.put_value(value),
        }
    }

    fn put_value(&mut self, new: Value) {
        match (&mut self.body, self.place) {
            (Body::Struct { .. }, Place::List(position)) => {
                if let Some(Slot::List(values)) = self.slot(position, || Slot::List(Vec::new())) {
                    values.push(new);
                }
            }
            (Body::Struct { .. }, Place::One(position) | Place::Map(position)) => {
                if let Some(slot) = self.slot(position, || Slot::One(Value::Null)) {
                    *slot = Slot::One(new);
                }
            }
            (Body::Entry { value, .. }, _) => *value = Some(new),
            (Body::Wrapped { values, .. } | Body::Either { many: values, .. }, Place::List(_)) => values.push(new),
            (Body::Either { one, .. }, _) => *one = Some(new),
            (Body::Wrapped { .. }, _) => {}
        }
    }

    fn close(self, spare: &mut Vec<Slots>) -> Closed {
        match self.body {
            Body::Struct { node, mut slots } => {
                slots.sort_unstable_by_key(|(position, _)| *position);
                let mut entries = Vec::with_capacity(slots.len());
                entries.extend(slots.drain(..).filter_map(|(position, slot)| {
                    let field = node.field_at(position);
                    let value = match slot {
                        Slot::One(value) => value,
                        Slot::List(values) => Value::Array(values.into()),
                        Slot::Map(entries) => Value::Object(Map::from_entries(entries, |_| {})),
                    };
                    let hides = value.is_null() || field.node.drops_zero() && is_zero(&value);
                    (!hides).then(|| (Str::from(field.name.as_str()), value))
                }));
                spare.push(slots);
                Closed::Value(Value::Object(Map::from_entries(entries, |_| {})))
            }
            Body::Entry { shape, key, value } => Closed::Entry(key, value.unwrap_or_else(|| zero(shape))),
            Body::Wrapped { values, .. } if values.is_empty() => Closed::Value(Value::Null),
            Body::Wrapped { values, .. } => Closed::Value(Value::Array(values.into())),
            Body::Either { either: Either::Bool(_), one, .. } => Closed::Value(one.unwrap_or(Value::Bool(false))),
            Body::Either { many, .. } if !many.is_empty() => Closed::Value(Value::Array(many.into())),
            Body::Either { one, .. } => Closed::Value(one.unwrap_or_default()),
        }
    }
}

/// The value of an entry that says none.
pub(super) fn zero(shape: Shape<'_>) -> Value {
    match shape {
        Shape::String | Shape::Bytes => Value::String(Str::default()),
        Shape::Bool => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => Value::Int(0),
        Shape::Double => Value::Float(0.0),
        Shape::Quantity => Value::String(Str::const_new("0")),
        Shape::Struct(_) => Value::Object(Map::new()),
        Shape::Time | Shape::MicroTime | Shape::Raw | Shape::Either(_) | Shape::Wrapped(_) => Value::Null,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(b) => !b,
        Value::Int(n) => *n == 0,
        Value::Float(n) => *n == 0.0,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

impl<'s> Decoder<'s, '_> {
    fn run(mut self) -> Result<Value, Error> {
        while let Some(frame) = self.frames.last_mut() {
            self.reader.end = frame.ends[frame.level];
            if !self.reader.is_at_end() {
                let tag = self.reader.tag(|| frame.type_name())?;
                self.field(tag)?;
            } else if frame.level > 0 {
                frame.level -= 1;
                frame.path &= if frame.level == 0 { 0 } else { 0xff_00_00 };
            } else {
                let Some(closed) = self.frames.pop().map(|frame| frame.close(&mut self.spare)) else { break };
                match (self.frames.last_mut(), closed) {
                    (Some(parent), closed) => parent.put(closed),
                    (None, Closed::Value(value) | Closed::Entry(_, value)) => return Ok(value),
                }
            }
        }
        Ok(Value::Null)
    }

    fn field(&mut self, tag: Tag) -> Result<(), Error> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let (place, shape) = match (&mut frame.body, tag.number) {
            (Body::Struct { node, .. }, 1..=MAX_NUMBER) => {
                let shift = 16 - 8 * frame.level;
                let path = frame.path | (tag.number as u32) << shift;
                let numbers = node.numbers();
                let found = numbers.get(numbers.partition_point(|field| field.path < path));
                match found {
                    Some(field) if field.path == path => {
                        let position = field.position;
                        match Plan::of(node.field_at(position).node, *node) {
                            Plan::One(shape) => (Place::One(position), shape),
                            Plan::List(shape) => (Place::List(position), shape),
                            Plan::Map(shape) => {
                                frame.place = Place::Map(position);
                                return self.begin(tag, Body::Entry { shape, key: Str::default(), value: None });
                            }
                        }
                    }
                    Some(field) if field.path >> shift == path >> shift && frame.level < 2 => {
                        if tag.wire != DELIMITED {
                            frame.place = Place::One(field.position);
                            return Err(Error::WrongWireType { wire: tag.wire, field: frame.field_name() });
                        }
                        let end = self.reader.delimited_end()?;
                        frame.level += 1;
                        frame.ends[frame.level] = end;
                        frame.path = path;
                        return Ok(());
                    }
                    _ => return self.reader.skip(tag.wire),
                }
            }
            (Body::Entry { key, .. }, 1) if tag.wire == DELIMITED => {
                *key = Str::from_utf8_lossy(self.reader.delimited()?);
                return Ok(());
            }
            (Body::Entry { shape, .. }, 2) => (Place::One(0), *shape),
            (Body::Wrapped { items, .. }, 1) => (Place::List(0), Shape::of(*items)),
            (Body::Either { either: Either::Bool(_), .. }, 1) => (Place::One(0), Shape::Bool),
            (Body::Either { either: Either::Bool(schema), .. }, 2) => (Place::One(0), Shape::Struct(*schema)),
            (Body::Either { either: Either::List(schema) | Either::Strings(schema), .. }, 1) => {
                (Place::One(0), Shape::Struct(*schema))
            }
            (Body::Either { either: Either::List(schema), .. }, 2) => (Place::List(0), Shape::Struct(*schema)),
            (Body::Either { either: Either::Strings(_), .. }, 2) => (Place::List(0), Shape::String),
            _ => return self.reader.skip(tag.wire),
        };
        frame.place = place;
        self.value(tag, shape)
    }

    /// A message begins.
    fn begin(&mut self, tag: Tag, body: Body<'s>) -> Result<(), Error> {
        self.expect(tag, DELIMITED)?;
        let end = self.reader.delimited_end()?;
        if self.frames.len() >= MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.frames.push(Frame::new(body, end));
        Ok(())
    }

    fn expect(&self, tag: Tag, wire: u8) -> Result<(), Error> {
        if tag.wire == wire {
            return Ok(());
        }
        let field = self.frames.last().map(Frame::field_name).unwrap_or_default();
        Err(Error::WrongWireType { wire: tag.wire, field })
    }

    fn value(&mut self, tag: Tag, shape: Shape<'s>) -> Result<(), Error> {
        let number = |read: fn(u64) -> Value| (VARINT, read);
        let (wire, read) = match shape {
            Shape::Bool => number(|n| Value::Bool(n != 0)),
            Shape::Int32 => number(|n| Value::Int(i64::from(n as i32))),
            Shape::Int64 => number(|n| Value::Int(n as i64)),
            Shape::Double => (FIXED64, (|n| Value::Float(f64::from_bits(n))) as fn(u64) -> Value),
            Shape::Struct(node) => {
                let slots = self.spare.pop().unwrap_or_default();
                return self.begin(tag, Body::Struct { node, slots });
            }
            Shape::Wrapped(items) => return self.begin(tag, Body::Wrapped { items, values: Vec::new() }),
            Shape::Either(either) => return self.begin(tag, Body::Either { either, one: None, many: Vec::new() }),
            shape => {
                self.expect(tag, DELIMITED)?;
                let value = leaf(shape, self.reader.delimited()?)?;
                self.put(value);
                return Ok(());
            }
        };
        // Numbers of a list may come packed.
        let packed = tag.wire == DELIMITED && matches!(self.frames.last(), Some(Frame { place: Place::List(_), .. }));
        let end =
            if packed { self.reader.delimited_end()? } else { self.expect(tag, wire).map(|()| self.reader.at + 1)? };
        while self.reader.at < end {
            let n = if wire == VARINT { self.reader.varint()? } else { self.reader.fixed64()? };
            self.put(read(n));
        }
        Ok(())
    }

    fn put(&mut self, value: Value) {
        if let Some(frame) = self.frames.last_mut() {
            frame.put_value(value);
        }
    }
}

/// What has a length and no fields that JSON would show.
pub(super) fn leaf(shape: Shape<'_>, bytes: &[u8]) -> Result<Value, Error> {
    let text = match shape {
        Shape::Bytes => BASE64_STANDARD.encode(bytes).into(),
        Shape::Time | Shape::MicroTime => match timestamp(shape, bytes)? {
            Some(text) => text.into(),
            None => return Ok(Value::Null),
        },
        Shape::Quantity => {
            let mut quantity = Quantity::default();
            for field in small(bytes, "Quantity", ["String_"], [DELIMITED]) {
                if let (1, Field::Bytes(text)) = field? {
                    quantity = String::from_utf8_lossy(text).parse().map_err(Error::Quantity)?;
                }
            }
            quantity.to_string().into()
        }
        Shape::IntOrString => {
            let (mut ty, mut number, mut string) = (0, 0, Str::default());
            for field in small(bytes, "IntOrString", ["Type", "IntVal", "StrVal"], [VARINT, VARINT, DELIMITED]) {
                match field? {
                    (1, Field::Number(n)) => ty = n as i64,
                    (2, Field::Number(n)) => number = n as i32,
                    (_, Field::Bytes(text)) => string = Str::from_utf8_lossy(text),
                    _ => {}
                }
            }
            match ty {
                0 => return Ok(Value::Int(number.into())),
                1 => string,
                _ => return Err(Error::IntOrString),
            }
        }
        Shape::Raw => {
            let raw = raw(bytes)?;
            return if raw.is_empty() { Ok(Value::Null) } else { json::parse(raw).map_err(Error::Json) };
        }
        _ => Str::from_utf8_lossy(bytes),
    };
    Ok(Value::String(text))
}

/// Whether a [`leaf`] is nothing, found out without making it.
pub(super) fn is_null(shape: Shape<'_>, bytes: &[u8]) -> Result<bool, Error> {
    Ok(match shape {
        Shape::Time | Shape::MicroTime => time(shape, bytes)?.is_none(),
        Shape::Raw => matches!(raw(bytes)?.trim_ascii(), b"" | b"null"),
        _ => false,
    })
}

/// The JSON in a message.
fn raw(bytes: &[u8]) -> Result<&[u8], Error> {
    let mut raw: &[u8] = b"";
    for field in small(bytes, "RawExtension", ["Raw"], [DELIMITED]) {
        if let (1, Field::Bytes(bytes)) = field? {
            raw = bytes;
        }
    }
    Ok(raw)
}

/// A time as it is printed; nothing if it is not set.
fn timestamp(shape: Shape<'_>, bytes: &[u8]) -> Result<Option<String>, Error> {
    let time = time(shape, bytes)?;
    Ok(time.map(|time| if matches!(shape, Shape::MicroTime) { MicroTime(time).to_string() } else { time.to_string() }))
}

/// A time; nothing if it is not set.
fn time(shape: Shape<'_>, bytes: &[u8]) -> Result<Option<Time>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    for field in small(bytes, "Timestamp", ["Seconds", "Nanos"], [VARINT, VARINT]) {
        match field? {
            (1, Field::Number(n)) => seconds = n as i64,
            (2, Field::Number(n)) => nanos = n as i32,
            _ => {}
        }
    }
    const SECOND: i32 = 1_000_000_000;
    let micro = matches!(shape, Shape::MicroTime);
    // Times have no fraction, whatever is sent; micro times have six digits of it.
    let nanos = if micro { nanos - nanos % 1000 } else { 0 };
    let seconds = seconds.saturating_add(nanos.div_euclid(SECOND).into());
    let time = Time::from_unix(seconds, nanos.rem_euclid(SECOND) as u32);
    Ok(Some(time).filter(|time| !time.is_zero()))
}

/// A field of a small message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message that has just `names`, in the forms of `wires`.
fn small<'a, const N: usize>(
    bytes: &'a [u8],
    ty: &'static str,
    names: [&'static str; N],
    wires: [u8; N],
) -> impl Iterator<Item = Result<(i32, Field<'a>), Error>> {
    let mut reader = Reader::new(bytes);
    let mut next = move || {
        let tag = reader.tag(|| ty.to_owned())?;
        match usize::try_from(tag.number - 1).ok().and_then(|at| Some((wires.get(at)?, names[at]))) {
            None => reader.skip(tag.wire).map(|()| (0, Field::Number(0))),
            Some((wire, field)) if *wire != tag.wire => {
                Err(Error::WrongWireType { wire: tag.wire, field: field.to_owned() })
            }
            Some((&VARINT, _)) => Ok((tag.number, Field::Number(reader.varint()?))),
            Some(_) => Ok((tag.number, Field::Bytes(reader.delimited()?))),
        }
        .map(|field| (field, reader.is_at_end()))
    };
    let mut done = bytes.is_empty();
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        match next() {
            Ok((field, end)) => {
                done = end;
                Some(Ok(field))
            }
            Err(error) => {
                done = true;
                Some(Err(error))
            }
        }
    })
}
