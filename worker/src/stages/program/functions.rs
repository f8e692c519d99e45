//! The functions that a program may use: those of VRL, but for a few that have no bounds of their own.

use super::{VrlValue, allowance, product::Product};
use crate::{document::LARGEST_DOCUMENT, stages::replace::replace_up_to, wording::Bytes};
use std::io::Read;
use vrl::compiler::{
    Context, Expression, Function, Parameter, TypeState,
    expression::{ExpressionError, Query, Resolved, Target},
    function::{ArgumentList, Compiled, Error, Example, FunctionCompileContext},
    state::TypeInfo,
    value::VrlValueConvert,
};
use vrl::path::OwnedTargetPath;

/// Functions that programs may not use: `log` would write into our log from a user's text.
const WITHHELD: [&str; 1] = ["log"];

/// No function makes a longer text out of little.
pub(super) const LARGEST_TEXT: usize = LARGEST_DOCUMENT;

/// `unnest` makes no more values than this.
const MOST_UNNESTED: usize = 1_000_000;

/// Functions done in another way, with the values of their parameters, null if not given.
const OWN: [(&str, Work); 4] =
    [("replace", replace), ("decode_gzip", decode_gzip), ("decode_zlib", decode_zlib), ("decode_zstd", decode_zstd)];

type Work = fn(&[VrlValue]) -> Resolved;

/// What programs are checked against.
pub(super) fn for_users() -> Vec<Box<dyn Function>> {
    let mut functions = vrl::stdlib::all();
    functions.retain(|function| !WITHHELD.contains(&function.identifier()));
    functions
}

/// What programs run with, once their arguments and products are guarded.
pub(super) fn bounded() -> Vec<Box<dyn Function>> {
    let bounded = for_users().into_iter().map(|original| -> Box<dyn Function> {
        let identifier = original.identifier();
        match OWN.iter().find(|(name, _)| *name == identifier) {
            Some((_, work)) => Box::new(Bounded { original, bounds: Bounds::Work(*work) }),
            None if identifier == "unnest" => Box::new(Bounded { original, bounds: Bounds::Unnest }),
            None => original,
        }
    });
    bounded.chain(allowance::guards()).chain([Box::new(Product) as Box<dyn Function>]).collect()
}

/// A function that looks like the original and keeps its bounds.
#[derive(Debug)]
struct Bounded {
    original: Box<dyn Function>,
    bounds: Bounds,
}

#[derive(Clone, Copy, Debug)]
enum Bounds {
    Work(Work),
    Unnest,
}

impl Function for Bounded {
    fn identifier(&self) -> &'static str {
        self.original.identifier()
    }

    fn usage(&self) -> &'static str {
        self.original.usage()
    }

    fn category(&self) -> &'static str {
        self.original.category()
    }

    fn return_kind(&self) -> u16 {
        self.original.return_kind()
    }

    fn examples(&self) -> &'static [Example] {
        self.original.examples()
    }

    fn parameters(&self) -> &'static [Parameter] {
        self.original.parameters()
    }

    fn compile(&self, state: &TypeState, ctx: &mut FunctionCompileContext, arguments: ArgumentList) -> Compiled {
        let original = self.original.compile(state, ctx, arguments.clone())?;
        Ok(match self.bounds {
            Bounds::Work(work) => {
                let arguments = self.parameters().iter().map(|parameter| arguments.optional(parameter.keyword)).collect();
                Box::new(OwnCall { original, arguments, work })
            }
            Bounds::Unnest => Box::new(UnnestCall { original, query: unnested(&arguments)? }),
        })
    }
}

#[derive(Clone, Debug)]
struct OwnCall {
    /// The call of the original, for its type.
    original: Box<dyn Expression>,
    arguments: Vec<Option<Box<dyn Expression>>>,
    work: Work,
}

impl Expression for OwnCall {
    fn resolve(&self, ctx: &mut Context) -> Resolved {
        let mut values = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            values.push(argument.as_ref().map_or(Ok(VrlValue::Null), |argument| argument.resolve(ctx))?);
        }
        (self.work)(&values)
    }

    fn type_info(&self, state: &TypeState) -> TypeInfo {
        self.original.type_info(state)
    }
}

fn too_long() -> ExpressionError {
    format!("the text would have more than {}", Bytes(LARGEST_TEXT)).into()
}

