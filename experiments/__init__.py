"""Entry points, configurations, rows, tables and pictures; nothing here decides or executes a plan itself."""
