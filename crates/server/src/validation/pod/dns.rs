//! How a pod finds names, and what it is called.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_subdomain, is_dns1123_subdomain_with_underscore, validate_legacy_ip},
};

use crate::validation::{
    read::{flag, is_set, list, object, objects, text},
    rules::invalid,
};

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;
const MAX_HOSTNAME: usize = 64;

pub(super) fn config(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("dnsConfig");
    let config = object(spec, "dnsConfig");
    if text(spec, "dnsPolicy") == "None" {
        if config.is_none() {
            errors.push(Error::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if config.is_some_and(|config| list(config, "nameservers").is_empty()) {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(Error::required(path.child("nameservers"), detail));
            return;
        }
    }
    let Some(config) = config else { return };
    let strings = |key: &str| list(config, key).iter().map(|text| text.as_str().unwrap_or("")).collect::<Vec<_>>();
    let (servers, searches) = (strings("nameservers"), strings("searches"));
    let shown = |key: &str| config.get(key).cloned().unwrap_or(Value::Null);
    let servers_path = path.child("nameservers");
    if servers.len() > MAX_NAMESERVERS {
        let detail = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        errors.push(Error::invalid(servers_path, shown("nameservers"), detail));
    }
    for (i, server) in servers.iter().enumerate() {
        errors.extend(validate_legacy_ip(&servers_path.index(i), server, false, &[]));
    }
    let searches_path = path.child("searches");
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.push(Error::invalid(searches_path, shown("searches"), detail));
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARACTERS {
        let detail =
            format!("must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list");
        errors.push(Error::invalid(searches_path, shown("searches"), detail));
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        invalid(errors, &searches_path.index(i), search, is_dns1123_subdomain_with_underscore(search));
    }
    let options = path.child("options");
    for (i, _) in objects(config, "options").filter(|(_, option)| text(option, "name").is_empty()) {
        errors.push(Error::required(options.index(i), "must not be empty"));
    }
}

pub(super) fn host_aliases(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("hostAliases");
    for (i, alias) in objects(spec, "hostAliases") {
        let path = path.index(i);
        errors.extend(validate_legacy_ip(&path.child("ip"), text(alias, "ip"), false, &[]));
        let path = path.child("hostnames");
        for (i, name) in list(alias, "hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or("");
            invalid(errors, &path.index(i), name, is_dns1123_subdomain(name));
        }
    }
}

pub(super) fn hostname_override(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if !is_set(spec, "hostnameOverride") {
        return;
    }
    let path = path.child("hostnameOverride");
    for key in ["setHostnameAsFQDN", "hostNetwork"].iter().filter(|key| flag(spec, key)) {
        errors.push(Error::forbidden(path, format!("may not be specified when {key} is true")));
    }
    let name = text(spec, "hostnameOverride");
    if name.len() > MAX_HOSTNAME {
        errors.push(Error::too_long(path, MAX_HOSTNAME));
    }
    invalid(errors, &path, name, is_dns1123_subdomain(name));
}
