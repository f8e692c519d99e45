//! Puts guards into a program that has compiled: where a product could repeat a text, and around the arguments of functions
//! that make much out of little.
//!
//! `a * b` becomes a call of [`PRODUCT`] with a closure of `a` and `b`, since arguments of a call may not fail and operands
//! may. A guarded argument `x` becomes a call of its [allowance](super::allowance) with `x`. Neither changes a type.

use super::{allowance, product::PRODUCT};
use vrl::{
    diagnostic::Span,
    parser::ast::{
        Abort, Assignment, Block, Container, Expr, FunctionArgument, FunctionCall, FunctionClosure, Group, Ident, IfStatement, Literal,
        Node, Not, Op, Opcode, Predicate, Program, Query, QueryTarget, Return, RootExpr, Unary,
    },
};

/// The program with guards.
pub(super) fn with_guards(program: Program) -> Program {
    let root = |node: Node<RootExpr>| {
        node.map(|root| match root {
            RootExpr::Expr(node) => RootExpr::Expr(expr(node)),
            error @ RootExpr::Error(_) => error,
        })
    };
    Program(program.0.into_iter().map(root).collect())
}

fn expr(node: Node<Expr>) -> Node<Expr> {
    node.map(|expr| match expr {
        Expr::Container(node) => Expr::Container(node.map(container)),
        Expr::IfStatement(node) => Expr::IfStatement(node.map(if_statement)),
        Expr::Op(node) => operation(node),
        Expr::Assignment(node) => Expr::Assignment(node.map(assignment)),
        Expr::Query(node) => Expr::Query(node.map(query)),
        Expr::FunctionCall(node) => Expr::FunctionCall(node.map(call)),
        Expr::Unary(node) => Expr::Unary(node.map(unary)),
        Expr::Abort(node) => Expr::Abort(node.map(|Abort { message }| Abort { message: message.map(boxed) })),
        Expr::Return(node) => Expr::Return(node.map(|Return { expr }| Return { expr: boxed(expr) })),
        leaf @ (Expr::Literal(_) | Expr::Variable(_) | Expr::Break(_)) => leaf,
    })
}

// the boxes are those of the syntax tree
#[allow(clippy::boxed_local, clippy::unnecessary_box_returns)]
fn boxed(node: Box<Node<Expr>>) -> Box<Node<Expr>> {
    Box::new(expr(*node))
}

fn block(Block(exprs): Block) -> Block {
    Block(exprs.into_iter().map(expr).collect())
}

fn container(container: Container) -> Container {
    match container {
        Container::Group(node) => Container::Group(Box::new(node.map(|Group(node)| Group(expr(node))))),
        Container::Block(node) => Container::Block(node.map(block)),
        Container::Array(node) => Container::Array(node.map(|array| array.into_iter().map(expr).collect())),
        Container::Object(node) => {
            Container::Object(node.map(|object| object.into_iter().map(|(key, value)| (key, expr(value))).collect()))
        }
    }
}

fn if_statement(IfStatement { predicate, if_node, else_node }: IfStatement) -> IfStatement {
    let predicate = predicate.map(|predicate| match predicate {
        Predicate::One(node) => Predicate::One(boxed(node)),
        Predicate::Many(nodes) => Predicate::Many(nodes.into_iter().map(expr).collect()),
    });
    IfStatement { predicate, if_node: if_node.map(block), else_node: else_node.map(|node| node.map(block)) }
}

fn assignment(assignment: Assignment) -> Assignment {
    match assignment {
        Assignment::Single { target, op, expr } => Assignment::Single { target, op, expr: boxed(expr) },
        Assignment::Infallible { ok, err, op, expr } => Assignment::Infallible { ok, err, op, expr: boxed(expr) },
    }
}

fn query(Query { target, path }: Query) -> Query {
    let target = target.map(|target| match target {
        QueryTarget::FunctionCall(inner) => QueryTarget::FunctionCall(call(inner)),
        QueryTarget::Container(inner) => QueryTarget::Container(container(inner)),
        leaf @ (QueryTarget::Internal(_) | QueryTarget::External(_)) => leaf,
    });
    Query { target, path }
}

fn unary(Unary::Not(node): Unary) -> Unary {
    Unary::Not(node.map(|not| {
        let (operator, operand) = not.take();
        Not::new(operator.span(), expr(*operand))
    }))
}

fn operation(node: Node<Op>) -> Expr {
    let (span, Op(left, opcode, right)) = node.take();
    let (left, right) = (expr(*left), expr(*right));
    if *opcode != Opcode::Mul || is_float(&left) || is_float(&right) {
        return Expr::Op(Node::new(span, Op(Box::new(left), opcode, Box::new(right))));
    }
    let operands = Node::new(span, Block(vec![left, right]));
    let closure = Node::new(span, FunctionClosure { variables: Vec::new(), block: operands });
    let nothing = argument(None, Expr::Literal(Node::new(span, Literal::Null)), span);
    function_call(PRODUCT, vec![nothing], Some(closure), span)
}

/// No text can be multiplied by it.
fn is_float(node: &Node<Expr>) -> bool {
    matches!(node.inner(), Expr::Literal(literal) if matches!(literal.inner(), Literal::Float(_)))
}

fn call(call: FunctionCall) -> FunctionCall {
    let FunctionCall { ident, abort_on_error, arguments, closure } = call;
    let guarded = |(position, node): (usize, Node<FunctionArgument>)| {
        node.map(|FunctionArgument { ident: keyword, expr: value }| {
            let value = expr(value);
            let guard = allowance::guard(ident.as_ref(), keyword.as_ref().map(|keyword| keyword.as_ref().as_ref()), position);
            FunctionArgument { ident: keyword, expr: guard.map_or(value.clone(), |guard| guarded(guard, value)) }
        })
    };
    let arguments = arguments.into_iter().enumerate().map(guarded).collect();
    let closure =
        closure.map(|node| node.map(|FunctionClosure { variables, block: inner }| FunctionClosure { variables, block: inner.map(block) }));
    FunctionCall { ident, abort_on_error, arguments, closure }
}

/// What is written in the program itself stays as it is: functions ask for that.
fn guarded(guard: &'static str, value: Node<Expr>) -> Node<Expr> {
    if matches!(value.inner(), Expr::Literal(_)) {
        return value;
    }
    let span = value.span();
    let arguments = vec![argument(None, value.into_inner(), span)];
    Node::new(span, function_call(guard, arguments, None, span))
}

fn argument(ident: Option<Node<Ident>>, value: Expr, span: Span) -> Node<FunctionArgument> {
    Node::new(span, FunctionArgument { ident, expr: Node::new(span, value) })
}

fn function_call(name: &'static str, arguments: Vec<Node<FunctionArgument>>, closure: Option<Node<FunctionClosure>>, span: Span) -> Expr {
    let ident = Node::new(span, Ident::new(name));
    Expr::FunctionCall(Node::new(span, FunctionCall { ident, abort_on_error: false, arguments, closure }))
}
