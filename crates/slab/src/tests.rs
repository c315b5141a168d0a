//! What only the inside can see.
