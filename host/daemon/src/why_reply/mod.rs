//! Forms of `why`'s answer: JSON and a picture. The text is the model's own.

mod json;
mod no_such_wait;
#[cfg(test)]
mod tests;

use dxgkrnl::why::{Cause, Why};
use proto::control::{WhyCause, WhyReply};

pub use no_such_wait::no_such_wait;

/// Returns all forms of an answer.
pub fn to_reply(why: &Why, picture: bool) -> WhyReply {
    let cause = |cause: &Cause| WhyCause {
        verdict: cause.verdict.name().into(),
        stuck: cause.verdict.is_stuck(),
        text: cause.page(why.now).to_string(),
        waiters: cause.waiters.iter().map(json::identity).collect(),
        lines: cause.waiters.iter().map(|waiter| waiter.full_line(why.now)).collect(),
        waiters_count: cause.waiters_count as u64,
        who: cause.waiters.first().map_or_else(String::new, |first| first.line(why.now).to_string()),
        sentence: cause.verdict.sentence(why.now).to_string(),
        since_ns: cause.waiters.first().and_then(|first| first.since),
    };
    WhyReply {
        now_ns: why.now,
        waiting: why.waiting as u64,
        causes: why.causes.iter().map(cause).collect(),
        text: why.to_string(),
        json: format!("{:#}", json::to_json(why)),
        svg: if picture { timeline::why_picture::to_svg(why) } else { String::new() },
        refused: String::new(),
        stuck_left_out: why.stuck_left_out as u64,
        unexamined: why.unexamined as u64,
    }
}
