//! The columns of a custom resource's table.

use capstan_api::{Duration, Map, Time, Value, go, json, table::TableColumnDefinition};

use super::{definition::Served, jsonpath::JsonPath};
use crate::printers;

/// The columns of a version, after that of the name.
pub(super) struct Columns {
    all: Vec<Column>,
}

struct Column {
    name: String,
    ty: Type,
    format: String,
    description: String,
    priority: i32,
    path: JsonPath,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    String,
    Integer,
    Number,
    Boolean,
    Date,
    Other,
}

impl Type {
    const NAMED: [(Type, &'static str); 5] = [
        (Type::String, "string"),
        (Type::Integer, "integer"),
        (Type::Number, "number"),
        (Type::Boolean, "boolean"),
        (Type::Date, "date"),
    ];

    fn parse(name: &str) -> Self {
        Type::NAMED.iter().find(|(_, known)| *known == name).map_or(Type::Other, |(ty, _)| *ty)
    }

    fn name(self) -> &'static str {
        Type::NAMED.iter().find(|(ty, _)| *ty == self).map_or("", |(_, name)| name)
    }
}

impl Columns {
    /// The columns that a version says; if it says none, the age. From one that cannot be read on there are none.
    pub(super) fn new(said: Option<&Value>) -> Self {
        let said = said.and_then(Value::as_array).map_or(&[][..], |columns| columns);
        let all = if said.is_empty() { vec![age()] } else { said.iter().map_while(Column::new).collect() };
        Columns { all }
    }
}

fn age() -> Column {
    Column {
        name: "Age".to_owned(),
        ty: Type::Date,
        format: String::new(),
        description: printers::describe("", "Age"),
        priority: 0,
        path: JsonPath::parse(".metadata.creationTimestamp").expect("the path is simple"),
    }
}

impl Column {
    fn new(column: &Value) -> Option<Self> {
        let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default();
        let path = text("jsonPath");
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            own => own.to_owned(),
        };
        let priority = column.get("priority").and_then(Value::as_i64).and_then(|number| i32::try_from(number).ok());
        Some(Column {
            name: text("name").to_owned(),
            ty: Type::parse(text("type")),
            format: text("format").to_owned(),
            description,
            priority: priority.unwrap_or_default(),
            path: JsonPath::parse(path).ok()?,
        })
    }

    fn cell(&self, object: &Map, now: Time) -> Value {
        let Ok(found) = self.path.find_in(object) else { return Value::Null };
        let Some(value) = found.first() else { return Value::Null };
        match (self.ty, &**value) {
            (Type::String, value) => value_text(value).into(),
            (Type::Integer, Value::Int(n)) => Value::Int(*n),
            (Type::Integer, Value::Float(n)) => Value::Int(truncate(*n)),
            (Type::Number, Value::Int(n)) => Value::Float(to_float(*n)),
            (Type::Number, Value::Float(n)) => Value::Float(*n),
            (Type::Boolean, Value::Bool(flag)) => Value::Bool(*flag),
            (Type::Date, Value::String(text)) => date(text, now).into(),
            _ => Value::Null,
        }
    }
}

/// As Go converts it where upstream runs: what does not fit is the smallest number.
#[expect(clippy::cast_possible_truncation, reason = "cutting off is the point")]
fn truncate(n: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&n) { n as i64 } else { i64::MIN }
}

#[expect(clippy::cast_precision_loss, reason = "as Go converts it")]
fn to_float(n: i64) -> f64 {
    n as f64
}

/// How long ago a time was.
fn date(text: &str, now: Time) -> String {
    if text.is_empty() || text == "null" {
        return "<unknown>".to_owned();
    }
    match text.parse::<Time>() {
        Ok(time) if time.is_zero() => "<unknown>".to_owned(),
        Ok(time) => Duration::human(now.since(time)),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// A value as it is printed into a cell of text.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Null => "<no value>".to_owned(),
        Value::Float(number) => go::float(*number),
        other => go::escape_html(&json::to_string(other)),
    }
}

impl Served {
    /// The columns of its tables.
    #[must_use]
    pub fn columns(&self) -> Vec<TableColumnDefinition> {
        let name = TableColumnDefinition {
            name: "Name".to_owned(),
            column_type: "string".to_owned(),
            format: "name".to_owned(),
            description: printers::describe("", "Name"),
            priority: 0,
        };
        let others = self.printed().all.iter().map(|column| TableColumnDefinition {
            name: column.name.clone(),
            column_type: column.ty.name().to_owned(),
            format: column.format.clone(),
            description: column.description.clone(),
            priority: column.priority,
        });
        std::iter::once(name).chain(others).collect()
    }

    /// The cells of an object's row.
    #[must_use]
    pub fn cells(&self, object: &Map, now: Time) -> Vec<Value> {
        let name = object.get("metadata").and_then(|metadata| metadata.get("name")).cloned();
        let name = name.unwrap_or_else(|| "".into());
        std::iter::once(name).chain(self.printed().all.iter().map(|column| column.cell(object, now))).collect()
    }
}
