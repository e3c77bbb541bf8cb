"""The page of a run: one HTML file made from what the run's folder holds, by `bayplan report` and at each run's end."""
