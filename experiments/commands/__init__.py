"""The commands of `bayplan`, one a file; each module's `command` is imported only when it runs."""
