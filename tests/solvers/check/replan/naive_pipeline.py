"""1F1B told as a clock that ticks: stages, their fixed orders, and messages under way. A second reading of F5."""


def naive_pipeline_us(times: list[tuple[int, int]], microbatches: int, p2p_us: int) -> int:
    """The end of the last backward pass of (forward, backward) stage times, one microsecond at a time."""
    depth = len(times)
    orders = [limited_order(depth - stage, microbatches) for stage in range(depth)]
    done_at: dict[tuple[str, int, int], int] = {}
    busy_until = [0] * depth
    now = 0
    while any(orders):
        progress = True
        while progress:
            progress = False
            for stage, order in enumerate(orders):
                if order and busy_until[stage] <= now and _arrived(done_at, order[0], stage, depth, p2p_us, now):
                    kind, batch = order.pop(0)
                    busy_until[stage] = now + times[stage][kind == "B"]
                    done_at[kind, stage, batch] = busy_until[stage]
                    progress = True
        now += 1
    return max(done_at.values())


def limited_order(in_flight: int, microbatches: int) -> list[tuple[str, int]]:
    """At most `in_flight` forwards ahead of their backwards; whenever the limit is reached, a backward comes first."""
    order: list[tuple[str, int]] = []
    forwards = backwards = 0
    while backwards < microbatches:
        if forwards < microbatches and forwards - backwards < in_flight:
            order.append(("F", forwards))
            forwards += 1
        else:
            order.append(("B", backwards))
            backwards += 1
    return order


def _arrived(
    done_at: dict[tuple[str, int, int], int], what: tuple[str, int], stage: int, depth: int, p2p_us: int, now: int
) -> bool:
    kind, batch = what
    if kind == "F":
        return stage == 0 or done_at.get(("F", stage - 1, batch), now + 1) + p2p_us <= now
    if stage == depth - 1:
        return done_at.get(("F", stage, batch), now + 1) <= now
    return done_at.get(("B", stage + 1, batch), now + 1) + p2p_us <= now
