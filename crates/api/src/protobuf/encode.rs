//! From a value to a message, byte by byte as Go's generated code writes it.
//!
//! Everything is written from its end to its beginning: lengths stand before what they are the lengths of.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{
    frame,
    shape::{Either, Plan, Shape, is_pointer},
    wire::{FIXED64, Writer},
};
use crate::{
    GroupVersionKind, Map, MicroTime, Time, Value, go, json,
    schema::{NodeRef, Numbered, Schema},
};

static EMPTY: Map = Map::new();

/// Appends the message of a value of the type of `schema`, without an envelope.
///
/// What does not fit the type is written as if it was not there.
pub fn encode(schema: &Schema, value: &Value, out: &mut Vec<u8>) {
    let mut writer = Writer::default();
    message(&mut writer, schema.root(), value.as_object().unwrap_or(&EMPTY));
    out.extend_from_slice(writer.finish());
}

/// The message of an object of a kind, in its envelope.
#[must_use]
pub fn encode_object(gvk: &GroupVersionKind, schema: &Schema, value: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.put(frame::END);
    let mark = writer.len();
    message(&mut writer, schema.root(), value.as_object().unwrap_or(&EMPTY));
    frame::close(&mut writer, mark, &gvk.api_version(), &gvk.kind);
    writer.finish().to_vec()
}

/// What is still to be written, the last first.
enum Task<'s, 'v> {
    Struct {
        node: NodeRef<'s>,
        map: &'v Map,
        /// The fields that are still to be written.
        rest: &'s [Numbered],
        /// The messages around the field written last that JSON does not show: their numbers as a path, and how much
        /// had been written before each.
        open: (u32, [usize; 2]),
    },
    List {
        number: u32,
        shape: Shape<'s>,
        rest: &'v [Value],
    },
    Entries {
        number: u32,
        shape: Shape<'s>,
        rest: &'v [(crate::Str, Value)],
    },
    /// The key of an entry whose value has been written.
    Key(&'v str),
    /// The boolean of a field that has a schema instead: it is `true`.
    Allows,
    /// The head of a message whose fields have been written since the buffer had the length `mark`.
    Header {
        number: u32,
        mark: usize,
    },
}

fn message(writer: &mut Writer, root: NodeRef<'_>, map: &Map) {
    let mut encoder = Encoder { writer, tasks: vec![structure(root, map)] };
    while let Some(task) = encoder.tasks.pop() {
        encoder.step(task);
    }
}

fn structure<'s, 'v>(node: NodeRef<'s>, map: &'v Map) -> Task<'s, 'v> {
    Task::Struct { node, map, rest: node.numbers(), open: (0, [0; 2]) }
}

struct Encoder<'s, 'v, 'w> {
    writer: &'w mut Writer,
    tasks: Vec<Task<'s, 'v>>,
}

