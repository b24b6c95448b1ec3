"""`nacre doctor`: check this machine and print one line for each topic, with a remedy for problems.

After the checks, `nacre doctor` prints the settings that do not have their default value; `--all`
prints all settings.
"""

import argparse
import os
import platform
import pty
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import msgspec

from nacre import __version__, settings
from nacre.contracts import registry
from nacre.frontends.cli.common import print_line
from nacre.model.plan import BASH
from nacre.prepare.git_trailers import FIRST_WITH_TRAILERS
from nacre.process import rlimits, run_tag
from nacre.process.own_process import become_subreaper, landlock_version
from nacre.procfs import processes
from nacre.store import run_owner
from nacre.store.state_dir import check_private, describe_os_error, state_dir
from nacre.text.clean import human_size
from nacre.warden import endpoint


class Diagnosis(NamedTuple):
    topic: str
    text: str
    remedy: str | None = None  # how to fix the problem that the check found; None: no problem
    essential: bool = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="D", help="directory (default: the current one)")
    parser.add_argument(
        "--all", action="store_true", help="also list settings that have their default value"
    )


def main(options: argparse.Namespace) -> int:
    findings = list(examine())
    for finding in findings:
        mark = "ok " if finding.remedy is None else "NO " if finding.essential else "-- "
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        print_line(f"{mark} {finding.topic:<12} {finding.text}{remedy}")
    try:
        here = os.path.abspath(os.fsencode(options.cwd or os.getcwd()))
    except OSError:
        print_line("NO  directory    the current directory was deleted; change to another one")
        return 1
    problem = _show_settings(here, everything=options.all)
    return 1 if problem or any(each.remedy and each.essential for each in findings) else 0


def _show_settings(here: bytes, *, everything: bool) -> bool:
    """Print the settings of each contract (tool dialect) with their origins; return whether a
    setting is invalid."""
    files = (settings.workspace_file(here), settings.user_file())
    found = [f"{each}{'' if os.path.exists(each) else ' (missing)'}" for each in files]
    print_line(f"\nsettings, from {' and '.join(found)}")
    try:
        loaded = {name: settings.load(name, here, {}) for name in registry.contract_names()}
        tables = {name: each.options for name, each in loaded.items()}
        tables["store"] = next(iter(loaded.values())).store
        rows = [
            (f"{name}.{key}", each)
            for name, table in tables.items()
            for key, each in table.items()
            if everything or each.origin != settings.DEFAULT
        ]
    except ValueError as error:
        print_line(f"NO  {error}")
        return True
    for key, each in rows:
        value = msgspec.json.encode(each.value).decode()
        print_line(f"    {key:<24} {value:<30} {each.origin}")
    if not everything:
        print_line(
            f"    {'all' if not rows else 'the others'} have their default value; --all lists them"
        )
    return False


def examine() -> Iterator[Diagnosis]:
    """Run every check of `nacre doctor`; a check that raises an exception gives a diagnosis,
    too."""
    for about, check in _CHECKS.items():
        try:
            yield check()
        except (OSError, subprocess.SubprocessError, RuntimeError) as error:
            yield Diagnosis(about, str(error), "see the message")


def _nacre() -> Diagnosis:
    version = platform.python_version()
    return Diagnosis("nacre", f"{__version__}, Python {version}, {platform.release()}")


def _bash() -> Diagnosis:
    path = os.fsdecode(BASH)
    if not os.access(path, os.X_OK):
        return Diagnosis("bash", f"{path} is missing", "install bash, or link it there")
    asked = subprocess.run([path, "-c", "echo $BASH_VERSION"], capture_output=True, timeout=10)
    return Diagnosis("bash", f"{path} {asked.stdout.decode().strip()}")


def _git() -> Diagnosis:
    path = shutil.which("git")
    if path is None:
        return Diagnosis(
            "git", "is missing", "install git to have commit trailers", essential=False
        )
    version_text = subprocess.run(
        [path, "version"], capture_output=True, timeout=10
    ).stdout.decode()
    found = re.search(r"(\d+)\.(\d+)", version_text)
    if found and (int(found[1]), int(found[2])) < FIRST_WITH_TRAILERS:
        remedy = "install 2.32 or later to have commit trailers"
        return Diagnosis("git", version_text.strip(), remedy, essential=False)
    return Diagnosis("git", f"{version_text.strip()} can add trailers to commits")


def _processes() -> Diagnosis:
    if processes.read_process(os.getpid()) is None:
        return Diagnosis("processes", "/proc cannot be read", "mount /proc, without hidepid")
    if not hasattr(os, "pidfd_open"):
        return Diagnosis("processes", "no pidfd_open", "use Linux 5.3 or later")
    os.close(os.pidfd_open(os.getpid()))
    return Diagnosis(
        "processes", "/proc and pidfds work: a signal reaches exactly the process that it is for"
    )


def _escapees() -> Diagnosis:
    if run_tag.new_tag() is None:
        remedy = "raise the hard limit (ulimit -Hx unlimited)"
        return Diagnosis("escapees", "the limit on file locks is too low for run tags", remedy)
    if not become_subreaper():
        return Diagnosis("escapees", "cannot be the subreaper", "allow prctl in the container")
    says = "run tags and subreaper work"
    if not os.access("/usr/bin/prlimit", os.X_OK):
        remedy = "install util-linux: hosts with threads need prlimit to tag in time"
        return Diagnosis("escapees", says, remedy, essential=False)
    return Diagnosis("escapees", f"{says}: the process tree of a stopped command is ended")


