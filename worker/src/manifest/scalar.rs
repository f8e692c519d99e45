//! Plain scalars, read the way kubectl reads them.
//!
//! kubectl is neither YAML 1.1 nor 1.2: `yes` is a boolean, `017` and `0o17` are 15, `1_000` is 1000, dates and
//! `12:30` are text. One manifest has two homes, so both must read the same: see the table in the tests, which is what
//! kubectl's own library answered.

use serde_json::{Number, Value};

/// The value of a plain (unquoted) scalar; nothing if JSON has no such value (`.inf`, `.nan`).
pub fn resolve(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Some(Value::Null),
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true.into()),
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false.into()),
        _ => match unsigned(text) {
            ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" => None,
            body if !body.starts_with(|c: char| c.is_ascii_digit() || c == '.') => Some(text.into()),
            _ => Some(number(text).map_or_else(|| text.into(), Value::Number)),
        },
    }
}

/// How kubectl writes a value that serves as a key. Keys are text for it in the end; `Null` cannot be one.
pub fn as_key(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

fn number(text: &str) -> Option<Number> {
    if text.starts_with('.') {
        return float(text);
    }
    let digits = text.replace('_', "");
    integer(&digits).or_else(|| float(&digits))
}

/// Integers with the prefixes of Go: `0x`, `0b`, `0o`, and a bare `0` for octal.
fn integer(text: &str) -> Option<Number> {
    let body = unsigned(text);
    let (radix, digits) = match body.get(..2) {
        Some("0x" | "0X") => (16, &body[2..]),
        Some("0b" | "0B") => (2, &body[2..]),
        Some("0o" | "0O") => (8, &body[2..]),
        Some(_) if body.starts_with('0') => (8, &body[1..]),
        _ => (10, body),
    };
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if text.starts_with('-') { 0i64.checked_sub_unsigned(magnitude).map(Number::from) } else { Some(magnitude.into()) }
}

/// Decimal floats. A whole one is an integer, as in JSON.
fn float(text: &str) -> Option<Number> {
    let (mantissa, exponent) = match unsigned(text).split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(unsigned(exponent))),
        None => (unsigned(text), None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if exponent.is_some_and(|exponent| exponent.is_empty() || !all_digits(exponent)) {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    const EXACT: f64 = (1u64 << 63) as f64;
    if value.fract() == 0.0 && (-EXACT..EXACT).contains(&value) {
        return Some((value as i64).into());
    }
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What sigs.k8s.io/yaml 1.6, the library of kubectl, makes of `a: TEXT`.
    const KUBECTL: &[(&str, &str)] = &[
        ("0o17", "15"),
        ("017", "15"),
        ("08", "8"),
        ("1_000", "1000"),
        ("0b11", "3"),
        ("0x1F", "31"),
        ("0X1F", "31"),
        ("0B11", "3"),
        ("1.0", "1"),
        ("1e3", "1000"),
        ("1.5e3", "1500"),
        (".5", "0.5"),
        ("-.5", "-0.5"),
        ("+5", "5"),
        ("-0", "0"),
        ("-0x1F", "-31"),
        ("+0x1F", "31"),
        ("-017", "-15"),
        ("1_0.5", "10.5"),
        ("12:30:45", r#""12:30:45""#),
        ("2001-01-01", r#""2001-01-01""#),
        ("2001-01-01T00:00:00Z", r#""2001-01-01T00:00:00Z""#),
        ("9223372036854775808", "9223372036854775808"),
        ("9007199254740993", "9007199254740993"),
        ("0xFFFFFFFFFFFFFFFF", "18446744073709551615"),
        ("1e400", r#""1e400""#),
        ("5.", "5"),
        ("1__0", "10"),
        ("_1", r#""_1""#),
        ("1_", "1"),
        ("0x", r#""0x""#),
        ("0b2", r#""0b2""#),
        ("09.5", "9.5"),
        ("0.0", "0"),
        ("-1.0", "-1"),
        ("1e-3", "0.001"),
        ("00", "0"),
        ("0o8", r#""0o8""#),
        ("-0o17", "-15"),
        ("0_7", "7"),
        ("1,000", r#""1,000""#),
        ("<<", r#""<<""#),
        ("=", r#""=""#),
        ("", "null"),
        ("~", "null"),
        ("Null", "null"),
        ("nULL", r#""nULL""#),
        ("True", "true"),
        ("tRUE", r#""tRUE""#),
        ("oFF", r#""oFF""#),
        ("Y", "true"),
        ("N", "false"),
        ("yes", "true"),
        ("off", "false"),
        ("1E3", "1000"),
        ("1e+3", "1000"),
        ("1.e3", "1000"),
        ("e3", r#""e3""#),
        (".", r#"".""#),
        ("+", r#""+""#),
        ("..", r#""..""#),
        ("5e", r#""5e""#),
        ("0x1_F", "31"),
        ("0b1_1", "3"),
        ("017_7", "127"),
        ("1e15", "1000000000000000"),
        ("1e21", "1e21"),
        ("0.1", "0.1"),
        ("3.0", "3"),
        ("1.10", "1.1"),
        ("infinity", r#""infinity""#),
        ("inf", r#""inf""#),
        ("nan", r#""nan""#),
        ("0x1p4", r#""0x1p4""#),
        ("1_000.5_5", "1000.55"),
        ("00.5", "0.5"),
        ("-08", "-8"),
        ("0b", r#""0b""#),
        ("0o", r#""0o""#),
        ("0.", "0"),
        ("-.", r#""-.""#),
        ("1:30", r#""1:30""#),
        ("0755", "493"),
        ("0789", "789"),
        ("0,5", r#""0,5""#),
        ("0x-1", r#""0x-1""#),
        ("--1", r#""--1""#),
        ("1-1", r#""1-1""#),
        ("1+1", r#""1+1""#),
        ("1e1.5", r#""1e1.5""#),
    ];

    #[test]
    fn plain_scalars_are_what_kubectl_makes_of_them() {
        for (text, json) in KUBECTL {
            let want: Value = serde_json::from_str(json).expect(json);
            assert_eq!(resolve(text), Some(want), "{text}");
        }
    }

    #[test]
    fn what_json_cannot_say_is_no_value() {
        for text in [".inf", "-.Inf", "+.INF", ".nan", ".NaN"] {
            assert_eq!(resolve(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(text in "[-+0-9a-fxob_.eE: ]{0,12}") {
            resolve(&text);
        }

        #[test]
        fn integers_are_exact(number: i64) {
            prop_assert_eq!(resolve(&number.to_string()), Some(number.into()));
        }
    }
}
