"""Command-line arguments that several `nacre` commands share, and the functions that parse them."""

import argparse

from nacre.contracts import registry


def add_contract_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--contract",
        default=registry.DEFAULT,
        metavar="C",
        help=f"one of {', '.join(registry.contract_names())} (default {registry.DEFAULT})",
    )


def add_session_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--session", metavar="NAME", help="name of a persistent shell (contracts nacre and pi)"
    )


def add_caller_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tools",
        default="",
        metavar="a,b",
        help="other tools of the agent, for interception (option intercept of pi)",
    )
    add_option_arguments(parser)


def add_option_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the contract (nacre doctor --all lists them); may be repeated",
    )


def seconds(text: str) -> float:
    """Parse a number of seconds; argparse shows the name of this function in its error message."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def lines(text: str) -> int:
    """Parse a number of lines; argparse shows the name of this function in its error message."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number
