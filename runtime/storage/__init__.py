"""Storages that leave the device and return, and the page-locked host memory that holds them meanwhile."""
