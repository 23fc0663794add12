//! The log of guestd: one-line messages on standard error, which is the console when PID 1 started it.

use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

/// Every line begins with this; the host looks for it in the console log.
pub const PREFIX: &str = "gpupv-guestd: ";

/// The line, without its prefix, that reports that programs can be started in this guest.
pub const READY: &str = "ready";

static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Logs nothing from here on. For fuzz targets, which make thousands of brokers in a second.
#[doc(hidden)]
pub fn silence() {
    IS_SILENT.store(true, Ordering::Relaxed);
}

/// Writes one line. Line breaks inside become blanks; the line is one `write`.
pub fn say(text: &str) {
    if IS_SILENT.load(Ordering::Relaxed) {
        return;
    }
    let line = line(text);
    // An error is ignored: without a console there is nowhere to report it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn line(text: &str) -> String {
    let mut line = String::with_capacity(PREFIX.len() + text.len() + 1);
    line.push_str(PREFIX);
    line.extend(
        text.trim_end().chars().map(|character| if character.is_control() { ' ' } else { character }),
    );
    line.push('\n');
    line
}

/// Logs a panic in one line and then calls `last`, which does not return to the panic.
pub fn on_panic(role: &'static str, last: fn()) {
    std::panic::set_hook(Box::new(move |info| {
        say(&format!("{role} panicked, this is a bug in guestd: {}", panic_words(info)));
        last();
    }));
}

fn panic_words(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words");
    match info.location() {
        Some(place) => format!("{text} ({}:{})", place.file(), place.line()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_is_one_line_whatever_is_in_it() {
        assert_eq!(super::line("two\nlines\x1b[1m\r\n"), "gpupv-guestd: two lines [1m\n");
    }
}
