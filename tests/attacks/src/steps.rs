//! The longest step of the daemon's kernel, in units of work: the one place where it is read.

use prost_reflect::{DescriptorPool, DynamicMessage, Value};
use proto::Message as _;
use proto::control::Inspection;

const INSPECTION: &str = "gpupv.control.v1.Inspection";
const COUNTERS: &str = "counters";
const LONGEST: &str = "longest_step";

/// Units of the longest step since the daemon began; `None` if this daemon does not count them.
pub fn longest(inspection: &Inspection) -> Option<u64> {
    let pool = DescriptorPool::decode(proto::DESCRIPTORS).expect("our own contract");
    let message = pool.get_message_by_name(INSPECTION).expect("it is in the contract");
    let inspection = DynamicMessage::decode(message, inspection.encode_to_vec().as_slice());
    let inspection = inspection.expect("what prost wrote");
    let Value::Message(counters) = inspection.get_field_by_name(COUNTERS)?.into_owned() else { return None };
    counters.get_field_by_name(LONGEST)?.as_u64()
}