impl<'s, 'v> Encoder<'s, 'v, '_> {
    fn step(&mut self, task: Task<'s, 'v>) {
        match task {
            Task::Struct { node, map, rest, mut open } => {
                let Some((field, rest)) = rest.split_last() else { return self.leave(&mut open, 0) };
                self.leave(&mut open, field.path);
                let number = self.enter(&mut open, field.path);
                self.tasks.push(Task::Struct { node, map, rest, open });
                let field = node.field_at(field.position);
                let value = map.get(field.name).filter(|value| !value.is_null());
                self.field(number, field.node, node, value);
            }
            Task::List { number, shape, rest } => {
                let Some((value, rest)) = rest.split_last() else { return };
                self.tasks.push(Task::List { number, shape, rest });
                self.value(number, shape, Some(value));
            }
            Task::Entries { number, shape, rest } => {
                let Some(((key, value), rest)) = rest.split_last() else { return };
                self.tasks.push(Task::Entries { number, shape, rest });
                self.tasks.push(Task::Header { number, mark: self.writer.len() });
                self.tasks.push(Task::Key(key));
                // Bytes that are `null` are not there.
                if !matches!((shape, value), (Shape::Bytes, Value::Null)) {
                    self.value(2, shape, Some(value));
                }
            }
            Task::Key(key) => self.writer.bytes(1, key.as_bytes()),
            Task::Allows => self.writer.number(1, 1),
            Task::Header { number, mark } => self.writer.header(number, mark),
        }
    }

    /// Ends the hidden messages that are not around the field at `path`.
    fn leave(&mut self, (open, marks): &mut (u32, [usize; 2]), path: u32) {
        if *open & 0xff_00 != 0 && *open & 0xff_ff_00 != path & 0xff_ff_00 {
            self.writer.header(*open >> 8 & 0xff, marks[1]);
            *open &= 0xff_00_00;
        }
        if *open != 0 && *open & 0xff_00_00 != path & 0xff_00_00 {
            self.writer.header(*open >> 16, marks[0]);
            *open = 0;
        }
    }

    /// Begins the hidden messages around the field at `path`, and says the number of the field in the innermost.
    fn enter(&mut self, (open, marks): &mut (u32, [usize; 2]), path: u32) -> u32 {
        let [_, outer, inner, own] = path.to_be_bytes().map(u32::from);
        if inner != 0 && *open == 0 {
            marks[0] = self.writer.len();
            *open = outer << 16;
        }
        if own != 0 && *open & 0xff_00 == 0 {
            marks[1] = self.writer.len();
            *open |= inner << 8;
        }
        [own, inner, outer].into_iter().find(|number| *number != 0).unwrap_or_default()
    }

    fn field(&mut self, number: u32, node: NodeRef<'s>, owner: NodeRef<'s>, value: Option<&'v Value>) {
        match Plan::of(node, owner) {
            Plan::List(shape) => {
                let rest = value.and_then(Value::as_array).map_or(&[][..], |values| values);
                self.tasks.push(Task::List { number, shape, rest });
            }
            Plan::Map(shape) => {
                let rest = value.and_then(Value::as_object).map_or(&[][..], Map::entries);
                self.tasks.push(Task::Entries { number, shape, rest });
            }
            Plan::One(Shape::Bytes) if value.is_none() => {}
            Plan::One(shape) => {
                if value.is_some() || !is_pointer(node, shape) {
                    self.value(number, shape, value);
                }
            }
        }
    }

    /// A message whose fields are written by `tasks`, which come before its head.
    fn begin(&mut self, number: u32, task: Task<'s, 'v>) {
        self.tasks.push(Task::Header { number, mark: self.writer.len() });
        self.tasks.push(task);
    }

    /// A value, or the zero value of its type.
    fn value(&mut self, number: u32, shape: Shape<'s>, value: Option<&'v Value>) {
        let text = || value.and_then(Value::as_str).unwrap_or_default();
        let integer = || value.and_then(Value::as_i64).unwrap_or_default();
        let writer = &mut *self.writer;
        let mark = writer.len();
        match shape {
            Shape::String => writer.bytes(number, text().as_bytes()),
            Shape::Bytes => writer.bytes(number, &BASE64_STANDARD.decode(text()).unwrap_or_default()),
            Shape::Bool => writer.number(number, value.and_then(Value::as_bool).unwrap_or_default().into()),
            Shape::Int32 | Shape::Int64 => writer.number(number, integer() as u64),
            Shape::Double => {
                writer.put(&value.and_then(Value::as_f64).unwrap_or_default().to_bits().to_le_bytes());
                writer.tag(number, FIXED64);
            }
            Shape::Time | Shape::MicroTime => {
                let time = match shape {
                    Shape::Time => text().parse::<Time>().unwrap_or_default(),
                    _ => text().parse::<MicroTime>().unwrap_or_default().0,
                };
                if !time.is_zero() {
                    let nanos = if matches!(shape, Shape::Time) { 0 } else { time.subsec_nanos() / 1000 * 1000 };
                    writer.number(2, nanos.into());
                    writer.number(1, time.unix_seconds() as u64);
                }
                writer.header(number, mark);
            }
            Shape::Quantity => {
                writer.bytes(1, if text().is_empty() { "0" } else { text() }.as_bytes());
                writer.header(number, mark);
            }
            Shape::IntOrString => {
                let is_text = matches!(value, Some(Value::String(_)));
                writer.bytes(3, text().as_bytes());
                writer.number(2, integer() as u64);
                writer.number(1, is_text.into());
                writer.header(number, mark);
            }
            Shape::Raw => {
                if let Some(value) = value.filter(|value| !value.is_null()) {
                    // It is opaque to Go, who mostly has it from an encoder of its own, which escapes what HTML minds.
                    writer.bytes(1, go::escape_html(&json::to_string(value)).as_bytes());
                }
                writer.header(number, mark);
            }
            Shape::Struct(node) => {
                self.begin(number, structure(node, value.and_then(Value::as_object).unwrap_or(&EMPTY)));
            }
            Shape::Wrapped(items) => {
                let rest = value.and_then(Value::as_array).map_or(&[][..], |values| values);
                self.begin(number, Task::List { number: 1, shape: Shape::of(items), rest });
            }
            Shape::Either(either) => self.either(number, either, value),
        }
    }

    fn either(&mut self, number: u32, either: Either<'s>, value: Option<&'v Value>) {
        let mark = self.writer.len();
        self.tasks.push(Task::Header { number, mark });
        match (either, value) {
            (Either::Bool(schema), Some(value @ Value::Object(_))) => {
                // Go writes the boolean too, before the schema.
                self.tasks.push(Task::Allows);
                self.value(2, Shape::Struct(schema), Some(value));
            }
            (Either::Bool(_), value) => self.value(1, Shape::Bool, value),
            (Either::List(schema) | Either::Strings(schema), Some(value @ Value::Object(_))) => {
                self.value(1, Shape::Struct(schema), Some(value));
            }
            (Either::List(schema), Some(Value::Array(values))) => {
                self.tasks.push(Task::List { number: 2, shape: Shape::Struct(schema), rest: values });
            }
            (Either::Strings(_), Some(Value::Array(values))) => {
                self.tasks.push(Task::List { number: 2, shape: Shape::String, rest: values });
            }
            _ => {}
        }
    }
}
