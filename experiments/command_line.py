"""The commands of `bayplan`: finds the one asked for, and turns every fault into one line of stderr and an exit code.

Exit codes: 0 done; 1 the answer is no (infeasible, violations, no plan within the limits, a failed cell of a sweep); 2
bad input. Three more are no answers: 70 a fault of Bayplan itself; 130 ended by Ctrl-C or SIGTERM; 141 stdout was
closed before the answer was there (as in `bayplan … | head`; shells know it as SIGPIPE).
"""

import os
import sys
from _thread import interrupt_main
from importlib import import_module
from threading import Timer

import click
from click.shell_completion import CompletionItem

from experiments.commands.interrupts import INTERRUPTED
from experiments.printable import printable
from solvers.ir.errors import BayplanError, InvalidInput
from solvers.ir.names import unknown

TRACEBACK = "BAYPLAN_TRACEBACK"
"""The environment variable that makes a fault of Bayplan show its Python traceback."""
FAULT, UNREAD, AGAIN_S = 70, 141, 0.01

COMMANDS = {
    "profile": "One real training step of your model as a graph file.",
    "calibrate": "Measure a device: a hardware file.",
    "make": "Make a problem file from a graph.",
    "solve": "Solve a problem; write the plan.",
    "check": "Judge a plan, independently of its solver.",
    "simulate": "What a plan would do: timeline, peak, stalls.",
    "solvers": "Solvers by kind of problem, and engines present.",
    "fit": "Will it fit: by technique, in bytes and in segments.",
    "pareto": "What memory costs: step over budget, and where swapping pays.",
    "compare": "One experiment: every solver planned, checked, executed.",
    "train": "Real training under a plan, and the same without.",
    "report": "The page of a run, made again from its folder.",
    "table": "The papers' tables and figures beside ours.",
    "completion": "What a shell needs to complete commands and settings.",
}
"""What `bayplan --help` says of each command, so that it imports none of them."""


class LazyCommands(click.Group):
    """Commands by name, each imported from `experiments.commands` when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of a user's work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; raises `InvalidInput` naming the nearest one."""
        if cmd_name not in COMMANDS:
            raise unknown("command", cmd_name, COMMANDS)
        command: click.Command = import_module(f"experiments.commands.{cmd_name}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names that begin so, without importing any of them."""
        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `bayplan --help`."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"bayplan {version('bayplan')}")
        except PackageNotFoundError:
            click.echo("bayplan, run from a checkout that is not installed")
        ctx.exit()


@click.command(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    epilog="Exit codes: 0 done; 1 the answer is no, or a cell of a sweep failed; 2 bad input; 70 a fault of Bayplan's "
    "own; 130 ended by Ctrl-C or SIGTERM. `bayplan COMMAND --help` explains a command.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def bayplan() -> None:
    """Training memory as a puzzle: state it, solve it with a proof, check the answer, run it."""


def run(command: click.Command, name: str, arguments: list[str]) -> int:
    """Run a command line; every fault becomes a line of stderr and an exit code, unless BAYPLAN_TRACEBACK is set."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # it was closed before the command began
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal without µ still gets its answer
            reconfigure(errors="backslashreplace")
    answered = UNREAD
    before, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        with command.make_context(name, arguments) as context:
            code = command.invoke(context)
        answered = code if isinstance(code, int) else 0
        sys.stdout.flush()
        return answered
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        return _say(_usage(error), 2)
    except BayplanError as error:
        return _say(str(error), 2 if isinstance(error, InvalidInput) else 1)
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:  # `bayplan … | head`: stop quietly, as the reader wanted
        return _silenced(answered)
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _silenced(answered)  # as rich ends a program whose reader has gone
    except OSError as error:
        return _silenced(_say(f"the system refused ({error}): free or choose the resource, then repeat", 2))
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        if _interrupted(error):
            return _say("interrupted", INTERRUPTED)
        return _say(_fault(error), FAULT)
    finally:
        sys.unraisablehook = before


def _unraisable(raised: "sys.UnraisableHookArgs") -> None:
    """Python drops what callbacks raise, where a Ctrl-C may come, too: let it come again when this has returned."""
    if issubclass(raised.exc_type, KeyboardInterrupt):
        again = Timer(AGAIN_S, interrupt_main)
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(raised)


def _say(sentence: str, code: int) -> int:
    """One line of stderr, whatever the sentence holds."""
    print(f"bayplan: {printable(' '.join(sentence.split()))}", file=sys.stderr)
    return code


def _usage(error: click.ClickException) -> str:
    """Click's complaint about a command line as one sentence with a remedy."""
    if isinstance(error, click.NoSuchOption):
        names = [name for option in _options(error.ctx) for name in option.opts]
        return str(unknown("flag", error.option_name, names))
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "bayplan"
    if isinstance(error, click.UsageError) and error.ctx and isinstance(error.ctx.command, LazyCommands):
        return f"no command is given: choose of {', '.join(COMMANDS)}"
    text = error.format_message().strip().rstrip(".")
    return f"{text[:1].lower()}{text[1:]}: see {command} --help"


def _options(ctx: click.Context | None) -> list[click.Option]:
    return [] if ctx is None else [option for option in ctx.command.get_params(ctx) if isinstance(option, click.Option)]


def _silenced(code: int) -> int:
    """Drop what stdout still holds: Python would try to write it again at its end, and complain on stderr."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # open until Python ends
    return code


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: a library's `finally` may put a fault of its own in the place of that."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _fault(error: Exception) -> str:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_globals.get('__name__')}:{place.tb_lineno}" if place is not None else "an unknown place"
    return f"a fault of Bayplan's own at {where} ({type(error).__name__}: {error}): report it with {TRACEBACK}=1 set"
