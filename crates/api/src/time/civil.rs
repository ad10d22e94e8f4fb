//! Days and dates of the Gregorian calendar, as far back and ahead as there are numbers.
//!
//! Not jiff's: its dates end on 9999-12-30, and 9999-12-31 is what people write for "never".

/// The seconds of a day.
pub(super) const DAY: i64 = 86_400;
/// The days of 400 years, after which the calendar repeats.
const ERA: i64 = 146_097;
/// The days from March 1st of the year 0, where the eras begin, to 1970.
const EPOCH: i64 = 719_468;

/// How many days the month has.
pub(super) fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The days from 1970 to a date. Years begin in March here, so that the leap day comes last.
pub(super) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA + year * 365 + year / 4 - year / 100 + day_of_year - EPOCH
}

/// Year, month and day of so many days from 1970.
pub(super) fn date(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_five_thousand_years_there_and_back() {
        let mut expected = (-1000, 1, 1);
        for n in days(-1000, 1, 1)..days(4000, 1, 1) {
            assert_eq!(date(n), expected);
            assert_eq!(days(expected.0, expected.1, expected.2), n);
            expected.2 += 1;
            if expected.2 > days_in(expected.0, expected.1) {
                expected = if expected.1 == 12 { (expected.0 + 1, 1, 1) } else { (expected.0, expected.1 + 1, 1) };
            }
        }
        assert_eq!(days(1970, 1, 1), 0);
    }
}
