//! What the names of a kind's objects may be.

use capstan_api::{
    field::Path,
    validation::{
        Messages, is_path_segment_name, is_path_segment_prefix, is_valid_ip, name_is_dns_label, name_is_dns_subdomain,
        name_is_dns1035_label,
    },
};

/// A rule for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain: most kinds.
    DnsSubdomain,
    /// A DNS label.
    DnsLabel,
    /// A DNS label that begins with a letter.
    Dns1035Label,
    /// Whatever can be one part of a path.
    PathSegment,
    /// An IP address in its canonical form.
    IpAddress,
}

impl NameRule {
    /// What is wrong with `name`. With `prefix` it is one that gets a random end.
    #[must_use]
    pub fn check(self, name: &str, prefix: bool) -> Messages {
        match self {
            NameRule::DnsSubdomain => name_is_dns_subdomain(name, prefix),
            NameRule::DnsLabel => name_is_dns_label(name, prefix),
            NameRule::Dns1035Label => name_is_dns1035_label(name, prefix),
            NameRule::PathSegment if prefix => is_path_segment_prefix(name),
            NameRule::PathSegment => is_path_segment_name(name),
            NameRule::IpAddress => ip_address(name),
        }
    }
}

fn ip_address(name: &str) -> Messages {
    is_valid_ip(&Path::ROOT, name).into_iter().map(|error| error.detail).collect()
}
