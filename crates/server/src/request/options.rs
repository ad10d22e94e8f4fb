//! What get, create, update and patch can be told, and how a table is to be made.

use capstan_api::{
    Array, GroupKind, Name, Str, Value,
    field::{Error, ErrorList, Path},
    go,
    status::Status,
    table::IncludeObject,
    validation::validate_field_manager,
};

use super::{PatchType, Query};

/// The group of options.
const META: Name = Name::from_static("meta.k8s.io");
/// The one value of `dryRun`.
const DRY_RUN_ALL: &str = "All";

/// The options of get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// The version that the answer must not be older than, as it was sent.
    pub resource_version: Str,
}

impl GetOptions {
    /// Reads the options.
    #[must_use]
    pub fn parse(query: &Query<'_>) -> Self {
        GetOptions { resource_version: query.text("resourceVersion").into() }
    }
}

/// What is done about fields that the kind does not know, and those that come twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped and the client is told.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}

/// The options of create and update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// All is done but the storing.
    pub dry_run: bool,
    /// Who is to own the fields; nothing if the user agent tells.
    pub field_manager: Str,
    /// What is done about fields that do not belong.
    pub field_validation: FieldValidation,
}

/// The options of patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchOptions {
    /// What it has in common with the other writes.
    pub write: WriteOptions,
    /// Whether an apply takes fields from their owners.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Reads the options of a create.
    ///
    /// # Errors
    /// 422 with all that is wrong.
    pub fn for_create(query: &Query<'_>) -> Result<Self, Status> {
        let (options, errors) = WriteOptions::read(query);
        invalid("CreateOptions", errors).map(|()| options)
    }

    /// Reads the options of an update.
    ///
    /// # Errors
    /// 422 with all that is wrong.
    pub fn for_update(query: &Query<'_>) -> Result<Self, Status> {
        let (options, errors) = WriteOptions::read(query);
        invalid("UpdateOptions", errors).map(|()| options)
    }

    fn read(query: &Query<'_>) -> (Self, ErrorList) {
        let field_manager = query.text("fieldManager");
        let mut errors = validate_field_manager(field_manager, &Path::new("fieldManager"));
        let dry_run: Vec<_> = query.all("dryRun").collect();
        errors.extend(validate_dry_run(&dry_run));
        let field_validation = match query.text("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(Error::not_supported(Path::new("fieldValidation"), other, &supported));
                FieldValidation::default()
            }
        };
        (WriteOptions { dry_run: !dry_run.is_empty(), field_manager: field_manager.into(), field_validation }, errors)
    }
}

impl PatchOptions {
    /// Reads the options of a patch of that type.
    ///
    /// # Errors
    /// 422 with all that is wrong.
    pub fn parse(query: &Query<'_>, patch: PatchType) -> Result<Self, Status> {
        let (write, rest) = WriteOptions::read(query);
        let force = query.flag("force");
        let mut errors = ErrorList::new();
        if patch == PatchType::Apply {
            if write.field_manager.is_empty() {
                errors.push(Error::required(Path::new("fieldManager"), "is required for apply patch"));
            }
        } else if force.is_some() {
            errors.push(Error::forbidden(Path::new("force"), "may not be specified for non-apply patch"));
        }
        errors.extend(rest);
        invalid("PatchOptions", errors).map(|()| PatchOptions { write, force })
    }
}

/// Reads how much of each object a table is to carry.
///
/// # Errors
/// 400 when it is none of what there is.
pub fn table_options(query: &Query<'_>) -> Result<IncludeObject, Status> {
    query
        .text("includeObject")
        .parse()
        .map_err(|error: Box<Error>| Status::bad_request(format!("Unable to convert to Table as requested: {error}")))
}

/// Only `All` may be run dry.
pub(super) fn validate_dry_run(values: &[&str]) -> Option<Error> {
    let shown = || Value::Array(values.iter().copied().map(Value::from).collect::<Array>());
    let wrong = values.iter().any(|value| *value != DRY_RUN_ALL);
    wrong.then(|| Error::not_supported(Path::new("dryRun"), shown(), &[DRY_RUN_ALL]))
}

