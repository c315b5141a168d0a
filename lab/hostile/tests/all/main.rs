//! Tests of the hostile guest.

mod complete;
