//! Where pods go: a decision core without I/O, and the loop around it.
