//! `report.html`.
use crate::{bench::Bench, machine::Machine};
pub(super) fn render(_bench: &Bench, _machine: &Machine) -> String {
    String::new()
}
