//! hopper
