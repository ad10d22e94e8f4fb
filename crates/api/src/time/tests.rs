//! Times against what Go reads and writes.

use proptest::prelude::*;

use super::*;
use crate::golden;

#[test]
fn times_as_go() {
    golden::check("time.jsonl", |input| match input.parse::<Time>() {
        Ok(time) => {
            format!("{} {} {}", serde_json::to_string(&time).unwrap(), time.unix_seconds(), time.subsec_nanos())
        }
        Err(error) => error.to_string(),
    });
}

#[test]
fn micro_times_as_go() {
    golden::check("microtime.jsonl", |input| match input.parse::<MicroTime>() {
        Ok(time) => serde_json::to_string(&time).unwrap(),
        Err(error) => error.to_string(),
    });
}

#[test]
fn null_is_zero() {
    assert_eq!(serde_json::from_str::<Time>("null").unwrap(), Time::ZERO);
    assert_eq!(serde_json::to_string(&MicroTime::default()).unwrap(), "null");
    assert_eq!(Value::from(Time::ZERO), Value::Null);
    assert_eq!("0001-01-01T00:00:00Z".parse(), Ok(Time::ZERO));
    assert!(serde_json::from_str::<Time>("\"\"").is_err());
}

#[test]
fn differences_are_bounded() {
    let (start, end) = (Time::from_unix(i64::MIN, 0), Time::from_unix(i64::MAX, u32::MAX));
    assert_eq!(end.since(start), Duration(i64::MAX));
    assert_eq!(start.since(end), Duration(i64::MIN));
    assert_eq!(Time::from_unix(10, 5).since(Time::from_unix(8, 6)), Duration(1_999_999_999));
}

#[test]
fn never_is_after_what_jiff_knows() {
    let never: Time = "9999-12-31T23:59:59Z".parse().unwrap();
    assert_eq!(never.to_string(), "9999-12-31T23:59:59Z");
    assert_eq!(jiff::Timestamp::from(never), jiff::Timestamp::MAX);
}

proptest! {
    #[test]
    fn what_is_written_reads_back(seconds in -62_167_219_200_i64..253_402_300_800, nanos in 0_u32..1_000_000_000) {
        let time = Time::from_unix(seconds, nanos);
        prop_assert_eq!(time.to_string().parse(), Ok(Time::from_unix(seconds, 0)));
        let micro = MicroTime(time);
        prop_assert_eq!(micro.to_string().parse(), Ok(MicroTime(Time::from_unix(seconds, nanos / 1000 * 1000))));
        let timestamp = jiff::Timestamp::from(time);
        if timestamp < jiff::Timestamp::MAX {
            prop_assert_eq!(Time::from(timestamp), time);
            prop_assert_eq!(format!("{timestamp:.6}"), micro.to_string());
        }
    }

    #[test]
    fn never_panics(any: String, near in "[0-9]{3,5}-[0-9]{1,2}-[0-9]{2}[Tt ][0-9]{1,2}:[0-9]{2}:[0-9]{2}[.,]?[-+0-9]{0,12}(Z|[-+é][0-9]{2}:[0-9]{2})?x?") {
        for text in [any, near] {
            let _ = (text.parse::<Time>(), text.parse::<MicroTime>());
        }
    }

    #[test]
    fn any_time_prints(seconds: i64, nanos: u32) {
        prop_assert!(MicroTime(Time::from_unix(seconds, nanos)).to_string().ends_with('Z'));
    }
}
