//! Selectors against what upstream reads, prints and matches.

use proptest::prelude::*;

use super::*;
use crate::{field::Path, golden, json};

/// The same labels in every form that labels come in.
fn matches(selector: &Selector, labels: &[(&str, &str)]) -> bool {
    let expected = selector.matches(labels);
    let map: Map = labels.iter().map(|(k, v)| ((*k).into(), Value::from(*v))).collect();
    assert_eq!(selector.matches(&map), expected);
    assert_eq!(selector.matches(&labels.iter().copied().collect::<BTreeMap<_, _>>()), expected);
    assert_eq!(selector.matches(&labels.iter().copied().collect::<HashMap<_, _>>()), expected);
    assert_eq!(selector.matches(&labels.to_vec()), expected);
    expected
}

const SETS: [&[(&str, &str)]; 6] = [
    &[],
    &[("x", "a")],
    &[("x", "b"), ("y", "")],
    &[("x", "5")],
    &[("x", ""), ("example.com/y", "c")],
    &[("y", "a"), ("x", "-7")],
];

#[test]
fn label_selectors_as_upstream() {
    golden::check("labels.jsonl", |input| match input.parse::<Selector>() {
        Err(error) => error.to_string(),
        Ok(selector) => {
            let hits: String = SETS.iter().map(|set| if matches(&selector, set) { '1' } else { '0' }).collect();
            let exact = selector.requires_exact_match("x").map_or("-".to_owned(), |value| format!("={value}"));
            format!("{selector} {hits} {exact}")
        }
    });
}

#[test]
fn label_selectors_to_objects_as_upstream() {
    golden::check("tolabelselector.jsonl", |input| match LabelSelector::parse(input) {
        Err(error) => error,
        Ok(selector) => serde_json::to_string(&selector).unwrap(),
    });
}

#[test]
fn label_selector_objects_as_upstream() {
    golden::check("labelselector.jsonl", |input| {
        let value = json::parse(input.as_bytes()).unwrap();
        let selector = LabelSelector::from_map(value.as_object().unwrap());
        assert_eq!(serde_json::from_str::<LabelSelector>(input).unwrap(), selector);
        let errors = selector.validate(&Path::new("spec").child("selector"));
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let text = selector.to_selector().map_or_else(|error| error, |selector| selector.to_string());
        format!("{text}\n{}\n{}", selector.format(), errors.join("\n"))
    });
}

#[test]
fn field_selectors_as_upstream() {
    golden::check("fields.jsonl", |input| match input.parse::<FieldSelector>() {
        Err(error) => error.to_string(),
        Ok(selector) => {
            let hits: String = SETS.iter().map(|set| if selector.matches(*set) { '1' } else { '0' }).collect();
            let exact = selector.requires_exact_match("x").map_or("-".to_owned(), |value| format!("={value}"));
            format!("{selector} {hits} {exact}")
        }
    });
}

#[test]
fn errors_name_the_field_they_are_given() {
    let error = Selector::parse("a in (b!)", &Path::new("spec")).unwrap_err();
    assert_eq!(error.to_string(), "unable to parse requirement: found '!', expected: ',' or ')'");
    let error = Selector::parse("a=-b", &Path::new("spec")).unwrap_err().to_string();
    assert!(error.starts_with("unable to parse requirement: spec.values[0][a]: Invalid value: \"-b\": "), "{error}");
    let error = Selector::parse("a b=c", &Path::new("spec")).unwrap_err().to_string();
    assert_eq!(error, "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
}

#[test]
fn everything_and_nothing() {
    let one = Requirement::new("a", Operator::Exists, vec![], &Path::ROOT).unwrap();
    assert!(Selector::everything().matches(&[("a", "b")]) && !Selector::nothing().matches(&[("a", "b")]));
    assert!(Selector::nothing().and(one.clone()).is_nothing());
    assert_eq!(Selector::everything().and(one).to_string(), "a");
    assert_eq!(Selector::from(None), Selector::nothing());
    assert!(Selector::from(Some(&LabelSelector::default())).is_everything());
    assert!(FieldSelector::everything().matches(&[("a", "b")]) && !FieldSelector::nothing().matches(&[("a", "b")]));
    assert_eq!(Selector::from_labels([("b", "1"), ("a", "2")]).to_string(), "a=2,b=1");
}

#[test]
fn fields_are_renamed_and_refused() {
    let selector: FieldSelector = "a=1,b!=2,c=3".parse().unwrap();
    let changed = selector.transform(|field, value| match field {
        "a" => Ok(("x".into(), value.into())),
        "b" => Ok((Default::default(), Default::default())),
        _ => Ok::<_, ()>((field.into(), "9".into())),
    });
    assert_eq!(changed.unwrap().to_string(), "x=1,c=9");
    let refused = FieldSelector::equals("a", "b").transform(|field, _| Err(format!("no {field}")));
    assert_eq!(refused, Err("no a".to_owned()));
}

#[test]
fn long_input_is_quick() {
    let long = "a,".repeat(50_000) + "a";
    assert_eq!(long.parse::<Selector>().unwrap().requirements().len(), 50_001);
    assert!("(".repeat(1_000_000).parse::<Selector>().is_err());
    assert!(format!("a in ({}", ",".repeat(1_000_000)).parse::<Selector>().is_err());
    assert!("=".repeat(1_000_000).parse::<FieldSelector>().is_err());
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(text in "(!?[a-c]|[a-c](=|==|!=)[a-c]?|[a-c] (in|notin) \\([a-c,]{0,4}\\)|[a-c][<>][0-9])(,!?[d-f]){0,2}") {
        let selector: Selector = text.parse().unwrap();
        prop_assert_eq!(selector.to_string().parse::<Selector>().unwrap(), selector);
    }

    #[test]
    fn escaping_there_and_back(value: String, field in "[a-z.]{1,5}") {
        prop_assert_eq!(unescape_value(&escape_value(&value)), Ok(value.clone()));
        let selector = FieldSelector::equals(&field, &value);
        prop_assert_eq!(selector.to_string().parse::<FieldSelector>(), Ok(selector));
    }

    #[test]
    fn never_panics(any: String, near in "[ab=!(),<>in\\\\é \0]{0,20}") {
        for text in [any, near] {
            let _ = (text.parse::<Selector>(), text.parse::<FieldSelector>(), LabelSelector::parse(&text));
        }
    }
}
