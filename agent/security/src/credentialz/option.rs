//! Options of an authorized key or principal: the names that OpenSSH knows, and their text form.
//!
//! Source: AUTHORIZED_KEYS FILE FORMAT in sshd(8); the numbers are those of `Option.StandardOption`.

/// A known option with a well-formed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOption {
    name: &'static str,
    value: Option<String>,
}

/// Reason for refusing an option, and with it the whole request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("there is no key option `{0}`")]
    Name(String),
    #[error("there is no standard key option number {0}")]
    Number(i32),
    #[error("an option has neither a name nor a number")]
    Nothing,
    #[error("key option `{0}` needs a value")]
    Missing(&'static str),
    #[error("key option `{0}` takes no value")]
    Unwanted(&'static str),
    #[error("the value of key option `{name}` {why}")]
    Value { name: &'static str, why: &'static str },
}

/// Kind of value that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Nothing,
    Text,
    /// `YYYYMMDD[HHMM[SS]]`, with or without `Z`.
    Time,
    /// `NAME=value`.
    Assignment,
}

/// Number, name and kind of value of each option.
const TABLE: [(i32, &str, ValueKind); 22] = [
    (1, "agent-forwarding", ValueKind::Nothing),
    (2, "cert-authority", ValueKind::Nothing),
    (3, "command", ValueKind::Text),
    (4, "environment", ValueKind::Assignment),
    (5, "expiry-time", ValueKind::Time),
    (6, "from", ValueKind::Text),
    (7, "no-agent-forwarding", ValueKind::Nothing),
    (8, "no-port-forwarding", ValueKind::Nothing),
    (9, "no-pty", ValueKind::Nothing),
    (10, "no-user-rc", ValueKind::Nothing),
    (11, "no-X11-forwarding", ValueKind::Nothing),
    (12, "permitlisten", ValueKind::Text),
    (13, "permitopen", ValueKind::Text),
    (14, "port-forwarding", ValueKind::Nothing),
    (15, "principals", ValueKind::Text),
    (16, "pty", ValueKind::Nothing),
    (17, "no-touch-required", ValueKind::Nothing),
    (18, "verify-required", ValueKind::Nothing),
    (19, "restrict", ValueKind::Nothing),
    (20, "tunnel", ValueKind::Text),
    (21, "user-rc", ValueKind::Nothing),
    (22, "X11-forwarding", ValueKind::Nothing),
];

impl KeyOption {
    /// Makes an option from its number in `Option.StandardOption`.
    ///
    /// # Errors
    /// When the number is unknown, or the value does not fit the option.
    pub fn numbered(number: i32, value: &str) -> Result<Self, OptionError> {
        let row = TABLE.iter().find(|row| row.0 == number).ok_or(OptionError::Number(number))?;
        Self::new(row, value)
    }

    /// Makes an option from its name, ignoring case as OpenSSH does.
    ///
    /// # Errors
    /// When the name is unknown, or the value does not fit the option.
    pub fn named(name: &str, value: &str) -> Result<Self, OptionError> {
        let unknown = || OptionError::Name(name.chars().take(64).collect());
        let row = TABLE.iter().find(|row| row.1.eq_ignore_ascii_case(name)).ok_or_else(unknown)?;
        Self::new(row, value)
    }

    fn new(row: &(i32, &'static str, ValueKind), value: &str) -> Result<Self, OptionError> {
        let (_, name, takes) = *row;
        match (takes, value.is_empty()) {
            (ValueKind::Nothing, true) => return Ok(Self { name, value: None }),
            (ValueKind::Nothing, false) => return Err(OptionError::Unwanted(name)),
            (_, true) => return Err(OptionError::Missing(name)),
            (_, false) => {}
        }
        // A line end would begin another key; no other character can leave the quotes.
        let wrong = |why| Err(OptionError::Value { name, why });
        if value.chars().any(char::is_control) {
            return wrong("has control characters");
        }
        // A trailing backslash would escape the closing quote, so that the value would not end.
        if value.ends_with('\\') {
            return wrong("ends with a backslash, which sshd cannot read");
        }
        match takes {
            ValueKind::Time if !is_time(value) => {
                wrong("is not a time such as 20301231 or 20301231235959Z")
            }
            ValueKind::Assignment if !is_assignment(value) => {
                wrong("is not of the form NAME=value")
            }
            _ => Ok(Self { name, value: Some(value.to_owned()) }),
        }
    }

    /// Appends the option in its text form, with quotes within the value escaped by backslashes.
    pub(super) fn render(&self, line: &mut String) {
        line.push_str(self.name);
        if let Some(value) = &self.value {
            line.push_str("=\"");
            line.push_str(&value.replace('"', "\\\""));
            line.push('"');
        }
    }

    pub(super) fn parts(&self) -> (&'static str, &str) {
        (self.name, self.value.as_deref().unwrap_or_default())
    }
}

fn is_time(value: &str) -> bool {
    let digits = value.strip_suffix(['Z', 'z']).unwrap_or(value);
    [8, 12, 14].contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit())
}

fn is_assignment(value: &str) -> bool {
    let Some((name, _)) = value.split_once('=') else { return false };
    !name.is_empty() && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

/// Appends the options that precede a key, with the space that ends them.
pub(super) fn render(options: &[KeyOption], line: &mut String) {
    for (at, option) in options.iter().enumerate() {
        if at > 0 {
            line.push(',');
        }
        option.render(line);
    }
    if !options.is_empty() {
        line.push(' ');
    }
}
