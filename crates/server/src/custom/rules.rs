//! The rules of `x-kubernetes-validations`, which are written in CEL.

use capstan_api::{Map, Value, field::ErrorList, schema::Schema};
use capstan_cel::crd::{RUNTIME_COST_BUDGET, Validator};

/// The compiled rules of a schema.
pub(super) struct Rules {
    schema: Schema,
    validator: Validator,
}

impl Rules {
    /// The rules of a schema, if there are any.
    pub(super) fn compile(schema: &Schema) -> Option<Rules> {
        let validator = Validator::new(schema.root(), true)?;
        Some(Rules { schema: schema.clone(), validator })
    }

    /// What the rules say about an object that is to replace `old`, if there is an old one. Errors of values that did
    /// not change are forgiven, as those of the schema are.
    pub(super) fn check(&self, object: &Map, old: Option<&Map>) -> ErrorList {
        let (object, old) = (Value::Object(object.clone()), old.cloned().map(Value::Object));
        let (errors, _) = self.validator.validate(self.schema.root(), "", &object, old.as_ref(), RUNTIME_COST_BUDGET);
        let Some(old) = &old else { return errors };
        let at = |root: &Value, field: &str| -> Option<Value> {
            let parts = field.split('.').filter(|part| !part.is_empty());
            let mut value = root.clone();
            for part in parts {
                // Elements of lists are not followed: they may have moved.
                value = value.get(part)?.clone();
            }
            Some(value)
        };
        let unchanged =
            |field: &str| !field.is_empty() && at(&object, field).is_some_and(|new| at(old, field) == Some(new));
        errors.into_iter().filter(|error| !unchanged(&error.field)).collect()
    }
}
