//! The program `penstock-operator`.

fn main() {}
