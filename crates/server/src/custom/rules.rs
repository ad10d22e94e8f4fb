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

    /// What the rules say about an object that is to replace `old`, if there is an old one; what they say about values
    /// that did not change becomes warnings.
    pub(super) fn check(&self, object: &Map, old: Option<&Map>, warnings: &mut Vec<String>) -> ErrorList {
        let object = Value::Object(object.clone());
        let Some(old) = old.cloned().map(Value::Object) else {
            return self.validator.validate(self.schema.root(), "", &object, None, RUNTIME_COST_BUDGET).0;
        };
        let (errors, forgiven) = self.validator.validate_update(self.schema.root(), &object, &old, RUNTIME_COST_BUDGET);
        warnings.extend(forgiven.iter().map(ToString::to_string));
        errors
    }
}