fn replace(values: &[VrlValue]) -> Resolved {
    let [value, pattern, with, count] = values else { return Err("arguments are missing".into()) };
    let (value, with) = (value.try_bytes_utf8_lossy()?, with.try_bytes_utf8_lossy()?);
    let count = if count.is_null() { -1 } else { count.clone().try_integer()? };
    // as VRL has it: a negative count means all
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    if most == 0 {
        return Ok(value.into_owned().into());
    }
    if let VrlValue::Regex(regex) = pattern {
        // to the `regex` crate, none means all
        let limit = if most == usize::MAX { 0 } else { most };
        return Ok(replace_up_to(LARGEST_TEXT, regex, &value, &with, limit).ok_or_else(too_long)?.into_owned().into());
    }
    let pattern = pattern.try_bytes_utf8_lossy()?;
    let found = value.matches(&*pattern).take(most).count();
    if value.len().saturating_add(found.saturating_mul(with.len())) > LARGEST_TEXT {
        return Err(too_long());
    }
    Ok(value.replacen(&*pattern, &with, most).into())
}

fn decode_gzip(values: &[VrlValue]) -> Resolved {
    decode(values, "Gzip", |packed| Ok(flate2::read::MultiGzDecoder::new(packed)))
}

fn decode_zlib(values: &[VrlValue]) -> Resolved {
    decode(values, "Zlib", |packed| Ok(flate2::read::ZlibDecoder::new(packed)))
}

fn decode_zstd(values: &[VrlValue]) -> Resolved {
    decode(values, "Zstd", zstd::Decoder::new)
}

fn decode<'a, R: Read>(values: &'a [VrlValue], name: &str, reader: impl FnOnce(&'a [u8]) -> std::io::Result<R>) -> Resolved {
    let packed = values.first().and_then(VrlValue::as_bytes).ok_or("there is no text to decode")?;
    let mut text = Vec::new();
    let read = reader(packed).and_then(|reader| reader.take(LARGEST_TEXT as u64 + 1).read_to_end(&mut text));
    match read {
        Ok(_) if text.len() > LARGEST_TEXT => Err(too_long()),
        Ok(_) => Ok(VrlValue::Bytes(text.into())),
        Err(_) => Err(format!("unable to decode value with {name} decoder").into()),
    }
}

/// What is unnested. Only what has a place can be looked at beforehand.
fn unnested(arguments: &ArgumentList) -> Result<Query, Error> {
    let query = arguments.required_query("path")?;
    match query.target() {
        Target::External(_) | Target::Internal(_) => Ok(query),
        Target::FunctionCall(_) | Target::Container(_) => Err(Error::UnexpectedExpression {
            keyword: "path",
            expected: "a field or a variable",
            expr: Box::new(arguments.required_expr("path")),
        }),
    }
}

#[derive(Clone, Debug)]
struct UnnestCall {
    original: Box<dyn Expression>,
    query: Query,
}

impl Expression for UnnestCall {
    fn resolve(&self, ctx: &mut Context) -> Resolved {
        let whole = match self.query.target() {
            Target::External(prefix) => ctx.target().target_get(&OwnedTargetPath::root(*prefix)).ok().flatten(),
            Target::Internal(variable) => ctx.state().variable(variable.ident()),
            Target::FunctionCall(_) | Target::Container(_) => None,
        };
        if let Some(whole) = whole
            && let Some(VrlValue::Array(elements)) = whole.get(self.query.path())
        {
            let copied = count_up_to(whole, MOST_UNNESTED).saturating_sub(elements.len());
            if copied.saturating_mul(elements.len()) > MOST_UNNESTED {
                return Err(format!("{copied} values would be copied {} times, {MOST_UNNESTED} are allowed", elements.len()).into());
            }
        }
        self.original.resolve(ctx)
    }

    fn type_info(&self, state: &TypeState) -> TypeInfo {
        self.original.type_info(state)
    }
}

/// How many values there are in one, and itself. It stops counting at `most`.
fn count_up_to(value: &VrlValue, most: usize) -> usize {
    let mut count = 0;
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        count += 1;
        match value {
            _ if count >= most => break,
            VrlValue::Array(values) => pending.extend(values),
            VrlValue::Object(map) => pending.extend(map.values()),
            _ => {}
        }
    }
    count
}
