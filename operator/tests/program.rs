//! The program itself. That this test exists makes `cargo test` build it, in the way that the suites then use.

use std::process::Command;

#[test]
fn the_program_says_its_name_and_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_penstock-operator")).arg("--version").output().expect("the program starts");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("penstock-operator {}\n", env!("CARGO_PKG_VERSION")));
}
