"""What holds for every subcommand: lazy imports, one-line errors, exit codes, terminals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import pytest

from earthsciio.cli import COMMANDS, main
from earthsciio.cli.dispatch import Command, dispatch
from earthsciio.cli.output import format_bytes, print_table
from earthsciio.errors import DeclarationError, EarthSciIOWarning


def test_every_subcommand_has_help(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as caught:
            main([command.name, "--help"])
        assert caught.value.code == 0
        assert command.help.capitalize()[:20] in capsys.readouterr().out


def test_help_imports_no_subcommand_and_no_rich():
    code = (
        "import sys\nfrom earthsciio.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m in ('rich', 'earthsciio.cli.check')], "
        "file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.strip() == "[]"
    assert "check" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["chek"], ["check"], ["check", "a", "--no-such"]])
def test_arguments_that_make_no_sense_end_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_debug_shows_the_traceback_wherever_it_stands(tmp_path):
    missing = str(tmp_path / "nope.yaml")
    assert main(["check", missing]) == 2
    for arguments in (["--debug", "check", missing], ["check", missing, "--debug"]):
        with pytest.raises(FileNotFoundError):
            main(arguments)


def test_the_schema_command_prints_json_schema(capsys):
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"].endswith("2020-12/schema")
    assert "SourceSettings" in schema["$defs"]


def test_python_m_earthsciio_is_the_command(tmp_path):
    command = [sys.executable, "-m", "earthsciio", "check", str(tmp_path / "nope.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("earthsciio: error: there is no such file")
    assert "Traceback" not in done.stderr


@pytest.fixture
def program(monkeypatch):
    """A program of one subcommand that does what the test wants."""

    def program(act, *arguments: str) -> int:
        class Module:
            @staticmethod
            def configure(parser):
                parser.add_argument("--flag", action="store_true")

            @staticmethod
            def run(args):
                return act(args)

        monkeypatch.setitem(sys.modules, "a_subcommand", Module)
        return dispatch("prog", "A program.", [Command("act", "a_subcommand", "do it")], ["act", *arguments])

    return program


def test_a_subcommand_gives_the_exit_code(program):
    assert program(lambda args: 7 if args.flag else 0, "--flag") == 7


def test_errors_of_several_lines_become_one(program, capsys):
    def act(_):
        raise DeclarationError("two\n  lines", file="x.yaml", line=3, hint="Mend it")

    assert program(act) == 2
    assert capsys.readouterr().err == "prog: error: two lines [file=x.yaml, line=3]. Mend it\n"


def test_errors_that_are_not_the_library_s_are_not_hidden(program):
    with pytest.raises(ZeroDivisionError):
        program(lambda _: 1 // 0)


def test_ctrl_c_ends_with_130(program):
    def act(_):
        raise KeyboardInterrupt

    assert program(act) == 130


def test_warnings_are_one_line_on_stderr(program, capsys):
    def act(_):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a\ndoubt", EarthSciIOWarning, stacklevel=1)
        return 0

    assert program(act) == 0
    assert capsys.readouterr().err == "prog: warning: a doubt\n"


def test_a_reader_that_has_seen_enough_is_no_traceback(case):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "earthsciio", "inspect", str(case)]
    try:
        done = subprocess.run(
            command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_tables_are_plain_columns_in_a_file_with_numbers_to_the_right(capsys):
    print_table(["name", "n"], [["a", 5], ["longer", 1000]])
    assert capsys.readouterr().out == "name       n\na          5\nlonger  1000\n"


def test_tables_on_a_terminal_show_cells_as_they_are(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(["name", "n"], [["[bold]x", 5]])
    assert "[bold]x" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (8 << 30, "8.0 GiB"), (1 << 62, "4096.0 PiB")],
)
def test_bytes_are_written_for_people(count, text):
    assert format_bytes(count) == text
