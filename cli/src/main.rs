//! Tidegate's one native program.

fn main() {}