/// Shows the wrong value as upstream does where its type has a name of its own: as JSON.
pub(super) fn shown_as_json(mut error: Error) -> Error {
    if let Some(value) = error.bad_value.take() {
        error.detail = format!("{}: {}", go::escape_html(&value.to_string()), error.detail);
    }
    error
}

/// Refuses options of that kind if something is wrong with them.
pub(super) fn invalid(kind: &'static str, errors: ErrorList) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&GroupKind::new(META, Name::from_static(kind)), "", &errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T>(answer: Result<T, Status>) -> String {
        answer.map_or_else(|status| format!("{} {}", status.code, status.message), |_| "ok".to_owned())
    }

    /// What upstream said.
    #[test]
    fn writes() {
        let long = format!("fieldValidation=x&fieldManager={}", "a".repeat(129));
        for (text, expected) in [
            ("", "ok"),
            ("dryRun=All&dryRun=All&pretty=1", "ok"),
            ("fieldManager=%ff", "ok"),
            ("dryRun=x", r#"dryRun: Unsupported value: ["x"]: supported values: "All""#),
            ("dryRun=", r#"dryRun: Unsupported value: [""]: supported values: "All""#),
            ("dryRun=All&dryRun=x", r#"dryRun: Unsupported value: ["All","x"]: supported values: "All""#),
            (
                "fieldValidation=x",
                r#"fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn""#,
            ),
            (
                &long,
                r#"[fieldManager: Too long: may not be more than 128 bytes, fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn"]"#,
            ),
            (
                "fieldManager=a%00b%01c",
                r#"[fieldManager: Invalid value: "a\x00b\x01c": invalid character U+0000 (at position 1), fieldManager: Invalid value: "a\x00b\x01c": invalid character U+0001 (at position 3)]"#,
            ),
        ] {
            let query = Query::parse(text);
            for (kind, answer) in
                [("Create", WriteOptions::for_create(&query)), ("Update", WriteOptions::for_update(&query))]
            {
                let expected = if expected == "ok" {
                    expected.to_owned()
                } else {
                    format!(r#"422 {kind}Options.meta.k8s.io "" is invalid: {expected}"#)
                };
                assert_eq!(said(answer), expected);
            }
        }
    }

    #[test]
    fn patches() {
        for (text, patch, expected) in [
            ("force=true&fieldManager=a", PatchType::Apply, "ok"),
            ("", PatchType::Json, "ok"),
            ("force=", PatchType::Merge, "force: Forbidden: may not be specified for non-apply patch"),
            ("", PatchType::Apply, "fieldManager: Required value: is required for apply patch"),
            (
                "dryRun=x&fieldValidation=y",
                PatchType::StrategicMerge,
                r#"[dryRun: Unsupported value: ["x"]: supported values: "All", fieldValidation: Unsupported value: "y": supported values: "", "Ignore", "Strict", "Warn"]"#,
            ),
        ] {
            let words = said(PatchOptions::parse(&Query::parse(text), patch));
            let words = words.strip_prefix(r#"422 PatchOptions.meta.k8s.io "" is invalid: "#).unwrap_or(&words);
            assert_eq!(words, expected);
        }
        let options =
            PatchOptions::parse(&Query::parse("force=0&fieldManager=a&fieldValidation=Strict"), PatchType::Apply);
        let write =
            WriteOptions { dry_run: false, field_manager: "a".into(), field_validation: FieldValidation::Strict };
        assert_eq!(options, Ok(PatchOptions { write, force: Some(false) }));
    }

    #[test]
    fn tables_and_gets() {
        assert_eq!(table_options(&Query::parse("includeObject=None&includeObject=foo")), Ok(IncludeObject::None));
        assert_eq!(
            said(table_options(&Query::parse("includeObject=foo"))),
            r#"400 Unable to convert to Table as requested: includeObject: Invalid value: "foo": must be 'Metadata', 'Object', 'None', or empty"#
        );
        assert_eq!(GetOptions::parse(&Query::parse("resourceVersion=7&resourceVersion=8")).resource_version, "7");
    }
}
