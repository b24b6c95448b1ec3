"""Build the documentation site in build/site (`make docs-site`).

The pages are copied into build/site-source first, with the directories of the repository, so that
every relative link works. zensical fails on a link to a page that does not exist. This script then
checks that the site loads nothing from another host: it has to work without a network.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"
# Elements that a browser loads when it shows a page. A link in the text is not one of them.
_REMOTE = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(https?:)?//[^>]*>"""
    r"""|<link\b(?![^>]*\brel=["']?canonical)[^>]*\bhref=["']?(https?:)?//[^>]*>"""
    r"""|@import\s+url\(["']?(https?:)?//[^)]*\)|\burl\(["']?https?://[^)]*\)"""
)


def main() -> int:
    copy_pages()
    missing = pages_outside_navigation()
    if missing:
        print(f"zensical.toml has no entry in nav for: {', '.join(missing)}", file=sys.stderr)
        return 1
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run([program, "build", "--clean", "--strict"], cwd=ROOT)
    if done.returncode:
        return done.returncode
    remote = list(find_remote_resources())
    for each in remote:
        print(f"loaded from another host: {each}", file=sys.stderr)
    return 1 if remote else 0


def copy_pages() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE / "docs")
    shutil.copytree(
        ROOT / "examples", SOURCE / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copyfile(ROOT / "README.md", SOURCE / "index.md")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copyfile(ROOT / name, SOURCE / name)
    for page in SOURCE.rglob("*.md"):
        page.write_text(indent_lists(page.read_text()))


def indent_lists(text: str) -> str:
    """Indent the inner lines of list items by four columns, as Python's Markdown requires.

    The pages use two columns under a bullet and three under a number, as GitHub requires.
    """
    lines, code = [], False
    for line in text.split("\n"):
        if line.startswith("```"):
            code = not code
        inner = 0 if code else 3 if re.match(r" {3}\S", line) else 2 if line[:2] == "  " else 0
        lines.append("    " + line[inner:] if inner else line)
    return "\n".join(lines)


def pages_outside_navigation() -> list[str]:
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    listed = set(re.findall(r"[\w./-]+\.md", str(navigation)))
    pages = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.md")}
    return sorted(pages ^ listed)


def find_remote_resources() -> list[str]:
    found = []
    for path in [*SITE.rglob("*.html"), *SITE.rglob("*.css")]:
        for match in _REMOTE.finditer(path.read_text()):
            found.append(f"{path.relative_to(SITE)}: {match[0][:120]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
