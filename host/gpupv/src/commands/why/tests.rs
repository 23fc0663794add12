//! Tests of the exit code.

use proto::control::{WhyCause, WhyReply};

use super::exit_code;
use crate::output::{OK, VERDICT_FAILED};

#[test]
fn a_stuck_wait_that_is_not_listed_is_in_the_exit_code() {
    let code = |reply| exit_code(&reply).map_err(|error| error.to_string());
    let waits = WhyReply { causes: vec![WhyCause::default()], waiting: 9, ..WhyReply::default() };
    assert_eq!(code(waits.clone()), Ok(OK));
    assert_eq!(code(WhyReply { stuck_left_out: 1, unexamined: 2, ..waits.clone() }), Ok(VERDICT_FAILED));
    let error = code(WhyReply { unexamined: 2, ..waits }).expect_err("nobody knows whether those are stuck");
    assert!(error.contains("2 waits were not examined"), "{error}");
}
