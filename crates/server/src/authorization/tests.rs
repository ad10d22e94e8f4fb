//! The chain and its parts, RBAC aside.

use super::*;

/// Says the same to all.
struct Fixed(Decision, Rules);

impl Authorizer for Fixed {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        self.0.clone()
    }

    fn rules_for(&self, _: &UserInfo, _: &str) -> Rules {
        self.1.clone()
    }
}

fn decided(decisions: &[Decision], groups: &[&str]) -> Decision {
    let fixed = |decision: &Decision| Arc::new(Fixed(decision.clone(), Rules::default())) as Arc<dyn Authorizer>;
    let user = UserInfo::new("u", groups.iter().copied());
    Chain::new(decisions.iter().map(fixed).collect()).authorize(&Attributes::resource(&user, "get", "", "pods"))
}

#[test]
fn the_first_opinion_counts() {
    let allow = |reason: &str| Decision::Allow(reason.to_owned());
    let deny = |reason: &str| Decision::Deny(reason.to_owned());
    let none = |reason: &str| Decision::NoOpinion(reason.to_owned());
    for (decisions, groups, expected) in [
        (vec![], &[][..], none("")),
        (vec![none("a"), none(""), none("b")], &["masters"], none("a\nb")),
        (vec![none("a"), allow("b"), deny("c")], &[], allow("b")),
        (vec![none("a"), deny("b"), allow("c")], &[], deny("b")),
        (vec![deny("b")], &["x", "system:masters"], allow("")),
    ] {
        assert_eq!(decided(&decisions, groups), expected, "{decisions:?} {groups:?}");
    }
}

#[test]
fn rules_of_all_come_together() {
    let rule = |verb: &str| PolicyRule { verbs: vec![verb.into()], ..PolicyRule::default() };
    let fixed = |verb: &str, incomplete, errors: &[&str]| {
        let errors = errors.iter().map(|&error| error.to_owned()).collect();
        let rules = Rules { rules: vec![rule(verb)], incomplete, errors };
        Arc::new(Fixed(Decision::NoOpinion(String::new()), rules)) as Arc<dyn Authorizer>
    };
    let chain = Chain::new(vec![fixed("a", true, &["x", "y", "x"]), fixed("b", false, &[]), fixed("c", false, &["z"])]);
    let found = chain.rules_for(&UserInfo::default(), "");
    assert_eq!(found.rules, [rule("a"), rule("b"), rule("c")]);
    assert!(found.incomplete);
    assert_eq!(found.errors, ["[x, y]", "z"]);
}
