//! Who may ask: bearer tokens, compared in constant time, rotated without a restart.

use std::path::Path;
use std::sync::Arc;

use subtle::{Choice, ConstantTimeEq};

use crate::watched_file::{FileError, Watched};

/// The longest token.
const TOKEN_LEN_MAX: usize = 1_024;
/// The most tokens in a file: one for each fleet that is being moved to a new one.
const TOKENS_MAX: usize = 64;

/// The tokens of which one must be shown.
pub struct Tokens(Source);

enum Source {
    None,
    Fixed(Arc<Vec<Token>>),
    File(Watched<Vec<Token>>),
}

/// A secret; nothing shows it.
struct Token(Box<[u8]>);

impl Tokens {
    /// No token is asked for.
    pub fn none() -> Self {
        Self(Source::None)
    }

    /// One token for good, such as from the environment.
    pub fn fixed(text: &str) -> Result<Self, String> {
        Ok(Self(Source::Fixed(Arc::new(vec![Token::new(text)?]))))
    }

    /// The tokens of a file, one on each line: all are good, so that proxies can be moved from an old one to a new
    /// one. The file is read again when it changes.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        Watched::open(path, parse).map(|file| Self(Source::File(file)))
    }

    /// Whether anybody may ask.
    pub fn is_none(&self) -> bool {
        matches!(self.0, Source::None)
    }

    /// Reads the file again, if there is one; what is bad changes nothing. Says whether there is something new.
    pub fn reload(&self) -> Result<bool, FileError> {
        match &self.0 {
            Source::File(file) => file.reload(),
            _ => Ok(false),
        }
    }

    /// Whether the value of an `authorization` header shows a token. Takes as long for a nearly right one as for
    /// any other of the same length.
    pub fn admit(&self, authorization: Option<&[u8]>) -> bool {
        let tokens = match &self.0 {
            Source::None => return true,
            Source::Fixed(tokens) => tokens.clone(),
            Source::File(file) => file.get(),
        };
        let Some((scheme, shown)) = authorization.and_then(|value| value.split_at_checked(7)) else {
            return false;
        };
        let same = |found: Choice, token: &Token| found | token.0.ct_eq(shown);
        scheme.eq_ignore_ascii_case(b"bearer ") && tokens.iter().fold(Choice::from(0), same).into()
    }
}

impl Token {
    fn new(text: &str) -> Result<Self, String> {
        let is_fine =
            (1..=TOKEN_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_fine {
            return Ok(Self(text.as_bytes().into()));
        }
        Err(format!(
            "is not a token; write 1 to {TOKEN_LEN_MAX} letters, digits and signs of ASCII without spaces"
        ))
    }
}

fn parse(text: &str) -> Result<Vec<Token>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let tokens: Vec<Token> = lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| Token::new(line).map_err(|why| format!("line {number} {why}")))
        .collect::<Result<_, _>>()?;
    match tokens.len() {
        0 => Err("has no token; write one on each line".to_owned()),
        1..=TOKENS_MAX => Ok(tokens),
        many => Err(format!("has {many} tokens; the most is {TOKENS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_admitted_and_nothing_else() {
        let tokens = Tokens::fixed("s3cret").unwrap();
        let admits = |value: &str| tokens.admit(Some(value.as_bytes()));
        assert!(admits("Bearer s3cret") && admits("bearer s3cret"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer s3cre",
            "Bearer s3crett",
            "Basic s3cret",
            "s3cret",
            "Bearer  s3cret",
        ] {
            assert!(!admits(wrong), "{wrong}");
        }
        assert!(!tokens.admit(None));
        assert!(Tokens::none().admit(None));
    }

    #[test]
    fn all_tokens_of_a_file_are_good() {
        let tokens = Tokens(Source::Fixed(Arc::new(parse("old\r\n\nnew\n").unwrap_or_default())));
        assert!(tokens.admit(Some(b"Bearer old")) && tokens.admit(Some(b"Bearer new")));
    }

    #[test]
    fn a_bad_file_says_what_is_wrong() {
        let wrong = |text: &str| parse(text).map(|_| ()).unwrap_err();
        assert_eq!(wrong("\n \n"), "has no token; write one on each line");
        assert!(wrong("good\nno good\n").starts_with("line 2 is not a token; write 1 to 1024 letters"));
        assert_eq!(wrong(&"t\n".repeat(65)), "has 65 tokens; the most is 64");
    }
}
