"""The logger of everything that follows a training loop."""

import logging

LOGGER = logging.getLogger("bayplan.swap")
"""Changes of stage and policies are INFO, fallbacks WARNING; nothing is said of an iteration that goes as planned."""
