"""A pipeline of stages on a cluster, planned by every system and compared: `bayplan compare experiment=lynx`."""
