//! What can be wrong with YAML, in the words of Go's decoder where it has some.

use std::fmt;

use granit_parser::{ErrorKind, ScanError};

use crate::json::MAX_DEPTH;

/// Why a text is not YAML that JSON can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The text is not UTF-8; so many bytes of it are.
    Utf8(usize),
    /// The text has control characters.
    Control,
    /// The text is malformed.
    Syntax {
        /// The line, counted from 1; 0 when it is not known.
        line: usize,
        /// What is wrong there.
        wrong: &'static str,
    },
    /// More than [`MAX_DEPTH`] containers in each other.
    Depth,
    /// An alias for something that has not come before.
    UnknownAnchor(String),
    /// An alias for something that it is a part of.
    SelfReference(String),
    /// Aliases repeat too many nodes, or more than [`MAX_ALIAS_BYTES`](super::MAX_ALIAS_BYTES).
    Aliasing,
    /// What is merged with `<<` is not a map.
    Merge,
    /// A key is a list or a map: the type in Go's words.
    Key(&'static str),
    /// A key is null, or a number that is too large: the type in Go's words.
    UnsupportedKey(&'static str),
    /// A value does not fit its tag.
    Tag {
        /// The tag that the value would have had.
        found: &'static str,
        /// The value.
        value: String,
        /// The tag that it has.
        tag: &'static str,
    },
    /// Bytes that are not base64.
    Base64,
    /// A number that JSON cannot hold: `+Inf`, `-Inf` or `NaN`.
    Number(&'static str),
    /// A line that begins with `---` and goes on.
    Separator(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Utf8(_) => f.write_str("yaml: invalid leading UTF-8 octet"),
            Error::Control => f.write_str("yaml: control characters are not allowed"),
            Error::Syntax { line: 0, wrong } => write!(f, "yaml: {wrong}"),
            Error::Syntax { line, wrong } => write!(f, "yaml: line {line}: {wrong}"),
            Error::Depth => write!(f, "yaml: exceeded max depth of {MAX_DEPTH}"),
            Error::UnknownAnchor(name) => write!(f, "yaml: unknown anchor '{name}' referenced"),
            Error::SelfReference(name) => write!(f, "yaml: anchor '{name}' value contains itself"),
            Error::Aliasing => f.write_str("yaml: document contains excessive aliasing"),
            Error::Merge => f.write_str("yaml: map merge requires map or sequence of maps as the value"),
            Error::Key(ty) => write!(f, "yaml: invalid map key: {ty}"),
            Error::UnsupportedKey(ty) => write!(f, "unsupported map key of type: {ty}"),
            Error::Tag { found, value, tag } => write!(f, "yaml: cannot decode {found} `{value}` as a {tag}"),
            Error::Base64 => f.write_str("yaml: !!binary value contains invalid base64 data"),
            Error::Number(n) => write!(f, "json: unsupported value: {n}"),
            Error::Separator(rest) => write!(f, "invalid Yaml document separator: {rest}"),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// What the parser says is wrong with `text`, in Go's words.
    pub(super) fn syntax(error: &ScanError, text: &str) -> Self {
        use ErrorKind as K;
        // Go counts the lines of a scanner's errors from 1, those of a parser's from 0, and leaves out line 0.
        let (scanner, wrong) = match error.kind() {
            K::RecursionLimitExceeded => return Error::Depth,
            K::UnexpectedEofFlowSequence | K::ExpectedFlowSequenceSeparator => {
                (false, "did not find expected ',' or ']'")
            }
            K::UnclosedFlowCollection { open: '[' } => (false, "did not find expected ',' or ']'"),
            K::UnexpectedEofFlowMapping
            | K::UnexpectedEofImplicitFlowMapping
            | K::ExpectedFlowMappingSeparator
            | K::UnclosedFlowCollection { .. } => (false, "did not find expected ',' or '}'"),
            K::UnexpectedEofBlockMapping | K::ExpectedBlockMappingKey | K::InvalidIndentation => {
                (false, "did not find expected key")
            }
            K::UnexpectedEofBlockSequence | K::ExpectedBlockSequenceEntry => {
                (false, "did not find expected '-' indicator")
            }
            K::ExpectedDocumentStart | K::MissingDocumentEndBeforeDirective | K::InvalidDocumentEnd => {
                (false, "did not find expected <document start>")
            }
            K::UndeclaredTagHandle => (false, "found undefined tag handle"),
            K::DuplicateVersionDirective => (false, "found duplicate %YAML directive"),
            K::DuplicateTagDirective => (false, "found duplicate %TAG directive"),
            K::UnsupportedYamlMajorVersion => (false, "found incompatible YAML document"),
            K::ExpectedNodeContent
            | K::MisplacedFlowCollectionEnd
            | K::MismatchedFlowCollectionEnd { .. }
            | K::UnexpectedEof => (false, "did not find expected node content"),
            K::SimpleKeyExpected | K::InvalidSimpleKey => (true, "could not find expected ':'"),
            K::UnexpectedCharacter { .. }
            | K::TabNotAllowed
            | K::TabInBlockIndentation
            | K::TabInIndentation
            | K::PlainScalarStartsWithDashFlowIndicator => (true, "found character that cannot start any token"),
            K::TabInPlainScalar => (true, "found a tab character that violates indentation"),
            K::BlockSequenceEntryNotAllowed | K::BlockEntryInFlowCollection => {
                (true, "block sequence entries are not allowed in this context")
            }
            K::MappingKeyNotAllowed => (true, "mapping keys are not allowed in this context"),
            K::MappingValueNotAllowed | K::InvalidColonPlacement => {
                (true, "mapping values are not allowed in this context")
            }
            K::MissingAnchorOrAliasName => (true, "did not find expected alphabetic or numeric character"),
            K::ZeroBlockScalarIndent => (true, "found an indentation indicator equal to 0"),
            K::InvalidBlockScalarHeader => (true, "did not find expected comment or line break"),
            K::TabAtBlockScalarStart => (true, "found a tab character where an indentation space is expected"),
            K::DocumentIndicatorInQuotedScalar => (true, "found unexpected document indicator"),
            K::UnclosedQuotedScalar | K::InvalidQuotedScalarIndent => (true, "found unexpected end of stream"),
            K::UnknownQuotedScalarEscape => (true, "found unknown escape character"),
            K::InvalidQuotedScalarHexEscape | K::InvalidLowSurrogateHexEscape => {
                (true, "did not find expected hexdecimal number")
            }
            K::InvalidLowSurrogate | K::MissingLowSurrogate | K::UnpairedLowSurrogate | K::InvalidUnicodeEscape => {
                (true, "found invalid Unicode character escape code")
            }
            K::InvalidTagTerminator => (true, "did not find expected whitespace or line break"),
            K::MissingTagUri => (true, "did not find expected tag URI"),
            K::MissingDirectiveName => (true, "could not find expected directive name"),
            K::InvalidDirectiveName => (true, "found unexpected non-alphabetical character"),
            K::InvalidDirectiveTerminator => (true, "did not find expected comment or line break"),
            _ => (true, "unknown problem parsing YAML content"),
        };
        let line = match error.kind() {
            // Go is at the end of the text when it notices, or on the next line.
            K::UnclosedFlowCollection { .. } | K::InvalidQuotedScalarIndent => text.lines().count() + 1,
            K::SimpleKeyExpected | K::TabInPlainScalar => error.marker().line() + 1,
            _ => error.marker().line(),
        };
        Error::Syntax { line: if scanner && line > 1 { line } else { line.saturating_sub(1) }, wrong }
    }
}