def _terminals() -> Diagnosis:
    ours, theirs = pty.openpty()
    os.close(ours)
    os.close(theirs)
    return Diagnosis("terminals", "a pseudo-terminal can be opened")


def _sandbox() -> Diagnosis:
    namespaces = Path("/proc/self/ns/user").exists()
    landlock = landlock_version() > 0
    bwrap = shutil.which("bwrap")
    offered = [
        name
        for name, there in (
            ("user namespaces", namespaces),
            ("Landlock", landlock),
            ("bubblewrap", bwrap),
        )
        if there
    ]
    says = ", ".join(offered) or "nothing found"
    remedy = None if bwrap else "install bubblewrap to have one (commands run without it)"
    return Diagnosis("sandbox", says, remedy, essential=False)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _descriptors() -> Diagnosis:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    says = f"{soft} at once (at most {'any number' if hard < 0 else hard})"
    if 0 <= soft < 256:
        return Diagnosis(
            "descriptors", says, "raise ulimit -n: commands will queue", essential=False
        )
    return Diagnosis("descriptors", says)


def _pipes() -> Diagnosis:
    most = int(_text("/proc/sys/fs/pipe-max-size") or 0)
    if most < 1024 * 1024:
        remedy = "raise fs.pipe-max-size to 1048576 for faster floods"
        return Diagnosis("pipes", f"grow to {human_size(most)}", remedy, essential=False)
    return Diagnosis("pipes", f"grow to {human_size(most)}")


def _state() -> Diagnosis:
    remedy = "set NACRE_HOME to a directory that can be written"
    try:
        if os.path.isdir(state_dir()):
            check_private(state_dir())
        return _writable("state", Path(state_dir()), remedy)
    except OSError as error:
        return Diagnosis("state", describe_os_error(error), remedy)


def _warden() -> Diagnosis:
    """Check whether a warden (nacre's daemon) runs, and whether it has the namespaces and the
    cgroup of this process, and hard resource limits that are not lower."""
    try:
        signed = run_owner.parse_owner(endpoint.read_owner() or "")
    except OSError as error:
        return Diagnosis("warden", str(error), "see state, above", essential=False)
    if signed is None or not signed.is_alive:
        return Diagnosis("warden", "not running; nacre starts it when a command outlives its call")
    says = f"process {signed.pid}"
    theirs = [
        each for each in _NAMESPACES if _namespace("self", each) != _namespace(signed.pid, each)
    ]
    if _text("/proc/self/cgroup") != _text(f"/proc/{signed.pid}/cgroup"):
        theirs.append("cgroup")
    if any(
        _has_lower_hard_limit(ours, them)
        for ours, them in zip(rlimits.read_rlimits(), _limits(signed.pid), strict=False)
    ):
        remedy = (
            "its hard limits are lower than this shell's, and so are its commands'; end it with"
        )
        return Diagnosis("warden", says, f"{remedy} kill {signed.pid}", essential=False)
    if theirs:
        remedy = (
            f"what runs there is in another {' and '.join(theirs)} than this shell; end it with"
        )
        return Diagnosis("warden", says, f"{remedy} kill {signed.pid}", essential=False)
    return Diagnosis("warden", says)


def _limits(pid: int) -> list[tuple[int, int]]:
    return [resource.prlimit(pid, number) for number in rlimits.LIMIT_NUMBERS]


def _has_lower_hard_limit(ours: tuple[int, int], theirs: tuple[int, int]) -> bool:
    return theirs[1] != -1 and (ours[1] == -1 or theirs[1] < ours[1])


_NAMESPACES = ("mnt", "net", "pid", "user", "uts", "ipc")


def _namespace(pid: int | str, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{name}")
    except OSError:
        return ""


def _temporary() -> Diagnosis:
    where = Path(tempfile.gettempdir())
    return _writable("temporary", where, "set TMPDIR to a directory that can be written")


def _mcp() -> Diagnosis:
    try:
        return Diagnosis("mcp", f"SDK {version('mcp')}, for nacre mcp")
    except PackageNotFoundError:
        remedy = "pip install 'mcp>=2.3,<3'"
        return Diagnosis("mcp", "no SDK, so no nacre mcp", remedy, essential=False)


def _writable(about: str, path: Path, remedy: str) -> Diagnosis:
    """Check whether files can be created in a directory that may not exist yet."""
    nearest = next(each for each in (path, *path.parents) if each.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        return Diagnosis(about, f"{path} cannot be written", remedy)
    usage = shutil.disk_usage(nearest)
    # In a file system of size 0, such as /proc, even root cannot create files, although access(2)
    # says that root may.
    if not usage.total:
        return Diagnosis(about, f"{path} cannot be written", remedy)
    free = human_size(usage.free)
    return Diagnosis(about, f"{path}, {free} free")


_CHECKS: dict[str, Callable[[], Diagnosis]] = {
    "nacre": _nacre,
    "bash": _bash,
    "git": _git,
    "processes": _processes,
    "escapees": _escapees,
    "terminals": _terminals,
    "sandbox": _sandbox,
    "descriptors": _descriptors,
    "pipes": _pipes,
    "state": _state,
    "warden": _warden,
    "temporary": _temporary,
    "mcp": _mcp,
}
