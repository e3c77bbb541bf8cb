"""`recompute-graph` (Lynx-OPT): when each op of a whole graph is computed again, and what is kept until when."""
