//! Tokens from a file: one a line, `token,user,uid,"group1,group2"`.

use std::{collections::HashMap, fmt};

use capstan_api::Str;

use crate::authorization::UserInfo;

/// What is wrong with a file of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenFileError {
    /// A line has too few columns.
    Columns(usize),
    /// A quote is where none may be, or one is missing. The number is the line's.
    Quote(usize),
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenFileError::Columns(found) => {
                write!(f, "token file must have at least 3 columns (token, user name, user uid), found {found}")
            }
            TokenFileError::Quote(line) => write!(f, "record on line {line}: extraneous or missing \" in quoted-field"),
        }
    }
}

impl std::error::Error for TokenFileError {}

/// Tokens that never change, and whose they are.
#[derive(Clone, Default)]
pub struct StaticTokens {
    users: HashMap<Str, UserInfo>,
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the tokens.
        write!(f, "StaticTokens({})", self.users.len())
    }
}

impl StaticTokens {
    /// Reads a file's text. Lines without a token are skipped; of two lines with one token the later counts.
    ///
    /// # Errors
    /// When a line is not one of the right form.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut users = HashMap::new();
        for record in records(text)? {
            let [token, name, uid, ..] = &record[..] else { return Err(TokenFileError::Columns(record.len())) };
            if token.is_empty() {
                continue;
            }
            let groups = record.get(3).map(|groups| groups.split(',').map(Str::from).collect());
            let user = UserInfo {
                name: name.into(),
                uid: uid.into(),
                groups: groups.unwrap_or_default(),
                ..UserInfo::default()
            };
            users.insert(Str::from(token), user);
        }
        Ok(StaticTokens { users })
    }

    /// One more token.
    pub fn insert(&mut self, token: &str, user: UserInfo) {
        self.users.insert(token.into(), user);
    }

    pub(super) fn get(&self, token: &str) -> Option<&UserInfo> {
        self.users.get(token)
    }
}

/// The records of a CSV text, as Go reads them: empty lines are skipped, quoted fields may hold commas and line breaks.
fn records(text: &str) -> Result<Vec<Vec<String>>, TokenFileError> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut was_quoted, mut line, mut opened) = (false, false, 1, 1);
    let text = text.replace("\r\n", "\n");
    let mut chars = text.chars().chain((!text.ends_with('\n')).then_some('\n')).peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if quoted => quoted = false,
            '"' if field.is_empty() && !was_quoted => (quoted, was_quoted, opened) = (true, true, line),
            '"' => return Err(TokenFileError::Quote(line)),
            '\n' if !quoted && record.is_empty() && field.is_empty() && !was_quoted => line += 1,
            ',' | '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                was_quoted = false;
                if c == '\n' {
                    records.push(std::mem::take(&mut record));
                    line += 1;
                }
            }
            _ if was_quoted && !quoted => return Err(TokenFileError::Quote(line)),
            _ => {
                line += usize::from(c == '\n');
                field.push(c);
            }
        }
    }
    if quoted { Err(TokenFileError::Quote(opened)) } else { Ok(records) }
}
