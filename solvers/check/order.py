"""What must happen before what in a schedule, however long its actions take."""

from collections import defaultdict

from solvers.ir.schedule import Action, Schedule


class HappensBefore:
    """Vector clocks: for each action, how many actions of each lane have surely ended before it starts."""

    def __init__(self, schedule: Schedule) -> None:
        self.place: dict[int, tuple[str, int]] = {}
        self.clock: dict[int, dict[str, int]] = {}
        latest: dict[str, int] = {}
        counts: dict[str, int] = defaultdict(int)
        for action in schedule.order():
            befores = [*action.after, *([latest[action.lane]] if action.lane in latest else [])]
            clock: dict[str, int] = {}
            for before in befores:
                lane, number = self.place[before]
                for name, value in {**self.clock[before], lane: number}.items():
                    clock[name] = max(clock.get(name, 0), value)
            counts[action.lane] += 1
            self.place[action.id] = action.lane, counts[action.lane]
            self.clock[action.id] = clock
            latest[action.lane] = action.id

    def __call__(self, first: Action, second: Action) -> bool:
        """Whether `first` has surely ended before `second` starts."""
        lane, number = self.place[first.id]
        return self.clock[second.id].get(lane, 0) >= number
