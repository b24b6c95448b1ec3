"""Helper for importing an agent SDK that may not be installed."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def require(package: str) -> Iterator[None]:
    """Wrap an import so that the error for a missing package says how to install the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        problem = f"this needs the package {package}; install it with: pip install {package}"
        raise ModuleNotFoundError(problem, name=error.name) from None
