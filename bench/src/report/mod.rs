//! Reports: a table on the terminal, `report.json` and `report.html`.

mod html;
mod json;
mod svg;
mod table;

use std::{fs, path::Path};

use crate::{bench::Bench, machine::Machine};

/// Prints the table and writes the files.
pub(crate) fn write(bench: &Bench, machine: &Machine, out: &Path) -> Result<(), String> {
    print!("{}", table::render(bench, machine));
    for (name, text) in [("report.json", json::render(bench, machine)), ("report.html", html::render(bench, machine))] {
        let file = out.join(name);
        fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Text as HTML and SVG have it, in attributes too.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A figure with three digits that count.
pub(crate) fn figure(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 && digit.is_ascii_digit() && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    rest.map_or(grouped.clone(), |rest| format!("{grouped}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let texts = [0.0, 0.01234, 0.5, 1.234, 12.34, 123.4, 1234.5, 1_234_567.0, -1234.0].map(figure);
        assert_eq!(texts, ["0", "0.0123", "0.500", "1.23", "12.3", "123", "1,234", "1,234,567", "-1,234"]);
    }
}
