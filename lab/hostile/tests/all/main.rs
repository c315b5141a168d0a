//! Tests of the hostile guest.

mod complete;
mod plants;
