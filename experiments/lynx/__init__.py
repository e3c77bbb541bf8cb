"""The tables and figures of the Lynx paper: what `conf/table/lynx-*.yaml` names as compute functions."""
