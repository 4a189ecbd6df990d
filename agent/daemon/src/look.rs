//! `holdfast show`: asks the agent, makes text of its answer, and looks again while it is told to.

use std::io::{self, IsTerminal, Write};

use tokio::time::sleep;

use crate::local::{Client, ClientError, Ink, text_of};
use crate::settings::ShowSettings;

/// Sequence that puts the cursor of a terminal to the upper left, and clears what follows (ECMA-48, CUP and ED).
const CLEAR: &str = "\x1b[H\x1b[J";
/// Variable by which a user asks programs for texts without colours (no-color.org). Its value has no meaning.
const NO_COLOR: &str = "NO_COLOR";

/// Answers a command, once or until it is interrupted.
///
/// # Errors
/// When no agent runs, it refuses, or nobody takes the answer. Of a command that looks again, the first answer counts: what
/// goes wrong later is printed, and the agent is asked again.
pub(crate) async fn show(client: &Client, settings: &ShowSettings) -> Result<(), ClientError> {
    let ink = ink();
    let is_terminal = io::stdout().is_terminal();
    let first = answer(client, settings, ink).await?;
    let start = if settings.watch && is_terminal { CLEAR } else { "" };
    print(&format!("{start}{first}")).map_err(ClientError::Output)?;
    if !settings.watch {
        return Ok(());
    }
    loop {
        sleep(settings.interval).await;
        let text = match answer(client, settings, ink).await {
            Ok(text) => text,
            Err(error) => format!("{error}\n"),
        };
        let separator = if is_terminal { CLEAR } else { "\n" };
        print(&format!("{separator}{text}")).map_err(ClientError::Output)?;
    }
}

/// Colours are for people at a terminal who have not asked for none.
fn ink() -> Ink {
    let is_wanted = std::env::var_os(NO_COLOR).is_none_or(|value| value.is_empty());
    if is_wanted && io::stdout().is_terminal() { Ink::Coloured } else { Ink::Plain }
}

async fn answer(client: &Client, settings: &ShowSettings, ink: Ink) -> Result<String, ClientError> {
    let address = settings.address();
    let Some((view, subject)) = settings.what.view(settings.json) else {
        let mut text = client.text(&address).await?;
        // A document comes without the end of a line.
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        return Ok(text);
    };
    let document = client.document(&address).await?;
    if settings.json {
        return Ok(serde_json::to_string_pretty(&document)? + "\n");
    }
    Ok(text_of(view, &document, subject.is_some(), ink))
}

fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush())
}
