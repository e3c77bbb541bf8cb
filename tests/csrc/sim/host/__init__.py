"""The host's own work: tasks that take time, accesses to page-locked memory."""
