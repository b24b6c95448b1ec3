"""The words at the end of an output file that say how its command ended."""

from nacre.model.outcome import Cancelled, Ending, Exited, Killed, Lost, NotStarted, TimedOut
from nacre.model.plan import CompletionLine
from nacre.model.signals import signal_name


def fill(epitaph: CompletionLine, ending: Ending) -> bytes:
    return _choose_text(epitaph, ending).encode()


def _choose_text(epitaph: CompletionLine, ending: Ending) -> str:
    match ending:
        case Exited(0):
            return epitaph.zero
        case Exited(code) | TimedOut(how=Exited(code)) | Cancelled(how=Exited(code)):
            return epitaph.exited.replace("{code}", str(code))
        case Killed(number) | TimedOut(how=Killed(number)) | Cancelled(how=Killed(number)):
            words = epitaph.killed.replace("{number}", str(number))
            return words.replace("{name}", signal_name(number))
        case NotStarted(why=why):
            return epitaph.error.replace("{why}", str(why))
        case Lost():
            return epitaph.error.replace(
                "{why}", "nobody was there when it ended; its exit code is not known"
            )
        case _:
            return epitaph.error.replace("{why}", "it could not be killed")
