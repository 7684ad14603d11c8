//! The built binaries as processes of their own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::NamedTempFile;

use crate::wait::until;

/// A running binary; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: &'static str,
    log: NamedTempFile,
}

impl Process {
    /// Starts a binary of the workspace with arguments and an environment of its own.
    pub fn start(name: &'static str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let log = NamedTempFile::with_prefix(format!("anvilbase-{name}-")).unwrap();
        let child = Command::new(binary(name))
            .args(args)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { child, name, log }
    }

    /// Waits until its admin server says that it is ready.
    pub async fn wait_ready(&mut self, admin_port: u16) {
        let name = self.name;
        let log = self.log.path().to_owned();
        let child = std::cell::RefCell::new(&mut self.child);
        until(&format!("{name} is ready"), || async {
            if let Ok(Some(status)) = child.borrow_mut().try_wait() {
                panic!(
                    "{name} ended ({status}):\n{}",
                    std::fs::read_to_string(&log).unwrap_or_default()
                );
            }
            (http_status(admin_port, "/readyz").await == Some(200)).then_some(())
        })
        .await;
    }

    /// All that it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes its standard output.
    pub fn take_stdout(&mut self) -> std::process::ChildStdout {
        self.child.stdout.take().unwrap()
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([format!("-{signal}"), self.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Waits for its end and gives its exit code.
    pub async fn wait(&mut self) -> Option<i32> {
        let child = std::cell::RefCell::new(&mut self.child);
        until(&format!("{} ends", self.name), || async {
            child.borrow_mut().try_wait().unwrap()
        })
        .await
        .code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What the process said is the first thing that whoever reads a failed test needs.
        if std::thread::panicking() {
            eprintln!("--- {} said:\n{}", self.name, self.log());
        }
    }
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub struct Output {
    /// Its exit code.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

/// Runs a binary of the workspace to its end, with arguments and an environment of its own.
pub async fn run(name: &'static str, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut process = Process::start(name, args, env);
    let mut stdout = process.take_stdout();
    let code = process.wait().await;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut text).unwrap();
    Output {
        code,
        stdout: text,
        stderr: process.log(),
    }
}

/// The status of a GET on 127.0.0.1, or `None` where nobody answers.
pub async fn http_status(port: u16, path: &str) -> Option<u16> {
    let answer = http_get(port, path).await?;
    answer.split_whitespace().nth(1)?.parse().ok()
}

/// The whole answer of a GET on 127.0.0.1, head included.
pub async fn http_get(port: u16, path: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// The path of a built binary: beside the running binary, or of a test beside its own folder.
pub fn binary(name: &str) -> PathBuf {
    let running = std::env::current_exe().unwrap();
    let folder = running.parent().unwrap();
    let folder = if folder.ends_with("deps") {
        folder.parent().unwrap()
    } else {
        folder
    };
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is not built: run `cargo build --workspace` first",
        path.display()
    );
    path
}
