//! The terminal while `gpupv top` has it: another screen, no cursor, no echo; and given back whatever happens.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::view::{Line, Style};

/// Another screen, no cursor, lines that are too long are cut.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// See the module.
pub struct Screen {
    /// How the keyboard was; none if there is none.
    keyboard: Option<Termios>,
    is_entered: bool,
}

impl Screen {
    pub fn enter() -> io::Result<Screen> {
        let stdin = io::stdin();
        let keyboard = if stdin.is_terminal() { Some(tcgetattr(&stdin)?) } else { None };
        let mut screen = Screen { keyboard, is_entered: false };
        screen.enter_again()?;
        Ok(screen)
    }

    /// After [`Screen::leave`].
    pub fn enter_again(&mut self) -> io::Result<()> {
        if let Some(before) = &self.keyboard {
            let mut keys = before.clone();
            keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // A read takes what there is and never waits.
            keys.special_codes[SpecialCodeIndex::VMIN] = 0;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
        }
        self.is_entered = true;
        write(ENTER)
    }

    /// The terminal is as it was.
    pub fn leave(&mut self) {
        if !std::mem::take(&mut self.is_entered) {
            return;
        }
        // If it is gone there is nothing to give back.
        let _ = write(LEAVE);
        if let Some(before) = &self.keyboard {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }

    /// There are keys to read.
    pub fn has_keys(&self) -> bool {
        self.keyboard.is_some()
    }

    /// Shows as many lines as there is room for.
    pub fn draw(&self, lines: &[Line], last: &str) -> io::Result<()> {
        let (columns, rows) = size();
        let mut text = String::from("\x1b[H");
        for line in lines.iter().take(rows.saturating_sub(1)) {
            let cut = cut(&line.text, columns);
            let (begin, end) = match line.style {
                Style::Plain => ("", ""),
                Style::Heading => ("\x1b[7m", "\x1b[0m"),
                Style::Stuck => ("\x1b[1m", "\x1b[0m"),
            };
            text += &format!("{begin}{cut}{end}\x1b[K\r\n");
        }
        text += &format!("\x1b[J\x1b[{rows};1H{}\x1b[K", cut(last, columns));
        write(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Columns and rows; those of an old terminal if nobody knows.
fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// As much as fits; an ellipsis says that there is more.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
