//! What functions that make much out of little may be given.
//!
//! The memory of a program is watched between its expressions, and one call is one expression. So whatever could make
//! gigabytes at once gets its arguments through a guard, which [`rewrite`](super::rewrite) puts around them.

use super::VrlValue;
use crate::wording::Bytes;
use vrl::compiler::{
    Context, Expression, Function, Parameter, TypeState,
    expression::{ExpressionError, Resolved},
    function::{ArgumentList, Compiled, Example, FunctionCompileContext},
    state::TypeInfo,
    value::kind,
};

/// What one argument of a function may be.
#[derive(Debug)]
struct Allowance {
    function: &'static str,
    keyword: &'static str,
    position: usize,
    /// The name of the guard, which no program can write.
    guard: &'static str,
    most: Most,
}

#[derive(Clone, Copy, Debug)]
enum Most {
    /// So many bytes with all that it holds, what is held twice counted twice.
    Bytes(usize),
    /// This number.
    Number(i64),
    /// This number or its negative, in each step of a path.
    Index(u64),
}

macro_rules! allowances {
    ($($function:literal $keyword:literal $position:literal $most:expr;)*) => {
        &[$(Allowance {
            function: $function,
            keyword: $keyword,
            position: $position,
            guard: concat!("argument ", $keyword, " of ", $function),
            most: $most,
        }),*]
    };
}

/// Each byte becomes some tens of bytes at most.
const LARGE: Most = Most::Bytes(16 << 20);
/// Each byte becomes some hundreds of bytes at most.
const MEDIUM: Most = Most::Bytes(2 << 20);
/// It is repeated between many others.
const SMALL: Most = Most::Bytes(1 << 10);

const ALLOWANCES: &[Allowance] = allowances! {
    // lists and objects out of text
    "chunks" "value" 0 LARGE;
    "parse_cbor" "value" 0 LARGE;
    "parse_csv" "value" 0 LARGE;
    "parse_influxdb" "value" 0 LARGE;
    "parse_json" "value" 0 LARGE;
    "parse_key_value" "value" 0 LARGE;
    "parse_logfmt" "value" 0 LARGE;
    "parse_query_string" "value" 0 LARGE;
    "parse_regex_all" "value" 0 MEDIUM;
    "parse_ruby_hash" "value" 0 LARGE;
    "parse_tokens" "value" 0 LARGE;
    "parse_xml" "value" 0 LARGE;
    "parse_yaml" "value" 0 LARGE;
    "split" "value" 0 LARGE;
    // text out of values, which can hold the same long text many times
    "encode_csv" "value" 0 LARGE;
    "encode_json" "value" 0 LARGE;
    "encode_key_value" "value" 0 LARGE;
    "encode_key_value" "key_value_delimiter" 2 SMALL;
    "encode_key_value" "field_delimiter" 3 SMALL;
    "encode_logfmt" "value" 0 LARGE;
    "flatten" "value" 0 LARGE;
    "flatten" "separator" 1 SMALL;
    "join" "value" 0 LARGE;
    "join" "separator" 1 SMALL;
    // text out of text, often one within the other
    "encode_base16" "value" 0 LARGE;
    "encode_base64" "value" 0 LARGE;
    "encode_percent" "value" 0 LARGE;
    "encode_punycode" "value" 0 LARGE;
    "redact" "value" 0 LARGE;
    "sieve" "value" 0 MEDIUM;
    "sieve" "replace_single" 2 SMALL;
    "sieve" "replace_repeated" 3 SMALL;
    // what was packed
    "decode_lz4" "value" 0 MEDIUM;
    "decode_snappy" "value" 0 MEDIUM;
    // zeros, and elements up to an index
    "format_number" "scale" 1 Most::Number(1_000);
    "set" "path" 1 Most::Index(super::compile::LARGEST_INDEX);
};

/// The guard of an argument, if it needs one. `position` counts if there is no keyword.
pub(super) fn guard(function: &str, keyword: Option<&str>, position: usize) -> Option<&'static str> {
    let is_meant = |allowance: &&Allowance| {
        allowance.function == function && keyword.map_or(allowance.position == position, |keyword| allowance.keyword == keyword)
    };
    ALLOWANCES.iter().find(is_meant).map(|allowance| allowance.guard)
}

