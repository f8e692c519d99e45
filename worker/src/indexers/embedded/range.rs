//! Bounds of a range: numbers, days and points in time.

use super::query::QueryError;
use std::ops::Bound;
use tantivy::{
    DateTime, Term,
    query_grammar::UserInputBound,
    time::{OffsetDateTime, format_description::well_known::Rfc3339},
};

/// A value with an order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Comparable {
    Int(i64),
    Uint(u64),
    Float(f64),
    Time(DateTime),
}

impl Comparable {
    fn parse(text: &str) -> Option<Self> {
        let time = |text: &str| Some(Self::Time(DateTime::try_from_utc(OffsetDateTime::parse(text, &Rfc3339).ok()?)?));
        (text.parse().ok().map(Self::Int))
            .or_else(|| text.parse().ok().map(Self::Uint))
            .or_else(|| text.parse().ok().filter(|number: &f64| number.is_finite()).map(Self::Float))
            .or_else(|| time(text))
            .or_else(|| time(&format!("{}T00:00:00Z", text.parse::<jiff::civil::Date>().ok()?)))
    }

    fn as_float(self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(number as f64),
            Self::Uint(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            Self::Time(_) => None,
        }
    }

    /// The value at a path, as the index compares it.
    pub fn term(self, path: &Term) -> Term {
        let mut term = path.clone();
        match self {
            Self::Int(number) => term.append_type_and_fast_value(number),
            Self::Uint(number) => term.append_type_and_fast_value(number),
            Self::Float(number) => term.append_type_and_fast_value(number),
            Self::Time(time) => term.append_type_and_fast_value(time),
        }
        term
    }
}

/// Reads a bound as it was typed.
pub(super) fn read(field: &str, bound: UserInputBound) -> Result<Bound<Comparable>, QueryError> {
    let value = |text: String| {
        let wrong = || {
            let cure = "write a number, a day (2024-12-31) or a time (2024-12-31T23:59:59Z)";
            QueryError::new(format!("`{text}` cannot bound a range of `{field}`: {cure}"))
        };
        Comparable::parse(&text).ok_or_else(wrong)
    };
    Ok(match bound {
        UserInputBound::Unbounded => Bound::Unbounded,
        UserInputBound::Inclusive(text) | UserInputBound::Exclusive(text) if text == "*" => Bound::Unbounded,
        UserInputBound::Inclusive(text) => Bound::Included(value(text)?),
        UserInputBound::Exclusive(text) => Bound::Excluded(value(text)?),
    })
}

/// Gives both bounds one type, which the index relies on; `None` if they have nothing in common.
pub(super) fn alike(lower: Bound<Comparable>, upper: Bound<Comparable>) -> Option<(Bound<Comparable>, Bound<Comparable>)> {
    use Comparable::{Float, Int, Time, Uint};
    let (first, second) = match (value(lower), value(upper)) {
        (Some(first), Some(second)) => (first, second),
        _ => return Some((lower, upper)),
    };
    match (first, second) {
        (Int(_), Int(_)) | (Uint(_), Uint(_)) | (Time(_), Time(_)) => Some((lower, upper)),
        _ => {
            let (first, second) = (first.as_float()?, second.as_float()?);
            Some((lower.map(|_| Float(first)), upper.map(|_| Float(second))))
        }
    }
}

fn value(bound: Bound<Comparable>) -> Option<Comparable> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_one_range_have_one_type() {
        let read = |text: &str| Bound::Included(Comparable::parse(text).expect(text));
        for (lower, upper, expected) in [
            ("1", "2", Some((Comparable::Int(1), Comparable::Int(2)))),
            ("1", "2.5", Some((Comparable::Float(1.0), Comparable::Float(2.5)))),
            ("1", "18446744073709551615", Some((Comparable::Float(1.0), Comparable::Float(u64::MAX as f64)))),
            ("2024-01-01", "2", None),
        ] {
            let expected = expected.map(|(lower, upper)| (Bound::Included(lower), Bound::Included(upper)));
            assert_eq!(alike(read(lower), read(upper)), expected, "{lower} {upper}");
        }
        assert_eq!(alike(read("1"), Bound::Unbounded), Some((read("1"), Bound::Unbounded)));
        assert_eq!(Comparable::parse("2024-01-01"), Comparable::parse("2024-01-01T00:00:00Z"));
        assert!(["", "x", "NaN", "inf", "1999-02-30"].iter().all(|text| Comparable::parse(text).is_none()));
    }
}
