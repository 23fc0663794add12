use super::*;
use crate::progress::Silent;

#[test]
fn an_empty_path_finds_nothing() {
    assert_eq!(find_in("sh", OsStr::new("")), None);
    assert!(find_in("sh", OsStr::new("/usr/bin:/bin")).is_some());
}

#[test]
fn a_relative_path_folder_is_not_searched() {
    assert_eq!(find_in("sh", OsStr::new("bin:.")), None);
}

#[test]
fn a_failed_command_shows_its_last_words() {
    let error =
        run(Command::new("sh").args(["-c", "echo first; echo second >&2; exit 3"]), &Silent).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("exit status: 3") && text.contains("second"), "{text}");
    assert!(text.starts_with("`sh -c 'echo first;"), "{text}");
}

#[test]
fn output_lines_reach_the_progress_while_kept_lines_are_bounded() {
    struct Count(std::sync::atomic::AtomicUsize);
    impl Progress for Count {
        fn line(&self, _text: &str) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let count = Count(0.into());
    let error = run(Command::new("sh").args(["-c", "seq 100; exit 1"]), &count).unwrap_err().to_string();
    assert_eq!(count.0.into_inner(), 100);
    assert!(error.contains("\n100") && !error.contains("\n50\n"), "{error}");
}
