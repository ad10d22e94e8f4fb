//! Quantities against what upstream computes, and against the laws of arithmetic.

use proptest::prelude::*;

use super::*;

/// Text, format, value, milli value, integer and sign, as the golden file has them.
fn show(quantity: &Quantity) -> String {
    let int = quantity.as_i64().map_or_else(|| "-".to_owned(), |n| n.to_string());
    let (value, milli) = (quantity.value(), quantity.milli_value());
    format!("{quantity}\t{:?}\t{value}\t{milli}\t{int}\t{}", quantity.format(), quantity.signum())
}

fn answer(case: &[&str]) -> Option<String> {
    let text = |at: usize| serde_json::from_str::<String>(case[at]).ok();
    let quantity = |at| text(at)?.parse::<Quantity>().ok();
    Some(match case[0] {
        "parse" => match text(1)?.parse::<Quantity>() {
            Ok(quantity) => format!("ok\t{}", show(&quantity)),
            Err(error) => format!("error\t{error}"),
        },
        "two" => {
            let (a, b) = (quantity(1)?, quantity(2)?);
            let (mut sum, mut difference) = (a.clone(), a.clone());
            sum.add(&b);
            difference.sub(&b);
            format!("{}\t{}\t{}", show(&sum), show(&difference), a.cmp(&b) as i8)
        }
        _ => {
            let (mut product, mut negative, mut rounded) = (quantity(1)?, quantity(1)?, quantity(1)?);
            let fits = product.mul(case[2].parse().ok()?);
            negative.neg();
            let exact = rounded.round_up(0);
            format!("{fits}\t{}\t{negative}\t{exact}\t{rounded}", show(&product))
        }
    })
}

#[test]
fn as_upstream() {
    let golden = include_str!("../../testdata/quantity.txt");
    let mut wrong = Vec::new();
    for line in golden.lines() {
        let case: Vec<_> = line.split('\t').collect();
        let inputs = if case[0] == "parse" { 2 } else { 3 };
        let expected = case[inputs..].join("\t");
        let actual = answer(&case).unwrap_or_else(|| "not read".to_owned());
        if actual != expected {
            wrong.push(format!("{}\n  expected {expected}\n  got      {actual}", case[..inputs].join(" ")));
        }
    }
    assert!(golden.lines().count() > 600);
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn hostile_sizes_are_bounded() {
    let huge: Quantity = "1e2147483647".parse().unwrap();
    let mut tiny: Quantity = "1e-2147483648".parse().unwrap();
    assert_eq!(tiny.to_string(), "1e-9");
    assert!(huge > tiny && huge > "1e2147483646".parse().unwrap());
    tiny.add(&huge);
    assert!(tiny > huge, "the sum is rounded up, not down");
    tiny.sub(&huge);
    assert!(tiny.signum() == 1 && tiny < huge);
    assert!(!huge.clone().mul(i64::MAX) || huge.value() == 0);
    let long = "9".repeat(3_000_000);
    assert_eq!(long.parse::<Quantity>(), Err(ParseError::Numeric));
    let long = "9".repeat(10_000);
    assert_eq!(long.parse::<Quantity>().unwrap().to_string(), long);
    let zeros = format!("{}1{}", "0".repeat(1_000_000), "0".repeat(9_000));
    assert_eq!(zeros.parse::<Quantity>().unwrap().scaled_value(9_000), 1);
}

#[test]
fn json() {
    for (text, expected) in
        [("\"1Gi\"", "\"1Gi\""), ("\" 100m \"", "\"100m\""), ("5", "\"5\""), ("0.5", "\"500m\""), ("null", "\"0\"")]
    {
        let quantity: Quantity = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&quantity).unwrap(), expected);
    }
    assert!(serde_json::from_str::<Quantity>("true").is_err());
    let error = serde_json::from_str::<Quantity>("\"1x\"").unwrap_err().to_string();
    assert!(error.starts_with("quantities must match the regular expression"), "{error}");
}