/// All guards, as functions.
pub(super) fn guards() -> impl Iterator<Item = Box<dyn Function>> {
    ALLOWANCES.iter().map(|allowance| Box::new(Guard(allowance)) as Box<dyn Function>)
}

/// Bytes that a value takes with all that it holds, or nothing if it is more than `most`.
pub(super) fn size_up_to(value: &VrlValue, most: usize) -> Option<usize> {
    let mut size = 0_usize;
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        size += match value {
            VrlValue::Bytes(bytes) => bytes.len(),
            VrlValue::String(text) => text.len(),
            VrlValue::Array(values) => {
                pending.extend(values);
                values.len() * size_of::<VrlValue>()
            }
            VrlValue::Object(map) => {
                pending.extend(map.values());
                map.keys().map(|key| size_of::<VrlValue>() + key.len()).sum()
            }
            _ => 0,
        };
        if size > most {
            return None;
        }
    }
    Some(size)
}

/// The identity, for values that are not too much.
#[derive(Debug)]
struct Guard(&'static Allowance);

impl Function for Guard {
    fn identifier(&self) -> &'static str {
        self.0.guard
    }

    fn usage(&self) -> &'static str {
        "Gives its value, if that is not too much."
    }

    fn category(&self) -> &'static str {
        "System"
    }

    fn return_kind(&self) -> u16 {
        kind::ANY
    }

    fn examples(&self) -> &'static [Example] {
        &[]
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] = &[Parameter::required("value", kind::ANY, "What is guarded.")];
        PARAMETERS
    }

    fn compile(&self, _: &TypeState, _: &mut FunctionCompileContext, arguments: ArgumentList) -> Compiled {
        Ok(Box::new(Guarded { value: arguments.required("value"), most: self.0.most }))
    }
}

#[derive(Clone, Debug)]
struct Guarded {
    value: Box<dyn Expression>,
    most: Most,
}

impl Expression for Guarded {
    fn resolve(&self, ctx: &mut Context) -> Resolved {
        let value = self.value.resolve(ctx)?;
        self.most.check(&value)?;
        Ok(value)
    }

    fn resolve_constant(&self, state: &TypeState) -> Option<VrlValue> {
        self.value.resolve_constant(state)
    }

    fn type_info(&self, state: &TypeState) -> TypeInfo {
        self.value.type_info(state)
    }
}

impl Most {
    fn check(self, value: &VrlValue) -> Result<(), ExpressionError> {
        match (self, value) {
            (Self::Bytes(most), value) if size_up_to(value, most).is_none() => {
                Err(format!("it may have {}, and has more", Bytes(most)).into())
            }
            (Self::Number(most), VrlValue::Integer(number)) if *number > most => Err(format!("{number} is more than {most}").into()),
            (Self::Index(most), VrlValue::Array(steps)) => steps.iter().try_for_each(|step| Self::check_index(most, step)),
            _ => Ok(()),
        }
    }

    fn check_index(most: u64, step: &VrlValue) -> Result<(), ExpressionError> {
        match step {
            VrlValue::Integer(index) if index.unsigned_abs() > most => {
                Err(format!("the index {index} is beyond {most}: a list would be filled up to it").into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allowance_is_for_a_parameter_that_there_is() {
        let functions = vrl::stdlib::all();
        for Allowance { function, keyword, position, .. } in ALLOWANCES {
            let found = functions.iter().find(|candidate| candidate.identifier() == *function).expect(function);
            assert_eq!(found.parameters()[*position].keyword, *keyword, "{function}");
        }
    }

    #[test]
    fn a_guard_is_found_by_keyword_or_position() {
        for (function, keyword, position, expected) in [
            ("split", None, 0, Some("argument value of split")),
            ("split", Some("value"), 1, Some("argument value of split")),
            ("split", Some("pattern"), 0, None),
            ("split", None, 1, None),
            ("upcase", None, 0, None),
        ] {
            assert_eq!(guard(function, keyword, position), expected);
        }
    }

    #[test]
    fn what_is_held_twice_counts_twice() {
        let text = VrlValue::from("x".repeat(1000));
        let twice = VrlValue::Array(vec![text.clone(), text]);
        assert!(size_up_to(&twice, 10_000).is_some_and(|size| size > 2_000));
        assert_eq!(size_up_to(&twice, 1_999), None);
    }
}
