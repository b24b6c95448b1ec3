"""Tests of the user's set-up: what a new session takes from it, and what it leaves out."""

import asyncio
import os
import shutil
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

import nacre
from tests.support import wardens
from tests.support.helpers import eventually, named

pytestmark = pytest.mark.slow

TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture
def user(tmp_path: Path) -> Path:
    made = tmp_path / "user"
    made.mkdir()
    return made


def tool(user: Path, cwd: Path, **env: str) -> nacre.Tool:
    given = {"PATH": os.environ["PATH"], "HOME": str(user), "SHELL": "/bin/bash", **env}
    return nacre.Tool("pi", cwd=cwd, env=given)


def said(user: Path, cwd: Path, command: str, **env: str) -> str:
    with tool(user, cwd, **env) as made:
        return made.call({"command": command}).text.partition("\n\n")[0].rstrip("\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def test_functions_aliases_options_and_path(user: Path, tmp_path: Path) -> None:
    write(
        user / ".bashrc",
        """\
        case $- in *i*) ;; *) return;; esac   # as most have it
        greet() { echo "$greeting $1"; }
        greeting=hello
        unrelated=1
        alias ll='echo long'
        alias -- -x='echo odd'
        shopt -s globstar
        set -o noclobber
        export PATH="$HOME/bin:$PATH" EDITOR=vim LANGUAGE_X=de
        umask 027
        echo "welcome, and this is noise"
        """,
    )
    command = """greet you; ll; echo ${unrelated-none} $EDITOR $LANGUAGE_X; umask
shopt globstar; [[ -o noclobber ]] && echo noclobber; echo ${PATH%%:*}"""
    assert said(user, tmp_path, command) == "\n".join(
        (
            "hello you",
            "long",
            "none true de",
            "0027",
            "globstar       \ton",
            "noclobber",
            f"{user}/bin",
        )
    )


TELLING = (
    "export PASS=hunter2x9",
    "export AUTH=hunter2x9 MY_TOKENS=hunter2x9 ACCESS_TOKEN_PROD=hunter2x9 KEY=hunter2x9",
    "export sshpass=hunter2x9",
    """export SETTINGS='{"password": "hunter2x9"}'""",
    "export HEADER='Authorization: Bearer hunter2x9'",
    "conf=(--token hunter2x9); f() { echo ${conf[@]}; }",
    'f() { curl -H "Authorization: Bearer hunter2x9" x; }',
    "f() { mysql -u root -phunter2x9; }",
    "f() { TOKEN+=hunter2x9; }",
    "f() { : ${TOKEN:=hunter2x9}; }",
    "f() { printf -v TOKEN hunter2x9; }",
    "f() { cat <<E\npassword: hunter2x9\nE\n}",
    "alias a='curl -u me:hunter2x9 x'",
)
INNOCENT = (
    'f() { curl -H "Authorization: Bearer $TOKEN" x; echo basic options hunter2x9; }',
    "f() { mysql -u root -p; echo hunter2x9; }",
    "f() { gh auth token --user $USER hunter2x9; }",
    "export MONKEY=hunter2x9 KEYBOARD=hunter2x9 COMPACT=hunter2x9 AUTHOR=hunter2x9",
    "alias a='id -u; date +%H:%M; echo hunter2x9'",
    "set -e; trap 'exit 1' ERR; f() { echo hunter2x9; }",
)


@pytest.mark.parametrize("kept", [False, True])
def test_what_tells_a_secret_is_not_kept_and_the_rest_is(
    user: Path, tmp_path: Path, kept: bool
) -> None:
    for rc in INNOCENT if kept else TELLING:
        write(user / ".bashrc", rc + "\n")
        all_of_it = said(user, tmp_path, "declare -p; declare -f; alias")
        assert ("hunter2x9" in all_of_it) is kept, rc


@pytest.mark.parametrize(
    ("rc", "file"),
    [
        (". ~/.extra", ".extra"),
        ('[ -f "$HOME/.extra" ] && source "$HOME/.extra"', ".extra"),
        ("for each in ~/.bashrc.d/*; do . $each; done", ".bashrc.d/one"),
        (". ${HOME}/.first", ".extra"),
    ],
)
def test_it_is_read_again_when_a_file_changes_that_it_reads(
    user: Path, tmp_path: Path, rc: str, file: str
) -> None:
    write(user / ".bashrc", rc + "\n")
    write(user / ".first", ". ~/.extra\n")
    write(user / file, "f() { echo one; }\n")
    assert said(user, tmp_path, "f") == "one"
    write(user / file, "f() { echo another; }\n")
    assert said(user, tmp_path, "f") == "another"


def test_aliases_that_ask_are_left_out(user: Path, tmp_path: Path) -> None:
    """An alias such as `rm -i` asks for a confirmation, which a model cannot give."""
    write(
        user / ".bashrc",
        "alias rm='rm -i' cp='cp -iv' mv='mv --interactive' ln='ln -v' grep='grep -i'\n",
    )
    assert said(user, tmp_path, "alias").splitlines() == [
        "alias grep='grep -i'",
        "alias ln='ln -v'",
    ]


def test_what_bash_sets_by_itself_is_as_it_sets_it(user: Path, tmp_path: Path) -> None:
    command = "declare -p HOSTNAME HOSTTYPE IFS MACHTYPE OPTERR OSTYPE PS4"
    fresh = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert said(user, tmp_path, command).splitlines() == fresh.stdout.splitlines()
    write(user / ".bashrc", "f() { :; }\n")
    assert said(user, tmp_path, command).splitlines() == fresh.stdout.splitlines()


def test_a_session_goes_on_when_the_set_up_changes(user: Path, tmp_path: Path) -> None:
    write(user / ".bashrc", "f() { echo one; }\n")
    with tool(user, tmp_path) as made:
        made.call({"command": "x=1"})
        write(user / ".bashrc", "f() { echo another; }\n")
        time.sleep(1.1)  # nacre notices a changed file within a second
        assert made.call({"command": "echo $x; f"}).text.startswith("1\none\n")
    assert said(user, tmp_path, "f") == "another"


def test_no_secret_by_name_or_value(user: Path, tmp_path: Path) -> None:
    write(
        user / ".bashrc",
        f"""\
        export GITHUB_TOKEN=abc DATABASE=postgres://me:secret@host/db PLAIN={TOKEN} FINE=yes
        api_key() {{ echo {TOKEN}; }}
        use() {{ echo "$MY_PASSWORD$other"; }}
        MY_PASSWORD=hunter2
        other={TOKEN}
        alias push='git push https://me:{TOKEN}@host'
        declare -A secrets=([a]={TOKEN})
        f() {{ echo "${{secrets[a]}}$lines${{names[x]}}"; }}
        lines=$'\\n{TOKEN}'
        declare -A names=([PASSWORD]=hunter2)
        login() {{ export GITHUB_TOKEN=hunter2; }}
        """,
    )
    with tool(user, tmp_path) as made:
        reply = made.call({"command": "declare -p; declare -f; alias; x=1"})
        assert 'FINE="yes"' in reply.text
        assert "use ()" in reply.text
        for secret in (TOKEN, "hunter2", "abc", "me:secret"):
            assert secret not in reply.text
        names = ("GITHUB_TOKEN", "MY_PASSWORD=", "DATABASE")
        assert not any(name in reply.text for name in names)
    for path in Path(os.environ["NACRE_HOME"]).rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes()


# Shortened output of `mise activate bash`: a function, and a hook before each prompt.
MISE = r"""
export MISE_SHELL=bash
mise() { command mise "$@"; }
_mise_hook() { eval "$(mise hook-env -s bash)"; }
if [[ ";${PROMPT_COMMAND[*]:-};" != *";_mise_hook;"* ]]; then PROMPT_COMMAND="_mise_hook"; fi
"""


@pytest.mark.parametrize("file", [".bashrc", ".bash_profile", ".profile"])
def test_a_version_manager_that_hooks_itself_into_the_prompt(
    user: Path, tmp_path: Path, file: str
) -> None:
    manager = user / "bin" / "mise"
    write(
        manager,
        """\
        #!/bin/bash
        case $1 in
          activate) cat "$HOME/activate.bash";;
          hook-env) [[ -f mise.toml ]] && echo "PATH='$HOME/installs/node/20/bin':\\"\\$PATH\\"";;
        esac
        """,
    )
    manager.chmod(0o755)
    write(user / "activate.bash", MISE)
    node = user / "installs" / "node" / "20" / "bin" / "node"
    write(node, "#!/bin/sh\necho v20\n")
    node.chmod(0o755)
    write(user / file, 'export PATH="$HOME/bin:$PATH"\neval "$(mise activate bash)"\n')
    project = tmp_path / "project"
    write(project / "mise.toml", "")
    assert said(user, project, "node; echo $MISE_SHELL") == "v20\nbash"
    other = tmp_path / "other"
    other.mkdir()
    assert said(user, other, "type -P node | grep -c installs") == "0"


def test_it_is_read_once_and_again_when_a_file_has_changed(user: Path, tmp_path: Path) -> None:
    write(user / ".bashrc", "echo x >> ~/read; alias a='echo one'\n")
    for _ in range(3):
        assert said(user, tmp_path, "a") == "one"
    assert (user / "read").read_text() == "x\n"
    write(user / ".bashrc", "echo x >> ~/read; alias a='echo twice'\n")
    assert said(user, tmp_path, "a") == "twice"
    assert (user / "read").read_text() == "x\nx\n"


# Seconds of sleep, different in each test worker. The environment of these processes does not
# show to which worker they belong.
SECONDS = f"63.{os.getpid():07d}"
HOSTILE = {
    "an empty one": ":",
    "one with odd functions": "f() { echo hi; } 2>/dev/null; g() { cat <<E\nf () \n{ \nE\n}",
    "one that is stopped": "kill -STOP $$",
    "one that hangs": f"sleep {SECONDS}",
    "one that waits for input": "read -r x < /dev/tty; read -r y; read -p 'continue? ' z",
    "one that ends": "exit 7",
    "one that becomes another program": f"exec sleep {SECONDS}",
    "one that kills itself": "kill -9 $$",
    "one with a syntax error": "if (",
    "one that fails under errexit": "set -e; false",
    "one that leaves things running": f"sleep {SECONDS} & disown; setsid sleep {SECONDS} &",
    "one that cannot be read": "",
}


@pytest.mark.alone
@pytest.mark.parametrize("rc", HOSTILE.values(), ids=HOSTILE)
def test_it_is_never_an_error_and_takes_two_seconds_at_most(
    user: Path, tmp_path: Path, rc: str
) -> None:
    write(user / ".bashrc", rc + "\n")
    if not rc:
        (user / ".bashrc").chmod(0)
    begin = time.monotonic()
    assert said(user, tmp_path, "x=1; echo here") == "here"
    assert time.monotonic() - begin < 8
    eventually(lambda: not named(SECONDS))


def test_it_can_be_turned_off(user: Path, tmp_path: Path) -> None:
    write(user / ".bashrc", "alias a='echo one'\n")
    given = {"PATH": os.environ["PATH"], "HOME": str(user)}
    with nacre.Tool("pi", cwd=tmp_path, env=given, options={"snapshot": False}) as made:
        assert made.call({"command": "alias; x=1"}).text.startswith("(no output)")
    with nacre.Tool(cwd=tmp_path, env=given, options={"snapshot": True}, session="s") as made:
        assert made.call({"command": "a"}).text == "one\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_give_their_path_and_what_they_export(
    user: Path, tmp_path: Path, shell: str
) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"NOT RUN: there is no {shell} here; install it to have this tried")
    write(user / ".zshrc", 'export PATH="$HOME/z:$PATH" THEIRS=yes MY_TOKEN=no\necho noise\n')
    write(
        user / ".config" / "fish" / "config.fish",
        "set -gx PATH $HOME/z $PATH\nset -gx THEIRS yes\nset -gx MY_TOKEN no\necho noise\n",
    )
    command = "echo ${PATH%%:*} $THEIRS ${MY_TOKEN-none}"
    assert said(user, tmp_path, command, SHELL=found) == f"{user}/z yes none"


@pytest.mark.parametrize("asks", ["waits a little", "waits for nothing"])
def test_reading_it_is_nothing_that_a_caller_has_waited_for(
    asks: str, user: Path, tmp_path: Path, home: Path
) -> None:
    write(user / ".bashrc", "sleep 1.1; greet() { echo hello; }\n")  # reading a set-up may take 2 s
    given = {"PATH": os.environ["PATH"], "HOME": str(user), "SHELL": "/bin/bash"}
    options = {"auto_background": 0.9 if asks == "waits a little" else None, "async": True}
    call = {"command": "greet; sleep 97", "async": asks == "waits for nothing"}
    ticked = 0

    async def meanwhile() -> None:
        nonlocal ticked
        while True:
            await asyncio.sleep(0.05)
            ticked += 1

    async def main() -> str:
        ticking = asyncio.create_task(meanwhile())
        with nacre.Tool("pi", cwd=tmp_path, env=given, options=options) as made:
            reply = await made.acall(call)
            ticking.cancel()
            return reply.text

    text = asyncio.run(main())
    expected = "hello\nBackground job" if asks == "waits a little" else "Background job"
    assert text.startswith(expected)
    assert ticked >= 4  # the event loop of the host kept running
    wardens.end(home, runs=True)
