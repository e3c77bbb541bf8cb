"""Whether a training step fits a device: for every technique, in allocated and in reserved bytes, before it is rented.

Nothing here is executed on a GPU; what is run is run on the simulated device.
"""
