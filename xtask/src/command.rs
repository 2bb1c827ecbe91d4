//! Running programs.

use std::process::Command;

use crate::error::Error;

/// Runs it with this process's standard streams, after printing its command line.
pub(crate) fn run(command: &mut Command) -> Result<(), Error> {
    let line = line_of(command);
    eprintln!("+ {line}");
    let status = command.status().map_err(|source| spawn_error(command, source))?;
    if status.success() { Ok(()) } else { Err(Error::Failed { line, status, stderr: String::new() }) }
}

/// Runs it silently and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let output = command.output().map_err(|source| spawn_error(command, source))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Error::Failed {
            line: line_of(command),
            status: output.status,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// The error of a program that could not be started.
pub(crate) fn spawn_error(command: &Command, source: std::io::Error) -> Error {
    Error::Spawn { program: command.get_program().to_string_lossy().into_owned(), source }
}

/// The command line as one would type it.
pub(crate) fn line_of(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| quoted(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let mut command = Command::new("/usr/bin/printf");
        command.args(["%s", "it's", "", "a b"]);
        assert_eq!(line_of(&command), r"printf %s 'it'\''s' '' 'a b'");
    }
}
