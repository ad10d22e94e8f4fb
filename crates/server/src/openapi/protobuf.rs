//! The document of version 2 as protobuf, which is what Go's clients ask for: the messages of gnostic.
//!
//! The bytes are written from the last to the first, so that the length of a message is known when it is due; what is
//! left to do is on a stack of its own, because schemas may be deeply nested.

use capstan_api::{Value, json};

/// What a JSON value becomes.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Texts,
    Bool,
    Int,
    Double,
    /// A value as text.
    Any,
    Anys,
    /// A message.
    One(Message),
    /// A list of messages.
    Many(Message),
    /// A message that has all entries of a JSON object as pairs of name and message, in the field of that number.
    Named(u32, Message),
    /// A message that has the strings in field 1.
    TextsWithin,
    /// What is wrapped into a message once more, under that number.
    Within(u32, &'static Shape),
    AdditionalProperties,
}

/// The messages: which fields they have, and the number of the extensions.
#[derive(Clone, Copy)]
enum Message {
    Document,
    Info,
    PathItem,
    Operation,
    /// A parameter, or a reference to one.
    Parameter,
    /// A parameter that is referred to.
    SharedParameter,
    BodyParameter,
    QueryParameter,
    PathParameter,
    Reference,
    Response,
    Schema,
    /// A requirement of security, and the scopes in it.
    Scopes,
    ApiKey,
}

/// The fields of a message, each with its number.
type Fields = &'static [(&'static str, u32, Shape)];

use Shape::{Any, Anys, Bool, Double, Int, Many, Named, One, Text, Texts, TextsWithin, Within};

const DOCUMENT: Fields = &[
    ("swagger", 1, Text),
    ("info", 2, One(Message::Info)),
    ("paths", 8, Named(2, Message::PathItem)),
    ("definitions", 9, Named(1, Message::Schema)),
    ("parameters", 10, Named(1, Message::SharedParameter)),
    ("security", 12, Many(Message::Scopes)),
    ("securityDefinitions", 13, Named(1, Message::ApiKey)),
];
const PATH_ITEM: Fields = &[
    ("get", 2, One(Message::Operation)),
    ("put", 3, One(Message::Operation)),
    ("post", 4, One(Message::Operation)),
    ("delete", 5, One(Message::Operation)),
    ("options", 6, One(Message::Operation)),
    ("head", 7, One(Message::Operation)),
    ("patch", 8, One(Message::Operation)),
    ("parameters", 9, Many(Message::Parameter)),
];
const OPERATION: Fields = &[
    ("tags", 1, Texts),
    ("description", 3, Text),
    ("operationId", 5, Text),
    ("produces", 6, Texts),
    ("consumes", 7, Texts),
    ("parameters", 8, Many(Message::Parameter)),
    ("responses", 9, Named(1, Message::Response)),
    ("schemes", 10, Texts),
];
const BODY_PARAMETER: Fields = &[
    ("description", 1, Text),
    ("name", 2, Text),
    ("in", 3, Text),
    ("required", 4, Bool),
    ("schema", 5, One(Message::Schema)),
];
const QUERY_PARAMETER: Fields = &[
    ("required", 1, Bool),
    ("in", 2, Text),
    ("description", 3, Text),
    ("name", 4, Text),
    ("type", 6, Text),
    ("uniqueItems", 20, Bool),
];
const PATH_PARAMETER: Fields = &[
    ("required", 1, Bool),
    ("in", 2, Text),
    ("description", 3, Text),
    ("name", 4, Text),
    ("type", 5, Text),
    ("uniqueItems", 19, Bool),
];
const SCHEMA: Fields = &[
    ("$ref", 1, Text),
    ("format", 2, Text),
    ("title", 3, Text),
    ("description", 4, Text),
    ("default", 5, Any),
    ("multipleOf", 6, Double),
    ("maximum", 7, Double),
    ("exclusiveMaximum", 8, Bool),
    ("minimum", 9, Double),
    ("exclusiveMinimum", 10, Bool),
    ("maxLength", 11, Int),
    ("minLength", 12, Int),
    ("pattern", 13, Text),
    ("maxItems", 14, Int),
    ("minItems", 15, Int),
    ("uniqueItems", 16, Bool),
    ("maxProperties", 17, Int),
    ("minProperties", 18, Int),
    ("required", 19, Texts),
    ("enum", 20, Anys),
    ("additionalProperties", 21, Shape::AdditionalProperties),
    ("type", 22, TextsWithin),
    ("items", 23, Within(1, &One(Message::Schema))),
    ("properties", 25, Named(1, Message::Schema)),
    ("example", 30, Any),
];

