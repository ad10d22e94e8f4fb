//! What is made, what is kept, and what is refused.
