//! Texts from guests and files, as people may see them: a name must neither command a terminal nor reorder its line.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::Write as _;

/// Whether a terminal or a page shows the character as itself, in one cell, without an effect on others. Control
/// characters are not printable, nor are invisible ones and those that set the direction of text.
pub const fn is_printable(letter: char) -> bool {
    let moves_others = matches!(letter, '\u{AD}' | '\u{61C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}');
    let is_control = letter < ' ' || matches!(letter, '\u{7F}'..='\u{9F}');
    !is_control && !moves_others
}

/// Lines of text, with every unprintable character as JSON writes it: `\u001b`, `\u202e`. Line breaks and tabs stay.
/// JSON remains the same data.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let stays = |letter: char| is_printable(letter) || matches!(letter, '\n' | '\t');
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 32);
    for letter in text.chars() {
        if stays(letter) {
            shown.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // A write to a string does not fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    Cow::Owned(shown)
}

/// One name or sentence, with every unprintable character, line breaks too, replaced by U+FFFD.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_printable(letter) { letter } else { '\u{FFFD}' }).collect()
}
