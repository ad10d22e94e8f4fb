//! From tokens to a tree, by recursive descent. What is wrong is said in the words of upstream's generated parser.

use crate::{
    ast::{Ast, Entry, Expr, ExprId, Literal},
    error::{Errors, MAX_ERRORS, Offset},
    lexer::{self, Kind, Token},
    macros,
    unescape::unescape,
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
        tree: Tree { nodes: Vec::new(), at: Vec::new(), depth: Vec::new(), height: Vec::new() },
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

/// The nodes so far.
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Expr>,
    pub(crate) at: Vec<u32>,
    /// How deep selections, calls and operators nest below each node, as upstream counts them.
    depth: Vec<u16>,
    height: Vec<u16>,
}

impl Tree {
    /// Adds a node.
    pub(crate) fn add(&mut self, at: u32, expr: Expr) -> ExprId {
        let id = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(expr);
        self.at.push(at);
        let (mut depth, mut height) = (0, 0);
        for child in self.children(id) {
            depth = depth.max(self.depth[child as usize]);
            height = height.max(self.height[child as usize]);
        }
        self.depth.push(depth);
        self.height.push(height.saturating_add(1));
        id
    }

    fn children(&self, id: ExprId) -> Vec<ExprId> {
        // Borrowed through a temporary tree would copy; the match is the same as that of a finished tree.
        match &self.nodes[id as usize] {
            Expr::Bad | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
            Expr::Select { operand, .. } => vec![*operand],
            Expr::Call { target, args, .. } => target.iter().chain(args).copied().collect(),
            Expr::List { items } => items.iter().map(|(item, _)| *item).collect(),
            Expr::Map { entries } => entries.iter().flat_map(|entry| [entry.key, entry.value]).collect(),
            Expr::Struct { fields, .. } => fields.clone(),
            Expr::Fold(fold) => vec![fold.range, fold.init, fold.condition, fold.step, fold.result],
        }
    }