#[test]
fn the_usual_is_small() {
    assert_eq!(size_of::<Quantity>(), 48);
    let quantity: Quantity = "100m".parse().unwrap();
    assert!(matches!(quantity.amount, Amount::Int { value: 100, scale: -3 }) && !quantity.text.is_heap_allocated());
}

/// A quantity and what it is in nano units.
fn quantity() -> impl Strategy<Value = (Quantity, i128)> {
    let formats = prop_oneof![Just(Format::DecimalSI), Just(Format::BinarySI), Just(Format::DecimalExponent)];
    (prop_oneof![-5000_i64..5000, any::<i64>()], NANO..=9, formats, any::<bool>()).prop_map(
        |(value, scale, format, big)| {
            let mut quantity = Quantity::new_scaled(value, scale, format);
            if big {
                // Both roads must come to the same.
                quantity.amount = Amount::Big(Box::new(quantity.amount.to_decimal()));
            }
            (quantity, i128::from(value) * 10_i128.pow((scale - NANO).cast_unsigned()))
        },
    )
}

fn nanos(quantity: &Quantity) -> i128 {
    let mut decimal = quantity.amount.to_decimal();
    assert!(decimal.round_up(NANO.into()));
    decimal.mantissa_text().parse().unwrap()
}

proptest! {
    #[test]
    fn arithmetic_is_exact((a, x) in quantity(), (b, y) in quantity(), factor: i32) {
        prop_assert_eq!(a.cmp(&b), x.cmp(&y));
        prop_assert_eq!(nanos(&a), x);
        let mut sum = a.clone();
        sum.add(&b);
        prop_assert_eq!(nanos(&sum), x + y);
        sum.sub(&b);
        prop_assert_eq!(&sum, &a);
        sum.sub(&b);
        prop_assert_eq!(nanos(&sum), x - y);
        sum.neg();
        prop_assert_eq!(nanos(&sum), y - x);
        let mut product = b.clone();
        product.mul(factor.into());
        if let Some(expected) = y.checked_mul(factor.into()) {
            prop_assert_eq!(nanos(&product), expected);
        }
    }

    #[test]
    fn canonical_text_reads_back((quantity, nanos) in quantity()) {
        let text = quantity.to_string();
        let again: Quantity = text.parse().unwrap();
        // Beyond 2^63 binary suffixes are capped, and from 10^21 on there is no decimal suffix.
        if nanos.abs() < i128::from(i64::MAX) * 1_000_000_000 {
            prop_assert_eq!(&again, &quantity);
            // A binary amount without factors of 1024 has no suffix, and reads back as a decimal one.
            if quantity.format() != Format::BinarySI || text.ends_with('i') {
                prop_assert_eq!(again.to_string(), text);
            }
        }
    }

    #[test]
    fn rounding_is_up((quantity, nanos) in quantity(), scale in -9..9_i32) {
        let unit = 10_i128.pow((scale - NANO).cast_unsigned());
        let expected = nanos / unit + (nanos % unit).signum();
        let mut rounded = quantity.clone();
        prop_assert_eq!(rounded.round_up(scale), nanos % unit == 0);
        prop_assert_eq!(self::nanos(&rounded), expected * unit);
        if let (Amount::Int { .. }, Ok(expected)) = (&quantity.amount, i64::try_from(expected)) {
            prop_assert_eq!(quantity.scaled_value(scale), expected);
        }
    }

    #[test]
    fn never_panics(any: String, near in "[-+]?[0-9]{0,30}(\\.[0-9]{0,30})?[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,12}", factor: i64, scale: i32) {
        for text in [any, near] {
            let Ok(mut quantity) = text.parse::<Quantity>() else { continue };
            let _ = (show(&quantity), quantity.as_f64(), quantity.scaled_value(scale), quantity.mul(factor));
            quantity.add(&Quantity::new(factor, Format::BinarySI));
            let _ = (quantity.round_up(scale), show(&quantity));
        }
    }
}
