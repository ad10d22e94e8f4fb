//! What names, numbers, addresses and metadata may be, and the exact words for what they may not.
//!
//! The `is_…` functions return what is wrong with a value, one sentence each; nothing wrong is nothing returned. The
//! `validate_…` functions return field errors. Messages carry the regular expression that describes the form; the
//! matching is done by hand, because every request goes through it.

mod address;
mod dns;
mod domain;
mod labels;
mod meta;
mod text;

pub use address::{
    is_valid_cidr, is_valid_interface_address, is_valid_ip, parse_ip_sloppy, validate_legacy_cidr, validate_legacy_ip,
    warnings_for_cidr, warnings_for_ip,
};
pub use dns::{
    is_dns1035_label, is_dns1123_label, is_dns1123_subdomain, is_dns1123_subdomain_with_underscore,
    is_wildcard_dns1123_subdomain, name_is_dns_label, name_is_dns_subdomain, name_is_dns1035_label,
};
pub use domain::{
    is_domain_prefixed_key, is_domain_prefixed_path, is_fully_qualified_domain_name, is_fully_qualified_name,
};
pub use labels::{is_qualified_name, is_valid_label_value, validate_label_name, validate_labels};
pub use meta::{
    TOTAL_ANNOTATION_SIZE_LIMIT, validate_annotations, validate_field_manager, validate_finalizer_name,
    validate_finalizers, validate_managed_fields, validate_object_meta, validate_object_meta_update,
    validate_owner_references,
};
pub use text::{
    is_c_identifier, is_config_map_key, is_env_var_name, is_http_header_name, is_in_range, is_path_segment_name,
    is_path_segment_prefix, is_relaxed_env_var_name, is_valid_group_id, is_valid_percent, is_valid_port_name,
    is_valid_port_num, is_valid_user_id,
};

/// What is wrong with a value, one sentence each.
pub type Messages = Vec<String>;

/// A form and how it is described: a sentence, a regular expression, and examples.
pub(crate) struct Form {
    pub(crate) sentence: &'static str,
    pub(crate) regex: &'static str,
    pub(crate) examples: &'static [&'static str],
}

impl Form {
    /// What is said to a value that does not have the form.
    pub(crate) fn message(&self) -> String {
        let examples: Vec<_> = self.examples.iter().map(|example| format!("'{example}', ")).collect();
        let eg = if examples.is_empty() { String::new() } else { format!("e.g. {}", examples.join(" or ")) };
        format!("{} ({eg}regex used for validation is '{}')", self.sentence, self.regex)
    }
}

/// What is said to a value that is too long. Most functions count bytes and speak of characters.
pub(crate) fn max_len_error(length: usize) -> String {
    format!("must be no more than {length} characters")
}

fn inclusive_range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// The checks that most forms have: a length and a shape.
fn check(value: &str, max: usize, matches: bool, form: &Form) -> Messages {
    let long = (value.len() > max).then(|| max_len_error(max));
    long.into_iter().chain((!matches).then(|| form.message())).collect()
}

#[cfg(test)]
mod tests;
