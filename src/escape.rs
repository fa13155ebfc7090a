//! Text from outside, made harmless: for comments of generated code, file names and terminals.
//!
//! Names of tensors and cells, and everything that was read from a file, may hold any character.
//! Three things can be made of them, and nothing else: an identifier (`expr::Identifiers`), a line
//! of a comment ([`escaped`]), and a word of a file's name ([`is_word`] says what one is).

use std::borrow::Cow;

/// The most characters of a word: with a key behind it, a file's name still has room.
const WORD_BYTES_MAX: usize = 128;

/// Text as one line that neither ends a comment nor steers a terminal: what is not a printable
/// character becomes its number, `<U+000A>`. So do a backslash, which joins a line to the next one,
/// the second of two question marks, which may begin a trigraph, and the slash of `*/`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, |before, c| match c {
        '\\' => true,
        '?' => before == '?',
        '/' => before == '*',
        c => !is_printable(c),
    })
}

/// Text for a terminal: lines stay lines, and control characters, among them those that turn the
/// direction of writing around, become their numbers.
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    replaced(text, |_, c| match c {
        '\n' | '\t' => false,
        c => c.is_control() || is_format(c),
    })
}

fn replaced(text: &str, mut is_harmful: impl FnMut(char, char) -> bool) -> Cow<'_, str> {
    let mut before = ' ';
    let mut harmful = |c: char| is_harmful(std::mem::replace(&mut before, c), c);
    let Some(first) = text.char_indices().find(|(_, c)| harmful(*c)).map(|(at, _)| at) else {
        return Cow::Borrowed(text);
    };
    let mut out = text[..first].to_owned();
    let mut is_first = true;
    for c in text[first..].chars() {
        match std::mem::take(&mut is_first) || harmful(c) {
            true => out += &format!("<U+{:04X}>", u32::from(c)),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn is_printable(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic() || (!c.is_ascii() && c.is_alphanumeric())
}

/// Whether a character is written by no ink and changes others: directions, joiners, tags.
fn is_format(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Whether text is a word: letters, digits and underscores, at least one and not too many. Only
/// words name kernels and begin the names of files.
pub fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=WORD_BYTES_MAX).contains(&text.len()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_stay_one_line_of_comment() {
        let cases = [
            ("y: bf16[64] = relu_fwd(sum)", "y: bf16[64] = relu_fwd(sum)"),
            ("größe 重み", "größe 重み"),
            ("a\nb\r\u{b}", "a<U+000A>b<U+000D><U+000B>"),
            ("x\\", "x<U+005C>"),
            ("what??/", "what?<U+003F>/"),
            ("*/ int x; /*", "*<U+002F> int x; /*"),
            ("\u{202e}\u{0}\u{1b}[2J\u{85}\u{2028}", "<U+202E><U+0000><U+001B>[2J<U+0085><U+2028>"),
        ];
        for (text, expected) in cases {
            assert_eq!(escaped(text), expected);
        }
    }

    #[test]
    fn terminals_get_lines_but_no_controls() {
        assert_eq!(for_terminal("a\n\tb × c…"), "a\n\tb × c…");
        assert_eq!(for_terminal("\u{1b}]0;x\u{7}\r\u{9b}"), "<U+001B>]0;x<U+0007><U+000D><U+009B>");
        assert_eq!(for_terminal("a\u{202e}b\u{200b}"), "a<U+202E>b<U+200B>");
    }

    #[test]
    fn words_are_plain() {
        assert!(is_word("sm90_gemm_bf16_wgmma"));
        let long = "x".repeat(WORD_BYTES_MAX + 1);
        for text in ["", "a/b", "..", "a b", "ä", "a\0", long.as_str()] {
            assert!(!is_word(text), "{text}");
        }
    }
}
