//! Ways in, case by case.
