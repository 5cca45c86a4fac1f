//! Wrong uses of the API must not compile, and must say what to write.

#[test]
fn wrong_uses_say_what_to_write() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/derive/right.rs");
    cases.compile_fail("tests/derive/wrong_*.rs");
}
