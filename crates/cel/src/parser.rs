//! From tokens to a tree, by recursive descent. What is wrong is said in the words of upstream's generated parser.

mod primary;
mod tree;

pub(crate) use tree::Tree;

use crate::{
    ast::{Ast, Expr, ExprId, Literal},
    error::{Errors, MAX_ERRORS, Offset},
    lexer::{self, Kind, Token},
    macros,
};

/// The longest expression, in characters.
pub const MAX_CODE_POINTS: usize = 100_000;
/// How deep rules of the grammar may nest, and how deep operators and selections.
pub const MAX_RECURSION: u16 = 250;
/// How high a tree may be. It bounds the stack of all that walks trees.
pub(crate) const MAX_HEIGHT: u16 = 400;

const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// What an expression can begin with.
const STARTS: [Kind; 15] = [
    Kind::LBracket,
    Kind::LBrace,
    Kind::LParen,
    Kind::Dot,
    Kind::Minus,
    Kind::Exclam,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
    Kind::Ident,
];

/// Reads an expression.
///
/// # Errors
/// All that is wrong with it.
pub fn parse(text: &str) -> Result<Ast, Errors> {
    read(text, false)
}

/// Reads an expression that may give names to values: `cel.bind(name, value, expression)`.
///
/// # Errors
/// All that is wrong with it.
pub fn parse_with_bindings(text: &str) -> Result<Ast, Errors> {
    read(text, true)
}

fn read(text: &str, bindings: bool) -> Result<Ast, Errors> {
    let chars: Vec<char> = text.chars().collect();
    let mut errors = Errors::new(text);
    if chars.len() > MAX_CODE_POINTS {
        let size = chars.len();
        errors.report(None, format!("expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}"));
        return Err(errors);
    }
    let (tokens, unreadable) = lexer::tokens(&chars);
    for (count, bad) in unreadable.into_iter().enumerate() {
        if count >= MAX_ERRORS {
            errors.report(Some(bad.start), format!("Syntax error: More than {MAX_ERRORS} syntax errors"));
            return Err(errors);
        }
        errors.report(Some(bad.start), format!("Syntax error: token recognition error at: {}", quoted(&bad.text)));
    }
    let mut parser = Parser {
        chars: &chars,
        tokens,
        at: 0,
        tree: Tree { nodes: Vec::new(), at: Vec::new(), depth: Vec::new(), height: Vec::new(), bindings },
        errors,
        exprs: 0,
        relations: 0,
        calcs: 0,
        closers: Vec::new(),
        recovering: false,
    };
    let root = parser.start();
    let Parser { tree, errors, .. } = parser;
    match root {
        Ok(root) if errors.is_empty() => Ok(Ast { text: text.to_owned(), nodes: tree.nodes, at: tree.at, root }),
        _ => Err(errors),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"))
}

/// The rest of the text is not looked at: an error has been reported.
pub(crate) struct Stop;

type Parsed<T> = Result<T, Stop>;

struct Parser<'a> {
    chars: &'a [char],
    tokens: Vec<Token>,
    at: usize,
    tree: Tree,
    errors: Errors,
    /// How deep expressions, comparisons and sums are nested here.
    exprs: u16,
    relations: u16,
    calcs: u16,
    /// What would end the brackets that are open here.
    closers: Vec<Kind>,
    /// An error has just been reported, and nothing fitted since.
    recovering: bool,
}

