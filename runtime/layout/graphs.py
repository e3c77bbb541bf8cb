"""Graphs of forwards whose backward pass has not come: what they saved lies where the layout of now has it."""

from weakref import WeakSet

from runtime.layout.gradients import graph_is_kept


class Graph:
    """Of one forward: held by the hooks of its results, so that it lives as long as these do."""

    def __init__(self) -> None:
        self.consumed = False


class Graphs:
    """Those that are there, and the most that were at once."""

    def __init__(self) -> None:
        self._there = WeakSet[Graph]()
        self.most = 0

    def begin(self) -> Graph:
        """A forward that trains begins."""
        self.most = max(self.most, self.waiting + 1)
        graph = Graph()
        self._there.add(graph)
        return graph

    @property
    def waiting(self) -> int:
        """How many there are through which no backward pass went that let them go."""
        return sum(not one.consumed for one in self._there)

    def goes_back(self, graph: Graph) -> None:
        """A backward pass goes through this one now."""
        graph.consumed = not graph_is_kept()
