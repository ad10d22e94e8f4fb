//! Whether rules grant all that other rules grant.

use capstan_api::Str;

use super::{
    PolicyRule,
    evaluate::{ALL, url_covers},
};

/// How many permissions one call tells apart. Rules multiply their lists, so a small object can stand for more
/// permissions than can be looked at. The largest role that a new server has stands for 229, `admin` for fewer than
/// 1,000.
pub const MAX_SUBRULES: usize = 1 << 16;

/// How many comparisons of strings one call makes.
const MAX_COMPARISONS: usize = 1 << 28;

/// What `owner`'s rules do not grant of what `servant`'s do, broken down into single permissions. Nothing if all is
/// covered. What is beyond the limits counts as not covered.
#[must_use]
pub fn covers(owner: &[PolicyRule], servant: &[PolicyRule]) -> Vec<PolicyRule> {
    let owned = owner.iter().map(strings).sum::<usize>() + 1;
    let (mut comparisons, mut parts) = (MAX_COMPARISONS, MAX_SUBRULES);
    let covered = |rule: &PolicyRule| owner.iter().any(|owner| rule_covers(owner, rule));
    let mut uncovered = Vec::new();
    for rule in servant {
        if spend(&mut comparisons, strings(rule).saturating_mul(owned)) && covered(rule) {
            continue;
        }
        let count = subrules(rule);
        if spend(&mut parts, count) && spend(&mut comparisons, count.saturating_mul(owned)) {
            uncovered.extend(breakdown(rule).filter(|part| !covered(part)));
        } else {
            uncovered.push(rule.clone());
        }
    }
    uncovered
}

/// Takes from what is left, if that is enough.
fn spend(left: &mut usize, cost: usize) -> bool {
    let rest = left.checked_sub(cost);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// How many strings a rule consists of.
fn strings(rule: &PolicyRule) -> usize {
    let PolicyRule { verbs, api_groups, resources, resource_names, non_resource_urls } = rule;
    [verbs, api_groups, resources, resource_names, non_resource_urls].map(Vec::len).iter().sum()
}

/// How many single permissions a rule stands for.
fn subrules(rule: &PolicyRule) -> usize {
    let lists = [rule.api_groups.len(), rule.resources.len(), rule.verbs.len(), rule.resource_names.len().max(1)];
    let resources = lists.into_iter().fold(1, usize::saturating_mul);
    resources.saturating_add(rule.non_resource_urls.len().saturating_mul(rule.verbs.len()))
}

/// A rule as rules with one group, resource, verb and name each, or with one path and verb.
fn breakdown(rule: &PolicyRule) -> impl Iterator<Item = PolicyRule> {
    let names: Vec<&[Str]> = match &rule.resource_names[..] {
        [] => vec![&[]],
        names => names.chunks(1).collect(),
    };
    let one = |text: &Str| vec![text.clone()];
    let resources = rule.api_groups.iter().flat_map(move |group| {
        let names = names.clone();
        rule.resources.iter().flat_map(move |resource| {
            let names = names.clone();
            rule.verbs.iter().flat_map(move |verb| {
                names.clone().into_iter().map(move |name| PolicyRule {
                    api_groups: one(group),
                    resources: one(resource),
                    verbs: one(verb),
                    resource_names: name.to_vec(),
                    ..PolicyRule::default()
                })
            })
        })
    });
    let urls = rule.non_resource_urls.iter().flat_map(move |url| {
        let part = move |verb| PolicyRule { non_resource_urls: one(url), verbs: one(verb), ..PolicyRule::default() };
        rule.verbs.iter().map(part)
    });
    resources.chain(urls)
}

/// Whether one rule grants all of another.
fn rule_covers(owner: &PolicyRule, part: &PolicyRule) -> bool {
    let names = owner.resource_names.is_empty()
        || (!part.resource_names.is_empty() && has_all(&owner.resource_names, &part.resource_names));
    names
        && (has(&owner.verbs, ALL) || has_all(&owner.verbs, &part.verbs))
        && (has(&owner.api_groups, ALL) || has_all(&owner.api_groups, &part.api_groups))
        && (has(&owner.resources, ALL) || part.resources.iter().all(|resource| resource_covers(owner, resource)))
        && part.non_resource_urls.iter().all(|path| owner.non_resource_urls.iter().any(|own| url_covers(own, path)))
}

fn resource_covers(owner: &PolicyRule, resource: &str) -> bool {
    let part = resource.split_once('/').map(|(_, part)| part);
    let star = |own: &Str| part.is_some() && own.strip_prefix("*/") == part;
    owner.resources.iter().any(|own| own == resource || star(own))
}

fn has(set: &[Str], wanted: &str) -> bool {
    set.iter().any(|own| own == wanted)
}

fn has_all(set: &[Str], wanted: &[Str]) -> bool {
    wanted.iter().all(|wanted| has(set, wanted))
}

/// Rules about one resource put together to one with all their verbs, for a shorter message.
pub(super) fn compact(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let simple = |rule: &PolicyRule| {
        rule.non_resource_urls.is_empty()
            && rule.resource_names.len() <= 1
            && rule.api_groups.len() == 1
            && rule.resources.len() == 1
    };
    let (mut same, mut out): (Vec<_>, Vec<_>) = rules.into_iter().partition(simple);
    // The sort is stable, so that verbs stay in the order in which they were asked for.
    same.sort_by(|a, b| about(a).cmp(&about(b)));
    for rule in same {
        match out.last_mut() {
            Some(last) if simple(last) && about(last) == about(&rule) => last.verbs.extend(rule.verbs),
            _ => out.push(rule),
        }
    }
    out
}

fn about(rule: &PolicyRule) -> (&[Str], &[Str], &[Str]) {
    (&rule.api_groups, &rule.resources, &rule.resource_names)
}
