//! Whose a claim is, and claims that are wrong.

use conformance::claims::Owner;

use crate::tree::Planted;

/// Rule, test and line of each claim.
fn claimed(planted: &Planted) -> Vec<String> {
    let tree = conformance::read_tree(planted.root()).unwrap();
    assert_eq!(tree.claims.defects.iter().map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
    let shown = tree.claims.claims.iter().map(|claim| {
        let owner = match &claim.owner {
            Owner::Test(name) => &name.test,
            Owner::Scenario(file) => file,
        };
        format!("{} {owner} {}", claim.rule, claim.place.line)
    });
    shown.collect()
}

#[test]
fn a_claim_is_of_the_test_that_it_is_in_or_directly_above() {
    let planted = Planted::new().tests(
        "// covers: FEN-001
         #[test]
         fn above() { assert!(true); }

         mod inner {
             #[test]
             #[should_panic]
             fn inside() {
                 // covers: FEN-002, W-001 (and not FEN-003)
                 // W-002
                 if true { panic!() }
             }
         }
         proptest! {
             #[test]
             fn of_a_macro(value in 0..3) { /* covers: EVT-001 */ prop_assert!(value < 3); }
         }",
    );
    let wanted = [
        "EVT-001 of_a_macro 16",
        "FEN-001 above 1",
        "FEN-002 inner::inside 9",
        "W-001 inner::inside 9",
        "W-002 inner::inside 10",
    ];
    assert_eq!(claimed(&planted), wanted);
}

#[test]
fn a_claim_in_a_test_is_not_of_what_the_test_defines() {
    let planted = Planted::new().tests(
        "#[test]
         fn one() {
             // covers: FEN-001
             const UNUSED: fn() = helper;
             // covers: FEN-002
             fn inner() {}
             assert!(true);
         }",
    );
    assert_eq!(claimed(&planted), ["FEN-001 one 3", "FEN-002 one 5"]);
}

#[test]
fn a_claim_at_a_helper_is_of_every_test_that_uses_it() {
    let planted = Planted::new()
        .tests(
            "mod common;
             const CASES: [fn(); 1] = [common::case];
             #[test] fn one() { for case in CASES { case() } }
             #[test] fn two() { common::other() }
             #[test] fn three() { common::unrelated() }",
        )
        .with(
            "tests/e2e/tests/common/mod.rs",
            "// covers: FEN-001
             pub fn case() { assert!(true) }
             pub fn other() { case() }
             pub fn unrelated() {}",
        );
    assert_eq!(claimed(&planted), ["FEN-001 one 1", "FEN-001 two 1"]);
}

#[test]
fn a_claim_at_a_made_test_is_of_the_name_before_it() {
    let planted = Planted::new().tests(
        "use libtest_mimic::Trial;
         fn main() {
             let cases: [(&str, fn()); 2] = [(\"it boots\", boots), (\"it ends\", ends)];
             cases.map(|(name, case)| Trial::test(name, case));
         }
         // covers: FEN-001
         fn boots() { assert!(ready()) }
         // covers: FEN-002
         fn ends() { assert!(run(\"/states\")) }",
    );
    let planted = planted.with("tests/c/states.c", "/* covers: W-001 */\nint main(void) { CHECK(1); }\n");
    assert_eq!(claimed(&planted), ["FEN-001 it boots 6", "FEN-002 it ends 8", "W-001 it ends 1"]);
}

#[test]
fn a_claim_of_a_c_program_is_of_the_tests_that_run_it() {
    let planted = Planted::new()
        .tests(
            "const PROGRAMS: [&str; 1] = [\"tour\"];
             #[test] fn guest() { assert!(run(PROGRAMS)) }
             #[test] fn local() { assert!(run(\"tour\")) }
             #[test] fn another() { assert!(run(\"another tour\")) }",
        )
        .with(
            "tests/c/tour.c",
            "static void part(void)\n{\n    /* covers: FEN-001 */\n    EXPECT(call(), OK);\n}\nint main(void) { part(); }\n",
        );
    assert_eq!(claimed(&planted), ["FEN-001 guest 3", "FEN-001 local 3"]);
}

#[test]
fn a_scenario_claims_with_a_line() {
    let planted = Planted::new().with("tests/scenarios/waits/any.scn", "covers FEN-001\nexpect value f 3\n");
    assert_eq!(claimed(&planted), ["FEN-001 tests/scenarios/waits/any.scn 1"]);
}

#[test]
fn a_rule_that_nobody_knows_or_models_is_a_defect() {
    let planted = Planted::new().tests(
        "#[test]
         fn one() {
             // covers: FEN-005 F-69 FEN-003
             assert!(true);
         }",
    );
    let place = "tests/e2e/tests/calls.rs:3";
    let wanted = [
        format!("{place}: F-69 is in no list of rules"),
        format!("{place}: FEN-003 is claimed, and out of the model: there is no such memory"),
        format!("{place}: FEN-005 is in no list of rules"),
    ];
    assert_eq!(planted.wrong(&[]), wanted);
}

#[test]
fn a_claim_of_no_test_is_a_defect() {
    let planted = Planted::new()
        .tests(
            "//! covers: FEN-001

             // covers: FEN-001

             #[test]
             fn after_a_blank_line() { assert!(true); }
             // covers: FEN-001
             struct NoTest;
             // covers: FEN-001
             fn used_by_nobody() { assert!(true); }",
        )
        .with("tests/c/tour.c", "/* covers: FEN-001 */\nint main(void) { CHECK(1); }\n")
        .with("tests/e2e/examples/no_test.rs", "// covers: FEN-001\nfn main() { assert!(true) }\n");
    let places = ["tests/c/tour.c:1", "tests/e2e/examples/no_test.rs:1"].map(str::to_owned).into_iter();
    let places = places.chain([1, 3, 7, 9].map(|line| format!("tests/e2e/tests/calls.rs:{line}")));
    let wanted: Vec<String> = places.map(|place| format!("{place}: the claim belongs to no test")).collect();
    assert_eq!(planted.wrong(&[]), wanted);
}

#[test]
fn a_test_that_asserts_nothing_is_a_defect() {
    let planted = Planted::new()
        .tests(
            "// covers: FEN-001
             #[test]
             fn nothing() { let text = \"assert!(true)\"; /* assert!(true) */ drop(text); }
             // covers: FEN-001
             #[test]
             fn by_a_helper() { helper(); }
             fn helper() { assert_eq!(1, 1); }
             // covers:
             #[test]
             fn no_rule() { assert!(true); }
             #[test]
             fn runs_it() { assert!(run(\"tour\")); }",
        )
        .with("tests/c/tour.c", "/* covers: FEN-001 */\nint main(void) { return 0; }\n")
        .with("tests/scenarios/a.scn", "covers FEN-001\nopen a\n");
    let wanted = [
        "tests/c/tour.c:1: what claims this asserts nothing",
        "tests/e2e/tests/calls.rs:1: what claims this asserts nothing",
        "tests/e2e/tests/calls.rs:8: the claim names no rule",
        "tests/scenarios/a.scn:1: what claims this asserts nothing",
    ];
    assert_eq!(planted.wrong(&[]), wanted);
}

#[test]
fn rules_that_cannot_be_read_are_named() {
    let file = "tests/conformance/rules/fen.toml";
    let rule =
        |id: &str, more: &str| format!("[[rule]]\nid = \"{id}\"\nsays = \"a\"\nsource = \"b\"\n{more}\n");
    for (rules, wanted) in [
        (rule("EVT-001", ""), "rule \"EVT-001\" is no id of group FEN"),
        (rule("FEN-1", ""), "rule \"FEN-1\" is no id of group FEN"),
        (rule("FEN-001", "") + &rule("FEN-001", ""), "FEN-001 is there twice"),
        (rule("FEN-001", "out_of_model = \"\""), "FEN-001 has an empty text"),
        (rule("FEN-001", "differs = \" \""), "FEN-001 has an empty text"),
        (
            rule("FEN-001", "differs = \"a\"\nout_of_model = \"b\""),
            "FEN-001 cannot both differ and be out of the model",
        ),
        (rule("FEN-001", "colour = 1"), "unknown field `colour`"),
        (rule("FEN-001", "basis = \"guess\""), "unknown variant `guess`"),
    ] {
        let planted = Planted::new().with(file, &format!("group = \"FEN\"\ntitle = \"fences\"\n{rules}"));
        let said = planted.run(&[]);
        assert_eq!(said.code, 2, "{rules}");
        assert!(said.err.contains(wanted) && said.err.contains("fen.toml"), "{}", said.err);
    }
}