    /// Copies a node and all below it.
    pub(crate) fn copy(&mut self, id: ExprId) -> ExprId {
        // The tree's height is bounded, and so is this.
        let at = self.at[id as usize];
        let mut expr = self.nodes[id as usize].clone();
        match &mut expr {
            Expr::Bad | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => *operand = self.copy(*operand),
            Expr::Call { target, args, .. } => {
                *target = target.map(|target| self.copy(target));
                for arg in args {
                    *arg = self.copy(*arg);
                }
            }
            Expr::List { items } => items.iter_mut().for_each(|(item, _)| *item = self.copy(*item)),
            Expr::Map { entries } => {
                for entry in entries {
                    entry.key = self.copy(entry.key);
                    entry.value = self.copy(entry.value);
                }
            }
            Expr::Struct { fields, .. } => fields.iter_mut().for_each(|field| *field = self.copy(*field)),
            Expr::Fold(fold) => {
                fold.range = self.copy(fold.range);
                fold.init = self.copy(fold.init);
                fold.condition = self.copy(fold.condition);
                fold.step = self.copy(fold.step);
                fold.result = self.copy(fold.result);
            }
        }
        let copy = self.add(at, expr);
        self.depth[copy as usize] = self.depth[id as usize];
        copy
    }
}

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
        self.expect(Kind::RBracket, may_follow)?;
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
        self.expect(Kind::RParen, may_follow)?;
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

    fn primary(&mut self) -> Parsed<ExprId> {
        let token = self.token();
        match token.kind {
            Kind::LParen => {
                self.advance();
                let inner = self.within(&[Kind::RParen], Parser::expr)?;
                self.expect(Kind::RParen, may_follow)?;
                Ok(inner)
            }
            Kind::LBracket => self.list(),
            Kind::LBrace => self.map(),
            Kind::Dot | Kind::Ident => self.name(),
            _ => self.literal(),
        }
    }

    fn name(&mut self) -> Parsed<ExprId> {
        let start = self.token().start;
        let dot = self.accept(Kind::Dot);
        let token = self.token();
        if token.kind != Kind::Ident {
            let (from, to) = (dot.map_or(token.start, |dot| dot.start), token.end);
            let input: String = self.chars[from as usize..to as usize].iter().collect();
            let shown = if matches!(token.kind, Kind::True | Kind::False | Kind::Null) {
                format!("mismatched input '{}' expecting IDENTIFIER", self.text(token))
            } else {
                format!("no viable alternative at input {}", quoted(input.trim_end()))
            };
            self.syntax(token.start, &shown);
            return Err(Stop);
        }
        self.advance();
        let word = self.text(token);
        if let Some((name, open)) = self.message_name(&word, dot.is_some()) {
            return self.message(name, open);
        }
        if RESERVED.contains(&word.as_str()) {
            self.errors.report(Some(start), format!("reserved identifier: {word}"));
            if self.accept(Kind::LParen).is_some() {
                self.arguments()?;
            }
            return self.add(start, Expr::Bad);
        }
        let name = if dot.is_some() { format!(".{word}") } else { word };
        if let Some(open) = self.accept(Kind::LParen) {
            let args = self.arguments()?;
            return self.call(open.start, name, None, args);
        }
        self.add(token.start, Expr::Ident(name))
    }

    /// Whether dotted names and a brace follow: the literal of a message. Moves behind the brace if so.
    fn message_name(&mut self, first: &str, dotted: bool) -> Option<(String, u32)> {
        let mut ahead = 0;
        let mut name = if dotted { format!(".{first}") } else { first.to_owned() };
        while self.peek(ahead) == Kind::Dot && self.peek(ahead + 1) == Kind::Ident {
            name = format!("{name}.{}", self.text(self.tokens[self.at + ahead + 1]));
            ahead += 2;
        }
        if self.peek(ahead) != Kind::LBrace {
            return None;
        }
        self.at += ahead;
        let open = self.advance().start;
        Some((name, open))
    }

    fn message(&mut self, name: String, open: u32) -> Parsed<ExprId> {
        let mut fields = Vec::new();
        self.sync(&[Kind::RBrace, Kind::Comma, Kind::Question, Kind::Ident, Kind::EscIdent])?;
        while matches!(self.peek(0), Kind::Question | Kind::Ident | Kind::EscIdent) {
            self.accept(Kind::Question);
            let token = self.token();
            self.sync(&[Kind::Ident, Kind::EscIdent])?;
            self.advance();
            self.expect(Kind::Colon, |kind| STARTS.contains(&kind))?;
            fields.push(self.within(&[Kind::Comma, Kind::RBrace], Parser::expr)?);
            if token.kind == Kind::EscIdent {
                self.errors.report(Some(token.start), "unsupported syntax: '`'");
            }
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        self.accept(Kind::Comma);
        self.sync(&[Kind::RBrace, Kind::Comma])?;
        self.expect(Kind::RBrace, may_follow)?;
        self.add(open, Expr::Struct { name, fields })
    }

    fn list(&mut self) -> Parsed<ExprId> {
        let open = self.advance().start;
        let mut items = Vec::new();
        self.sync(&with(&[Kind::RBracket, Kind::Comma, Kind::Question]))?;
        while !matches!(self.peek(0), Kind::RBracket | Kind::Comma) {
            let optional = self.accept(Kind::Question).is_some();
            items.push((self.within(&[Kind::Comma, Kind::RBracket], Parser::expr)?, optional));
            self.sync(&[Kind::RBracket, Kind::Comma])?;
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        if items.is_empty() {
            self.accept(Kind::Comma);
        }
        self.expect(Kind::RBracket, may_follow)?;
        self.add(open, Expr::List { items })
    }

    fn map(&mut self) -> Parsed<ExprId> {
        let open = self.advance().start;
        let mut entries = Vec::new();
        self.sync(&with(&[Kind::RBrace, Kind::Comma, Kind::Question]))?;
        while !matches!(self.peek(0), Kind::RBrace | Kind::Comma) {
            let optional = self.accept(Kind::Question).is_some();
            let key = self.within(&[Kind::Colon], Parser::expr)?;
            self.expect(Kind::Colon, |kind| STARTS.contains(&kind))?;
            let value = self.within(&[Kind::Comma, Kind::RBrace], Parser::expr)?;
            entries.push(Entry { key, value, optional });
            self.sync(&[Kind::RBrace, Kind::Comma])?;
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        if entries.is_empty() {
            self.accept(Kind::Comma);
        }
        self.expect(Kind::RBrace, may_follow)?;
        self.add(open, Expr::Map { entries })
    }

    fn literal(&mut self) -> Parsed<ExprId> {
        let start = self.token().start;
        let sign = if self.accept(Kind::Minus).is_some() { "-" } else { "" };
        let token = self.token();
        let text = self.text(token);
        let expected =
            [Kind::True, Kind::False, Kind::Null, Kind::Float, Kind::Int, Kind::Uint, Kind::String, Kind::Bytes];
        if !expected.contains(&token.kind) || !sign.is_empty() && !matches!(token.kind, Kind::Float | Kind::Int) {
            let message = if sign.is_empty() {
                format!("mismatched input {} expecting {}", self.shown(token), set(&with(&[])))
            } else {
                let to = if token.kind == Kind::Eof { start + 1 } else { token.end };
                let input: String = self.chars[start as usize..to as usize].iter().collect();
                format!("no viable alternative at input {}", quoted(&input))
            };
            self.syntax(token.start, &message);
            return Err(Stop);
        }
        self.advance();
        let literal = match token.kind {
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
            Kind::Int => integer(sign, &text).map(Literal::Int).ok_or("invalid int literal"),
            Kind::Uint => unsigned(&text[..text.len() - 1]).map(Literal::Uint).ok_or("invalid uint literal"),
            Kind::Float => double(sign, &text).map(Literal::Double).ok_or("invalid double literal"),
            Kind::Bytes => unescape(&text[1..], true).map(Literal::Bytes),
            _ => unescape(&text, false)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "unable to unescape string"))
                .map(Literal::String),
        };
        match literal {
            Ok(literal) => self.add(start, Expr::Literal(literal)),
            Err(message) => {
                self.errors.report(Some(start), message);
                self.add(start, Expr::Bad)
            }
        }
    }
}

fn integer(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn double(sign: &str, text: &str) -> Option<f64> {
    format!("{sign}{text}").parse().ok().filter(|number: &f64| number.is_finite())
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
