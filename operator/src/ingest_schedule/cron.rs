//! When a cron expression is due in its time zone. Pure.
//!
//! A tick comes when the clock on the wall first shows its time or a later one. So an hour that summer time leaves out is made up for
//! right after it, and one that it doubles counts once. Only where every hour is meant (`*/10 * * * *`) the doubled hour has its ticks
//! twice: such a schedule means "every ten minutes", not a time of the day.

use chrono::{DateTime, NaiveDateTime, TimeZone, Utc};
use chrono_tz::{GapInfo, Tz};
use croner::parser::{CronParser, Seconds, Year};
use k8s_openapi::jiff::Timestamp;

/// A cron expression in a time zone.
#[derive(Clone, Debug)]
pub struct Cron {
    pattern: croner::Cron,
    zone: Tz,
    is_for_every_hour: bool,
}

impl Cron {
    /// Reads both.
    ///
    /// # Errors
    /// What is wrong with them, each with the path of its field.
    pub fn new(schedule: &str, time_zone: &str) -> Result<Self, Vec<String>> {
        let zone = time_zone
            .parse::<Tz>()
            .map_err(|_| format!("spec.timeZone: there is no time zone `{time_zone}`; write for example Europe/Berlin"));
        let pattern = pattern(schedule).map_err(|reason| format!("spec.schedule: {reason}"));
        match (pattern, zone) {
            (Ok(pattern), Ok(zone)) => {
                let is_for_every_hour = (0..24).all(|hour| pattern.pattern.hour_match(hour).unwrap_or_default());
                Ok(Self { pattern, zone, is_for_every_hour })
            }
            (pattern, zone) => Err([pattern.err(), zone.err()].into_iter().flatten().collect()),
        }
    }

    /// The first tick after a time. None if there is none within the calendar.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = self.local(after)?;
        let next = if self.is_for_every_hour {
            self.pattern.find_next_occurrence(&after, false).ok()?
        } else {
            self.ticks_from(after.naive_local()).find(|tick| *tick > after)?
        };
        timestamp(&next)
    }

    /// The last tick not before the one time and not after the other.
    pub fn latest(&self, from: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let end = self.local(until)?;
        let latest = if self.is_for_every_hour {
            self.pattern.find_previous_occurrence(&end, true).ok()?
        } else {
            let before = self.pattern.find_previous_occurrence(&end.naive_local(), true).ok()?;
            // a clock that was set back has shown later times than it shows now
            let since = self.ticks_from(before).take_while(|tick| *tick <= end).last();
            since.or_else(|| self.first_showing(before))?
        };
        timestamp(&latest).filter(|latest| *latest >= from)
    }

    /// The ticks whose time on the wall is later, in order.
    fn ticks_from(&self, wall: NaiveDateTime) -> impl Iterator<Item = DateTime<Tz>> {
        self.pattern.iter_after(wall).filter_map(|wall| self.first_showing(wall))
    }

    /// When the clock first shows this time, or a later one if it never shows this one.
    fn first_showing(&self, wall: NaiveDateTime) -> Option<DateTime<Tz>> {
        match self.zone.from_local_datetime(&wall).earliest() {
            Some(time) => Some(time),
            None => GapInfo::new(&wall, &self.zone)?.end,
        }
    }

    fn local(&self, time: Timestamp) -> Option<DateTime<Tz>> {
        DateTime::<Utc>::from_timestamp(time.as_second(), 0).map(|time| time.with_timezone(&self.zone))
    }
}

fn timestamp(time: &DateTime<Tz>) -> Option<Timestamp> {
    Timestamp::from_second(time.timestamp()).ok()
}

fn pattern(schedule: &str) -> Result<croner::Cron, String> {
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    let [_, _, day, month, weekday] = fields.as_slice() else {
        return Err(format!("`{schedule}` has not five fields; write for example 15 2 * * *"));
    };
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let pattern = parser.parse(schedule).map_err(|error| format!("`{schedule}` is no cron expression: {error}"))?;
    // the search for a day that no year has would go through thousands of years
    let day_of_month_decides = *weekday == "*" || pattern.pattern.matches_dom_and_dow();
    let (days, months) = (pattern.pattern.days.values(), pattern.pattern.months.values());
    let longest = months.iter().map(|month| DAYS[usize::from(*month).saturating_sub(1) % DAYS.len()]).max();
    if day_of_month_decides && !pattern.pattern.days.has_modifiers() && days.first() > longest.as_ref() {
        return Err(format!("`{schedule}` never comes: month {month} has no day {day}"));
    }
    Ok(pattern)
}

