"""Importing an SDK that may not be installed."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def require(package: str) -> Iterator[None]:
    """Around an import, so that what is missing is named as one installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        problem = f"this needs the package {package}; install it with: pip install {package}"
        raise ModuleNotFoundError(problem, name=error.name) from None
