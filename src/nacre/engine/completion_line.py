"""The words at the end of an output file that say how its command ended."""

from nacre.model.outcome import Ending, Exited, Lost, NotStarted, ending_signal, exit_status
from nacre.model.plan import CompletionLine
from nacre.model.signals import signal_name


def fill(line: CompletionLine, ending: Ending) -> bytes:
    return _choose_text(line, ending).encode()


def _choose_text(line: CompletionLine, ending: Ending) -> str:
    if ending == Exited(0):
        return line.zero
    if (signal := ending_signal(ending)) is not None:
        text = line.killed.replace("{number}", str(signal))
        return text.replace("{name}", signal_name(signal))
    if (code := exit_status(ending)) is not None:
        return line.exited.replace("{code}", str(code))
    match ending:
        case NotStarted(why=why):
            return line.error.replace("{why}", str(why))
        case Lost():
            return line.error.replace(
                "{why}", "nobody was there when it ended; its exit code is not known"
            )
        case _:
            return line.error.replace("{why}", "it could not be killed")
