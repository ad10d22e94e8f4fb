//! Patches that mean harm.
