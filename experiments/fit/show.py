"""The answer for people: one table, and under it what each technique's peak is made of."""

from collections.abc import Iterator

from experiments.commands.show import print_figures, print_table
from experiments.fit.answer import Answer, Row, Where
from solvers.ir.amounts import show_bytes

HEADERS = ("technique", "fits", "allocated", "reserved", "margin", "least device", "host", "step")
MIB = 1 << 20
ATTENTION = {
    "unfused": "unfused: scores and probabilities of every layer stand in memory; --attention flash is without them",
    "flash": "flash: one kernel; neither scores nor probabilities stand in memory",
}
"""What a shape's attention means for memory."""
MOST_SIZES = 4


def show(answer: Answer) -> None:
    """Print it all on stdout."""
    outside = answer.outside
    print_figures(
        answer.name,
        [
            ("device", f"{answer.hardware}, {show_bytes(answer.device_bytes)}"),
            ("outside tensors", f"{show_bytes(outside.bytes)}{_parts(answer)}: {outside.sentence}"),
            ("budget", f"{show_bytes(answer.budget_bytes)}, {answer.budget_how}"),
            ("allocator", f"PyTorch's rules, {'expandable' if answer.expandable else 'fixed'} segments (modelled)"),
            ("source", answer.source),
            *([] if answer.attention is None else [("attention", ATTENTION[answer.attention])]),
        ],
    )
    print_table(
        "bytes in MiB: allocated / in segments (modelled); fits and margin: in segments; nothing ran on a GPU",
        HEADERS,
        [_cells(row) for row in answer.rows],
    )
    for row in answer.rows:
        print_figures(row.name, list(_figures(row)))


def _parts(answer: Answer) -> str:
    parts = ", ".join(f"{name} {size / MIB:.0f}" for name, size in answer.outside.parts.items())
    return f" ({parts} MiB)" if len(answer.outside.parts) > 1 else ""


def _cells(row: Row) -> tuple[str, ...]:
    if row.allocated_bytes is None and row.fits is None:
        return (row.name, "unknown", *["-"] * (len(HEADERS) - 2))
    return (
        row.name,
        _fits(row),
        _mib(row.allocated_bytes),
        _mib(row.reserved_bytes),
        "-" if row.margin_reserved_bytes is None else f"{row.margin_reserved_bytes / MIB:+.1f}",
        f"{_mib(row.least_allocated_bytes)} / {_mib(row.least_reserved_bytes)}",
        _mib(row.host_bytes),
        "-" if row.step_us is None else f"{row.step_us / 1000:.3f} ms",
    )


def _fits(row: Row) -> str:
    if row.fits is None:
        return "in bytes"
    if row.fits:
        said = "yes" if not row.retries else "yes, after retries"
    else:
        said = "no: fragmented" if row.fits_allocated else "no"
    return f"{said}, by estimate" if row.estimated else said


def _mib(amount: int | None) -> str:
    return "-" if amount is None else f"{amount / MIB:.1f}"


def _figures(row: Row) -> Iterator[tuple[str, str | None]]:
    yield "what", row.what
    if row.reason is not None:
        yield "not known" if row.fits is None else "why not", row.reason
        return
    yield "how", row.how
    if row.step_how is not None:
        yield "step", f"{row.step_us} µs, {row.step_how}"
    if row.asked:
        by = row.least_reserved_solver
        least = "" if by is None else f"; the least in segments is of a plan of {by}"
        yield "planned by", f"{row.solver}; plans were tried of {', '.join(row.asked)}{least}"
    if row.segments and row.reserved_bytes is not None:
        yield "segments", f"{show_bytes(row.reserved_bytes)}: {_made_of(row.segments)}"
    if row.technique == "session" and row.host_bytes is not None:
        yield "host memory", f"{show_bytes(row.host_bytes)}; at least {show_bytes(row.least_host_bytes)}"
    if row.technique == "swap" and row.host_bytes is not None and row.host_rounded_bytes is not None:
        rounded = f"{show_bytes(row.host_rounded_bytes)} if page-locked blocks are rounded to powers of two (modelled)"
        yield "host memory", f"{show_bytes(row.host_bytes)}, {rounded}; at least {show_bytes(row.least_host_bytes)}"
    if row.peak is not None:
        yield "peak", f"{show_bytes(row.peak.bytes)} in {_operator(row.peak)}"
        for kind, size in row.peak.bytes_by_kind.items():
            if size:
                yield f"  {kind}", f"{show_bytes(size)}, {100 * size / row.peak.bytes:.1f} %"
    for remark in row.remarks:
        yield "remark", remark


def _made_of(segments: tuple[tuple[int, int], ...]) -> str:
    """Sizes and how many of each; of many sizes the largest, and the rest together."""
    told = [f"{count} of {size / MIB:g} MiB" for size, count in segments[:MOST_SIZES]]
    rest = segments[MOST_SIZES:]
    others = (
        f"{sum(count for _, count in rest)} smaller ones of {sum(size * count for size, count in rest) / MIB:g} MiB"
    )
    return ", ".join([*told, *([others] if rest else [])])


def _operator(peak: Where) -> str:
    return peak.operator if peak.number is None else f"{peak.operator}, operator {peak.number} ({peak.phase})"
