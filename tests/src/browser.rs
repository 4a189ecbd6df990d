//! A headless Chromium, driven by the WebDriver protocol (W3C), to see and click like a person at the page.
//!
//! Only the handful of commands that the tests use: requests with a JSON body to chromedriver.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::eventually::eventually_async;

/// Address of chromedriver; the port is free, because the test has a namespace of its own.
const DRIVER: &str = "127.0.0.1:9515";
/// The member that names an element in answers (WebDriver, 11.1).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Part of the message for an element that the page has replaced since it was found.
const STALE: &str = "stale element reference";
/// Attempts to click on an element that a live page may be drawing anew.
const CLICKS: usize = 10;
/// Width in CSS pixels below which a screen is that of a phone.
const PHONE_WIDTH: u32 = 700;
/// Options for a quiet browser that uses nothing of other runs or of the network.
const OPTIONS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1400,1000",
];

/// One window. Dropping it ends chromedriver, and with it the browser.
#[derive(Debug)]
pub struct Browser {
    session: String,
    driver: Child,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser in the namespaces of this thread.
    ///
    /// # Panics
    /// When Chromium or its driver is not there: `tests/scripts/setup.sh test` installs them.
    pub async fn start() -> Self {
        let profile = TempDir::with_prefix("holdfast-browser-").expect("a folder for the browser");
        let driver = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "chromedriver", "--port=9515"])
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("setpriv starts chromedriver");
        eventually_async("chromedriver answers", || async {
            exchange(Method::GET, "/status", Value::Null).await.is_ok()
        })
        .await;
        let mut arguments: Vec<String> = OPTIONS.iter().map(|&it| it.to_owned()).collect();
        arguments.push(format!("--user-data-dir={}", profile.path().join("data").display()));
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments, "binary": "/usr/bin/chromium"},
        }}});
        let session = exchange(Method::POST, "/session", capabilities).await;
        let session = session.expect("Chromium starts")["sessionId"].clone();
        let session = session.as_str().expect("a session has a name").to_owned();
        Self { session, driver, _profile: profile }
    }

    /// # Errors
    /// When the page does not load.
    pub async fn open(&self, address: &str) -> Result<()> {
        self.post("url", json!({"url": address})).await.map(drop)
    }

    /// Clicks the first element that a CSS selector finds.
    ///
    /// # Errors
    /// When there is none, or something is in front of it.
    pub async fn click(&self, selector: &str) -> Result<()> {
        for _ in 1..CLICKS {
            match self.click_once(selector).await {
                Err(error) if error.to_string().contains(STALE) => {}
                done => return done,
            }
        }
        self.click_once(selector).await
    }

    async fn click_once(&self, selector: &str) -> Result<()> {
        let element = self.element(selector).await?;
        self.post(&format!("element/{element}/click"), json!({})).await.map(drop)
    }

    /// Types into an element.
    ///
    /// # Errors
    /// When there is none, or it takes no text.
    pub async fn type_into(&self, selector: &str, text: &str) -> Result<()> {
        let element = self.element(selector).await?;
        self.post(&format!("element/{element}/value"), json!({"text": text})).await.map(drop)
    }

    /// The visible text of an element.
    ///
    /// # Errors
    /// When there is none.
    pub async fn text(&self, selector: &str) -> Result<String> {
        let element = self.element(selector).await?;
        let text =
            self.request(Method::GET, &format!("element/{element}/text"), Value::Null).await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until an element shows a text.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn wait_for_text(&self, selector: &str, text: &str) {
        let is_shown =
            || async { self.text(selector).await.is_ok_and(|is_shown| is_shown.contains(text)) };
        eventually_async(&format!("`{selector}` shows `{text}`"), is_shown).await;
    }

    /// Runs a script and returns its result.
    ///
    /// # Errors
    /// When it throws.
    pub async fn run(&self, script: &str) -> Result<Value> {
        self.post("execute/sync", json!({"script": script, "args": []})).await
    }

    /// Takes the screen of a device: its width and height in CSS pixels, and whether its user likes it dark. Screens
    /// below [`PHONE_WIDTH`] are phones, which lay a page out by its viewport.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn resize(&self, width: u32, height: u32, is_dark: bool) -> Result<()> {
        let is_phone = width < PHONE_WIDTH;
        let screen =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", screen).await?;
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.devtools("Emulation.setEmulatedMedia", json!({"features": [feature]})).await?;
        Ok(())
    }

    /// Keeps a picture of the screen in a file.
    ///
    /// # Errors
    /// When there is none, or it cannot be kept.
    pub async fn picture(&self, file: &Path) -> Result<()> {
        let picture = self.request(Method::GET, "screenshot", Value::Null).await?;
        let picture = STANDARD.decode(picture.as_str().unwrap_or_default())?;
        tokio::fs::write(file, picture).await?;
        Ok(())
    }

    /// Errors that the page or the browser wrote to the console since the last call.
    ///
    /// # Errors
    /// When the browser does not tell.
    pub async fn console_errors(&self) -> Result<Vec<String>> {
        let lines = self.post("se/log", json!({"type": "browser"})).await?;
        let lines = lines.as_array().cloned().unwrap_or_default();
        let errors = lines.iter().filter(|line| line["level"] == "SEVERE");
        Ok(errors.map(|line| line["message"].to_string()).collect())
    }

    /// Goes back to the address before.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn back(&self) -> Result<()> {
        self.post("back", json!({})).await.map(drop)
    }

    /// Loads the page again.
    ///
    /// # Errors
    /// When it does not load.
    pub async fn reload(&self) -> Result<()> {
        self.post("refresh", json!({})).await.map(drop)
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Result<Value> {
        self.post("goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
    }

    /// Ends the browser.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn quit(mut self) {
        self.request(Method::DELETE, "", Value::Null).await.expect("the browser ends");
        self.driver.kill().await.expect("our child is there until we wait for it");
    }

    async fn element(&self, selector: &str) -> Result<String> {
        let found =
            self.post("element", json!({"using": "css selector", "value": selector})).await?;
        let name = found[ELEMENT].as_str().with_context(|| format!("no element: {found}"))?;
        Ok(name.to_owned())
    }

    async fn post(&self, command: &str, body: Value) -> Result<Value> {
        self.request(Method::POST, command, body).await
    }

    async fn request(&self, method: Method, command: &str, body: Value) -> Result<Value> {
        let path = format!("/session/{}/{command}", self.session);
        exchange(method, path.trim_end_matches('/'), body).await
    }
}

/// Sends one request to chromedriver, and returns the `value` of its answer.
async fn exchange(method: Method, path: &str, body: Value) -> Result<Value> {
    let stream = TcpStream::connect(DRIVER).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection); // ends with the exchange
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", DRIVER)
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let octets = response.into_body().collect().await?.to_bytes();
    let answer: Value =
        serde_json::from_slice(&octets).map_err(|error| anyhow!("{path}: {error}"))?;
    if !status.is_success() {
        bail!("{path}: {}", answer["value"]["message"].as_str().unwrap_or_default());
    }
    Ok(answer["value"].clone())
}
