//! The scheduler in bad weather: what it asks for does not arrive, answers get lost, and others get in its way.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod cluster;
mod faults;
mod storms;
