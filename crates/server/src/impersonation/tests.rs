//! Whom one may be, case by case.
