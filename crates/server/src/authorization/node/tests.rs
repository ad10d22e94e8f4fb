//! What nodes may do, case by case.
