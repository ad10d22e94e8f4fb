//! Validation against what upstream says, and against the regular expressions that the messages carry.

use proptest::prelude::*;
use regex::Regex;

use super::*;
use crate::{
    Value,
    field::{ErrorList, Path},
    golden, json,
};

fn lines(errors: &ErrorList) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn answer(function: &str, value: &str) -> String {
    let path = Path::new("f");
    let number = || value.parse().unwrap();
    let messages = match function {
        "dns1123label" => is_dns1123_label(value),
        "dns1123subdomain" => is_dns1123_subdomain(value),
        "dns1123subdomain_" => is_dns1123_subdomain_with_underscore(value),
        "wildcard" => is_wildcard_dns1123_subdomain(value),
        "dns1035label" => is_dns1035_label(value),
        "qualifiedname" => is_qualified_name(value),
        "labelvalue" => is_valid_label_value(value),
        "cidentifier" => is_c_identifier(value),
        "portname" => is_valid_port_name(value),
        "percent" => is_valid_percent(value),
        "header" => is_http_header_name(value),
        "env" => is_env_var_name(value),
        "relaxedenv" => is_relaxed_env_var_name(value),
        "configkey" => is_config_map_key(value),
        "pathsegment" => is_path_segment_name(value),
        "pathprefix" => is_path_segment_prefix(value),
        "subdomainprefix" => name_is_dns_subdomain(value, true),
        "labelprefix" => name_is_dns_label(value, true),
        "1035prefix" => name_is_dns1035_label(value, true),
        "portnum" => is_valid_port_num(number()),
        "userid" => is_valid_user_id(number()),
        "groupid" => is_valid_group_id(number()),
        _ => {
            return lines(&match function {
                "fqn" => is_fully_qualified_name(&path, value),
                "fqdn" => is_fully_qualified_domain_name(&path, value),
                "domainpath" => is_domain_prefixed_path(&path, value),
                "domainkey" => is_domain_prefixed_key(&path, value),
                "ip" => is_valid_ip(&path, value),
                "legacyip" => validate_legacy_ip(&path, value, true, &["old"]),
                "sloppyip" => validate_legacy_ip(&path, value, false, &[]),
                "cidr" => is_valid_cidr(&path, value),
                "legacycidr" => validate_legacy_cidr(&path, value, true, &["old"]),
                "sloppycidr" => validate_legacy_cidr(&path, value, false, &[]),
                "ifaddr" => is_valid_interface_address(&path, value),
                "fieldmanager" => validate_field_manager(value, &path),
                _ => panic!("{function} is not known here"),
            });
        }
    };
    messages.join("\n")
}

#[test]
fn as_upstream() {
    golden::check("validation.jsonl", |input| {
        let (function, value) = input.split_once(' ').unwrap();
        answer(function, value)
    });
}

#[test]
fn metadata_as_upstream() {
    golden::check("metadata.jsonl", |input| {
        let case = json::parse(input.as_bytes()).unwrap();
        let map = |key| case.get(key).and_then(Value::as_object).unwrap();
        let path = Path::new("metadata");
        if case.get("old").is_some() {
            return lines(&validate_object_meta_update(map("new"), map("old"), &path));
        }
        let namespaced = case.get("namespaced").and_then(Value::as_bool).unwrap();
        lines(&validate_object_meta(map("new"), namespaced, name_is_dns_subdomain, &path))
    });
}

#[test]
fn annotations_have_a_total_size() {
    let value = "x".repeat(TOTAL_ANNOTATION_SIZE_LIMIT - 1);
    let path = Path::new("a");
    assert_eq!(lines(&validate_annotations([("k", value.as_str())], &path)), "");
    let errors = validate_annotations([("kk", value.as_str())], &path);
    assert_eq!(lines(&errors), "a: Too long: may not be more than 262144 bytes");
}

/// A function agrees with the regular expression of its message, which it never runs.
fn agrees(function: &str, regex: &str, value: &str) {
    let wrong = answer(function, value).contains("regex used") || answer(function, value).contains("dots");
    let matches = Regex::new(&format!("^(?:{regex})$")).unwrap().is_match(value);
    assert_eq!(wrong, !matches, "{function} {value:?}");
}

proptest! {
    #[test]
    fn by_hand_as_by_regex(value in prop_oneof!["[a-zA-Z0-9_.*%/-]{0,8}", "[a-c.-]{0,6}", any::<String>()]) {
        for (function, regex) in [
            ("dns1123label", "[a-z0-9]([-a-z0-9]*[a-z0-9])?"),
            ("dns1123subdomain", r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
            ("dns1123subdomain_", r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"),
            ("wildcard", r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
            ("dns1035label", "[a-z]([-a-z0-9]*[a-z0-9])?"),
            ("labelvalue", "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"),
            ("cidentifier", "[A-Za-z_][A-Za-z0-9_]*"),
            ("percent", "[0-9]+%"),
            ("header", "[-A-Za-z0-9]+"),
            ("env", "[-._a-zA-Z][-._a-zA-Z0-9]*"),
            ("configkey", "[-._a-zA-Z0-9]+"),
        ] {
            agrees(function, regex, &value);
        }
    }

    #[test]
    fn never_panics(any: String, address in "[0-9a-fA-F.:/%]{0,30}", name in "[a-z.-]{0,4}é?-?") {
        for value in [any, address, name] {
            for function in ["ip", "legacyip", "sloppyip", "cidr", "legacycidr", "sloppycidr", "ifaddr", "fqn", "fqdn",
                "domainpath", "domainkey", "fieldmanager", "subdomainprefix", "labelprefix", "pathsegment", "portname",
                "relaxedenv"] {
                let _ = answer(function, &value);
            }
        }
    }
}
