"""One module a page, and the table of all in `console/routes.py`."""