impl Parser<'_> {
    fn peek(&self, ahead: usize) -> Kind {
        self.tokens.get(self.at + ahead).map_or(Kind::Eof, |token| token.kind)
    }

    fn token(&self) -> Token {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn advance(&mut self) -> Token {
        let token = self.token();
        if token.kind != Kind::Eof {
            self.at += 1;
        }
        self.recovering = false;
        token
    }

    /// Goes on behind an error: skips what cannot follow here. Nothing is said until something fits again.
    fn recover(&mut self) -> Parsed<ExprId> {
        let at = self.token().start;
        while self.peek(0) != Kind::Eof && !may_follow(self.peek(0)) && !self.closers.contains(&self.peek(0)) {
            self.at += 1;
        }
        self.add(at, Expr::Bad)
    }

    fn accept(&mut self, kind: Kind) -> Option<Token> {
        (self.peek(0) == kind).then(|| self.advance())
    }

    fn text(&self, token: Token) -> String {
        self.chars[token.start as usize..token.end as usize].iter().collect()
    }

    fn shown(&self, token: Token) -> String {
        if token.kind == Kind::Eof { "'<EOF>'".to_owned() } else { quoted(&self.text(token)) }
    }

    fn syntax(&mut self, at: u32, message: &str) {
        if !self.recovering {
            self.errors.report(Some(at), format!("Syntax error: {message}"));
        }
        self.recovering = true;
    }

    fn fail(&mut self, at: Offset, message: impl Into<String>) -> Stop {
        self.errors.report(at, message);
        Stop
    }

    /// Makes sure that the next token is one of `expected`, dropping one token before it if that helps.
    fn sync(&mut self, expected: &[Kind]) -> Parsed<()> {
        let token = self.token();
        if expected.contains(&token.kind) {
            return Ok(());
        }
        if self.recovering {
            return Err(Stop);
        }
        let shown = self.shown(token);
        let wanted = set(expected);
        if token.kind != Kind::Eof && expected.contains(&self.peek(1)) {
            self.syntax(token.start, &format!("extraneous input {shown} expecting {wanted}"));
            self.advance();
            return Ok(());
        }
        self.syntax(token.start, &format!("mismatched input {shown} expecting {wanted}"));
        Err(Stop)
    }

    /// The next token must be `kind`. `follow` says whether what stands here instead may follow it: then it is missing.
    fn expect(&mut self, kind: Kind, follow: impl Fn(Kind) -> bool) -> Parsed<Token> {
        let token = self.token();
        if token.kind == kind {
            return Ok(self.advance());
        }
        let shown = self.shown(token);
        let wanted = kind.name();
        if token.kind != Kind::Eof && self.peek(1) == kind {
            self.syntax(token.start, &format!("extraneous input {shown} expecting {wanted}"));
            self.advance();
            return Ok(self.advance());
        }
        if follow(token.kind) {
            self.syntax(token.start, &format!("missing {wanted} at {shown}"));
            return Ok(Token { kind, start: token.start, end: token.start });
        }
        self.syntax(token.start, &format!("mismatched input {shown} expecting {wanted}"));
        Err(Stop)
    }

    /// The next token must close a bracket.
    fn close(&mut self, kind: Kind) -> Parsed<Token> {
        let outer = self.closers.contains(&self.peek(0));
        self.expect(kind, |found| outer || may_follow(found))
    }

    fn add(&mut self, at: u32, expr: Expr) -> Parsed<ExprId> {
        let id = self.tree.add(at, expr);
        self.bound(id, 0)
    }

    /// Adds a node that counts for the depth of operators.
    fn nest(&mut self, at: u32, expr: Expr) -> Parsed<ExprId> {
        let id = self.tree.add(at, expr);
        self.bound(id, 1)
    }

    fn bound(&mut self, id: ExprId, more: u16) -> Parsed<ExprId> {
        let depth = &mut self.tree.depth[id as usize];
        *depth += more;
        if *depth > MAX_RECURSION || self.tree.height[id as usize] > MAX_HEIGHT {
            return Err(self.fail(None, "max recursion depth exceeded"));
        }
        Ok(id)
    }

    fn too_deep(&mut self) -> Stop {
        self.fail(None, format!("expression recursion limit exceeded: {MAX_RECURSION}"))
    }

    fn start(&mut self) -> Parsed<ExprId> {
        let root = self.expr()?;
        self.expect(Kind::Eof, |_| false)?;
        Ok(root)
    }

    /// Parses inside brackets that `closers` end.
    fn within(&mut self, closers: &[Kind], parse: fn(&mut Self) -> Parsed<ExprId>) -> Parsed<ExprId> {
        let before = self.closers.len();
        self.closers.extend_from_slice(closers);
        let parsed = parse(self);
        self.closers.truncate(before);
        parsed
    }

    fn expr(&mut self) -> Parsed<ExprId> {
        self.exprs += 1;
        if self.exprs > MAX_RECURSION {
            return Err(self.too_deep());
        }
        let condition = self.or()?;
        let result = match self.accept(Kind::Question) {
            None => condition,
            Some(op) => {
                let yes = self.within(&[Kind::Colon], Parser::or)?;
                self.expect(Kind::Colon, |kind| STARTS.contains(&kind))?;
                let no = self.expr()?;
                self.nest(op.start, call("_?_:_", vec![condition, yes, no]))?
            }
        };
        self.exprs -= 1;
        Ok(result)
    }

    fn or(&mut self) -> Parsed<ExprId> {
        let first = self.and()?;
        if self.peek(0) != Kind::Or {
            return Ok(first);
        }
        let (mut terms, mut ops) = (vec![first], Vec::new());
        while let Some(op) = self.accept(Kind::Or) {
            terms.push(self.and()?);
            ops.push(op.start);
        }
        self.balance("_||_", &terms, &ops)
    }

    fn and(&mut self) -> Parsed<ExprId> {
        let first = self.relation()?;
        if self.peek(0) != Kind::And {
            return Ok(first);
        }
        let (mut terms, mut ops) = (vec![first], Vec::new());
        while let Some(op) = self.accept(Kind::And) {
            terms.push(self.relation()?);
            ops.push(op.start);
        }
        self.balance("_&&_", &terms, &ops)
    }

    /// A chain of one operator becomes a balanced tree. It is as high as the logarithm of the chain's length.
    fn balance(&mut self, op: &str, terms: &[ExprId], ops: &[u32]) -> Parsed<ExprId> {
        let Some(last) = ops.len().checked_sub(1) else { return Ok(terms[0]) };
        let middle = last.div_ceil(2);
        let left = self.balance(op, &terms[..=middle], &ops[..middle])?;
        let right = self.balance(op, &terms[middle + 1..], &ops[middle + 1..])?;
        self.add(ops[middle], call(op, vec![left, right]))
    }

    fn relation(&mut self) -> Parsed<ExprId> {
        self.relations += 1;
        if self.relations > MAX_RECURSION {
            return Err(self.too_deep());
        }
        let mut left = self.calc(0)?;
        while let Some(op) = relation_operator(self.peek(0)) {
            let at = self.advance().start;
            self.relations += 1;
            if self.relations > MAX_RECURSION {
                return Err(self.too_deep());
            }
            let right = self.calc(0)?;
            self.relations -= 1;
            left = self.nest(at, call(op, vec![left, right]))?;
        }
        self.relations -= 1;
        Ok(left)
    }

    fn calc(&mut self, least: u8) -> Parsed<ExprId> {
        self.calcs += 1;
        if self.calcs > MAX_RECURSION {
            return Err(self.too_deep());
        }
        let mut left = self.unary()?;
        while let Some((op, precedence)) = calc_operator(self.peek(0)).filter(|(_, precedence)| *precedence >= least) {
            let at = self.advance().start;
            let right = self.calc(precedence + 1)?;
            left = self.nest(at, call(op, vec![left, right]))?;
        }
        self.calcs -= 1;
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<ExprId> {
        if self.sync(&STARTS).is_err() {
            return self.recover();
        }
        let (op, kind) = match self.peek(0) {
            Kind::Exclam => ("!_", Kind::Exclam),
            Kind::Minus if !matches!(self.peek(1), Kind::Int | Kind::Float) => ("-_", Kind::Minus),
            _ => return self.member(),
        };
        let first = self.advance().start;
        let mut count = 1;
        while self.accept(kind).is_some() {
            count += 1;
        }
        let next = self.token();
        if !STARTS.contains(&next.kind) {
            self.no_operand(kind, next);
            return self.recover();
        }
        let operand = self.member()?;
        if count % 2 == 0 { Ok(operand) } else { self.add(first, call(op, vec![operand])) }
    }

    fn no_operand(&mut self, op: Kind, next: Token) {
        let (shown, wanted) = (self.shown(next), set(&STARTS));
        if op == Kind::Exclam {
            return self.syntax(next.start, &format!("extraneous input {shown} expecting {wanted}"));
        }
        let from = self.tokens[self.at - 1].start as usize;
        let input: String = self.chars[from..next.end as usize].iter().collect();
        self.syntax(next.start, &format!("no viable alternative at input {}", quoted(input.trim_end())));
        self.recovering = false;
        self.syntax(next.start, &format!("mismatched input {shown} expecting {wanted}"));
    }

    fn member(&mut self) -> Parsed<ExprId> {
        let mut here = self.primary()?;
        loop {
            here = match self.peek(0) {
                Kind::Dot => self.select(here)?,
                Kind::LBracket => self.index(here)?,
                _ => return Ok(here),
            };
        }
    }

    fn select(&mut self, operand: ExprId) -> Parsed<ExprId> {
        let dot = self.advance();
        let optional = self.accept(Kind::Question);
        let name = self.token();
        if !matches!(name.kind, Kind::Ident | Kind::EscIdent) {
            self.no_field(dot, optional.is_some(), name);
            return self.recover();
        }
        self.advance();
        if name.kind == Kind::EscIdent {
            self.errors.report(Some(name.start), "unsupported syntax: '`'");
            return self.nest(dot.start, Expr::Bad);
        }
        let field = self.text(name);
        if optional.is_some() {
            let field = self.add(name.start, Expr::Literal(Literal::String(field)))?;
            return self.nest(dot.start, call("_?._", vec![operand, field]));
        }
        if let Some(open) = self.accept(Kind::LParen) {
            let args = self.arguments()?;
            return self.call(open.start, field, Some(operand), args);
        }
        self.nest(dot.start, Expr::Select { operand, field, test: false })
    }

    fn no_field(&mut self, dot: Token, optional: bool, found: Token) {
        if optional {
            let shown = self.shown(found);
            self.syntax(found.start, &format!("mismatched input {shown} expecting {{IDENTIFIER, ESC_IDENTIFIER}}"));
            return self.errors.report(Some(found.start), "unsupported ident kind");
        }
        if matches!(found.kind, Kind::True | Kind::False | Kind::Null) {
            let word = self.text(found);
            return self.syntax(found.start, &format!("mismatched input '{word}' expecting IDENTIFIER"));
        }
        let input: String = self.chars[dot.start as usize..found.end as usize].iter().collect();
        let input = if found.kind == Kind::Eof { ".".to_owned() } else { input };
        self.syntax(found.start, &format!("no viable alternative at input {}", quoted(&input)));
    }

    fn index(&mut self, operand: ExprId) -> Parsed<ExprId> {
        let open = self.advance().start;
        self.sync(&with(&[Kind::Question]))?;
        let op = if self.accept(Kind::Question).is_some() { "_[?_]" } else { "_[_]" };
        let index = self.within(&[Kind::RBracket], Parser::expr)?;
        self.close(Kind::RBracket)?;
        self.nest(open, call(op, vec![operand, index]))
    }

    /// The arguments of a call, behind its opening parenthesis.
    fn arguments(&mut self) -> Parsed<Vec<ExprId>> {
        let mut args = Vec::new();
        self.sync(&with(&[Kind::RParen]))?;
        if self.peek(0) != Kind::RParen {
            const CLOSERS: [Kind; 2] = [Kind::Comma, Kind::RParen];
            args.push(self.within(&CLOSERS, Parser::expr)?);
            while self.accept(Kind::Comma).is_some() {
                args.push(self.within(&CLOSERS, Parser::expr)?);
            }
        }
        self.close(Kind::RParen)?;
        Ok(args)
    }

    /// A call, or what a macro makes of it.
    fn call(&mut self, at: u32, function: String, target: Option<ExprId>, args: Vec<ExprId>) -> Parsed<ExprId> {
        let below = target.iter().chain(&args).map(|&id| self.tree.depth[id as usize]).max().unwrap_or(0);
        let counts = u16::from(target.is_some());
        match macros::expand(&mut self.tree, at, &function, target, &args) {
            None => {
                let id = self.tree.add(at, Expr::Call { function, target, args });
                self.bound(id, counts)
            }
            Some(Ok(id)) => {
                self.tree.depth[id as usize] = below;
                self.bound(id, counts)
            }
            Some(Err((at, message))) => {
                self.errors.report(Some(at), message);
                self.add(at, Expr::Bad)
            }
        }
    }
}

fn call(function: &str, args: Vec<ExprId>) -> Expr {
    Expr::Call { function: function.to_owned(), target: None, args }
}

/// The start of an expression, or one of `more`, in the order of messages.
fn with(more: &[Kind]) -> Vec<Kind> {
    let mut all: Vec<Kind> = STARTS.iter().chain(more).copied().collect();
    all.sort();
    all
}

fn set(kinds: &[Kind]) -> String {
    match kinds {
        [one] => one.name().to_owned(),
        many => format!("{{{}}}", many.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")),
    }
}

/// Whether a token may stand behind a complete operand.
fn may_follow(kind: Kind) -> bool {
    matches!(kind, Kind::Eof | Kind::And | Kind::Or | Kind::Question | Kind::Dot | Kind::LBracket)
        || relation_operator(kind).is_some()
        || calc_operator(kind).is_some()
}

fn relation_operator(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Less => "_<_",
        Kind::LessEquals => "_<=_",
        Kind::GreaterEquals => "_>=_",
        Kind::Greater => "_>_",
        Kind::Equals => "_==_",
        Kind::NotEquals => "_!=_",
        Kind::In => "@in",
        _ => return None,
    })
}

fn calc_operator(kind: Kind) -> Option<(&'static str, u8)> {
    Some(match kind {
        Kind::Star => ("_*_", 2),
        Kind::Slash => ("_/_", 2),
        Kind::Percent => ("_%_", 2),
        Kind::Plus => ("_+_", 1),
        Kind::Minus => ("_-_", 1),
        _ => return None,
    })
}
