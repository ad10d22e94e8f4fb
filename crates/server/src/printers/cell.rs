//! The ways to make a cell.

use capstan_api::{Time, Value};

use super::view::View;

/// How a cell is made.
pub(super) enum Cell {
    /// The object's name.
    Name,
    /// How old the object is.
    Age,
    /// When the object was created.
    CreatedAt,
    /// The text at a path.
    Text(&'static str),
    /// The text at a path, or a word if the field is absent.
    Set(&'static str, &'static str),
    /// The text at a path, or a word if it is absent or empty.
    Filled(&'static str, &'static str),
    /// The number at a path, or zero.
    Int(&'static str),
    /// The number at a path, or `<none>`.
    IntIf(&'static str),
    /// What is true or false at a path, and what it is when absent.
    Flag(&'static str, bool),
    /// How many elements or entries there are at all the paths.
    Count(&'static [&'static str]),
    /// A field of each object in a list, with commas.
    Each(&'static str, &'static str),
    /// The strings of a list, with commas.
    List(&'static str),
    /// The labels at a path.
    Labels(&'static str),
    /// The label selector at a path.
    Selector(&'static str),
    /// Two texts with a slash between them.
    Pair(&'static str, &'static str),
    /// Two numbers with a slash between them.
    Of(&'static str, &'static str),
    /// A computed text.
    With(fn(View<'_>, Time) -> String),
    /// Several computed cells.
    Many(fn(View<'_>, Time) -> Vec<Value>),
}
