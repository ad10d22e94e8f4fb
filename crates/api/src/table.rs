//! Tables: objects as the rows that `kubectl get` prints.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    GroupVersionKind, Value,
    field::{self, Path},
    json, list,
    object::ListMeta,
};

/// The kind of a table.
pub const TABLE: GroupVersionKind = GroupVersionKind::from_static("meta.k8s.io", "v1", "Table");

/// A table of objects. The objects may be anything that has bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table<B> {
    /// The metadata of the list that is shown.
    pub metadata: ListMeta,
    /// The columns; nothing in the events of a watch after the first.
    pub column_definitions: Option<Vec<TableColumnDefinition>>,
    /// The rows.
    pub rows: Vec<TableRow<B>>,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableColumnDefinition {
    /// The heading.
    pub name: String,
    /// The type of the cells: `string`, `integer`, `number`, `boolean`, `date`.
    #[serde(rename = "type")]
    pub column_type: String,
    /// The format of the cells; `name` is the column of the objects' names.
    pub format: String,
    /// What the column shows.
    pub description: String,
    /// Zero for columns that are always shown; others only when there is room.
    pub priority: i32,
}

/// A row: an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableRow<B> {
    /// One cell for each column.
    pub cells: Vec<Value>,
    /// What holds for the row.
    pub conditions: Vec<TableRowCondition>,
    /// The object, or its metadata; whole JSON.
    pub object: Option<B>,
}

/// Something that holds for a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableRowCondition {
    /// What: `Completed`.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// Whether: `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl<B: AsRef<[u8]>> Table<B> {
    /// Appends the table.
    pub fn render(&self, out: &mut Vec<u8>) {
        list::write_head(&TABLE, &self.metadata, out);
        out.extend_from_slice(b",\"columnDefinitions\":");
        write(&self.column_definitions, out);
        out.extend_from_slice(b",\"rows\":[");
        for (at, row) in self.rows.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            row.render(out);
        }
        out.extend_from_slice(b"]}");
    }
}

impl<B: AsRef<[u8]>> TableRow<B> {
    /// Appends the row.
    pub fn render(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"cells\":[");
        for (at, cell) in self.cells.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            json::write(cell, out);
        }
        out.push(b']');
        if !self.conditions.is_empty() {
            out.extend_from_slice(b",\"conditions\":");
            write(&self.conditions, out);
        }
        out.extend_from_slice(b",\"object\":");
        out.extend_from_slice(self.object.as_ref().map_or(b"null", AsRef::as_ref));
        out.push(b'}');
    }
}

fn write<T: Serialize>(part: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, part).expect("strings and numbers always serialize");
}

/// How much of each object a table carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl FromStr for IncludeObject {
    type Err = Box<field::Error>;

    /// Reads the parameter `includeObject`; nothing is the metadata.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "None" => Ok(IncludeObject::None),
            "Metadata" | "" => Ok(IncludeObject::Metadata),
            "Object" => Ok(IncludeObject::Object),
            _ => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                Err(Box::new(field::Error::invalid(Path::new("includeObject"), text, detail)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Go prints for the same.
    #[test]
    fn print_as_go() {
        fn check(table: &Table<&str>, expected: &str) {
            let mut out = Vec::new();
            table.render(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let mut table = Table::default();
        check(
            &table,
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":null,"rows":[]}"#,
        );
        table.metadata = ListMeta {
            resource_version: "7".into(),
            continue_token: "c".into(),
            remaining_item_count: Some(3),
            ..ListMeta::default()
        };
        let column = |name: &str, format: &str, priority| TableColumnDefinition {
            name: name.into(),
            column_type: "string".into(),
            format: format.into(),
            description: String::new(),
            priority,
        };
        table.column_definitions = Some(vec![column("Name", "name", 0), column("Age", "", 1)]);
        let completed = |reason: &str, message: &str| TableRowCondition {
            condition_type: "Completed".into(),
            status: "True".into(),
            reason: reason.into(),
            message: message.into(),
        };
        let cells = json::parse(br#"["a",1,1.5,null,true,["x"]]"#).unwrap();
        table.rows = vec![
            TableRow {
                cells: cells.as_array().unwrap().to_vec(),
                conditions: vec![completed("Done", "m"), completed("", "")],
                object: Some(r#"{"kind":"X"}"#),
            },
            TableRow::default(),
        ];
        check(
            &table,
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":3},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"","priority":0},{"name":"Age","type":"string","format":"","description":"","priority":1}],"rows":[{"cells":["a",1,1.5,null,true,["x"]],"conditions":[{"type":"Completed","status":"True","reason":"Done","message":"m"},{"type":"Completed","status":"True"}],"object":{"kind":"X"}},{"cells":[],"object":null}]}"#,
        );
    }

    #[test]
    fn include_object() {
        assert_eq!("".parse::<IncludeObject>().unwrap(), IncludeObject::Metadata);
        assert_eq!("None".parse::<IncludeObject>().unwrap(), IncludeObject::None);
        assert_eq!(
            "all".parse::<IncludeObject>().unwrap_err().to_string(),
            r#"includeObject: Invalid value: "all": must be 'Metadata', 'Object', 'None', or empty"#
        );
    }
}
