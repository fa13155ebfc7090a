//! Sanitisation of external text for comments of generated code, file names and terminals.
//!
//! Names of tensors and cells, and everything read from a file, may contain any character. They are
//! only ever used as an identifier (`expr::Identifiers`), a comment line ([`escaped`]) or a word in
//! a file name ([`is_word`]).

use std::borrow::Cow;

/// Maximum length of a word in bytes; leaves room for a key in a file name.
const WORD_BYTES_MAX: usize = 128;

/// Escapes text into one line that can neither end a comment nor control a terminal. Non-printable
/// characters become their code point, `<U+000A>`; so do backslashes, which continue lines, the
/// second of two question marks, which may form a trigraph, and the slash of `*/`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, |before, c| match c {
        '\\' => true,
        '?' => before == '?',
        '/' => before == '*',
        c => !is_printable(c),
    })
}

/// Escapes text for a terminal: newlines and tabs are kept, other control characters, including
/// those that change the writing direction, become their code point.
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

/// Whether a character is invisible and affects others: directional marks, joiners, tags.
fn is_format(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Whether text is a word: 1 to 128 letters, digits and underscores. Kernel names and file name
/// stems must be words.
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
