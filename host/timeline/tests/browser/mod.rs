//! A headless Chromium, driven through its DevTools pipe: no port, no other program.
#![allow(dead_code)]

pub mod page;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use vm_images::{Silent, State, browser, mend};

pub struct Browser {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    number: u64,
    session: Option<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts Chromium, and installs it first if necessary. The test fails on a machine where it cannot be installed.
    pub fn start() -> Browser {
        let found = browser();
        mend(&found, &Silent).unwrap_or_else(|error| panic!("pages are tested in Chromium: {error}"));
        let State::Ok(program) = browser().state else { panic!("Chromium was installed and is not there") };
        let profile = tempfile::tempdir().unwrap();
        // The pipe uses descriptors 3 and 4; a shell moves the pipe's ends there.
        let mut process = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"#, "sh", &program])
            .args(["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run"])
            // Tests run as root in containers, and the page is trusted.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,900"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh is there");
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Browser { process, orders, answers, number: 0, session: None, _profile: profile }
    }

    /// Sends one DevTools command and returns its result.
    pub fn order(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut order = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            order["sessionId"] = session.clone().into();
        }
        self.orders.write_all(order.to_string().as_bytes()).unwrap();
        self.orders.write_all(&[0]).unwrap();
        loop {
            let mut bytes = Vec::new();
            let length = self.answers.read_until(0, &mut bytes).unwrap();
            assert!(length > 0, "Chromium ended at {method}");
            bytes.pop();
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// Opens a page and waits until it is ready.
    pub fn open(&mut self, page: &Path, hash: &str) {
        self.session = None;
        let target = self.order("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.order("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        self.session = Some(session);
        self.order("Page.enable", json!({}));
        self.order("Page.navigate", json!({ "url": format!("file://{}{hash}", page.display()) }));
        self.evaluate(
            "new Promise((done) => { const look = () => \
             window.gpupv && gpupv.ready ? requestAnimationFrame(() => done(1)) : setTimeout(look, 5); look(); })",
        );
    }

    /// The value of an expression, as JSON.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.order("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Presses and releases a key, then waits until the page is redrawn.
    pub fn press(&mut self, key: &str) {
        self.press_with(key, "", 0);
    }

    /// The same for a letter with Alt, where a keyboard may give another character.
    pub fn press_with_alt(&mut self, key: &str, code: &str) {
        self.press_with(key, code, 1);
    }

    fn press_with(&mut self, key: &str, physical: &str, modifiers: u32) {
        let codes = [
            ("Enter", 13),
            ("Escape", 27),
            ("ArrowLeft", 37),
            ("ArrowUp", 38),
            ("ArrowRight", 39),
            ("ArrowDown", 40),
        ];
        let code = codes.iter().find(|(name, _)| *name == key).map(|(_, code)| *code);
        let mut down = json!({ "type": "keyDown", "key": key, "code": physical, "modifiers": modifiers });
        match code {
            Some(code) => down["windowsVirtualKeyCode"] = code.into(),
            None if modifiers == 0 => down["text"] = key.into(),
            None => {}
        }
        self.order("Input.dispatchKeyEvent", down);
        self.order(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key, "code": physical, "modifiers": modifiers }),
        );
        self.drawn();
    }

    pub fn drawn(&mut self) {
        self.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))",
        );
    }

    pub fn kind(&mut self, text: &str) {
        self.order("Input.insertText", json!({ "text": text }));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