/// The most days that each month has.
const DAYS: [u16; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cron(schedule: &str, zone: &str) -> Cron {
        Cron::new(schedule, zone).expect("valid")
    }

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    /// All ticks of a stretch of time.
    fn ticks(cron: &Cron, from: &str, until: &str) -> Vec<String> {
        let (mut at, until) = (time(from), time(until));
        let mut ticks = Vec::new();
        while let Some(next) = cron.next(at).filter(|next| *next <= until) {
            ticks.push(next.to_string());
            at = next;
        }
        ticks
    }

    #[test]
    fn ticks_follow_the_clock_on_the_wall() {
        let nightly = cron("15 2 * * *", "Europe/Berlin");
        assert_eq!(ticks(&nightly, "2026-07-01T00:00:00Z", "2026-07-02T12:00:00Z"), ["2026-07-01T00:15:00Z", "2026-07-02T00:15:00Z"]);
        assert_eq!(ticks(&nightly, "2026-12-01T00:00:00Z", "2026-12-01T12:00:00Z"), ["2026-12-01T01:15:00Z"]);
    }

    #[test]
    fn an_hour_that_is_left_out_is_made_up_for_after_it_once() {
        for (zone, schedule, from, until, expected) in [
            // 02:00 to 03:00 on 2026-03-29
            ("Europe/Berlin", "15 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", vec!["2026-03-29T01:00:00Z"]),
            ("Europe/Berlin", "0,30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", vec!["2026-03-29T01:00:00Z"]),
            ("Europe/Berlin", "0 2,3 * * *", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", vec!["2026-03-29T01:00:00Z"]),
            (
                "Europe/Berlin",
                "0 2,4 * * *",
                "2026-03-28T12:00:00Z",
                "2026-03-29T12:00:00Z",
                vec!["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"],
            ),
            // midnight to 01:00 on 2026-09-06
            ("America/Santiago", "0 0 * * *", "2026-09-05T12:00:00Z", "2026-09-06T12:00:00Z", vec!["2026-09-06T04:00:00Z"]),
            ("America/Santiago", "30 0 6 9 *", "2026-09-05T12:00:00Z", "2026-09-06T12:00:00Z", vec!["2026-09-06T04:00:00Z"]),
            // half an hour, 02:00 to 02:30 on 2026-10-04
            ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T06:00:00Z", "2026-10-04T06:00:00Z", vec!["2026-10-03T15:30:00Z"]),
            ("Australia/Lord_Howe", "45 2 * * *", "2026-10-03T06:00:00Z", "2026-10-04T06:00:00Z", vec!["2026-10-03T15:45:00Z"]),
            // a whole day, 2011-12-30
            ("Pacific/Apia", "0 12 30 12 *", "2011-12-29T12:00:00Z", "2011-12-31T12:00:00Z", vec!["2011-12-30T10:00:00Z"]),
            (
                "Europe/Berlin",
                "*/30 * * * *",
                "2026-03-29T00:29:00Z",
                "2026-03-29T01:30:00Z",
                vec!["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
            ),
        ] {
            assert_eq!(ticks(&cron(schedule, zone), from, until), expected, "{schedule} in {zone}");
        }
    }

    #[test]
    fn an_hour_that_is_doubled_counts_once() {
        for (zone, schedule, from, until, expected) in [
            // 03:00 back to 02:00 on 2026-10-25
            ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z", vec!["2026-10-25T00:30:00Z"]),
            (
                "Europe/Berlin",
                "0 2,14 * * *",
                "2026-10-24T22:00:00Z",
                "2026-10-25T22:00:00Z",
                vec!["2026-10-25T00:00:00Z", "2026-10-25T13:00:00Z"],
            ),
            (
                "Europe/Berlin",
                "0,30 1-3 * * *",
                "2026-10-24T22:00:00Z",
                "2026-10-25T22:00:00Z",
                vec![
                    "2026-10-24T23:00:00Z",
                    "2026-10-24T23:30:00Z",
                    "2026-10-25T00:00:00Z",
                    "2026-10-25T00:30:00Z",
                    "2026-10-25T02:00:00Z",
                    "2026-10-25T02:30:00Z",
                ],
            ),
            // midnight back to 23:00 on 2026-04-04
            ("America/Santiago", "30 23 * * *", "2026-04-04T12:00:00Z", "2026-04-05T12:00:00Z", vec!["2026-04-05T02:30:00Z"]),
            // 02:00 back to 01:30 on 2026-04-05
            ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T06:00:00Z", "2026-04-05T06:00:00Z", vec!["2026-04-04T14:45:00Z"]),
        ] {
            assert_eq!(ticks(&cron(schedule, zone), from, until), expected, "{schedule} in {zone}");
        }
    }

    #[test]
    fn what_is_meant_for_every_hour_goes_on_in_a_doubled_one() {
        let often = cron("*/30 * * * *", "Europe/Berlin");
        assert_eq!(
            ticks(&often, "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"),
            ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"]
        );
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once_and_what_never_comes_is_wrong() {
        let problems = Cron::new("61 * * * *", "Mars/Olympus").expect_err("wrong");
        assert!(problems[0].starts_with("spec.schedule: `61 * * * *` is no cron expression: "), "{problems:?}");
        assert_eq!(problems[1], "spec.timeZone: there is no time zone `Mars/Olympus`; write for example Europe/Berlin");
        for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 FEB *"] {
            let problems = Cron::new(never, "UTC").expect_err("never comes");
            assert!(problems[0].contains("never comes"), "{problems:?}");
        }
        for wrong in ["0 0 * *", "0 0 0 * * *", "@daily", "TZ=UTC 0 0 * * *", "a b c d e"] {
            assert!(Cron::new(wrong, "UTC").is_err(), "{wrong}");
        }
        for rare in ["0 0 29 2 *", "0 0 30 2 MON", "0 0 L 2 *", "0 0 * * 5L", "0 0 15W * *", "0 9 * * MON-FRI"] {
            assert!(cron(rare, "UTC").next(time("2026-01-01T00:00:00Z")).is_some(), "{rare}");
        }
    }

    const ZONES: [&str; 6] = ["UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"];

    fn schedules() -> impl Strategy<Value = String> {
        let minute =
            prop_oneof![Just("*".to_owned()), Just("*/7".to_owned()), (0..60_u32).prop_map(|at| at.to_string()), Just("0,30".to_owned())];
        let hour = prop_oneof![
            Just("*".to_owned()),
            Just("*/5".to_owned()),
            (0..24_u32).prop_map(|at| at.to_string()),
            Just("0-3".to_owned()),
            Just("23,1".to_owned())
        ];
        let day = prop_oneof![Just("* * *"), Just("* * SUN"), Just("1 * *"), Just("* 4,9 *"), Just("5 10 *")];
        (minute, hour, day).prop_map(|(minute, hour, day)| format!("{minute} {hour} {day}"))
    }

    /// Times in 2026, half of them near changes of summer time.
    fn times() -> impl Strategy<Value = i64> {
        let changes = [
            "2026-03-29T01:00:00Z",
            "2026-10-25T01:00:00Z",
            "2026-04-05T03:00:00Z",
            "2026-09-06T04:00:00Z",
            "2026-10-03T15:30:00Z",
            "2026-04-04T15:00:00Z",
        ];
        let near = (prop::sample::select(changes.to_vec()), -20_000..20_000_i64).prop_map(|(change, off)| time(change).as_second() + off);
        prop_oneof![near, 1_767_225_600..1_798_700_000_i64]
    }

    proptest! {
        #[test]
        fn looking_back_finds_what_looking_ahead_finds(schedule in schedules(), zone in prop::sample::select(ZONES.to_vec()), from in times(), seconds in 0..20_000_i64) {
            let cron = cron(&schedule, zone);
            let (from, until) = (Timestamp::from_second(from).expect("a time"), Timestamp::from_second(from + seconds).expect("a time"));
            let mut last = None;
            let mut at = from - k8s_openapi::jiff::SignedDuration::from_secs(1);
            while let Some(next) = cron.next(at).filter(|next| *next <= until) {
                prop_assert!(next > at, "time goes on");
                last = Some(next);
                at = next;
            }
            prop_assert_eq!(cron.latest(from, until), last);
        }

        #[test]
        fn where_the_day_decides_each_time_on_the_wall_has_one_tick_a_day(hour in 0..24_u32, minute in 0..60_u32, zone in prop::sample::select(ZONES.to_vec())) {
            let cron = cron(&format!("{minute} {hour} * * *"), zone);
            let year = ticks(&cron, "2026-01-01T12:00:00Z", "2026-12-31T12:00:00Z");
            prop_assert_eq!(year.len(), 364);
        }
    }
}
