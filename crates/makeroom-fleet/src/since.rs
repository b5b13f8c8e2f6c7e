//! Times: `--since`, and the weeks of a trend. Everything is UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};

use crate::failure::Failure;

const DAY_US: u64 = 86_400_000_000;

/// Now, in microseconds since the epoch.
pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// The time of `--since`: `36h`, `30d` and `8w` before now, or the start of a day.
pub(crate) fn since_us(text: &str, now_us: u64) -> Result<u64, Failure> {
    let failed = || Failure::Time {
        text: text.to_owned(),
        reason: "expected a number of hours (36h), days (30d) or weeks (8w), or a date (2026-01-31)",
    };
    if let Some(time) = date_us(text) {
        return Ok(time);
    }
    let unit = match text.chars().last() {
        Some('h') => DAY_US / 24,
        Some('d') => DAY_US,
        Some('w') => 7 * DAY_US,
        _ => return Err(failed()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| failed())?;
    Ok(now_us.saturating_sub(count.saturating_mul(unit)))
}

fn date_us(text: &str) -> Option<u64> {
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    u64::try_from(day.and_time(NaiveTime::MIN).and_utc().timestamp_micros()).ok()
}

/// The date of a time.
pub(crate) fn date(time_us: u64) -> String {
    let time = i64::try_from(time_us).ok().and_then(DateTime::from_timestamp_micros);
    time.unwrap_or(DateTime::<Utc>::MAX_UTC).format("%Y-%m-%d").to_string()
}

/// The Monday of a time's week, at 0:00.
pub(crate) fn week_us(time_us: u64) -> u64 {
    let day = time_us / DAY_US;
    // 1970-01-01 was a Thursday.
    day.saturating_sub((day + 3) % 7) * DAY_US
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn dates_and_weeks() {
        // `date -u -d 2026-11-17 +%s`, a Tuesday.
        let tuesday = 1_794_873_600_000_000;
        assert_eq!(since_us("2026-11-17", 0).unwrap(), tuesday);
        assert_eq!(date(tuesday + 5), "2026-11-17");
        assert_eq!(date(week_us(tuesday)), "2026-11-16");
        assert_eq!(week_us(week_us(tuesday)), week_us(tuesday));
        for day in 0..40_000 {
            assert_eq!(date_us(&date(day * DAY_US)), Some(day * DAY_US));
        }
    }

    #[test]
    fn times_before_now() {
        assert_eq!(since_us("30d", 40 * DAY_US).unwrap(), 10 * DAY_US);
        assert_eq!(since_us("1w", 40 * DAY_US).unwrap(), 33 * DAY_US);
        assert_eq!(since_us("36h", 2 * DAY_US).unwrap(), DAY_US / 2);
        assert_eq!(since_us("99999999999w", DAY_US).unwrap(), 0);
        for text in ["", "d", "30", "-3d", "30 d", "2026-13-01", "2026-02-31", "1969-12-31", "d\u{e9}"] {
            assert!(since_us(text, 0).is_err(), "{text}");
        }
    }
}