impl Message {
    fn fields(self) -> Fields {
        match self {
            Message::Document => DOCUMENT,
            Message::Info => &[("title", 1, Text), ("version", 2, Text)],
            Message::PathItem => PATH_ITEM,
            Message::Operation => OPERATION,
            Message::BodyParameter => BODY_PARAMETER,
            Message::QueryParameter => QUERY_PARAMETER,
            Message::PathParameter => PATH_PARAMETER,
            Message::Reference => &[("$ref", 1, Text)],
            Message::Response => &[("description", 1, Text), ("schema", 2, Within(1, &One(Message::Schema)))],
            Message::Schema => SCHEMA,
            Message::ApiKey => &[("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)],
            Message::Parameter | Message::SharedParameter | Message::Scopes => &[],
        }
    }

    /// The number of the extensions, whose names begin with `x-`.
    fn extensions(self) -> Option<u32> {
        match self {
            Message::Operation => Some(13),
            Message::Schema => Some(31),
            _ => None,
        }
    }

    /// The messages around this one, from the outside in, and what it is in the end: gnostic has a message for each
    /// choice.
    fn resolve(self, value: &Value) -> (&'static [u32], Message) {
        let place = value.get("in").and_then(Value::as_str);
        match self {
            Message::Parameter => match place {
                None => (&[2], Message::Reference),
                Some("body") => (&[1, 1], Message::BodyParameter),
                Some("path") => (&[1, 2, 4], Message::PathParameter),
                Some(_) => (&[1, 2, 3], Message::QueryParameter),
            },
            Message::SharedParameter if place == Some("path") => (&[2, 4], Message::PathParameter),
            Message::SharedParameter => (&[2, 3], Message::QueryParameter),
            Message::Response => (&[1], self),
            Message::ApiKey => (&[2], self),
            _ => (&[], self),
        }
    }
}

/// What is left to write.
enum Work<'a> {
    Field(u32, Shape, &'a Value),
    /// The name of an entry.
    Name(u32, &'a str),
    /// A pair of name and message.
    Entry(u32, &'a str, Message, &'a Value),
    /// The value of an extension, under its name.
    Extension(u32, &'a str, &'a Value),
    /// Everything of a message.
    Contents(Message, &'a Value),
    /// The beginning of what ended where the output was so long.
    Open(u32, usize),
    /// A field that is there for its contents alone: its number, and what is in it.
    Around(u32, Box<Work<'a>>),
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// The document, which is version 2 in JSON, as protobuf.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut writer = Writer { out: Vec::new(), stack: vec![Work::Contents(Message::Document, document)] };
    while let Some(work) = writer.stack.pop() {
        writer.step(work);
    }
    writer.out.reverse();
    writer.out
}

struct Writer<'a> {
    /// What has been written, the last byte first.
    out: Vec<u8>,
    stack: Vec<Work<'a>>,
}

impl<'a> Writer<'a> {
    fn step(&mut self, work: Work<'a>) {
        match work {
            Work::Name(number, name) => self.text(number, name),
            Work::Open(number, end) => {
                self.varint((self.out.len() - end) as u64);
                self.tag(number, BYTES);
            }
            Work::Around(number, inner) => self.around(number, [*inner]),
            Work::Entry(number, name, message, value) => {
                let inner = wrapped(2, message, value);
                self.around(number, [Work::Name(1, name), inner]);
            }
            Work::Extension(number, name, value) => {
                self.around(number, [Work::Name(1, name), Work::Field(2, Any, value)]);
            }
            Work::Contents(message, value) => self.contents(message, value),
            Work::Field(number, shape, value) => self.field(number, shape, value),
        }
    }

    /// A message whose parts are still to be written.
    fn around(&mut self, number: u32, parts: impl IntoIterator<Item = Work<'a>>) {
        self.stack.push(Work::Open(number, self.out.len()));
        self.stack.extend(parts);
    }

    fn contents(&mut self, message: Message, value: &'a Value) {
        let Value::Object(map) = value else { return };
        if let Message::Scopes = message {
            // Their lists are empty, so that nothing is in their messages.
            return self.stack.extend(map.iter().map(|(name, scopes)| Work::Entry(1, name, message, scopes)));
        }
        let fields = message.fields().iter();
        self.stack.extend(fields.filter_map(|&(name, number, shape)| Some(Work::Field(number, shape, map.get(name)?))));
        if let Some(number) = message.extensions() {
            let extensions = map.iter().filter(|(name, _)| name.starts_with("x-"));
            self.stack.extend(extensions.map(|(name, value)| Work::Extension(number, name, value)));
        }
    }

    fn field(&mut self, number: u32, shape: Shape, value: &'a Value) {
        let items = value.as_array().map_or(&[][..], |items| items);
        match shape {
            Text => self.text(number, value.as_str().unwrap_or_default()),
            Texts => items.iter().rev().filter_map(Value::as_str).for_each(|text| self.text(number, text)),
            Bool => {
                self.varint(u64::from(value.as_bool() == Some(true)));
                self.tag(number, VARINT);
            }
            Int => {
                self.varint(value.as_i64().unwrap_or_default() as u64);
                self.tag(number, VARINT);
            }
            Double => {
                let value = value.as_f64().unwrap_or_default();
                self.out.extend(value.to_be_bytes());
                self.tag(number, FIXED64);
            }
            Any => {
                let end = self.out.len();
                self.text(2, &json::to_string(value));
                self.step(Work::Open(number, end));
            }
            Anys => self.stack.extend(items.iter().map(|item| Work::Field(number, Any, item))),
            One(message) => self.stack.push(wrapped(number, message, value)),
            Many(message) => self.stack.extend(items.iter().map(|item| wrapped(number, message, item))),
            Named(inner, message) => {
                let entries = value.as_object().into_iter().flat_map(capstan_api::Map::iter);
                self.around(number, entries.map(|(name, value)| Work::Entry(inner, name, message, value)));
            }
            TextsWithin => self.around(number, value.as_str().map(|text| Work::Name(1, text))),
            Within(inner, shape) => self.around(number, [Work::Field(inner, *shape, value)]),
            Shape::AdditionalProperties => match value {
                Value::Bool(_) => self.around(number, [Work::Field(2, Bool, value)]),
                _ => self.around(number, [Work::Field(1, One(Message::Schema), value)]),
            },
        }
    }

    fn text(&mut self, number: u32, text: &str) {
        self.out.extend(text.bytes().rev());
        self.varint(text.len() as u64);
        self.tag(number, BYTES);
    }

    fn tag(&mut self, number: u32, wire: u32) {
        self.varint(u64::from(number << 3 | wire));
    }

    fn varint(&mut self, mut value: u64) {
        let start = self.out.len();
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
        self.out[start..].reverse();
    }
}

/// A message under a number, with the messages around it.
fn wrapped(number: u32, message: Message, value: &Value) -> Work<'_> {
    let (around, message) = message.resolve(value);
    let inner = around.iter().rev().fold(Work::Contents(message, value), |inner, &n| Work::Around(n, Box::new(inner)));
    Work::Around(number, Box::new(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(document: &str, expected: &[u8]) {
        assert_eq!(encode(&json::parse(document.as_bytes()).unwrap()), expected, "{document}");
    }

    /// What gnostic's own encoder makes of these.
    #[test]
    fn small_documents() {
        check("{}", b"");
        check(r#"{"swagger":"2.0","info":{"title":"K","version":"1"}}"#, b"\x0a\x032.0\x12\x06\x0a\x01K\x12\x011");
        check(
            r#"{"definitions":{"a":{"type":"object","x-b":true}}}"#,
            b"\x4a\x22\x0a\x20\x0a\x01a\x12\x1b\xb2\x01\x08\x0a\x06object\xfa\x01\x0d\x0a\x03x-b\x12\x06\x12\x04true",
        );
        check(r#"{"security":[{"T":[]}]}"#, b"\x62\x07\x0a\x05\x0a\x01T\x12\x00");
        check(
            r#"{"parameters":{"p":{"in":"path","required":true}}}"#,
            b"\x52\x13\x0a\x11\x0a\x01p\x12\x0c\x12\x0a\x22\x08\x08\x01\x12\x04path",
        );
        check(
            r##"{"paths":{"/":{"parameters":[{"$ref":"#/p"}]}}}"##,
            b"\x42\x10\x12\x0e\x0a\x01/\x12\x09\x4a\x07\x12\x05\x0a\x03#/p",
        );
    }

    #[test]
    fn nesting_costs_no_stack() {
        const DEPTH: usize = 4_000;
        let schema = format!("{}{{}}{}", r#"{"items":"#.repeat(DEPTH), "}".repeat(DEPTH));
        let document = json::parse(format!(r#"{{"definitions":{{"a":{schema}}}}}"#).as_bytes()).unwrap();
        assert!(encode(&document).len() > DEPTH * 2);
    }
}
