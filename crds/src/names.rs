//! Names made in one place.
