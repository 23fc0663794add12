use super::*;
use crate::progress::Silent;
use std::cell::Cell;

fn not_called() -> Result<AcceleratorChoice> {
    panic!("the probe must not run")
}

fn tcg(reason: &str) -> AcceleratorChoice {
    AcceleratorChoice { accelerator: Accelerator::Tcg, reason: reason.to_owned() }
}

fn identity_one() -> Result<String> {
    Ok("one".to_owned())
}

#[test]
fn the_environment_decides_without_a_probe() {
    let cache = Cache::at("/nonexistent");
    for (value, expected) in [("tcg", Accelerator::Tcg), ("KVM", Accelerator::Kvm)] {
        let choice = choose(Some(value), Ok(()), &cache, &identity_one, &Silent, &not_called).unwrap();
        assert_eq!(choice.accelerator, expected);
    }
    let error = choose(Some("hvf"), Ok(()), &cache, &identity_one, &Silent, &not_called).unwrap_err();
    assert!(error.to_string().contains("GPUPV_ACCEL=hvf"), "{error}");
}

#[test]
fn without_kvm_there_is_no_probe() {
    let closed = Err(std::io::ErrorKind::PermissionDenied.into());
    let choice =
        choose(None, closed, &Cache::at("/nonexistent"), &identity_one, &Silent, &not_called).unwrap();
    assert_eq!(choice.accelerator, Accelerator::Tcg);
    assert!(choice.reason.contains("/dev/kvm"), "{}", choice.reason);
}

#[test]
fn the_probe_runs_once_for_a_machine_and_again_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    let probes = Cell::new(0);
    let probe = || {
        probes.set(probes.get() + 1);
        Ok(tcg("it printed nothing"))
    };
    for _ in 0..3 {
        let choice = choose(None, Ok(()), &cache, &identity_one, &Silent, &probe).unwrap();
        assert_eq!(choice, tcg("it printed nothing"));
    }
    assert_eq!(probes.get(), 1);
    choose(None, Ok(()), &cache, &|| Ok("two".to_owned()), &Silent, &probe).unwrap();
    assert_eq!(probes.get(), 2);
}

#[test]
fn a_damaged_answer_is_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    let probe = || Ok(tcg("probed"));
    choose(None, Ok(()), &cache, &identity_one, &Silent, &probe).unwrap();
    let file = cache.folder(KIND).join(hash_text(b"one"));
    fs::write(&file, b"\xff").unwrap();
    assert_eq!(choose(None, Ok(()), &cache, &identity_one, &Silent, &probe).unwrap(), tcg("probed"));
}
