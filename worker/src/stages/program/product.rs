//! `a * b`, which repeats a text if one of them is one, within bounds.

use super::{VrlValue, functions::LARGEST_TEXT};
use crate::wording::Bytes;
use vrl::{
    compiler::{
        Context, Expression, Function, Parameter, TypeState,
        expression::{Expr, ExpressionError, Op, Resolved},
        function::{
            ArgumentList, Compiled, Error, Example, FunctionCompileContext,
            closure::{Definition, Input, Output},
        },
        state::TypeInfo,
        value::{Kind, VrlValueArithmetic, kind},
    },
    diagnostic::DiagnosticMessage,
    parser::ast::{Node, Opcode},
};

/// The name of the function, which no program can write.
pub(super) const PRODUCT: &str = "*";

/// A function with a closure of the two operands.
#[derive(Debug)]
pub(super) struct Product;

const EXAMPLE: Example = Example {
    title: "product",
    source: "2 * 3",
    input: None,
    result: Ok("6"),
    file: file!(),
    line: line!(),
    deterministic: true,
    skip: true,
};

impl Function for Product {
    fn identifier(&self) -> &'static str {
        PRODUCT
    }

    fn usage(&self) -> &'static str {
        "Multiplies numbers, or repeats a text."
    }

    fn category(&self) -> &'static str {
        "Number"
    }

    fn return_kind(&self) -> u16 {
        kind::BYTES | kind::INTEGER | kind::FLOAT
    }

    fn examples(&self) -> &'static [Example] {
        &[]
    }

    fn parameters(&self) -> &'static [Parameter] {
        // a closure must belong to an argument
        const PARAMETERS: &[Parameter] = &[Parameter::required("nothing", kind::NULL, "Nothing.")];
        PARAMETERS
    }

    fn closure(&self) -> Option<Definition> {
        let output = Output::Kind(Kind::any());
        let input = Input { parameter_keyword: "nothing", kind: Kind::null(), variables: Vec::new(), output, example: EXAMPLE };
        Some(Definition { inputs: vec![input], is_iterator: false, supports_break: false })
    }

    fn compile(&self, state: &TypeState, ctx: &mut FunctionCompileContext, arguments: ArgumentList) -> Compiled {
        let operands = arguments.required_closure()?.block.into_inner();
        let Ok([left, right]) = <[Expr; 2]>::try_from(operands) else { return Err(Error::ExpectedFunctionClosure.into()) };
        let node = |operand: &Expr| Node::new(ctx.span(), operand.clone());
        let operation = Op::new(node(&left), Node::new(ctx.span(), Opcode::Mul), node(&right), state)
            .map_err(|error| Box::new(error) as Box<dyn DiagnosticMessage>)?;
        Ok(Box::new(BoundedProduct { left, right, operation }))
    }
}

#[derive(Clone, Debug)]
struct BoundedProduct {
    left: Expr,
    right: Expr,
    /// The product without bounds, for its type.
    operation: Op,
}

impl Expression for BoundedProduct {
    fn resolve(&self, ctx: &mut Context) -> Resolved {
        let left = self.left.resolve(ctx)?;
        let right = self.right.resolve(ctx)?;
        check(&left, &right)?;
        left.try_mul(right).map_err(Into::into)
    }

    fn resolve_constant(&self, state: &TypeState) -> Option<VrlValue> {
        self.operation.resolve_constant(state)
    }

    fn type_info(&self, state: &TypeState) -> TypeInfo {
        self.operation.type_info(state)
    }
}

fn check(left: &VrlValue, right: &VrlValue) -> Result<(), ExpressionError> {
    let (text, times) = match (left, right) {
        (text, VrlValue::Integer(times)) | (VrlValue::Integer(times), text) => (text, *times),
        _ => return Ok(()),
    };
    let length = text.as_bytes().map_or(0, |bytes| bytes.len());
    let is_fine = usize::try_from(times).map_or(times < 0, |times| length.saturating_mul(times) <= LARGEST_TEXT);
    if is_fine {
        return Ok(());
    }
    Err(format!("{} of text {times} times is more than {}", Bytes(length), Bytes(LARGEST_TEXT)).into())
}
